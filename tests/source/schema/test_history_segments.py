"""How the table history is extended to a session's start, on real servers."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fix_source_access import access_of
from purge import purge

from canal_server.config.schema import InstanceConfig
from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import BinlogPurged, TableMetaError
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.mysql.binlogs import binary_logs
from canal_server.mysql.collations import collation_names
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.available_positions import SourceFiles
from canal_server.source.read.binlog_scan import Scanner
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.read.start_position import StartPosition
from canal_server.source.schema.history_segments import SegmentFinder
from canal_server.source.schema.schema_transfer import NotCarried, SchemaTransfer
from canal_server.source.schema.source_traits import source_of, traits_of
from canal_server.tablemeta.history.ddl_records import made_record
from canal_server.tablemeta.history.tsdb import TableMetaTsdb
from canal_server.tablemeta.storage.sqlite_storage import (
    FILE_NAME,
    SqliteHistoryStorage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from servers import Server

    from canal_server.tablemeta.storage.history_storage import BinlogSegment

CONFIG = InstanceConfig(destination="stretches")
GTID_AHEAD = "aaaaaaaa-0000-0000-0000-000000000001"


class Handoff:
    """A history in a file, and sessions of one server that start at some position."""

    def __init__(self, server: Server, schema: str, folder: Path) -> None:
        self.server = server
        self.schema = schema
        self.tsdb = TableMetaTsdb(SqliteHistoryStorage(folder / FILE_NAME))
        self.tsdb.init(CONFIG.destination)

    def run(self, *statements: str) -> None:
        """Run statements in the schema."""
        self.server.execute(f"USE {self.schema}", *statements)

    def here(self) -> EntryPosition:
        """Return the end of the binlog."""
        return EntryPosition(*self.server.binlog_position())

    def gtids(self) -> Any:
        """Return the set that the server has executed."""
        mysql = self.server.flavour == "mysql"
        variable = "gtid_executed" if mysql else "gtid_binlog_pos"
        text = str(self.server.execute(f"SELECT @@global.{variable}")[0][0])
        kind: Any = GtidSet if mysql else MariaGtidSet
        return kind.parse("".join(text.split()))

    @contextmanager
    def finder(self) -> Iterator[SegmentFinder]:
        """Return what decides in which segment a session starts."""
        access = access_of(self.server)
        with ControlConnection(access) as control:
            yield SegmentFinder(
                self.tsdb,
                control,
                read_server_info(control),
                destination=CONFIG.destination,
                scanner=DdlScanner(CONFIG, access, Stop()),
                files=SourceFiles(tuple(binary_logs(control))),
                looks=Scanner(CONFIG, access, Stop()),
                collations=collation_names(control),
            )

    @contextmanager
    def transfer(self) -> Iterator[SchemaTransfer]:
        """Return what continues the segments of other servers."""
        access = access_of(self.server)
        with ControlConnection(access) as control:
            yield SchemaTransfer(
                self.tsdb,
                read_server_info(control),
                DdlScanner(CONFIG, access, Stop()),
                collation_names(control),
            )

    def begin(
        self, position: EntryPosition | StartPosition, stored: LogPosition | None = None
    ) -> BinlogSegment:
        """Start a session at a position; return its segment."""
        if isinstance(position, EntryPosition):
            position = StartPosition(
                position.journal_name or "", position.position or 4, None
            )
        with self.finder() as finder:
            at, segment, self.reads = finder.find(position, stored)
            self.tsdb.rollback(at, segment)
        assert self.tsdb.segment is not None
        return self.tsdb.segment

    def follow(self, start: EntryPosition) -> None:
        """Read the statements from a position to the end."""
        scanner = DdlScanner(CONFIG, access_of(self.server), Stop())
        for each in scanner.between(start, self.here()):
            self.tsdb.apply(
                made_record(each.position, each.schema, each.ddl, each.extra)
            )

    def reach(self, timestamp_ms: int | None = None) -> None:
        """Record that everything was read, with the set executed by now."""
        here = replace(self.here(), gtid=str(self.gtids()), timestamp=timestamp_ms)
        self.tsdb.reached(here)

    def columns(self, table: str = "t") -> Sequence[str]:
        """Return the names of a table's columns where the session starts."""
        found = self.tsdb.find(self.schema, table)
        return [] if found is None else [column.name for column in found.columns]

    def is_uncertain(self, table: str = "t") -> bool:
        """Return whether the columns may have been different."""
        return self.tsdb.is_uncertain(self.schema, table)

    def pretend(self, segment: BinlogSegment, source: str) -> None:
        """Make a segment belong to another server."""
        self.tsdb.identify(segment, source, replace(segment.traits, file=""))


