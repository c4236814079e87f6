"""The contract of log position managers, for each, and what each adds to it."""

from __future__ import annotations

import pytest

from canal_server.errors import MetaStoreError
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.log_position_managers import (
    FailbackLogPositionManager,
    MemoryLogPositionManager,
    MetaLogPositionManager,
    earlier,
    same_server,
)
from canal_server.position.memory_meta import MemoryMetaManager


def at(file, offset, *, host="127.0.0.1", time=0):
    """Return a position."""
    return LogPosition(
        LogIdentity(host, 3306), EntryPosition(file, offset, time, 1, "")
    )


class Broken(MemoryLogPositionManager):
    """A manager whose storage cannot be reached."""

    def latest(self, destination):
        """Return nothing."""

    def persist(self, destination, position):
        """Fail."""
        raise MetaStoreError(f"no room for {destination}")


ALL = ["memory", "meta", "failback", "failback of broken"]


def manager(name):
    """Return the manager of a name."""
    meta = MetaLogPositionManager(MemoryMetaManager())
    return {
        "memory": MemoryLogPositionManager(),
        "meta": meta,
        "failback": FailbackLogPositionManager(MemoryLogPositionManager(), meta),
        "failback of broken": FailbackLogPositionManager(
            Broken(), MemoryLogPositionManager()
        ),
    }[name]


@pytest.fixture(params=ALL)
def positions(request):
    """Return each manager in turn, empty and started."""
    started = manager(request.param)
    started.start()
    yield started
    started.stop()


def test_contract(positions):
    """At first nothing; later exactly what was stored, for each destination."""
    assert positions.latest("example") is None
    positions.persist("example", at("bin.000001", 4))
    positions.persist("example", at("bin.000001", 9))
    assert positions.latest("example") in (None, at("bin.000001", 9))
    assert positions.latest("other") is None


def test_memory_and_failback_remember():
    """The last position stored is the one returned."""
    for positions in (
        MemoryLogPositionManager(),
        FailbackLogPositionManager(MemoryLogPositionManager(), Broken()),
        FailbackLogPositionManager(Broken(), MemoryLogPositionManager()),
    ):
        positions.persist("example", at("bin.000001", 4))
        assert positions.latest("example") == at("bin.000001", 4)


def test_meta_gives_the_slowest_client():
    """The smallest cursor of the subscribed clients counts, if any has one."""
    meta = MemoryMetaManager()
    positions = MetaLogPositionManager(meta)
    clients = [ClientIdentity("example", each) for each in range(1, 5)]
    for client in clients[:3]:
        meta.subscribe(client)
    assert positions.latest("example") is None
    meta.update_cursor(clients[0], at("bin.1000000", 4))
    meta.update_cursor(clients[1], at("bin.999999", 500))
    meta.update_cursor(clients[3], at("bin.000001", 4))  # not subscribed
    assert positions.latest("example") == at("bin.999999", 500)


def test_failback_asks_the_second_only_for_want_of_the_first():
    """The secondary is asked when the primary has nothing, and not written to."""
    primary, secondary = MemoryLogPositionManager(), MemoryLogPositionManager()
    positions = FailbackLogPositionManager(primary, secondary)
    secondary.persist("example", at("bin.000001", 4))
    assert positions.latest("example") == at("bin.000001", 4)
    positions.persist("example", at("bin.000001", 9))
    assert positions.latest("example") == at("bin.000001", 9)
    assert secondary.latest("example") == at("bin.000001", 4)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("bin.000001", 4), ("bin.000001", 5), 0),
        (("bin.000002", 4), ("bin.000001", 5), 1),
        (("bin.999999", 9), ("bin.1000000", 4), 0),  # not as text
        (("bin.000001", 4_294_967_300), ("bin.000001", 5), 1),
    ],
)
def test_earlier_on_one_server(one, other, expected):
    """Positions of one server compare by number of file, then offset."""
    pair = at(*one, time=5), at(*other, time=1)
    assert earlier(*pair) is pair[expected]
    assert earlier(*reversed(pair)) is pair[expected]


def test_earlier_on_two_servers():
    """Positions of different servers compare by time."""
    one = at("bin.000009", 4, host="127.0.0.1", time=1000)
    other = at("bin.000001", 4, host="127.0.0.2", time=2000)
    assert earlier(one, other) is one
    assert earlier(other, one) is one


def test_equal_positions():
    """Of equal positions the first is returned."""
    one, other = at("bin.000001", 4), at("bin.000001", 4)
    assert earlier(one, other) is one


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("127.0.0.1", 3306), ("127.0.0.1", 3306), True),
        (("DB.Example", 3306), ("db.example", 3306), True),
        (("127.0.0.1", 3306), ("127.0.0.1", 3307), False),
        (("127.0.0.1", 3306), ("127.0.0.2", 3306), False),
        (("127.0.0.1", 3306), ("no..where", 3306), False),
        (("127.0.0.1", 3306), ("localhost", 3306), True),
    ],
)
def test_same_server(one, other, expected):
    """A host name and its address are one server, other ports are other servers."""
    assert same_server(LogIdentity(*one), LogIdentity(*other)) is expected
    assert same_server(LogIdentity(*other), LogIdentity(*one)) is expected


def test_other_slave_id():
    """Identities with another slave id are of another server."""
    assert not same_server(LogIdentity("a", 1, -1), LogIdentity("a", 1, 5))


def test_only_those_that_pin():
    """The smallest cursor of a client that retains counts; of any, if none retains."""
    meta = MemoryMetaManager()
    for client_id, offset in ((1, 100), (2, 200), (3, 300)):
        identity = ClientIdentity("d", client_id)
        meta.subscribe(identity)
        meta.update_cursor(identity, at("bin.000001", offset))
    for pinning, offset in (((2, 3), 200), ((3,), 300), ((), 100)):
        manager = MetaLogPositionManager(meta, lambda each: each.client_id in pinning)  # noqa: B023  # is called at once
        found = manager.latest("d")
        assert found is not None
        assert found.position.position == offset
