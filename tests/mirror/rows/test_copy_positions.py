"""Positions to copy from: everything before them in the binlog is visible."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fix_pipeline import DESTINATION, UNIT_S
from fix_source_access import access_of

from canal_server.errors import ConnectionLost, SourceError, SourceRefused
from canal_server.runtime.lifecycle import Stop

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("yaml", reason="the extra `mirror` is not installed")

import pyarrow as pa
from some_settings import settings_for

from canal_server.mirror.rows.copy_positions import start_position
from canal_server.mirror.session.spark_session import table_options
from canal_server.mirror.settings.mirror_settings import SourceSettings
from canal_server.mirror.settings.table_values import TableName
from canal_server.spark.columns.spark_schema import packed_schema
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel
from canal_server.spark.packed.packed_rows import unpack
from canal_server.spark.reading.range_tasks import Range, cut
from canal_server.spark.row_batches import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fix_pipeline import Pipeline
    from fix_replicas import Replicas
    from servers import Server

    from canal_server.client.range_client import RangePosition

SCHEMA = "shop"
PATIENCE_S = 3 * UNIT_S
WRITE_PAUSE_S = 0.005  # else a fast server writes more than is read back in time
# What makes a commit wait between the binlog and the tables, and how it is let go.
HOLD = {
    "mysql": (
        "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
        "SET GLOBAL rpl_semi_sync_source_timeout = 600000",
        "SET GLOBAL rpl_semi_sync_source_enabled = 1",
    ),
    "mariadb": (
        "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC",
        "SET GLOBAL rpl_semi_sync_master_timeout = 600000",
        "SET GLOBAL rpl_semi_sync_master_enabled = 1",
    ),
}
RELEASE = {
    "mysql": "SET GLOBAL rpl_semi_sync_source_enabled = 0",
    "mariadb": "SET GLOBAL rpl_semi_sync_master_enabled = 0",
}
FLAVOURS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in HOLD]


class CopyScene:
    """A table of a server, whose changes a running canal-server has."""

    def __init__(
        self, pipeline: Pipeline, source: Server, replica: Server | None = None
    ) -> None:
        self.source = source
        self.settings = settings_for(
            pipeline,
            "unused",
            source=SourceSettings(
                access=access_of(source),
                replica=None if replica is None else access_of(replica),
            ),
        )
        self.options = table_options(self.settings, TableName(pipeline.schema, "t"))
        self.channel = Channel(self.options, DESTINATION)

    def find(
        self, patience_s: float = PATIENCE_S, *, has_xa: bool = False
    ) -> RangePosition:
        """Return a position to copy from."""
        return start_position(
            self.settings, self.channel, patience_s=patience_s, has_xa=has_xa
        )

    def latest(self) -> RangePosition:
        """Return where the binlog ends."""
        return self.channel.call(lambda c: c.locate(DESTINATION, "latest"))

    def inserted(self, start: RangePosition, end: RangePosition) -> dict[int, int]:
        """Return the ids in the binlog between two positions, with their order."""
        ids: dict[int, int] = {}
        whole = Range(DESTINATION, start, end)
        for part in cut(self.channel, self.options, whole, None):
            for batch in read_rows(self.options, packed_schema(), part):
                for item in unpack(pa.Table.from_batches([batch])):
                    if item.kind == "rows":
                        data = item.data
                        assert data is not None
                        numbers, order = data["id"], data["_seq"]
                        ids.update(
                            zip(numbers.to_pylist(), order.to_pylist(), strict=True)
                        )
        return ids

    def visible(self, server: Server | None = None) -> set[int]:
        """Return the ids that the table has."""
        rows = (server or self.source).execute(f"SELECT id FROM {SCHEMA}.t")
        return {number for (number,) in rows}


@pytest.fixture
def make_positions(
    own_server: Callable[..., Server], make_pipeline: Callable[..., Pipeline]
) -> Iterator[Callable[..., CopyScene]]:
    """Give `make(flavour, *options)`: a table on a separate server."""
    made: list[CopyScene] = []

    def make(flavour: str, *options: str) -> CopyScene:
        server = own_server(flavour, options)
        server.execute(
            f"CREATE DATABASE {SCHEMA}", f"CREATE TABLE {SCHEMA}.t (id INT PRIMARY KEY)"
        )
        pipeline = make_pipeline(server, SCHEMA)
        pipeline.start()
        made.append(CopyScene(pipeline, server))
        return made[-1]

    yield make
    for each in made:
        each.channel.close()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_in_the_binlog_and_not_visible_yet(
    make_positions: Callable[..., CopyScene], flavour: str
) -> None:
    """A position is returned when everything before it is visible, not earlier."""
    positions = make_positions(flavour)
    before = positions.latest()
    with held_insert(positions):
        assert set(positions.inserted(before, positions.latest())) == {1}
        assert positions.visible() == set()  # so a copy from there on would lack it
        with pytest.raises(SourceError, match="commit"):
            positions.find(patience_s=0.2)
        with called_in_thread(positions.find) as found:
            positions.source.execute(RELEASE[flavour])
    assert set(positions.inserted(before, found[0])) == {1}
    assert positions.visible() == {1}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_while_many_commit(
    make_positions: Callable[..., CopyScene], flavour: str
) -> None:
    """Each row that is in the binlog before a position is visible to a later read."""
    options = ["--sync-binlog=1"]
    if flavour == "mysql":
        options.append("--binlog-group-commit-sync-delay=2000")
    positions = make_positions(flavour, *options)
    before = positions.latest()
    numbers, end = itertools.count(1), threading.Event()
    writers = [
        threading.Thread(target=_write, args=(positions.source, numbers, end))
        for _ in range(6)
    ]
    for writer in writers:
        writer.start()
    seen: list[tuple[str, RangePosition, set[int]]] = []
    try:
        for _ in range(15):
            seen.append(("latest", positions.latest(), positions.visible()))
            seen.append(("found", positions.find(), positions.visible()))
    finally:
        end.set()
        for writer in writers:
            writer.join()
    inserted = positions.inserted(before, positions.latest())
    lost = {"latest": 0, "found": 0}
    for kind, position, visible in seen:
        end_of = version_of(position)
        lost[kind] += any(
            at < end_of and n not in visible for n, at in inserted.items()
        )
    print(f"{len(inserted)} rows; places that would lose some: {lost}")
    assert lost["found"] == 0


def _write(server: Server, numbers: Iterator[int], end: threading.Event) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        while not end.wait(WRITE_PAUSE_S):
            cursor.execute(f"INSERT INTO {SCHEMA}.t VALUES ({next(numbers)})")


def test_a_replica_that_lags(
    replicas: Replicas, replicated_schema: str, make_pipeline: Callable[..., Pipeline]
) -> None:
    """Rows are read from a replica when it has everything before the position."""
    source, table = replicas.source, f"{replicated_schema}.t"
    source.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    replicas.catch_up()
    pipeline = make_pipeline(source, replicated_schema)
    pipeline.start()
    positions = CopyScene(pipeline, source, replicas.replica)
    with contextlib.closing(positions.channel):
        _follow_a_lagging_one(replicas, positions, table)


def _follow_a_lagging_one(replicas: Replicas, positions: CopyScene, table: str) -> None:
    source, before = replicas.source, positions.latest()
    with replicas.lag():
        source.execute(f"INSERT INTO {table} VALUES (1)")
        with pytest.raises(SourceError, match="it has not executed"):
            positions.find(patience_s=0.2)
        with called_in_thread(positions.find) as found:
            replicas.replica.execute("START REPLICA SQL_THREAD")
    assert replicas.replica.execute(f"SELECT id FROM {table}") == ((1,),)
    assert set(positions.inserted(before, found[0])) == {1}


@pytest.mark.mysql
def test_without_gtids(make_positions: Callable[..., CopyScene]) -> None:
    """The position is older than the last writes; a replica is refused."""
    positions = make_positions(
        "mysql", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"
    )
    before = positions.latest()
    positions.source.execute(f"INSERT INTO {SCHEMA}.t VALUES (1)")
    assert version_of(positions.find()) <= version_of(before)
    source = SourceSettings(
        access=access_of(positions.source), replica=access_of(positions.source)
    )
    positions.settings = replace(positions.settings, source=source)
    with pytest.raises(SourceRefused, match="gtid_mode = ON"):
        positions.find()


@pytest.mark.mysql
def test_prepared_transactions_are_waited_for(
    make_positions: Callable[..., CopyScene],
) -> None:
    """An XA transaction is in the binlog when it is prepared: that is not enough."""
    positions = make_positions("mysql")
    positions.find()
    with pytest.raises(SourceRefused, match="GRANT XA_RECOVER_ADMIN"):
        positions.find(has_xa=True)
    positions.source.execute(
        f"GRANT XA_RECOVER_ADMIN ON *.* TO '{positions.source.user}'@'%'"
    )
    positions.find(has_xa=True)
    with positions.source.connect() as connection, connection.cursor() as cursor:
        for statement in (
            "XA START 'x'",
            f"INSERT INTO {SCHEMA}.t VALUES (1)",
            "XA END 'x'",
            "XA PREPARE 'x'",
        ):
            cursor.execute(statement)
        with pytest.raises(SourceError, match="XA RECOVER"):
            positions.find(patience_s=0.2)
        cursor.execute("XA COMMIT 'x'")
    positions.find()
    assert positions.visible() == {1}


@pytest.mark.mysql
def test_a_stop_ends_the_wait(make_positions: Callable[..., CopyScene]) -> None:
    """A stop does not wait for a blocked commit."""
    positions, stop = make_positions("mysql"), Stop()
    with held_insert(positions):
        timer = threading.Timer(0.1, stop.request)
        timer.start()
        with pytest.raises(ConnectionLost, match="interrupted by a stop request"):
            start_position(positions.settings, positions.channel, stop)
        timer.join()


# --- pieces ---------------------------------------------------------------------------


@contextlib.contextmanager
def held_insert(positions: CopyScene) -> Iterator[None]:
    """Insert a row that is in the binlog inside, and not in the table."""
    server, before = positions.source, positions.latest()
    server.execute(*HOLD[server.flavour])
    insert = threading.Thread(
        target=server.execute, args=(f"INSERT INTO {SCHEMA}.t VALUES (1)",), daemon=True
    )
    insert.start()
    try:
        wait_until(lambda: version_of(positions.latest()) > version_of(before))
        yield
    finally:
        server.execute(RELEASE[server.flavour])
        insert.join(PATIENCE_S)


@contextlib.contextmanager
def called_in_thread(call: Callable[[], Any]) -> Iterator[list[Any]]:
    """Call something in a thread; its result is in the list after the block."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    yield results
    thread.join(PATIENCE_S)
    assert results, "the call has not returned"


def wait_until(look: Callable[[], bool]) -> None:
    """Wait until something is so."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < give_up_at, "it never happened"
        time.sleep(0.02)
