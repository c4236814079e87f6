"""A pump that rests at an idle source wakes up for all that it has to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_pump import Pumped
from fix_source_access import access_of
from fix_store import eventually
from purge import kill_dumps

from canal_server.mysql.dump_connection import DumpStream
from canal_server.source.pump import idle_rest
from canal_server.source.pump.pump_status import PumpState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Have pumps rest at once; the last item is whether one rests now."""
    found: list[bool] = []
    rest = DumpStream.rest

    def watched(self: DumpStream, limit_s: float) -> None:
        found.append(True)
        rest(self, limit_s)
        found.append(False)

    monkeypatch.setattr(idle_rest, "LOOKS", 0)
    monkeypatch.setattr(DumpStream, "rest", watched)
    return found


@pytest.fixture
def resting(source_server: Server, database: str, rests) -> Iterator[Pumped]:
    """Give a pump that rests at a source with a table `t`."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    found = Pumped(access_of(source_server), database, heartbeat_s=0.1, silence_s=1.0)
    found.pump.start()
    eventually(lambda: len(rests) > 20 and rests[-1])
    yield found
    found.stop()


def test_changes_and_lost_connections(
    source_server: Server, database: str, resting: Pumped, rests: list[bool]
) -> None:
    """Changes arrive, also after a rest that a lost connection ended."""
    source_server.execute(f"INSERT INTO {database}.t VALUES (1)")
    eventually(lambda: resting.values == ["1"])
    eventually(lambda: rests[-1])
    kill_dumps(source_server)
    eventually(lambda: resting.pump.status.connections == 2)
    source_server.execute(f"INSERT INTO {database}.t VALUES (2)")
    eventually(lambda: resting.values == ["1", "2"])
    assert resting.pump.status.received_bytes > 0


def test_a_stop(resting: Pumped) -> None:
    """A stop ends the rest."""
    resting.stop()
    assert resting.state is PumpState.STOPPED