@pytest.fixture
def handoff(source_server: Server, database: str, tmp_path: Path) -> Iterator[Handoff]:
    """Yield an empty history, and the MySQL, then the MariaDB, with one table."""
    made = Handoff(source_server, database, tmp_path)
    made.run("CREATE TABLE t (a INT)")
    yield made
    made.tsdb.close()


def test_positions_of_one_binlog(handoff: Handoff) -> None:
    """In, after and before the segment: each position has the columns of its time."""
    positions = [handoff.here()]
    for number in range(1, 7):
        handoff.run(f"ALTER TABLE t ADD c{number} INT")
        positions.append(handoff.here())
        if number == 3:
            handoff.begin(positions[3])  # the base
            assert handoff.columns() == ["a", "c1", "c2", "c3"]
    for number in (3, 5, 6, 4, 6):
        segment = handoff.begin(positions[number])
        assert handoff.columns() == ["a", *(f"c{n}" for n in range(1, number + 1))]
        assert not handoff.is_uncertain()
    assert [segment] == handoff.tsdb.segments()
    # Before the base the columns are those of the base, with a doubt.
    handoff.begin(positions[1])
    assert handoff.is_uncertain()
    assert handoff.columns() == ["a", "c1", "c2", "c3"]
    handoff.begin(positions[3])
    assert not handoff.is_uncertain()


def test_after_a_statement_that_was_read_last(handoff: Handoff) -> None:
    """No event begins at the end of the history: that causes no gap."""
    handoff.begin(handoff.here())
    start = handoff.here()
    for statement in ("ALTER TABLE t ADD b INT", "ALTER TABLE t ADD c INT"):
        handoff.run(statement)
    first, *_ = DdlScanner(CONFIG, access_of(handoff.server), Stop()).between(
        start, handoff.here()
    )
    handoff.tsdb.apply(
        made_record(first.position, first.schema, first.ddl, first.extra)
    )
    segment = handoff.begin(handoff.here())
    assert handoff.columns() == ["a", "b", "c"]
    assert [segment] == handoff.tsdb.segments()


def test_a_purged_position(handoff: Handoff, database: str) -> None:
    """A purged position is refused before tables are read; nothing is stored."""
    del database
    deleted = replace(handoff.here(), journal_name="binlog.000000")
    for _ in range(2):
        with pytest.raises(BinlogPurged):
            handoff.begin(deleted)
    assert handoff.tsdb.segments() == []


def test_a_history_that_ends_in_what_is_purged(
    handoff: Handoff, caplog: pytest.LogCaptureFixture
) -> None:
    """A new segment starts, logged in a line without the server's whole error."""
    here = handoff.here()
    deleted = replace(here, journal_name="binlog.000000", position=4)
    ended = replace(handoff.begin(here), first=deleted, last=deleted)
    with handoff.finder() as finder:
        assert finder._reaching(ended, here) is None
    (line,) = [each for each in caplog.messages if "purged" in each]
    assert line.endswith(f"between it and {here} was purged, so a new history starts")


