"""Where in the binlog to start: each branch of the decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from canal_server.config.schema import HostConfig
from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import BinlogPurged, PositionError, SourceError
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.mysql.binlogs import BinaryLog
from canal_server.mysql.flavour import Flavour, ServerInfo
from canal_server.mysql.replication import FileStart, GtidStart, MariaGtidStart
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.source.begin.search import BinlogSearch
from canal_server.source.begin.start_finder import Start, StartFinder
from canal_server.source.read.available_positions import SourceFiles
from canal_server.source.read.binlog_scan import SeenEvent
from canal_server.source.read.start_position import StartPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

SID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
HERE = LogIdentity("db", 3306)
ELSEWHERE = LogIdentity("standby", 3306)
HOUR_MS = 3_600_000
NOW_MS = 4 * HOUR_MS
SERVER_ID = 1

# The binlog of the fake server: when each file begins, and where its last transaction
# before a time ends.
FILES = {f"bin.{number:06}": number * HOUR_MS for number in (1, 2, 3)}


class FakeConnection:
    """Answers the queries of the binlog."""

    access = Access(address=Address("db"), credentials=Credentials("canal", ""))

    def __init__(self, *, mariadb: bool) -> None:
        self.mariadb = mariadb

    def query(self, sql: str, arguments: object = ()) -> Sequence[tuple[object, ...]]:
        """Answer a statement."""
        if sql == "SELECT UNIX_TIMESTAMP()":
            return [(NOW_MS // 1000,)]
        if sql == "SHOW BINARY LOGS":
            return [(name, 1000) for name in FILES]
        if "STATUS" in sql:
            row = ("bin.000003", 999, "", "")
            return [row if self.mariadb else (*row, f"{SID}:1-9")]
        assert sql == "SELECT @@global.gtid_binlog_pos"
        return [("0-1-9",)]


def server_info(*, mariadb: bool) -> ServerInfo:
    """Return the properties of the fake server."""
    fields = ServerInfo.__dataclass_fields__
    values: dict[str, Any] = {
        "flavour": Flavour.MARIADB if mariadb else Flavour.MYSQL,
        "version": (10, 11, 0) if mariadb else (9, 0, 0),
        "server_id": SERVER_ID,
        "version_text": "1.0",
    }
    return ServerInfo(**{name: values.get(name, "") for name in fields})


class Scans:
    """A scanner that answers from FILES, and records its queries."""

    def __init__(self, *, mariadb: bool = False) -> None:
        self.mariadb = mariadb
        self.boundaries: list[tuple[str, int]] = []
        self.gtids: list[tuple[str, int]] = []
        self.opened: list[str] = []
        # The event at each position: its time (s), or an error.
        self.event: int | SourceError | None = 0
        self.inside = (
            0  # a transaction has started this many bytes before each position
        )

    def first_event_ms(self, file: str) -> int:
        """Return when the file begins."""
        self.opened.append(file)
        return FILES[file]

    def boundary_before(
        self, file: str, timestamp_ms: int, start: int, note: object
    ) -> int | None:
        """Return a transaction's end half an hour after the file's start."""
        assert (start, note) == (4, None)
        self.boundaries.append((file, timestamp_ms))
        return 500 if timestamp_ms > FILES[file] + HOUR_MS // 2 else None

    def executed_at(
        self, file: str, offset: int, *, mariadb: bool, start: int, known: str
    ) -> tuple[int, GtidSet | MariaGtidSet]:
        """Return a set that shows that it was scanned."""
        assert (mariadb, start, known) == (self.mariadb, 0, "")
        self.gtids.append((file, offset))
        text = "0-1-5" if self.mariadb else f"{SID}:1-5"
        kind = MariaGtidSet if self.mariadb else GtidSet
        return offset - self.inside, kind.parse(text)

    def event_at(self, file: str, offset: int) -> SeenEvent | None:
        """Return the event there."""
        if isinstance(self.event, SourceError):
            raise self.event
        if self.event is None:
            return None
        return SeenEvent(frozenset((self.event,)), SERVER_ID)


def start(
    stored: LogPosition | None = None,
    *,
    gtid_on: bool = False,
    mariadb: bool = False,
    fallback_s: int = 60,
    scans: Scans | None = None,
    changed: bool = False,
    others: bool = False,
    **configured: object,
) -> Start:
    """Return the start, and the reason."""
    scans = scans or Scans(mariadb=mariadb)
    search = BinlogSearch(scans, mariadb=mariadb)  # type: ignore[arg-type]
    return StartFinder(
        connection=FakeConnection(mariadb=mariadb),  # type: ignore[arg-type]
        info=server_info(mariadb=mariadb),
        identity=HERE,
        configured=HostConfig(**configured),  # type: ignore[arg-type]
        gtid_on=gtid_on,
        fallback_interval_s=fallback_s,
        files=SourceFiles(tuple(BinaryLog(name, 1000) for name in FILES)),
        search=search,
        last_source_is_other=changed,
        was_read=others,
        others_were_read=others or changed,
    ).find(stored)


def found(stored: LogPosition | None = None, **options: Any) -> StartPosition:
    """Return the start position."""
    return start(stored, **options).position


def stored_at(
    file: str | None = "bin.000002",
    offset: int | None = 700,
    when: int | None = None,
    *,
    gtid: str | None = None,
    identity: LogIdentity = HERE,
    server_id: int = SERVER_ID,
) -> LogPosition:
    """Return a stored position."""
    return LogPosition(identity, EntryPosition(file, offset, when, server_id, gtid))


# --- nothing stored -----------------------------------------------------------------


def test_nothing_known_starts_at_the_end() -> None:
    """Without anything stored or configured, only new changes are read."""
    position = found()
    assert position == StartPosition(
        "bin.000003", 999, None, time_ms=NOW_MS, is_end=True
    )
    assert position.dump_start() == FileStart("bin.000003", 999)
    assert str(position) == "bin.000003:999"


@pytest.mark.parametrize(("mariadb", "gtids"), [(False, f"{SID}:1-9"), (True, "0-1-9")])
def test_the_end_in_gtid_mode(gtids: str, *, mariadb: bool) -> None:
    """In GTID mode the end has the set that was executed there."""
    position = found(gtid_on=True, mariadb=mariadb)
    assert (position.file, position.position, str(position.gtids)) == (
        "bin.000003",
        999,
        gtids,
    )
    assert position.dump_start() == FileStart("bin.000003", 999)


def test_configured_file_and_position() -> None:
    """A configured position is used unchanged."""
    assert found(journal_name="bin.000001", position=400) == StartPosition(
        "bin.000001", 400, None
    )


def test_configured_file_alone() -> None:
    """A configured file is read from its first event."""
    assert found(journal_name="bin.000001") == StartPosition("bin.000001", 4, None)


def test_configured_file_and_time() -> None:
    """A time is searched in the configured file; from its start when all is younger."""
    early, late = 2 * HOUR_MS, 3 * HOUR_MS
    assert found(journal_name="bin.000002", timestamp_ms=late).position == 500
    assert found(journal_name="bin.000002", timestamp_ms=early).position == 4


def test_configured_position_in_gtid_mode() -> None:
    """A position of a file gets the set executed there, by reading the file."""
    scans = Scans()
    position = found(gtid_on=True, journal_name="bin.000001", position=400, scans=scans)
    assert scans.gtids == [("bin.000001", 400)]
    assert str(position.gtids) == f"{SID}:1-5"
    assert position.dump_start() == FileStart("bin.000001", 400)


def test_configured_position_inside_of_a_transaction() -> None:
    """In GTID mode it moves to the start of that one: its set lacks the GTID."""
    scans = Scans()
    scans.inside = 100
    shown = start(gtid_on=True, journal_name="bin.000001", position=400, scans=scans)
    assert (shown.position.file, shown.position.position) == ("bin.000001", 300)
    assert "bin.000001:400 is inside a transaction" in shown.why


@pytest.mark.parametrize("name", ["oldest", "OLDEST"])
def test_oldest(name: str) -> None:
    """The word means the first file that the source has, as a whole."""
    scans = Scans()
    assert found(journal_name=name) == StartPosition("bin.000001", 4, None)
    position = found(journal_name=name, gtid_on=True, scans=scans)
    assert (position.position, str(position.gtids)) == (4, f"{SID}:1-5")
    assert scans.gtids == [("bin.000001", 4)]


def test_oldest_without_any_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file there is no oldest one."""
    monkeypatch.setattr(FakeConnection, "query", lambda *_: [])
    with pytest.raises(PositionError, match="lists no binlog"):
        found(journal_name="oldest")


