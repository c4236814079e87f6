"""Where clients stand: a cursor with one source, positions beside it in a group."""

from __future__ import annotations

import pytest

from canal_server.config.schema import (
    HostConfig,
    HostPort,
    InstanceConfig,
    PositionConfig,
    SourceConfig,
    Wiring,
)
from canal_server.errors import ClientError
from canal_server.instance.client_positions import ClientPositions, GroupPositions
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.memory_meta import MemoryMetaManager

CLIENT = ClientIdentity("example", 1001)
SECOND = ClientIdentity("example", 2)


def at(host: str, offset: int, *, time: int = 0) -> LogPosition:
    """Return a position on a server."""
    return LogPosition(
        LogIdentity(host, 3306), EntryPosition("bin.000001", offset, time, 1, "")
    )


def source(number: int, master: str, standby: str = "") -> SourceConfig:
    """Return a source, perhaps with a standby."""
    spare = HostConfig(address=HostPort(standby, 3306)) if standby else HostConfig()
    return SourceConfig(
        number=number,
        master=HostConfig(address=HostPort(master, 3306)),
        standby=spare,
    )


def config(*sources: SourceConfig, wiring: Wiring = Wiring.FILE) -> InstanceConfig:
    """Return the settings of a destination with these sources."""
    return InstanceConfig(
        destination="example",
        source=sources[0],
        group=sources if sources[0].number else (),
        position=PositionConfig(wiring=wiring),
    )


@pytest.fixture
def meta() -> MemoryMetaManager:
    """Give a manager with two clients."""
    made = MemoryMetaManager()
    for client in (CLIENT, SECOND):
        made.subscribe(client)
    return made


@pytest.fixture
def single(meta: MemoryMetaManager) -> ClientPositions:
    """Give the positions of a destination with one source."""
    return ClientPositions(config(source(0, "db1", "spare1")), meta, lambda _: True)


@pytest.fixture
def group(meta: MemoryMetaManager) -> GroupPositions:
    """Give the positions of a group of two sources."""
    sources = source(1, "db1", "spare1"), source(2, "db2")
    return GroupPositions(config(*sources), meta, lambda _: True)


def test_one_source(single: ClientPositions, meta: MemoryMetaManager) -> None:
    """The cursor is the position, whichever server it names."""
    assert single.acked(CLIENT) == {}
    assert single.newest(0) is None
    single.put(CLIENT, 0, at("db1", 4))
    single.move(SECOND, {0: at("elsewhere", 9)})
    assert meta.cursor(CLIENT) == at("db1", 4)
    assert list(single.of_source(0)) == [at("elsewhere", 9), at("db1", 4)]
    assert meta.source_positions(CLIENT) == {}
    assert single.begin_after({0: at("db1", 4).position}) == at("db1", 4).position
    assert single.begin_after({}) is None
    with pytest.raises(ClientError, match="one source, but 2 positions"):
        single.targets([at("db1", 4), at("db1", 5)])


def test_restart_after_a_move(single: ClientPositions) -> None:
    """One source restarts at the smallest cursor, or where nobody was moved to."""
    assert single.restart_position(0, {0: at("db1", 7)}) == at("db1", 7)
    single.put(CLIENT, 0, at("db1", 5))
    assert single.restart_position(0, {0: at("db1", 7)}) == at("db1", 5)


@pytest.mark.parametrize("wiring", [Wiring.FILE, Wiring.MEMORY])
def test_positions_of_a_pump(meta: MemoryMetaManager, wiring: Wiring) -> None:
    """A pump starts at the smallest cursor, unless nothing is stored anywhere."""
    settings = config(source(0, "db1"), wiring=wiring)
    positions = ClientPositions(settings, meta, lambda _: True)
    positions.put(CLIENT, 0, at("db1", 5))
    manager = positions.log_positions(settings)
    stored = None if wiring is Wiring.MEMORY else at("db1", 5)
    assert manager.latest("example") == stored
    manager.persist("example", at("db1", 8))
    assert manager.latest("example") == at("db1", 8)


def test_a_group(group: GroupPositions, meta: MemoryMetaManager) -> None:
    """A client has a position in each source; its cursor is of the first it got."""
    group.put(CLIENT, 1, at("db1", 10))
    group.put(CLIENT, 2, at("db2", 20))
    assert meta.cursor(CLIENT) == at("db1", 10)
    assert group.acked(CLIENT) == {1: at("db1", 10), 2: at("db2", 20)}
    group.put(CLIENT, 1, at("spare1", 30))
    assert meta.cursor(CLIENT) == at("spare1", 30)
    group.move(CLIENT, {1: at("db1", 4), 2: at("db2", 6)})
    assert group.acked(CLIENT) == {1: at("db1", 4), 2: at("db2", 6)}
    assert group.resume_position(1001, group.acked(CLIENT)) == at("db1", 4)
    assert group.resume_position(2, {2: at("db2", 6)}) == at("db2", 6)
    assert group.restart_position(1, {1: at("db1", 4)}) is None


def test_server_that_was_read_last(
    group: GroupPositions, meta: MemoryMetaManager
) -> None:
    """It is the one that the newest position names, also if an absent client lags."""
    assert group.newest(1) is None
    meta.update_source_positions(CLIENT, {1: at("spare1", 4, time=2000)})
    meta.update_source_positions(SECOND, {1: at("db1", 900, time=1000)})
    assert group.newest(1) == at("spare1", 4, time=2000)
