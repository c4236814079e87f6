"""How the table history meets the place where a session begins, on real servers."""

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
from canal_server.source.read.start_position import Place
from canal_server.source.schema.history_segments import StretchFinder
from canal_server.source.schema.schema_transfer import NotCarried
from canal_server.source.schema.source_traits import source_of, traits_of
from canal_server.tablemeta.history.tsdb import TableMetaTsdb
from canal_server.tablemeta.storage.sqlite_storage import (
    FILE_NAME,
    SqliteHistoryStorage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from servers import Server

    from canal_server.tablemeta.storage.history_storage import Stretch

CONFIG = InstanceConfig(destination="stretches")
GTID_AHEAD = "aaaaaaaa-0000-0000-0000-000000000001"


class Meeting:
    """A history in a file, and sessions of one server that begin somewhere."""

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
    def finder(self) -> Iterator[StretchFinder]:
        """Give what decides in which stretch a session begins."""
        access = access_of(self.server)
        with ControlConnection(access) as control:
            yield StretchFinder(
                self.tsdb,
                control,
                read_server_info(control),
                destination=CONFIG.destination,
                scanner=DdlScanner(CONFIG, access, Stop()),
                files=SourceFiles(tuple(binary_logs(control))),
                looks=Scanner(CONFIG, access, Stop()),
                collations=collation_names(control),
            )

    def begin(
        self, place: EntryPosition | Place, stored: LogPosition | None = None
    ) -> Stretch:
        """Begin a session at a place; returns the stretch in which it is."""
        if isinstance(place, EntryPosition):
            place = Place(place.journal_name or "", place.position or 4, None)
        with self.finder() as finder:
            at, stretch, self.reads = finder.find(place, stored)
            self.tsdb.rollback(at, stretch)
        assert self.tsdb.stretch is not None
        return self.tsdb.stretch

    def follow(self, start: EntryPosition) -> None:
        """Read the statements from a place to the end."""
        scanner = DdlScanner(CONFIG, access_of(self.server), Stop())
        for each in scanner.between(start, self.here()):
            self.tsdb.apply(each.position, each.schema, each.ddl, each.extra)

    def reach(self, timestamp_ms: int | None = None) -> None:
        """Note that all was read, with the set executed by now."""
        here = replace(self.here(), gtid=str(self.gtids()), timestamp=timestamp_ms)
        self.tsdb.reached(here)

    def columns(self, table: str = "t") -> Sequence[str]:
        """Return the names of a table's columns where the session begins."""
        found = self.tsdb.find(self.schema, table)
        return [] if found is None else [column.name for column in found.columns]

    def is_uncertain(self, table: str = "t") -> bool:
        """Tell whether they may have been others."""
        return self.tsdb.is_uncertain(self.schema, table)

    def pretend(self, stretch: Stretch, source: str) -> None:
        """Let a stretch be of another server."""
        self.tsdb.identify(stretch, source, replace(stretch.traits, file=""))


@pytest.fixture
def meeting(source_server: Server, database: str, tmp_path: Path) -> Iterator[Meeting]:
    """Give an empty history, and the MySQL, then the MariaDB, with one table."""
    made = Meeting(source_server, database, tmp_path)
    made.run("CREATE TABLE t (a INT)")
    yield made
    made.tsdb.close()


def test_places_of_one_binlog(meeting: Meeting) -> None:
    """In the stretch, behind and before it: each place has the columns of its time."""
    places = [meeting.here()]
    for number in range(1, 7):
        meeting.run(f"ALTER TABLE t ADD c{number} INT")
        places.append(meeting.here())
        if number == 3:
            meeting.begin(places[3])  # the base
            assert meeting.columns() == ["a", "c1", "c2", "c3"]
    for number in (3, 5, 6, 4, 6):
        stretch = meeting.begin(places[number])
        assert meeting.columns() == ["a", *(f"c{n}" for n in range(1, number + 1))]
        assert not meeting.is_uncertain()
    assert [stretch] == meeting.tsdb.stretches()
    # Before the base the columns are those of the base, with a doubt.
    meeting.begin(places[1])
    assert meeting.is_uncertain()
    assert meeting.columns() == ["a", "c1", "c2", "c3"]
    meeting.begin(places[3])
    assert not meeting.is_uncertain()


def test_behind_a_statement_that_was_read_last(meeting: Meeting) -> None:
    """The end of what is known lies where no event begins: no gap comes of it."""
    meeting.begin(meeting.here())
    start = meeting.here()
    for statement in ("ALTER TABLE t ADD b INT", "ALTER TABLE t ADD c INT"):
        meeting.run(statement)
    first, *_ = DdlScanner(CONFIG, access_of(meeting.server), Stop()).between(
        start, meeting.here()
    )
    meeting.tsdb.apply(first.position, first.schema, first.ddl, first.extra)
    stretch = meeting.begin(meeting.here())
    assert meeting.columns() == ["a", "b", "c"]
    assert [stretch] == meeting.tsdb.stretches()


def test_a_place_that_is_purged(meeting: Meeting, database: str) -> None:
    """It is refused before the tables are read; nothing is left of the attempt."""
    del database
    gone = replace(meeting.here(), journal_name="binlog.000000")
    for _ in range(2):
        with pytest.raises(BinlogPurged):
            meeting.begin(gone)
    assert meeting.tsdb.stretches() == []


def test_a_history_that_ends_in_what_is_purged(
    meeting: Meeting, caplog: pytest.LogCaptureFixture
) -> None:
    """A new one begins, told in a line without the whole error of the server."""
    here = meeting.here()
    gone = replace(here, journal_name="binlog.000000", position=4)
    ended = replace(meeting.begin(here), first=gone, last=gone)
    with meeting.finder() as finder:
        assert finder._reaching(ended, here) is None
    (line,) = [each for each in caplog.messages if "purged" in each]
    assert line.endswith(f"lies between it and {here} is purged: a new one begins")


def test_a_binlog_begun_anew(meeting: Meeting) -> None:
    """A file of the same name that was begun at another time is another file."""
    stretch = meeting.begin(meeting.here())
    assert stretch.traits.file
    assert stretch.traits.file_began_ms
    traits = replace(stretch.traits, file_began_ms=stretch.traits.file_began_ms - 1000)
    meeting.tsdb.identify(stretch, stretch.source, traits)
    meeting.run("ALTER TABLE t ADD b INT")
    other = meeting.begin(meeting.here())
    assert other.id != stretch.id
    assert meeting.columns() == ["a", "b"]


def test_a_server_that_was_upgraded(meeting: Meeting) -> None:
    """Its answers are read as its version writes them."""
    stretch = meeting.begin(meeting.here())
    old = replace(stretch.traits, version=stretch.traits.version - 10000)
    meeting.tsdb.identify(stretch, stretch.source, old)
    assert meeting.begin(meeting.here()).traits == stretch.traits


def test_events_that_are_older_than_their_file(meeting: Meeting) -> None:
    """A replica's events are its source's, from before: the file is the same still."""
    meeting.begin(meeting.here())
    meeting.run("SET timestamp = 1000000000", "ALTER TABLE t ADD b INT")
    stretch = meeting.begin(meeting.here())
    meeting.run("SET timestamp = 1000000000", "ALTER TABLE t ADD c INT")
    assert meeting.begin(meeting.here()).id == stretch.id
    assert meeting.columns() == ["a", "b", "c"]


def test_a_history_of_the_java_server(meeting: Meeting) -> None:
    """Its stretches tell the server's number only; they are taken as ours."""
    stretch = meeting.begin(meeting.here())
    number = str(meeting.server.execute("SELECT @@global.server_id")[0][0])
    meeting.pretend(stretch, number)
    meeting.run("ALTER TABLE t ADD b INT")
    again = meeting.begin(meeting.here())
    assert again.id == stretch.id
    assert again.source == stretch.source
    assert meeting.columns() == ["a", "b"]


def test_a_session_behind_a_stored_transaction(meeting: Meeting) -> None:
    """The history ends where reading can go on, also when the last event is a row's."""
    meeting.begin(meeting.here())
    meeting.run("INSERT INTO t VALUES (1)")
    end, gtids = meeting.here(), meeting.gtids()
    # The last event of the transaction, with its checksum.
    last = replace(end, position=(end.position or 0) - 31, gtid=str(gtids))
    stored = LogPosition(LogIdentity("db", 3306), last)
    for _ in range(2):
        stretch = meeting.begin(Place("", 0, gtids, by_gtid=True), stored)
        assert meeting.tsdb.end_event(stretch).order() == last.order()
    meeting.run("ALTER TABLE t ADD b INT")
    assert meeting.begin(meeting.here()).id == stretch.id
    assert meeting.columns() == ["a", "b"]


def test_a_session_behind_a_stored_statement(meeting: Meeting) -> None:
    """A statement that was delivered last is in, and does not come again."""
    start = meeting.here()
    meeting.begin(start)
    meeting.run("ALTER TABLE t ADD b INT")
    (event,) = DdlScanner(CONFIG, access_of(meeting.server), Stop()).between(
        start, meeting.here()
    )
    gtids = meeting.gtids()
    stored = LogPosition(
        LogIdentity("db", 3306), replace(event.position, gtid=str(gtids))
    )
    stretch = meeting.begin(Place("", 0, gtids, by_gtid=True), stored)
    assert meeting.columns() == ["a", "b"]
    assert meeting.tsdb.end_event(stretch).order() == event.position.order()


def test_a_beginning_has_a_time(meeting: Meeting) -> None:
    """Of what was before the first place nothing is told, not even by time."""
    early = meeting.here()
    meeting.run("ALTER TABLE t ADD b INT")
    meeting.begin(early)
    with pytest.raises(TableMetaError):
        meeting.tsdb.place_at(1_000_000_000_000)


def test_what_comes_while_the_place_is_looked_for(meeting: Meeting) -> None:
    """A statement right behind the look counts as one that comes yet."""
    gtids = meeting.gtids()
    look = DdlScanner.first_position

    def look_and_alter(scanner: DdlScanner, place: Any) -> EntryPosition | None:
        found = look(scanner, place)
        meeting.run("ALTER TABLE t ADD b INT")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DdlScanner, "first_position", look_and_alter)
        meeting.begin(Place("", 0, gtids, by_gtid=True))
    assert meeting.is_uncertain()
    meeting.follow(meeting.tsdb.stretches()[0].first)
    assert not meeting.is_uncertain()
    assert meeting.columns() == ["a", "b"]


