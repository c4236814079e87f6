"""Where in the binlog to begin: each branch of the decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from canal_server.config.schema import HostConfig
from canal_server.core.gtid import GtidSet
from canal_server.core.maria_gtid import MariaGtidSet
from canal_server.dump.start import Place, StartFinder
from canal_server.errors import PositionError
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.mysql.flavour import Flavour, ServerInfo
from canal_server.mysql.replication import FileStart, GtidStart, MariaGtidStart

if TYPE_CHECKING:
    from collections.abc import Sequence

SID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
HERE = LogIdentity("db", 3306)
ELSEWHERE = LogIdentity("standby", 3306)
HOUR_MS = 3_600_000

# The binlog of the fake server: when each file begins, and where its last transaction
# before a time ends.
FILES = {f"bin.{number:06}": number * HOUR_MS for number in (1, 2, 3)}


class FakeConnection:
    """Answers what is asked about the binlog."""

    access = None

    def __init__(self, *, mariadb: bool) -> None:
        self.mariadb = mariadb

    def query(self, sql: str, arguments: object = ()) -> Sequence[tuple[object, ...]]:
        """Answer a statement."""
        if sql == "SHOW BINARY LOGS":
            return [(name, 1000) for name in FILES]
        if "STATUS" in sql:
            return [("bin.000003", 999, "", "", f"{SID}:1-9")]
        assert sql == "SELECT @@global.gtid_binlog_pos"
        return [("0-1-9",)]


def server_info(*, mariadb: bool) -> ServerInfo:
    """Return what is known of the fake server."""
    fields = ServerInfo.__dataclass_fields__
    values: dict[str, Any] = {
        "flavour": Flavour.MARIADB if mariadb else Flavour.MYSQL,
        "version": (10, 11, 0) if mariadb else (9, 0, 0),
    }
    return ServerInfo(**{name: values.get(name, "") for name in fields})


class Scans:
    """The three questions about files, answered from FILES and noted."""

    def __init__(self, *, mariadb: bool = False) -> None:
        self.mariadb = mariadb
        self.boundaries: list[tuple[str, int]] = []
        self.gtids: list[tuple[str, int]] = []

    def first_event_ms(self, file: str) -> int:
        """Return when the file begins."""
        return FILES[file]

    def boundary_before(self, file: str, timestamp_ms: int) -> int | None:
        """Return a transaction's end half an hour after the file's beginning."""
        self.boundaries.append((file, timestamp_ms))
        return 500 if timestamp_ms > FILES[file] + HOUR_MS // 2 else None

    def scan_gtids(self, file: str, offset: int) -> GtidSet | MariaGtidSet:
        """Return a set that tells that it was scanned."""
        self.gtids.append((file, offset))
        text = "0-1-5" if self.mariadb else f"{SID}:1-5"
        return (MariaGtidSet if self.mariadb else GtidSet).parse(text)


def found(
    stored: LogPosition | None = None,
    *,
    gtid_on: bool = False,
    mariadb: bool = False,
    at_end: bool = False,
    fallback_s: int = 60,
    scans: Scans | None = None,
    **configured: object,
) -> Place:
    """Return where it begins."""
    scans = scans or Scans(mariadb=mariadb)
    return StartFinder(
        connection=FakeConnection(mariadb=mariadb),  # type: ignore[arg-type]
        info=server_info(mariadb=mariadb),
        identity=HERE,
        configured=HostConfig(**configured),  # type: ignore[arg-type]
        gtid_on=gtid_on,
        fallback_interval_s=fallback_s,
        first_event_ms=scans.first_event_ms,
        boundary_before=scans.boundary_before,
        scan_gtids=scans.scan_gtids,
    ).find(stored, at_end=at_end)


def stored_at(
    file: str | None = "bin.000002",
    offset: int | None = 700,
    when: int | None = None,
    *,
    gtid: str | None = None,
    identity: LogIdentity = HERE,
) -> LogPosition:
    """Return a stored position."""
    return LogPosition(identity, EntryPosition(file, offset, when, 1, gtid))


# --- nothing stored -----------------------------------------------------------------


def test_nothing_known_begins_at_the_end() -> None:
    """Without anything stored or configured, what is new from now on comes."""
    place = found()
    assert place == Place("bin.000003", 999, None)
    assert place.dump_start() == FileStart("bin.000003", 999)
    assert str(place) == "bin.000003:999"


@pytest.mark.parametrize(("mariadb", "gtids"), [(False, f"{SID}:1-9"), (True, "0-1-9")])
def test_the_end_in_gtid_mode(gtids: str, *, mariadb: bool) -> None:
    """In GTID mode the end is known with the set that was executed there."""
    place = found(gtid_on=True, mariadb=mariadb)
    assert (place.file, place.position, str(place.gtids)) == ("bin.000003", 999, gtids)
    assert place.dump_start() == FileStart("bin.000003", 999)


def test_configured_file_and_position() -> None:
    """A configured place is taken as it is."""
    assert found(journal_name="bin.000001", position=400) == Place(
        "bin.000001", 400, None
    )


def test_configured_file_alone() -> None:
    """A configured file is read from its first event."""
    assert found(journal_name="bin.000001") == Place("bin.000001", 4, None)


def test_configured_file_and_time() -> None:
    """With a time, the file is searched for it; from its start when all is younger."""
    early, late = 2 * HOUR_MS, 3 * HOUR_MS
    assert found(journal_name="bin.000002", timestamp_ms=late).position == 500
    assert found(journal_name="bin.000002", timestamp_ms=early).position == 4


def test_configured_position_in_gtid_mode() -> None:
    """A place of a file gets the set that was executed there, by reading the file."""
    scans = Scans()
    place = found(gtid_on=True, journal_name="bin.000001", position=400, scans=scans)
    assert scans.gtids == [("bin.000001", 400)]
    assert str(place.gtids) == f"{SID}:1-5"
    assert place.dump_start() == FileStart("bin.000001", 400)


def test_configured_gtids() -> None:
    """A configured set is asked for by GTID, before a configured file."""
    place = found(gtid_on=True, gtid=f"{SID}:1-3", journal_name="bin.000001")
    assert place.by_gtid
    assert place.dump_start() == GtidStart(GtidSet.parse(f"{SID}:1-3").encode())
    assert str(place) == f"GTID set '{SID}:1-3'"
    maria = found(gtid_on=True, mariadb=True, gtid="0-1-3")
    assert maria.dump_start() == MariaGtidStart("0-1-3")


def test_configured_gtids_outside_gtid_mode() -> None:
    """Without GTID mode a configured set is not looked at."""
    assert found(gtid=f"{SID}:1-3", journal_name="bin.000001").file == "bin.000001"


@pytest.mark.parametrize("mariadb", [False, True])
def test_broken_gtids(*, mariadb: bool) -> None:
    """A set that cannot be read is quoted."""
    with pytest.raises(PositionError, match="'nonsense'"):
        found(gtid_on=True, gtid="nonsense", mariadb=mariadb)


# --- by time ------------------------------------------------------------------------


def test_time_within_a_file() -> None:
    """The newest file that begins before the time is searched."""
    scans = Scans()
    place = found(timestamp_ms=2 * HOUR_MS + HOUR_MS * 3 // 4, scans=scans)
    assert (place.file, place.position) == ("bin.000002", 500)
    assert [file for file, _ in scans.boundaries] == ["bin.000002"]


def test_time_before_a_files_first_transaction() -> None:
    """Where no transaction of the file is older, it is read from its first event."""
    place = found(timestamp_ms=2 * HOUR_MS + 1)
    assert (place.file, place.position) == ("bin.000002", 4)


def test_time_in_the_future() -> None:
    """A time to come begins behind the last transaction."""
    place = found(timestamp_ms=9 * HOUR_MS)
    assert (place.file, place.position) == ("bin.000003", 500)


def test_time_before_all_files() -> None:
    """A time that the server no longer has names the oldest file."""
    with pytest.raises(PositionError, match=r"bin\.000001, begins later"):
        found(timestamp_ms=HOUR_MS // 2)


def test_time_without_any_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without binlogs is told as such."""
    monkeypatch.setattr(FakeConnection, "query", lambda *_: [])
    with pytest.raises(PositionError, match="none, begins later"):
        found(timestamp_ms=HOUR_MS)