def test_a_reset_binlog(handoff: Handoff) -> None:
    """A file of the same name created at another time is another file."""
    segment = handoff.begin(handoff.here())
    assert segment.traits.file
    assert segment.traits.file_began_ms
    traits = replace(segment.traits, file_began_ms=segment.traits.file_began_ms - 1000)
    handoff.tsdb.identify(segment, segment.source, traits)
    handoff.run("ALTER TABLE t ADD b INT")
    other = handoff.begin(handoff.here())
    assert other.id != segment.id
    assert handoff.columns() == ["a", "b"]


def test_a_server_that_was_upgraded(handoff: Handoff) -> None:
    """Statements are parsed as the server's version does."""
    segment = handoff.begin(handoff.here())
    old = replace(segment.traits, version=segment.traits.version - 10000)
    handoff.tsdb.identify(segment, segment.source, old)
    assert handoff.begin(handoff.here()).traits == segment.traits


def test_events_that_are_older_than_their_file(handoff: Handoff) -> None:
    """A replica's events are its source's and older: the file is still the same."""
    handoff.begin(handoff.here())
    handoff.run("SET timestamp = 1000000000", "ALTER TABLE t ADD b INT")
    segment = handoff.begin(handoff.here())
    handoff.run("SET timestamp = 1000000000", "ALTER TABLE t ADD c INT")
    assert handoff.begin(handoff.here()).id == segment.id
    assert handoff.columns() == ["a", "b", "c"]


def test_a_history_of_the_java_server(handoff: Handoff) -> None:
    """Its segments have only the server's number; they are accepted as ours."""
    segment = handoff.begin(handoff.here())
    number = str(handoff.server.execute("SELECT @@global.server_id")[0][0])
    handoff.pretend(segment, number)
    handoff.run("ALTER TABLE t ADD b INT")
    again = handoff.begin(handoff.here())
    assert again.id == segment.id
    assert again.source == segment.source
    assert handoff.columns() == ["a", "b"]


def test_a_session_after_a_stored_transaction(handoff: Handoff) -> None:
    """The history ends where reading can continue, even after a row event."""
    handoff.begin(handoff.here())
    handoff.run("INSERT INTO t VALUES (1)")
    end, gtids = handoff.here(), handoff.gtids()
    # The last event of the transaction, with its checksum.
    last = replace(end, position=(end.position or 0) - 31, gtid=str(gtids))
    stored = LogPosition(LogIdentity("db", 3306), last)
    for _ in range(2):
        segment = handoff.begin(StartPosition("", 0, gtids, by_gtid=True), stored)
        assert handoff.tsdb.end_event(segment).order() == last.order()
    handoff.run("ALTER TABLE t ADD b INT")
    assert handoff.begin(handoff.here()).id == segment.id
    assert handoff.columns() == ["a", "b"]


def test_a_session_after_a_stored_statement(handoff: Handoff) -> None:
    """A statement that was delivered last is included, and is not applied again."""
    start = handoff.here()
    handoff.begin(start)
    handoff.run("ALTER TABLE t ADD b INT")
    (event,) = DdlScanner(CONFIG, access_of(handoff.server), Stop()).between(
        start, handoff.here()
    )
    gtids = handoff.gtids()
    stored = LogPosition(
        LogIdentity("db", 3306), replace(event.position, gtid=str(gtids))
    )
    segment = handoff.begin(StartPosition("", 0, gtids, by_gtid=True), stored)
    assert handoff.columns() == ["a", "b"]
    assert handoff.tsdb.end_event(segment).order() == event.position.order()


def test_a_beginning_has_a_time(handoff: Handoff) -> None:
    """Nothing before the first position is known, not even by time."""
    early = handoff.here()
    handoff.run("ALTER TABLE t ADD b INT")
    handoff.begin(early)
    with pytest.raises(TableMetaError):
        handoff.tsdb.position_at(1_000_000_000_000)