class TestTakeOver:
    """Another server goes on, and places are told by GTID."""

    @pytest.fixture
    def known(self, meeting: Meeting) -> Any:
        """Give a history of another server that knows of one more column."""
        meeting.begin(meeting.here())
        meeting.run("ALTER TABLE t ADD b INT")
        stretch = meeting.begin(meeting.here())
        meeting.run("INSERT INTO t VALUES (1, 2)")
        meeting.reach()
        meeting.pretend(stretch, "another")
        return meeting.gtids()

    def begin_by(self, meeting: Meeting, gtids: Any) -> Stretch:
        """Begin where a set was executed."""
        return meeting.begin(Place("", 0, gtids, by_gtid=True))

    def test_all_is_known(self, meeting: Meeting, known: Any) -> None:
        """What the other server had is what this one had with the same set."""
        meeting.run("ALTER TABLE t ADD c INT")
        stretch = self.begin_by(meeting, known)
        assert stretch.source != "another"
        assert meeting.columns() == ["a", "b"]
        assert not meeting.is_uncertain()

    def test_some_is_missing(self, meeting: Meeting, known: Any) -> None:
        """Only what the history lacks is read; no doubt is left."""
        del known
        meeting.run("ALTER TABLE t ADD c INT")
        wanted = meeting.gtids()
        meeting.run("ALTER TABLE t ADD d INT")
        self.begin_by(meeting, wanted)
        assert meeting.columns() == ["a", "b", "c"]
        assert not meeting.is_uncertain()

    def test_a_stored_place_of_the_other_server(
        self, meeting: Meeting, known: Any
    ) -> None:
        """A file and offset of another server are not believed for their GTID set."""
        meeting.run("ALTER TABLE t ADD c INT")
        late = replace(meeting.here(), gtid=str(known))
        meeting.run("ALTER TABLE t ADD d INT")
        meeting.begin(
            Place("", 0, known, by_gtid=True),
            LogPosition(LogIdentity("db", 3306), late),
        )
        assert meeting.columns() == ["a", "b"]

    def test_back_again(self, meeting: Meeting, known: Any) -> None:
        """The first server's stretch goes on where it ended."""
        (other,) = meeting.tsdb.stretches()
        stretch = self.begin_by(meeting, known)
        with ControlConnection(access_of(meeting.server)) as control:
            info = read_server_info(control)
            traits = traits_of(control, info)
            meeting.tsdb.identify(stretch, "elsewhere", traits)
            meeting.tsdb.identify(other, source_of(info), traits)
        meeting.run("ALTER TABLE t ADD c INT")
        assert meeting.begin(meeting.here()).id == other.id
        assert meeting.columns() == ["a", "b", "c"]

    def test_ends_with_a_statement(self, meeting: Meeting, known: Any) -> None:
        """The last statement is known, though no set that has it was noted."""
        del known
        (stretch,) = meeting.tsdb.stretches()
        meeting.tsdb.rollback(stretch.last, stretch)
        start = meeting.here()
        meeting.run("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
        meeting.follow(start)
        self.begin_by(meeting, meeting.gtids())
        assert meeting.columns() == ["b", "a"]
        assert not meeting.is_uncertain()

    def test_before_the_history(
        self, meeting: Meeting, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A base is not taken for what was before it: its statements come yet."""
        early = meeting.gtids()
        meeting.run("ALTER TABLE t ADD b INT")
        stretch = meeting.begin(meeting.here())
        meeting.run("INSERT INTO t VALUES (1, 2)")
        meeting.reach()
        meeting.pretend(stretch, "another")
        self.begin_by(meeting, early)
        assert meeting.is_uncertain()
        (line,) = [each for each in caplog.messages if "carried" in each]
        assert "history of server another cannot be carried over to " in line
        assert line.endswith("; all tables are read anew")

    def test_before_the_base(
        self, meeting: Meeting, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nor for a place between the beginning and a statement that it contains."""
        begin, gtids = meeting.here(), meeting.gtids()
        meeting.run("ALTER TABLE t ADD b INT")
        place = Place(begin.journal_name or "", begin.position or 4, gtids)
        stretch = meeting.begin(place)
        meeting.run("INSERT INTO t VALUES (1, 2)")
        meeting.reach()
        meeting.pretend(stretch, "another")
        self.begin_by(meeting, gtids)
        assert meeting.is_uncertain()
        assert "comes only after the place to begin; all" in caplog.text

    def test_statements_without_gtid(
        self, meeting: Meeting, known: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whether they were executed nobody knows: all tables are read anew."""
        (stretch,) = meeting.tsdb.stretches()
        meeting.tsdb.rollback(stretch.last, stretch)
        place = replace(meeting.here(), timestamp=1, server_id=1, gtid=None)
        meeting.tsdb.apply(place, meeting.schema, "ALTER TABLE t ADD z INT")
        meeting.run("SET sql_log_bin = 0", "ALTER TABLE t ADD unlogged INT")
        self.begin_by(meeting, known)
        assert meeting.columns() == ["a", "b", "unlogged"]
        assert f"the statement at {place} has no GTID; all" in caplog.text

    def test_what_keeps_it(self, meeting: Meeting, known: Any) -> None:
        """Each reason is told: what is not known of the stretch, or of the place."""
        (stretch,) = meeting.tsdb.stretches()
        by_gtid = Place("", 0, known, by_gtid=True)
        no_set = replace(stretch.first, gtid=None)
        other = replace(stretch.traits, mariadb=not stretch.traits.mariadb)
        ahead = {"mysql": f"{GTID_AHEAD}:1-9", "mariadb": "99-1-9"}
        ahead_of = replace(stretch.first, gtid=ahead[meeting.server.flavour])
        with meeting.finder() as finder:
            image = finder._take_over.image
            for each, place, why in (
                (replace(stretch, first=no_set), by_gtid, "known of its beginning"),
                (replace(stretch, last=no_set), by_gtid, "known of its end, "),
                (replace(stretch, first=ahead_of), by_gtid, "lacks '"),
                (replace(stretch, traits=other), by_gtid, "that server was a M"),
                (stretch, Place("", 0, None), "has neither GTID set nor time"),
                (
                    stretch,
                    Place("", 0, None, timestamp_ms=1000),
                    "reading begins at 1970-01-01T00:00:01+00:00",
                ),
            ):
                found = image(each, place, list)
                assert isinstance(found, NotCarried)
                assert why in found.why

    def test_a_binlog_begun_anew(self, meeting: Meeting, known: Any) -> None:
        """GTIDs of before may mean something else: the tables are read anew."""
        (stretch,) = meeting.tsdb.stretches()
        with ControlConnection(access_of(meeting.server)) as control:
            source = source_of(read_server_info(control))
        traits = replace(stretch.traits, file_began_ms=1)
        meeting.tsdb.identify(
            stretch, source, replace(traits, file=meeting.here().journal_name or "")
        )
        meeting.run("ALTER TABLE t ADD c INT")
        self.begin_by(meeting, known)
        assert meeting.is_uncertain()


@pytest.fixture(params=["mysql", "mariadb"])
def from_nothing(
    request: pytest.FixtureRequest, own_server: Any, tmp_path: Path
) -> Iterator[Meeting]:
    """Give a history of another server, begun when that had executed nothing."""
    server = own_server(request.param)
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT)")
    server.execute(
        "RESET MASTER" if request.param == "mariadb" else "RESET BINARY LOGS AND GTIDS"
    )
    made = Meeting(server, "d", tmp_path)
    assert not str(made.gtids())
    made.pretend(made.begin(made.here()), "another")
    yield made
    made.tsdb.close()


def test_known_from_the_first_transaction_on(from_nothing: Meeting) -> None:
    """A history that began when nothing was executed is carried over as others are."""
    meeting = from_nothing
    begin = meeting.here()
    meeting.run("ALTER TABLE t RENAME COLUMN a TO b", "INSERT INTO t VALUES (1)")
    meeting.follow(begin)
    meeting.reach()
    known = meeting.gtids()
    meeting.run("ALTER TABLE t RENAME COLUMN b TO c")
    meeting.begin(Place("", 0, known, by_gtid=True))
    assert meeting.columns() == ["b"]
    assert not meeting.is_uncertain()


def test_what_it_lacks_is_purged(
    from_nothing: Meeting, caplog: pytest.LogCaptureFixture
) -> None:
    """Statements behind its end that nobody has now: all tables are read anew."""
    meeting = from_nothing
    meeting.run("ALTER TABLE t RENAME COLUMN a TO b", "FLUSH BINARY LOGS")
    purge(meeting.server, meeting.here().journal_name)
    meeting.begin(Place("", 0, meeting.gtids(), by_gtid=True))
    assert meeting.columns() == ["b"]
    (line,) = [each for each in caplog.messages if "cannot be carried over" in each]
    assert "this server executed between its end, GTID set '', and '" in line
    assert " is purged: " in line


class TestTakeOverByTime:
    """Another server goes on, and places are told by time."""

    NOW_S = 1_900_000_000

    def at(self, meeting: Meeting, timestamp_s: int, statement: str) -> None:
        """Run a statement that begins at a time."""
        meeting.run(f"SET timestamp = {timestamp_s}", statement)

    @pytest.fixture
    def place(self, meeting: Meeting) -> EntryPosition:
        """Give a place of a history that goes on behind it, with a slow statement."""
        stretch = meeting.begin(meeting.here())
        start = meeting.here()
        self.at(meeting, self.NOW_S, "ALTER TABLE t ADD b INT")
        place = meeting.here()
        self.at(meeting, self.NOW_S + 50, "INSERT INTO t VALUES (1, 2)")
        self.at(meeting, self.NOW_S - 10, "ALTER TABLE t ADD slow INT")
        self.at(meeting, self.NOW_S + 60, "ALTER TABLE t ADD late INT")
        meeting.follow(start)
        meeting.reach((self.NOW_S + 100) * 1000)
        assert meeting.columns() == ["a", "b", "slow", "late"]
        meeting.pretend(stretch, "another")
        return place

    def begin_at(self, meeting: Meeting, place: EntryPosition, time_s: int) -> None:
        """Begin at a place that was found by time."""
        meeting.begin(
            Place(
                place.journal_name or "",
                place.position or 4,
                None,
                timestamp_ms=time_s * 1000,
            )
        )

    def test_what_was_executed(self, meeting: Meeting, place: EntryPosition) -> None:
        """A statement counts by its place where it took longer than others."""
        self.begin_at(meeting, place, self.NOW_S + 40)
        assert meeting.columns() == ["a", "b"]
        assert not meeting.is_uncertain()

    @pytest.mark.parametrize("seconds", [-(10**9), 200], ids=["before", "behind"])
    def test_outside(
        self, meeting: Meeting, place: EntryPosition, seconds: int
    ) -> None:
        """Times that the history does not reach tell nothing: tables are read anew."""
        self.begin_at(meeting, place, self.NOW_S + seconds)
        assert meeting.is_uncertain()
