"""The next session after one that could not continue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from canal_server.config.schema import HostConfig, InstanceConfig, SourceConfig
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import BinlogPurged, ConnectionLost, InsideTransaction
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.mysql.binlogs import BinaryLog
from canal_server.mysql.flavour import server_info
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.runtime.lifecycle import Stop
from canal_server.source.begin import session_start
from canal_server.source.begin.session_start import (
    CURSORS_MAX,
    REFUSALS_TOLERATED,
    SessionStart,
)
from canal_server.source.begin.source_servers import MASTER, Source
from canal_server.source.begin.start_finder import Start, StartFinder
from canal_server.source.read.available_positions import SourceFiles
from canal_server.source.read.start_position import StartPosition

if TYPE_CHECKING:
    from collections.abc import Iterable

SID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
ACCESS = Access(address=Address("db", 1), credentials=Credentials("u", ""))
FILES = SourceFiles((BinaryLog("bin.000002", 500), BinaryLog("bin.000003", 900)))
POSITION = StartPosition("bin.000003", 400, None)
PURGED = BinlogPurged("gone")


STORED = LogPosition(LogIdentity("db", 1), EntryPosition("bin.000003", 400, 1, 1))


class Executed:
    """A search that knows how many transactions end up to each position."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def covers(self, gtids: Any, file: str, offset: int) -> bool:
        """Return whether a set has one transaction for each hundred bytes."""
        self.asked.append((file, offset))
        return bool(gtids.contains(GtidSet.parse(f"{SID}:1-{offset // 100}")))


class Found(StartFinder):
    """A finder that finds the same position each time."""

    start = Start(POSITION, "it is stored")

    def find(self, stored: LogPosition | None) -> Start:
        """Return the position."""
        return self.start


@pytest.fixture(autouse=True)
def search(monkeypatch: pytest.MonkeyPatch) -> Executed:
    """Find each start without a source; give the search that is made there."""
    made = Executed()
    monkeypatch.setattr(session_start, "StartFinder", Found)
    monkeypatch.setattr(session_start, "BinlogSearch", lambda *_, **__: made)
    return made


def begin(
    made: SessionStart,
    position: StartPosition,
    cursors: Iterable[EntryPosition] = (),
    *,
    voids_stored: bool = False,
    server: str = "uuid-1",
) -> None:
    """Start a session at a position of a server, for clients with these cursors."""
    Found.start = Start(position, "it is stored", voids_stored=voids_stored)
    connection: Any = None  # it is not asked
    info = server_info({"version": "9.0.0", "server_uuid": server})
    read = Source(MASTER, ACCESS, HostConfig())
    made.find(connection, info, read, STORED, read_before=(), cursors=cursors)


def beginning(
    *, auto_reset: bool = True, position: StartPosition | None = POSITION
) -> SessionStart:
    """Return a SessionStart whose session started at a position, None: has none."""
    source = SourceConfig(auto_reset_latest=auto_reset, gtid_sets=False)
    config = InstanceConfig(destination="d", source=source)
    made = SessionStart(config, ACCESS, Stop())
    made.files = FILES
    if position is not None:
        begin(made, position)
    return made


def test_refusals_are_counted() -> None:
    """Only after the third missing position in a row the end is used."""
    made = beginning()
    for _ in range(REFUSALS_TOLERATED):
        assert not made.failed(PURGED, passed=False)
        assert made.is_counting
        assert not made.goes_to_end
    assert made.failed(PURGED, passed=False)
    assert made.goes_to_end
    assert not made.is_counting


def test_refusals_not_in_a_row() -> None:
    """A session that reads resets the count, and so does another server."""
    made = beginning()
    for forget in (made.reads, lambda: made.turn_to(ACCESS, Stop())):
        for _ in range(REFUSALS_TOLERATED):
            assert not made.failed(PURGED, passed=False)
        forget()
        assert not made.failed(PURGED, passed=False)
        made.reads()