# --- something stored ---------------------------------------------------------------


def test_stored_position_comes_first() -> None:
    """What is stored is newer than what is configured."""
    place = found(stored_at(), journal_name="bin.000001", gtid=f"{SID}:1-3")
    assert place == Place("bin.000002", 700, None)


def test_stored_gtids() -> None:
    """In GTID mode a stored set is used, on another server as well."""
    for identity in (HERE, ELSEWHERE):
        stored = stored_at(gtid=f"{SID}:1-7", identity=identity)
        place = found(stored, gtid_on=True)
        assert place.by_gtid
        assert str(place.gtids) == f"{SID}:1-7"
        assert not found(stored_at(gtid=f"{SID}:1-7")).by_gtid


def test_stored_position_without_gtids_in_gtid_mode() -> None:
    """A position that was stored before GTID mode gets its set from the file."""
    scans = Scans()
    place = found(stored_at(), gtid_on=True, scans=scans)
    assert (place.file, place.position, place.by_gtid) == ("bin.000002", 700, False)
    assert scans.gtids == [("bin.000002", 700)]


def test_stored_position_of_another_server() -> None:
    """Offsets mean nothing on another server: its time is searched, and some before."""
    scans = Scans()
    when = 3 * HOUR_MS + 59_000
    place = found(
        stored_at("bin.000009", 77, when, identity=ELSEWHERE),
        scans=scans,
        fallback_s=60,
    )
    assert place.file == "bin.000002"
    assert scans.boundaries == [("bin.000002", when - 60_000)]


def test_stored_position_of_another_server_without_time() -> None:
    """Without a time there is no place on another server."""
    with pytest.raises(PositionError, match="another server"):
        found(stored_at(identity=ELSEWHERE))


def test_stored_time() -> None:
    """A position without a file is a time."""
    scans = Scans()
    place = found(stored_at(None, None, 3 * HOUR_MS), scans=scans)
    assert place.file == "bin.000002"
    assert scans.boundaries == [("bin.000002", 3 * HOUR_MS - 60_000)]


def test_stored_nothing() -> None:
    """A position that says nothing is refused instead of guessed."""
    with pytest.raises(PositionError, match="names no file and no time"):
        found(stored_at(None, None))


@pytest.mark.parametrize("gtid_on", [False, True])
def test_purged_position_gone_by_configuration(*, gtid_on: bool) -> None:
    """When the operator wants it, a position that is gone gives way to the end."""
    stored = stored_at(gtid=f"{SID}:1-3")
    assert found(stored, at_end=True, gtid_on=gtid_on).file == "bin.000003"
