"""What a comparison by keys alone suspects, and when tables are compared."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fix_mirror import table_on
from fix_source_access import access_of

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from canal_server.errors import SourceError
from canal_server.mirror.follow.recheck import Recheck
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.state.lake_tables import lake_schema, open_table
from canal_server.runtime.lifecycle import Deadline, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from canal_server.mirror.settings.table_values import MirrorTable, TableName

PATIENCE_S = 60.0
PAUSED_S_MAX = 1e6
COPY = "c1"
TEXT = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: %s}
tables: [{match: '.*'}]
"""


class Here(Recheck):
    """Compares in a database without canal-server: the source's position is given."""

    head = 100
    refusals = 0  # of comparisons to come
    compared = 0

    def _locate(self, name: TableName, request: Any) -> None:
        del name
        request.head = self.head

    def _compare(self, name: TableName) -> None:
        if self.refusals:
            self.refusals -= 1
            raise SourceError("it does not answer")
        super()._compare(name)
        self.compared += 1


class Scene:
    """A table of a source and its copy."""

    def __init__(self, server: Any, schema: str, folder: Any, deletes: str) -> None:
        server.execute(
            f"USE {schema}",
            "CREATE TABLE t (x INT, y VARCHAR(9), p INT, v INT, PRIMARY KEY (x, y))",
            "INSERT INTO t VALUES (1, 'a', 1, 1), (2, 'b', NULL, 2), (3, 'c', 3, 3)",
        )
        self.server, self.schema = server, schema
        settings = read(TEXT % folder, "m.yml", {})
        source = replace(settings.source, access=access_of(server))
        settings = replace(settings, source=source)
        self.table: MirrorTable = table_on(server, schema, "t", deletes=deletes)
        self.lake = open_table(settings, self.table)
        self.lake.publish(COPY, lake_schema(self.table), [], 100, {})
        self.seq = 100
        self.position = 0
        self.found: list[tuple[object, ...]] = []
        self.stop = Stop()
        self.now_s = 0.0
        self.asked = 0  # how often the position was asked for
        self.recheck = Here(
            settings,
            self.stop,
            table_of=lambda _: (self.table, ("x", "y", "p")),
            position=self._position,
            suspect=self._suspect,
            pause_s=0.0,
            now=lambda: self.now_s,
        )

    def _position(self) -> int:
        self.asked += 1
        return self.position

    def _suspect(self, _: TableName, keys: pa.Table) -> None:
        self.found += zip(*keys.to_pydict().values(), strict=True)

    def copy(self, *rows: Sequence[object], change: str = "insert") -> None:
        """Have rows in the copy."""
        columns = list(zip(*rows, strict=True))
        own = lake_schema(self.table)
        data = {f.name: pa.array(c, f.type) for f, c in zip(own, columns, strict=False)}
        count = len(rows)
        self.seq += 1
        data |= {
            "_change_type": pa.array([change] * count),
            "_seq": pa.array([self.seq] * count, pa.int64()),
            "_row": pa.array([0] * count, pa.int32()),
            "_commit_timestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
        }
        self.lake.apply(COPY, pa.table(data), self.seq + 1, {})

    def look(self) -> set[tuple[object, ...]]:
        """Have the table compared, and return what is suspected."""
        self.found.clear()
        self.recheck.request([self.table.source])
        expected = self.recheck.compared + 1
        self.poll_until(lambda: self.recheck.compared == expected)
        return set(self.found)

    def poll_until(self, is_so: Callable[[], bool]) -> None:
        """Poll until something is so; between two polls all pauses end."""
        deadline = Deadline(PATIENCE_S)
        while not is_so():
            self.now_s += PAUSED_S_MAX
            self.recheck.poll()
            threading.Event().wait(0.01)
            assert not deadline.passed()


@pytest.fixture(params=["hard", "soft"])
def scene(request, source_server, database, tmp_path) -> Iterator[Scene]:
    """Give a table of three rows, of which the copy has none."""
    found = Scene(source_server, database, tmp_path, request.param)
    yield found
    found.stop.request()
    found.recheck.close()


def test_what_is_suspected(scene: Scene) -> None:
    """Rows of one side, or with another foreign key; other columns do not count."""
    scene.position = Here.head
    assert scene.look() == {(1, "a"), (2, "b"), (3, "c")}
    scene.copy((1, "a", 1, 1), (2, "b", None, 2), (3, "c", 3, 3))
    assert scene.look() == set()
    scene.copy((1, "a", 1, 99), (2, "b", 2, 2), (4, "d", 4, 4))
    assert scene.look() == {(2, "b"), (4, "d")}
    scene.copy((4, "d", 4, 4), change="delete")
    assert scene.look() == {(2, "b")}


def test_not_before_the_stream_is_there(scene: Scene, caplog) -> None:
    """The stream comes to where the source was; a source that fails is asked again."""
    name = scene.table.source
    scene.recheck.request([name])
    scene.poll_until(lambda: scene.asked == 20)  # no poll compares
    assert scene.recheck.compared == 0
    assert scene.found == []
    assert (scene.recheck.awaits_stream, scene.recheck.is_busy) == (True, True)
    scene.position = Here.head
    scene.recheck.refusals = 1
    assert len(scene.look()) == 3  # requested again, after that position
    scene.poll_until(lambda: scene.recheck.compared == 2)
    scene.poll_until(lambda: not scene.recheck.is_busy)
    assert not scene.recheck.awaits_stream
    assert "with the source: it does not answer; retrying" in caplog.text
