"""Tables without a key: the copy equals the table at the copy's position."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fix_mirror import table_on
from fix_pipeline import DESTINATION
from fix_source_access import access_of

from canal_server.errors import SourceError
from canal_server.runtime.lifecycle import Stop

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("yaml", reason="the extra `mirror` is not installed")

import pyarrow as pa
import pyarrow.parquet as pq
from some_settings import settings_for

from canal_server.mirror.copy import keyless_copy
from canal_server.mirror.copy.copy_files import CopyTask
from canal_server.mirror.copy.keyless_copy import copy_keyless
from canal_server.mirror.lake.keyless import row_hashes
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.rows.copy_positions import latest
from canal_server.mirror.session.spark_session import table_options
from canal_server.mirror.settings.mirror_settings import CopySettings, LakeSettings
from canal_server.spark.columns.spark_schema import packed_schema
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel
from canal_server.spark.packed.packed_rows import unpack
from canal_server.spark.reading.range_tasks import Range, cut
from canal_server.spark.row_batches import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fix_pipeline import Pipeline

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.state.manifests import ChunkManifest

_SIGN = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}


class Copies:
    """A table without a key, and copies of it."""

    def __init__(self, pipeline: Pipeline, lake: Path) -> None:
        self.source, self.schema = pipeline.source, pipeline.schema
        self.source.execute(f"CREATE TABLE {self.schema}.t (a INT, b VARCHAR(20))")
        self.table = table_on(self.source, self.schema, "t")
        self.settings = settings_for(pipeline, lake)
        self.folder = open_folder(LakeSettings(path=str(lake / "t")))
        self.manifests = open_folder(LakeSettings(path=str(lake / "m")))

    def copy(self, **settings: Any) -> tuple[ChunkManifest, RangePosition]:
        """Copy the table; `settings` are of the section copy."""
        task = CopyTask(
            access=access_of(self.source),
            table=self.table,
            copy_id="c",
            seq=1,
            folder=self.folder,
            manifests=self.manifests,
        )
        changed = replace(self.settings, copy=CopySettings(**settings))
        return copy_keyless(changed, task, Stop(), lambda _: None)

    def copied(self, manifest: ChunkManifest) -> pa.Table:
        """Return the rows of a copy."""
        folder = str(self.folder)
        return pa.concat_tables(
            [pq.read_table(f"{folder}/{file.path}") for file in manifest.files]
        )

    def changes(self, start: RangePosition) -> Counter[tuple[object, ...]]:
        """Return by how much the count of each row changed since a position."""
        options = table_options(self.settings, self.table.source)
        channel = Channel(options, DESTINATION)
        whole = Range(DESTINATION, start, latest(self.settings, channel))
        found: Counter[tuple[object, ...]] = Counter()
        for part in cut(channel, options, whole, None):
            for batch in read_rows(options, packed_schema(), part):
                for item in unpack(pa.Table.from_batches([batch])):
                    if item.kind == "rows":
                        assert item.data is not None
                        for row in item.data.to_pylist():
                            key = row["a"], row["b"]
                            found[key] += _SIGN[row["_change_type"]]
        channel.close()
        return found

    def truth(self) -> Counter[tuple[object, ...]]:
        """Return how often the table has each row."""
        return Counter(self.source.execute(f"SELECT a, b FROM {self.schema}.t"))


@pytest.fixture
def copies(pipeline: Pipeline, tmp_path: Path) -> Copies:
    """Give a table of MySQL, and of MariaDB."""
    return Copies(pipeline, tmp_path / "lake")


@pytest.fixture
def writers(copies: Copies) -> Iterator[Callable[[float], None]]:
    """Give `start(pause_s)`: a writer to the table until the test ends."""
    end, threads = threading.Event(), []

    def write(pause_s: float, number: int) -> None:
        name = f"{copies.schema}.t"
        with copies.source.connect() as connection, connection.cursor() as cursor:
            while True:
                number += 1
                cursor.execute(f"INSERT INTO {name} VALUES ({number % 7}, 'x')")
                cursor.execute(f"UPDATE {name} SET b = 'y' WHERE a = 3 LIMIT 1")
                cursor.execute(f"DELETE FROM {name} WHERE a = 5 LIMIT 1")
                if end.wait(pause_s):
                    return

    def start(pause_s: float) -> None:
        for number in range(2):
            threads.append(threading.Thread(target=write, args=(pause_s, number)))
            threads[-1].start()

    yield start
    end.set()
    for thread in threads:
        thread.join()


def rows_of(table: pa.Table) -> Counter[tuple[object, ...]]:
    """Return how often a copy has each row."""
    return Counter((row["a"], row["b"]) for row in table.to_pylist())


def test_a_quiet_table(copies: Copies) -> None:
    """Equal rows are counted and hashed, as of the returned position."""
    copies.source.execute(
        f"INSERT INTO {copies.schema}.t VALUES (1, 'x'), (1, 'x'), (NULL, NULL)"
    )
    manifest, position = copies.copy()
    found = copies.copied(manifest)
    assert rows_of(found) == copies.truth()
    assert set(found["_seq"].to_pylist()) == {version_of(position)}
    assert found["_row_hash"] == pa.chunked_array([row_hashes(found)])
    copies.source.execute(f"INSERT INTO {copies.schema}.t VALUES (2, 'later')")
    assert copies.copy() == (manifest, position)  # it is done
    assert rows_of(found) + copies.changes(position) == copies.truth()


def test_a_table_that_is_written_to(
    copies: Copies, writers: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A moment between two changes is found, and nothing is lost or doubled."""
    monkeypatch.setattr(keyless_copy, "TRIES", 1000)
    monkeypatch.setattr(keyless_copy, "PAUSE_MAX_S", 0.05)
    monkeypatch.setattr(keyless_copy, "PAUSE_S", 0.01)
    writers(1.0)
    _check_exact(copies)


def test_writers_wait_for_a_moment(
    copies: Copies, writers: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no moment is found, the table is locked for one if that is allowed."""
    monkeypatch.setattr(keyless_copy, "TRIES", 2)
    monkeypatch.setattr(keyless_copy, "PAUSE_S", 0.0)
    writers(0.001)
    with pytest.raises(SourceError, match=r"copy\.keyless_lock = true"):
        copies.copy()
    user = copies.source.user
    with pytest.raises(SourceError, match="GRANT LOCK TABLES ON"):
        _check_exact(copies, keyless_lock=True)
    copies.source.execute(f"GRANT LOCK TABLES ON {copies.schema}.* TO '{user}'@'%'")
    _check_exact(copies, keyless_lock=True)


def _check_exact(copies: Copies, **settings: Any) -> None:
    copies.source.execute(f"INSERT INTO {copies.schema}.t VALUES (9, 'before')")
    manifest, position = copies.copy(**settings)
    found = rows_of(copies.copied(manifest))
    with copies.source.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLES {copies.schema}.t READ")
        found.update(copies.changes(position))
        assert {row: n for row, n in found.items() if n} == copies.truth()
    print(f"{sum(found.values())} rows, {manifest.rows} of them copied")


@pytest.mark.parametrize(
    "column", ["a BIGINT", "b VARCHAR(20) CHARACTER SET utf16", "b VARCHAR(21)"]
)
def test_columns_that_changed(copies: Copies, column: str) -> None:
    """A copy that was started with other columns is not resumed."""
    copies.source.execute(f"ALTER TABLE {copies.schema}.t MODIFY {column}")
    with pytest.raises(SourceError, match=f"column {column[0]} was .* and is now"):
        copies.copy()
