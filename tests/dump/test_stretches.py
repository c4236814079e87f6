"""How the table history meets the place where a session begins, on real servers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fix_source_access import access_of

from canal_server.config.schema import InstanceConfig
from canal_server.core.gtid import GtidSet
from canal_server.core.maria_gtid import MariaGtidSet
from canal_server.dump.ddl_scan import DdlScanner
from canal_server.dump.places import SourceFiles
from canal_server.dump.scan import Scanner
from canal_server.dump.source_traits import source_of, traits_of
from canal_server.dump.start import Place
from canal_server.dump.stretches import StretchFinder
from canal_server.errors import BinlogPurged
from canal_server.lifecycle import Stop
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.mysql.binlogs import binary_logs
from canal_server.mysql.collations import collation_names
from canal_server.mysql.connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.tablemeta.storage_sqlite import FILE_NAME, SqliteHistoryStorage
from canal_server.tablemeta.tsdb import TableMetaTsdb

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from servers import Server

    from canal_server.tablemeta.storage import Stretch

CONFIG = InstanceConfig(destination="stretches")


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

    def begin(
        self, place: EntryPosition | Place, stored: LogPosition | None = None
    ) -> Stretch:
        """Begin a session at a place; returns the stretch in which it is."""
        if isinstance(place, EntryPosition):
            place = Place(place.journal_name or "", place.position or 4, None)
        access = access_of(self.server)
        with ControlConnection(access) as control:
            finder = StretchFinder(
                self.tsdb,
                control,
                read_server_info(control),
                destination=CONFIG.destination,
                scanner=DdlScanner(CONFIG, access, Stop()),
                files=SourceFiles(tuple(binary_logs(control))),
                first_event_ms=Scanner(CONFIG, access, Stop()).first_event_ms,
                collations=collation_names(control),
            )
            self.tsdb.rollback(*finder.find(place, stored))
        assert self.tsdb.stretch is not None
        return self.tsdb.stretch

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


class TestTakeOver:
    """Another server goes on, and places are told by GTID."""

    @pytest.fixture
    def known(self, meeting: Meeting) -> Any:
        """Give a history of another server that knows of one more column."""
        meeting.begin(meeting.here())
        meeting.run("ALTER TABLE t ADD b INT")
        stretch = meeting.begin(meeting.here())
        meeting.run("INSERT INTO t VALUES (1, 2)")
        gtids = meeting.gtids()
        meeting.tsdb.reached(replace(meeting.here(), gtid=str(gtids)))
        meeting.pretend(stretch, "another")
        return gtids

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