def test_configured_gtids() -> None:
    """A configured set is requested by GTID, before a configured file."""
    position = found(gtid_on=True, gtid=f"{SID}:1-3", journal_name="bin.000001")
    assert position.by_gtid
    assert position.dump_start() == GtidStart(GtidSet.parse(f"{SID}:1-3").encode())
    assert str(position) == f"GTID set '{SID}:1-3'"
    maria = found(gtid_on=True, mariadb=True, gtid="0-1-3")
    assert maria.dump_start() == MariaGtidStart("0-1-3")


def test_configured_gtids_outside_gtid_mode() -> None:
    """Without GTID mode a configured set is ignored."""
    assert found(gtid=f"{SID}:1-3", journal_name="bin.000001").file == "bin.000001"


@pytest.mark.parametrize("mariadb", [False, True])
def test_broken_gtids(*, mariadb: bool) -> None:
    """An invalid set is quoted."""
    with pytest.raises(PositionError, match="'nonsense'"):
        found(gtid_on=True, gtid="nonsense", mariadb=mariadb)


# --- by time ------------------------------------------------------------------------


def test_a_time_to_come() -> None:
    """Everything is older, which may be a typing error: the log says so."""
    assert "in the future)" in start(timestamp_ms=10**15).why


def test_time_within_a_file() -> None:
    """The newest file that begins before the time is searched."""
    scans = Scans()
    shown = start(timestamp_ms=2 * HOUR_MS + HOUR_MS * 3 // 4, scans=scans)
    position = shown.position
    assert (
        shown.why == "configured time 9900000, by reading bin.000002 from its beginning"
    )
    assert len(scans.opened) == 2, "not all files are asked when they began"
    assert (position.file, position.position) == ("bin.000002", 500)
    assert [file for file, _ in scans.boundaries] == ["bin.000002"]


def test_time_before_a_files_first_transaction() -> None:
    """Where no transaction of the file is older, it is read from its first event."""
    position = found(timestamp_ms=2 * HOUR_MS + 1)
    assert (position.file, position.position) == ("bin.000002", 4)


def test_time_in_the_future() -> None:
    """A time in the future starts after the last transaction."""
    position = found(timestamp_ms=9 * HOUR_MS)
    assert (position.file, position.position) == ("bin.000003", 500)


def test_time_before_all_files() -> None:
    """The error for a time that the server no longer has names the oldest file."""
    with pytest.raises(PositionError, match=r"bin\.000001, starts later"):
        found(timestamp_ms=HOUR_MS // 2)


def test_time_without_any_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without binlogs is reported as such."""
    monkeypatch.setattr(FakeConnection, "query", lambda *_: [])
    with pytest.raises(PositionError, match="none, starts later"):
        found(timestamp_ms=HOUR_MS)


# --- something stored ---------------------------------------------------------------


def test_stored_position_comes_first() -> None:
    """A stored position takes precedence over a configured one."""
    shown = start(stored_at(), journal_name="bin.000001", gtid=f"{SID}:1-3")
    assert shown.position == StartPosition("bin.000002", 700, None)
    assert shown.why == "stored position db:3306/bin.000002:700"
    assert not shown.voids_stored


def test_stored_gtids() -> None:
    """In GTID mode a stored set is used, on another server as well."""
    for identity in (HERE, ELSEWHERE):
        stored = stored_at(gtid=f"{SID}:1-7", identity=identity)
        position = found(stored, gtid_on=True)
        assert position.by_gtid
        assert str(position.gtids) == f"{SID}:1-7"
        assert not found(stored_at(gtid=f"{SID}:1-7")).by_gtid


def test_stored_position_without_gtids_in_gtid_mode() -> None:
    """A position stored before GTID mode gets its set from the file."""
    scans = Scans()
    position = found(stored_at(), gtid_on=True, scans=scans)
    assert (position.file, position.position, position.by_gtid) == (
        "bin.000002",
        700,
        False,
    )
    assert scans.gtids == [("bin.000002", 700)]


def test_stored_position_of_another_server() -> None:
    """Offsets mean nothing on another server: its time is searched, minus a margin."""
    scans = Scans()
    when = 3 * HOUR_MS + 59_000
    position = found(
        stored_at("bin.000009", 77, when, identity=ELSEWHERE),
        scans=scans,
        fallback_s=60,
    )
    assert position.file == "bin.000002"
    assert scans.boundaries == [("bin.000002", when - 60_000)]


def test_stored_position_of_another_server_without_time() -> None:
    """Without a time there is no position on another server."""
    with pytest.raises(PositionError, match="another server"):
        found(stored_at(identity=ELSEWHERE))


# --- another server at the same address ---------------------------------------------

WHEN = 3 * HOUR_MS + 59_000
PURGED = BinlogPurged("gone", errno=1236)
AMID = SourceError("bogus data", errno=1236)


def test_event_that_was_stored() -> None:
    """A stored position counts when the event there has its time."""
    scans = Scans()
    scans.event = WHEN // 1000
    stored = stored_at(when=WHEN, server_id=77)  # a replica's events keep their ids
    assert found(stored, scans=scans) == StartPosition("bin.000002", 700, None)


def test_server_known_to_be_another() -> None:
    """Whatever is at the position, stored files and offsets are void."""
    scans = Scans()
    scans.event = WHEN // 1000
    shown = start(stored_at(when=WHEN), scans=scans, changed=True)
    assert shown.voids_stored
    assert shown.position.timestamp_ms == WHEN - 60_000
    assert scans.boundaries == [("bin.000002", WHEN - 60_000)]
    assert "stored position db:3306/bin.000002:700, of another server" in shown.why
    # A server read earlier has the position, if the event is there.
    back = start(stored_at(when=WHEN), scans=scans, changed=True, others=True)
    assert back.position == StartPosition("bin.000002", 700, None)
    by_set = start(stored_at(gtid=f"{SID}:1-7"), gtid_on=True, changed=True)
    assert by_set.position.by_gtid
    assert by_set.voids_stored


@pytest.mark.parametrize("event", [WHEN // 1000 + 1, None, PURGED, AMID])
@pytest.mark.parametrize("known_by", ["id", "history"])
def test_server_seen_to_be_another(event: Any, known_by: str) -> None:
    """If the event is missing and ids differ or others were read, it is another."""
    scans = Scans()
    scans.event = event
    stored = stored_at(when=WHEN, server_id=77 if known_by == "id" else SERVER_ID)
    shown = start(stored, scans=scans, others=known_by == "history")
    assert shown.voids_stored
    assert shown.position.timestamp_ms == WHEN - 60_000


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (WHEN // 1000 + 1, "the binlog was reset"),
        (None, "binlog has no event"),
        (PURGED, "gone"),
        (AMID, "bogus"),
    ],
)
def test_position_that_this_server_lost(event: Any, error: str) -> None:
    """On the same server the error says so: what is missing cannot appear."""
    scans = Scans()
    scans.event = event
    with pytest.raises(SourceError, match=error) as raised:
        found(stored_at(when=WHEN), scans=scans)
    assert isinstance(raised.value, BinlogPurged) is (event is not AMID)


def test_file_that_this_server_never_had() -> None:
    """A file or an offset after the end is equivalent to purged."""
    for position in (("bin.000009", 4), ("bin.000003", 1001), ("log.000002", 4)):
        with pytest.raises(BinlogPurged, match=r"bin.000001 … bin.000003"):
            found(stored_at(*position))


def test_time_that_another_server_lost() -> None:
    """A time from before its binlog is equivalent to a purged position."""
    stored = stored_at(when=HOUR_MS + 30_000, identity=ELSEWHERE)
    with pytest.raises(BinlogPurged, match="of another server: can't find start"):
        found(stored)
    scans = Scans()
    scans.event = PURGED
    with pytest.raises(BinlogPurged, match="gone"):
        found(stored_at(when=1, server_id=77), scans=scans)


def test_lost_connection_while_the_position_is_checked() -> None:
    """A lost connection proves nothing about the position."""
    scans = Scans()
    scans.event = SourceError("lost", errno=2013)
    with pytest.raises(SourceError, match="lost"):
        found(stored_at(when=WHEN, server_id=77), scans=scans)


def test_stored_time() -> None:
    """A position without a file is a time."""
    scans = Scans()
    position = found(stored_at(None, None, 3 * HOUR_MS), scans=scans)
    assert position.file == "bin.000002"
    assert scans.boundaries == [("bin.000002", 3 * HOUR_MS - 60_000)]


def test_stored_nothing() -> None:
    """A position without file and time is refused instead of guessed."""
    with pytest.raises(PositionError, match="without a file, and has no time"):
        found(stored_at(None, None))
