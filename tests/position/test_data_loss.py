"""Clients that lose data when the source lacks the oldest position of all clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.mysql.binlogs import BinaryLog
from canal_server.position.data_loss import LostClients
from canal_server.source.begin.position_loss import LostPosition
from canal_server.source.read.available_positions import SourceFiles

if TYPE_CHECKING:
    import pytest

HERE = LogIdentity("127.0.0.1", 3306)
FILES = SourceFiles((BinaryLog("bin.000003", 500), BinaryLog("bin.000004", 900)))
DEAD, SLOW, LIVE = (ClientIdentity("d", number, "") for number in (1, 2, 3))


def position_at(number: int, offset: int = 4) -> LogPosition:
    """Return a position in a file."""
    return LogPosition(HERE, EntryPosition(f"bin.{number:06}", offset, 1000, 1))


POSITIONS = {DEAD: position_at(1), SLOW: position_at(3, 90), LIVE: position_at(4)}


class Clients:
    """Clients at positions, and what was done to them."""

    def __init__(self, *, resets: bool = False) -> None:
        self.lost = LostClients("d", resets=resets)
        self.positions = dict(POSITIONS)
        self.dropped: list[ClientIdentity] = []

    def move(self, identity: ClientIdentity, to: LogPosition) -> None:
        """Move a client."""
        self.positions[identity] = to

    def leave_behind(
        self, refused: LogPosition, *, began: bool = False
    ) -> LogPosition | None:
        """Report that a position was refused."""
        return self.lost.leave_behind(
            self.positions,
            LostPosition(refused, HERE, FILES),
            began=began,
            move=self.move,
            drop=self.dropped.append,
        )


def test_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """A client that lost data is refused with the reason; the oldest left counts."""
    clients = Clients()
    assert clients.leave_behind(position_at(1)) == POSITIONS[SLOW]
    assert clients.dropped == [DEAD]
    assert clients.positions == POSITIONS
    assert "client 1 of d needs bin.000001:4" in clients.lost.why(1)
    assert not clients.lost.why(2)
    assert list(clients.lost.as_json()) == ["1"]
    (message,) = (record.getMessage() for record in caplog.records)
    assert "bin.000001 to bin.000002 (2 files) purged" in message


def test_a_position_that_is_refused_although_it_is_listed() -> None:
    """A refused position is not tried again, even if its file is listed."""
    clients = Clients()
    clients.leave_behind(position_at(1))
    assert clients.leave_behind(POSITIONS[SLOW]) == POSITIONS[LIVE]
    assert clients.dropped == [DEAD, SLOW]
    assert clients.leave_behind(POSITIONS[LIVE]) is None
    assert clients.dropped == [DEAD, SLOW], "the last one waits"


def test_moved(caplog: pytest.LogCaptureFixture) -> None:
    """A client that lost data continues with the others if that is configured."""
    clients = Clients(resets=True)
    assert clients.leave_behind(position_at(1)) == POSITIONS[SLOW]
    assert clients.positions[DEAD] == POSITIONS[SLOW]
    assert not clients.lost.as_json()
    assert "the changes in between are lost" in caplog.text
    assert clients.leave_behind(POSITIONS[SLOW]) == POSITIONS[LIVE]
    assert set(clients.positions.values()) == {POSITIONS[LIVE]}
    assert clients.leave_behind(POSITIONS[LIVE]) is None


def test_once_reading_began() -> None:
    """No client is moved or refused then: the store may retain entries for it."""
    for resets in (False, True):
        clients = Clients(resets=resets)
        found = clients.leave_behind(position_at(3, 200), began=True)
        assert found == (POSITIONS[LIVE] if resets else None)
        assert clients.positions == POSITIONS
        assert not clients.dropped


def test_who_left_may_come_again() -> None:
    """A client that unsubscribed, and any after a move by hand, is served again."""
    clients = Clients()
    clients.leave_behind(position_at(1))
    clients.lost.forget(2)
    assert clients.lost.why(1)
    clients.lost.forget(1)
    assert not clients.lost.as_json()
    clients.leave_behind(position_at(1))
    clients.lost.clear()
    assert not clients.lost.as_json()


def test_sets_count_in_gtid_mode() -> None:
    """A set that contains everything that was purged is as good as an existing file."""
    sid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    at = LogPosition(HERE, EntryPosition("bin.000001", 400, 1, 1, f"{sid}:1-7"))
    deleted = LostPosition(position_at(1), HERE, FILES, GtidSet.parse(f"{sid}:1-7"))
    lost = LostClients("d", resets=False)
    found = lost.leave_behind(
        {DEAD: position_at(1), LIVE: at},
        deleted,
        began=False,
        move=lambda *_: None,
        drop=lambda _: None,
    )
    assert found == at


def test_the_command_that_moves_it() -> None:
    """It can be copied: with the conf folder, the destination and the client."""
    deleted = LostPosition(position_at(1), HERE, FILES)
    lost = LostClients("d", resets=False, conf_option="--conf /etc/canal ")
    lost.refuse_one(DEAD, position_at(1), deleted)
    assert (
        "`canal-server position seek --conf /etc/canal --destination d --client-id"
        f" {DEAD.client_id} --to oldest`"
    ) in lost.why(DEAD.client_id)


def test_one_that_is_late(caplog: pytest.LogCaptureFixture) -> None:
    """A lagging client can be refused or moved on its own, whatever the others do."""
    deleted = LostPosition(position_at(1), HERE, FILES)
    lost = LostClients("d", resets=True)
    lost.refuse_one(DEAD, position_at(1), deleted)
    assert "no longer has" in lost.why(DEAD.client_id)
    lost.refuse_because(LIVE, "nobody knows")
    assert lost.why(LIVE.client_id).endswith("is lagging: nobody knows")
    caplog.clear()
    lost.log_moved(DEAD, position_at(1), position_at(2), deleted)
    assert "lost for it" in caplog.text