def test_what_does_not_count() -> None:
    """A lost connection proves nothing about the position."""
    made = beginning()
    for _ in range(2 * REFUSALS_TOLERATED):
        assert not made.failed(ConnectionLost("lost"), passed=False)
        assert not made.is_counting
    assert not made.position_is_lost


def test_the_end_is_configured() -> None:
    """A lost position is known as such, but only a setting switches to the end."""
    made = beginning(auto_reset=False)
    for number in range(2 * REFUSALS_TOLERATED):
        assert made.failed(PURGED, passed=False) == (number == REFUSALS_TOLERATED)
        assert made.is_counting == (number < REFUSALS_TOLERATED)
        assert made.position_is_lost != made.is_counting
    assert not made.goes_to_end


def test_inside_of_a_transaction() -> None:
    """It moves back once, and only from a position in a file that was the start."""
    error = InsideTransaction("rows")
    made = beginning()
    assert made.failed(error, passed=False)
    assert not made.failed(error, passed=False), "it never loops"
    assert not beginning().failed(error, passed=True)
    by_gtid = StartPosition("", 0, GtidSet(), by_gtid=True)
    for position in (None, by_gtid):
        assert not beginning(position=position).failed(error, passed=False)


# --- cursors --------------------------------------------------------------------------


def cursor(file: str, offset: int, numbers: str = "") -> EntryPosition:
    """Return a client's position."""
    return EntryPosition(file, offset, 1, 1, f"{SID}:{numbers}" if numbers else None)


def skips(made: SessionStart, position: EntryPosition) -> bool:
    """Return whether a client needs nothing before a position."""
    return made.skips(position, "bin.000003", (3, 1500))


def test_cursors_of_files() -> None:
    """A client needs nothing before its position, if that is in this binlog."""
    made = beginning()
    assert skips(made, cursor("bin.000003", 900))
    assert skips(made, cursor("bin.000001", 9999))
    assert skips(made, cursor("bin.000003", 1500)), "acked since"
    assert not skips(made, cursor("bin.000003", 1501))
    assert not skips(made, cursor("log.000003", 100))
    assert skips(made, cursor("bin.000003", 400))
    assert made.failed(InsideTransaction("rows"), passed=False)
    assert not skips(made, cursor("bin.000003", 400)), "the whole transaction comes"
    begin(elsewhere := beginning(position=None), POSITION, voids_stored=True)
    assert not skips(elsewhere, cursor("bin.000003", 900))
    assert skips(beginning(position=None), cursor("log.000003", 100))


def test_cursors_by_gtid(search: Executed) -> None:
    """File and offset count when the set has everything executed up to there."""
    position = StartPosition("", 0, GtidSet.parse(f"{SID}:1-2"), by_gtid=True)
    covered, lacking = (
        cursor("bin.000003", 400, "1-4"),
        cursor("bin.000003", 800, "1-5"),
    )
    own, elsewhere = cursor("bin.000003", 200, "1-2"), cursor("bin.000009", 4, "1-9")
    broken = EntryPosition("bin.000003", 300, 1, 1, "nonsense")
    cursors = (covered, lacking, own, elsewhere, broken)
    made = beginning(position=None)
    begin(made, position, cursors)
    assert [skips(made, each) for each in cursors] == [True, False, False, False, False]
    assert len(search.asked) == 2
    since = cursor("bin.000003", 1400, "1-14")
    assert skips(made, since)
    begin(made, position, server="uuid-2")
    assert not skips(made, since), "it may be one of the other server"
    begin(made, POSITION, cursors)
    assert len(search.asked) == 2, "sets do not count"


def test_many_cursors(search: Executed) -> None:
    """Only so many are checked; clients with others get some transactions again."""
    position = StartPosition("", 0, GtidSet.parse(f"{SID}:1"), by_gtid=True)
    cursors = [cursor("bin.000003", 100, f"1-{n}") for n in range(2, 2 * CURSORS_MAX)]
    made = beginning(position=None)
    begin(made, position, cursors)
    assert sum(skips(made, each) for each in cursors) == CURSORS_MAX
    assert len(search.asked) == CURSORS_MAX
