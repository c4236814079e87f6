"""Positions found with the boundary index equal those found without it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from fix_pump import Pumped
from fix_source_access import access_of
from fix_store import eventually

from canal_server.config.schema import HostConfig, InstanceConfig
from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.runtime.lifecycle import Stop
from canal_server.source.begin.boundary_index import BoundaryIndex, FileKey, Mark
from canal_server.source.begin.index_writer import IndexWriter
from canal_server.source.begin.search import BinlogSearch
from canal_server.source.read.binlog_scan import Scanner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from servers import Server

SOURCE = "uuid-1"
BEGAN = 1_500_000_000  # s
COUNT = 12


class Scene:
    """A file of twelve transactions, ten seconds apart, and its index."""

    index: BoundaryIndex  # a new one for each test

    def __init__(self, server: Server, database: str) -> None:
        self.server = server
        self.is_mariadb = server.flavour == "mariadb"
        config = InstanceConfig(destination="search")
        self.scanner = Scanner(config, access_of(server), Stop())
        server.execute(
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.t (a INT PRIMARY KEY)",
            f"SET timestamp = {BEGAN}",
            "FLUSH BINARY LOGS",
        )
        self.file, _ = server.binlog_position()
        if self.is_mariadb:
            eventually(self._is_settled)
        self.ends: list[int] = []
        self.sets: list[str] = []
        variable = "gtid_binlog_pos" if self.is_mariadb else "gtid_executed"
        end = "MASTER STATUS" if self.is_mariadb else "BINARY LOG STATUS"
        with server.connect() as connection, connection.cursor() as cursor:
            for number in range(COUNT):
                cursor.execute(f"SET timestamp = {BEGAN + 10 * number}")
                cursor.execute(f"INSERT INTO {database}.t VALUES ({number})")
                cursor.execute(f"SHOW {end}")
                self.ends.append(int(cursor.fetchone()[1]))
                cursor.execute(f"SELECT @@global.{variable}")
                self.sets.append(str(cursor.fetchone()[0]).replace("\n", ""))
        self.key = FileKey(SOURCE, self.file, BEGAN)

    def _is_settled(self) -> bool:
        """Return whether the new file says that no older one is needed any longer.

        The server writes that at its own time, possibly amid the transactions.
        """
        events = self.server.execute(f"SHOW BINLOG EVENTS IN '{self.file}'")
        return any(
            (kind, what) == ("Binlog_checkpoint", self.file)
            for _, _, kind, _, _, what in events
        )

    def search(self, *, indexed: bool) -> BinlogSearch:
        """Return a search, with the index or without."""
        return BinlogSearch(
            self.scanner,
            mariadb=self.is_mariadb,
            source=SOURCE,
            index=self.index if indexed else None,
        )

    def fill(self, *, stop: int = COUNT) -> list[Mark]:
        """Fill the index with a part of the file, with the sets; return its marks."""
        writer = IndexWriter(
            self.index,
            SOURCE,
            {self.file: BEGAN}.get,
            mark_bytes=600,
            boundary=(self.file, 4),
        )
        until = (BEGAN + 10 * stop) * 1000
        self.scanner.boundary_before(self.file, until, 4, writer.note)
        writer.flush()
        kind = MariaGtidSet if self.is_mariadb else GtidSet
        sets = dict(zip(self.ends, self.sets, strict=True))
        marks = self.index.marks(self.key)
        self.index.add(
            self.key,
            [
                Mark(
                    m.start,
                    m.event,
                    m.stop,
                    m.time_s,
                    m.youngest_s,
                    m.transactions,
                    None,
                    str(kind.parse(sets[m.stop])),
                )
                for m in marks
            ],
        )
        return self.index.marks(self.key)


@pytest.fixture(scope="module")
def one_scene(source_server: Server) -> Iterator[Scene]:
    """Yield the scene on a MySQL, then on a MariaDB."""
    schema = f"search{os.getpid()}"
    yield Scene(source_server, schema)
    source_server.execute(f"DROP DATABASE {schema}")


@pytest.fixture
def scene(one_scene: Scene, tmp_path: Path) -> Iterator[Scene]:
    """Yield the scene with an empty index."""
    one_scene.index = BoundaryIndex(tmp_path / "boundaries.sqlite")
    one_scene.index.open()
    yield one_scene
    one_scene.index.close()


def test_same_positions(scene: Scene) -> None:
    """By time, offset and set, the index changes how it is found, not what."""
    marks = scene.fill(stop=8)
    assert marks
    assert marks[-1].stop in scene.ends
    plain, indexed = (scene.search(indexed=each) for each in (False, True))
    reads = set()
    for number in range(COUNT):
        when = (BEGAN + 10 * number - 5) * 1000
        one, other = (s.boundary_before([scene.file], when) for s in (plain, indexed))
        assert (one and one.offset) == (other and other.offset)
        reads.add(other and other.means)
        position = scene.ends[number]
        assert plain.transaction_start(scene.file, position).offset == position
        assert indexed.transaction_start(scene.file, position).offset == position
        (at, gtids), (again, same) = (
            s.executed_at(scene.file, position) for s in (plain, indexed)
        )
        assert at.offset == again.offset == position
        assert str(gtids) == str(same)
        reads.add(again.means)
    assert any("from the index mark" in str(each) for each in reads)


def test_scans_fill_the_index(scene: Scene) -> None:
    """The next search knows what a search by time has read."""
    search = scene.search(indexed=True)
    when = (BEGAN + 10 * COUNT) * 1000
    first = search.boundary_before([scene.file], when)
    second = search.boundary_before([scene.file], when)
    assert first
    assert second
    assert first.offset == second.offset == scene.ends[-1]
    assert "its beginning" in first.means
    assert "from the index mark" in second.means
    assert scene.index.sources() == [SOURCE]


def test_index_of_another_file(scene: Scene) -> None:
    """Marks of a file with the same name and second are detected, and deleted."""
    made_up = [
        Mark(4, at - 31, at, BEGAN + 5, BEGAN + 5, 3, 3, "") for at in (700, 950)
    ]
    for marks in (made_up, [Mark(4, 1 << 20, 1 << 21, BEGAN, BEGAN, 1, 1)]):
        scene.index.add(scene.key, marks)
        search = scene.search(indexed=True)
        when = (BEGAN + 10 * COUNT) * 1000
        found = search.boundary_before([scene.file], when)
        assert found
        assert found.offset == scene.ends[-1]
        assert "its beginning" in found.means
        scene.index.forget(scene.key)


def test_covers(scene: Scene) -> None:
    """A set covers a position when it has everything executed up to there."""
    search = scene.search(indexed=False)
    kind = MariaGtidSet if scene.is_mariadb else GtidSet
    for number in (2, 9):
        gtids = kind.parse(scene.sets[number])
        for other in (1, 2, 3, 9, 10):
            covers = search.covers(gtids, scene.file, scene.ends[other])
            assert covers is (other <= number)
        assert not search.covers(gtids, scene.file, 1 << 30)
        assert not search.covers(gtids, "nosuch.000001", 400)


def test_a_pump_writes_marks(
    source_server: Server, database: str, tmp_path: Path
) -> None:
    """What a pump has read is known; another pump on the same file continues it."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    source_server.execute("FLUSH BINARY LOGS")
    file, _ = source_server.binlog_position()
    path = tmp_path / "boundaries.sqlite"
    for numbers in ((1, 2), (3, 4)):
        for number in numbers:
            source_server.execute(f"INSERT INTO {database}.t VALUES ({number})")
        found = Pumped(
            access_of(source_server),
            database,
            index=BoundaryIndex(path),
            master=HostConfig(journal_name=file),
        )
        found.pump.start()
        try:
            eventually(lambda: len(found.values) == numbers[-1])  # noqa: B023
        finally:
            found.stop()
    _, end = source_server.binlog_position()
    index = BoundaryIndex(path, read_only=True)
    index.open()
    (source,) = index.sources()
    key = index.key_of(source, file)
    assert key
    first, second = index.marks(key)
    index.close()
    assert (first.start, first.transactions, first.rows) == (4, 2, 2)
    assert (second.start, second.stop) == (first.stop, end)
    assert (second.transactions, second.rows) == (2, 2)