def test_what_is_written_while_the_position_is_searched(handoff: Handoff) -> None:
    """A statement right after the query counts as a later one."""
    gtids = handoff.gtids()
    look = DdlScanner.first_position

    def look_and_alter(scanner: DdlScanner, position: Any) -> EntryPosition | None:
        found = look(scanner, position)
        handoff.run("ALTER TABLE t ADD b INT")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DdlScanner, "first_position", look_and_alter)
        handoff.begin(StartPosition("", 0, gtids, by_gtid=True))
    assert handoff.is_uncertain()
    handoff.follow(handoff.tsdb.segments()[0].first)
    assert not handoff.is_uncertain()
    assert handoff.columns() == ["a", "b"]


class TestTransfer:
    """Another server is read, at positions by GTID."""

    @pytest.fixture
    def known(self, handoff: Handoff) -> Any:
        """Yield a history of another server that has one more column."""
        handoff.begin(handoff.here())
        handoff.run("ALTER TABLE t ADD b INT")
        segment = handoff.begin(handoff.here())
        handoff.run("INSERT INTO t VALUES (1, 2)")
        handoff.reach()
        handoff.pretend(segment, "another")
        return handoff.gtids()

    def begin_by(self, handoff: Handoff, gtids: Any) -> BinlogSegment:
        """Start where a set was executed."""
        return handoff.begin(StartPosition("", 0, gtids, by_gtid=True))

    def test_all_is_known(self, handoff: Handoff, known: Any) -> None:
        """The tables of the other server are those of this one with the same set."""
        handoff.run("ALTER TABLE t ADD c INT")
        segment = self.begin_by(handoff, known)
        assert segment.source != "another"
        assert handoff.columns() == ["a", "b"]
        assert not handoff.is_uncertain()

    def test_some_is_missing(self, handoff: Handoff, known: Any) -> None:
        """Only what the history lacks is read; no doubt is left."""
        del known
        handoff.run("ALTER TABLE t ADD c INT")
        expected = handoff.gtids()
        handoff.run("ALTER TABLE t ADD d INT")
        self.begin_by(handoff, expected)
        assert handoff.columns() == ["a", "b", "c"]
        assert not handoff.is_uncertain()

    def test_a_stored_position_of_the_other_server(
        self, handoff: Handoff, known: Any
    ) -> None:
        """A file and offset of another server are not trusted for their GTID set."""
        handoff.run("ALTER TABLE t ADD c INT")
        late = replace(handoff.here(), gtid=str(known))
        handoff.run("ALTER TABLE t ADD d INT")
        handoff.begin(
            StartPosition("", 0, known, by_gtid=True),
            LogPosition(LogIdentity("db", 3306), late),
        )
        assert handoff.columns() == ["a", "b"]

    def test_back_again(self, handoff: Handoff, known: Any) -> None:
        """The first server's segment continues where it ended."""
        (other,) = handoff.tsdb.segments()
        segment = self.begin_by(handoff, known)
        with ControlConnection(access_of(handoff.server)) as control:
            info = read_server_info(control)
            traits = traits_of(control, info)
            handoff.tsdb.identify(segment, "elsewhere", traits)
            handoff.tsdb.identify(other, source_of(info), traits)
        handoff.run("ALTER TABLE t ADD c INT")
        assert handoff.begin(handoff.here()).id == other.id
        assert handoff.columns() == ["a", "b", "c"]

    def test_ends_with_a_statement(self, handoff: Handoff, known: Any) -> None:
        """The last statement is known, though no set that has it was recorded."""
        del known
        (segment,) = handoff.tsdb.segments()
        handoff.tsdb.rollback(segment.last, segment)
        start = handoff.here()
        handoff.run("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
        handoff.follow(start)
        self.begin_by(handoff, handoff.gtids())
        assert handoff.columns() == ["b", "a"]
        assert not handoff.is_uncertain()

    def test_before_the_history(
        self, handoff: Handoff, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A base dump does not cover what was before it: its statements are later."""
        early = handoff.gtids()
        handoff.run("ALTER TABLE t ADD b INT")
        segment = handoff.begin(handoff.here())
        handoff.run("INSERT INTO t VALUES (1, 2)")
        handoff.reach()
        handoff.pretend(segment, "another")
        self.begin_by(handoff, early)
        assert handoff.is_uncertain()
        (line,) = [each for each in caplog.messages if "transferred" in each]
        assert "history of server another cannot be transferred to " in line
        assert line.endswith("; all tables are read from the source")

    def test_before_the_base(
        self, handoff: Handoff, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nor does it cover a position between its start and a contained statement."""
        begin, gtids = handoff.here(), handoff.gtids()
        handoff.run("ALTER TABLE t ADD b INT")
        position = StartPosition(begin.journal_name or "", begin.position or 4, gtids)
        segment = handoff.begin(position)
        handoff.run("INSERT INTO t VALUES (1, 2)")
        handoff.reach()
        handoff.pretend(segment, "another")
        self.begin_by(handoff, gtids)
        assert handoff.is_uncertain()
        assert "follows the start position; all" in caplog.text

    def test_statements_without_gtid(
        self, handoff: Handoff, known: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whether they were executed is unknown: all tables are read again."""
        (segment,) = handoff.tsdb.segments()
        handoff.tsdb.rollback(segment.last, segment)
        position = replace(handoff.here(), timestamp=1, server_id=1, gtid=None)
        handoff.tsdb.apply(
            made_record(position, handoff.schema, "ALTER TABLE t ADD z INT")
        )
        handoff.run("SET sql_log_bin = 0", "ALTER TABLE t ADD unlogged INT")
        self.begin_by(handoff, known)
        assert handoff.columns() == ["a", "b", "unlogged"]
        assert f"the statement at {position} has no GTID; all" in caplog.text

    def test_what_keeps_it(self, handoff: Handoff, known: Any) -> None:
        """Each reason is given: what is unknown about the segment, or the position."""
        (segment,) = handoff.tsdb.segments()
        by_gtid = StartPosition("", 0, known, by_gtid=True)
        no_set = replace(segment.first, gtid=None)
        other = replace(segment.traits, mariadb=not segment.traits.mariadb)
        ahead = {"mysql": f"{GTID_AHEAD}:1-9", "mariadb": "99-1-9"}
        ahead_of = replace(segment.first, gtid=ahead[handoff.server.flavour])
        with handoff.transfer() as transfer:
            for each, position, why in (
                (replace(segment, first=no_set), by_gtid, "GTID set at its start, "),
                (replace(segment, last=no_set), by_gtid, "GTID set at its end, "),
                (replace(segment, first=ahead_of), by_gtid, "lacks '"),
                (replace(segment, traits=other), by_gtid, "that server was a M"),
                (segment, StartPosition("", 0, None), "has neither GTID set nor time"),
                (
                    segment,
                    StartPosition("", 0, None, timestamp_ms=1000),
                    "reading starts at 1970-01-01T00:00:01+00:00",
                ),
            ):
                found = transfer.image(each, position, list)
                assert isinstance(found, NotCarried)
                assert why in found.why

    def test_a_reset_binlog(self, handoff: Handoff, known: Any) -> None:
        """Earlier GTIDs may mean something else: the tables are read again."""
        (segment,) = handoff.tsdb.segments()
        with ControlConnection(access_of(handoff.server)) as control:
            source = source_of(read_server_info(control))
        traits = replace(segment.traits, file_began_ms=1)
        handoff.tsdb.identify(
            segment, source, replace(traits, file=handoff.here().journal_name or "")
        )
        handoff.run("ALTER TABLE t ADD c INT")
        self.begin_by(handoff, known)
        assert handoff.is_uncertain()


@pytest.fixture(params=["mysql", "mariadb"])
def from_nothing(
    request: pytest.FixtureRequest, own_server: Any, tmp_path: Path
) -> Iterator[Handoff]:
    """Yield a history of another server, started when it had executed nothing."""
    server = own_server(request.param)
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT)")
    server.execute(
        "RESET MASTER" if request.param == "mariadb" else "RESET BINARY LOGS AND GTIDS"
    )
    made = Handoff(server, "d", tmp_path)
    assert not str(made.gtids())
    made.pretend(made.begin(made.here()), "another")
    yield made
    made.tsdb.close()


def test_covered_from_the_first_transaction_on(from_nothing: Handoff) -> None:
    """A history that started when nothing was executed is carried over like others."""
    handoff = from_nothing
    begin = handoff.here()
    handoff.run("ALTER TABLE t RENAME COLUMN a TO b", "INSERT INTO t VALUES (1)")
    handoff.follow(begin)
    handoff.reach()
    known = handoff.gtids()
    handoff.run("ALTER TABLE t RENAME COLUMN b TO c")
    handoff.begin(StartPosition("", 0, known, by_gtid=True))
    assert handoff.columns() == ["b"]
    assert not handoff.is_uncertain()


def test_what_the_history_lacks_is_purged(
    from_nothing: Handoff, caplog: pytest.LogCaptureFixture
) -> None:
    """Statements after its end that no server has now: all tables are read again."""
    handoff = from_nothing
    handoff.run("ALTER TABLE t RENAME COLUMN a TO b", "FLUSH BINARY LOGS")
    purge(handoff.server, handoff.here().journal_name)
    handoff.begin(StartPosition("", 0, handoff.gtids(), by_gtid=True))
    assert handoff.columns() == ["b"]
    (line,) = [each for each in caplog.messages if "cannot be transferred" in each]
    assert "this server executed between its end, GTID set '', and '" in line
    assert " is purged: " in line


class TestTransferByTime:
    """Another server is read, at positions by time."""

    NOW_S = 1_900_000_000

    def at(self, handoff: Handoff, timestamp_s: int, statement: str) -> None:
        """Run a statement that begins at a time."""
        handoff.run(f"SET timestamp = {timestamp_s}", statement)

    @pytest.fixture
    def position(self, handoff: Handoff) -> Iterator[EntryPosition]:
        """Yield a position before the end of a history with a slow statement."""
        segment = handoff.begin(handoff.here())
        start = handoff.here()
        self.at(handoff, self.NOW_S, "ALTER TABLE t ADD b INT")
        position = handoff.here()
        self.at(handoff, self.NOW_S + 50, "INSERT INTO t VALUES (1, 2)")
        self.at(handoff, self.NOW_S - 10, "ALTER TABLE t ADD slow INT")
        self.at(handoff, self.NOW_S + 60, "ALTER TABLE t ADD late INT")
        handoff.follow(start)
        handoff.reach((self.NOW_S + 100) * 1000)
        assert handoff.columns() == ["a", "b", "slow", "late"]
        handoff.pretend(segment, "another")
        yield position
        # Other tests share the server: what they look up by time must not lie in the
        # file that has these times.
        handoff.run("FLUSH BINARY LOGS")

    def begin_at(self, handoff: Handoff, position: EntryPosition, time_s: int) -> None:
        """Start at a position that was found by time."""
        handoff.begin(
            StartPosition(
                position.journal_name or "",
                position.position or 4,
                None,
                timestamp_ms=time_s * 1000,
            )
        )

    def test_what_was_executed(self, handoff: Handoff, position: EntryPosition) -> None:
        """A slow statement counts by its position."""
        self.begin_at(handoff, position, self.NOW_S + 40)
        assert handoff.columns() == ["a", "b"]
        assert not handoff.is_uncertain()

    @pytest.mark.parametrize("seconds", [-(10**9), 200], ids=["before", "after"])
    def test_outside(
        self, handoff: Handoff, position: EntryPosition, seconds: int
    ) -> None:
        """Times outside the history are of no use: tables are read again."""
        self.begin_at(handoff, position, self.NOW_S + seconds)
        assert handoff.is_uncertain()
