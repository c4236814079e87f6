"""Which clients retain entries and which are evictable, with given times."""

from __future__ import annotations

import pytest

from canal_server.errors import MetaStoreError
from canal_server.position.presence import Presence
from canal_server.runtime.lifecycle import Stop

ONE, TWO, THREE = 1001, 1002, 1003
PIN_S = 300


class Clock:
    """A clock that is set."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        """Return the time."""
        return self.now_s


class Kept:
    """A storage that keeps what is written."""

    silence = "nobody"

    def __init__(self, away_s=()):
        self.away_s = dict(away_s)
        self.error = None
        self.is_open = False

    def open(self, stop):
        """Open it."""
        del stop
        self.is_open = True

    def close(self):
        """Close it."""
        self.is_open = False

    def read(self):
        """Return what was last written."""
        if self.error:
            raise self.error
        return dict(self.away_s)

    def write(self, away_s):
        """Store it."""
        if self.error:
            raise self.error
        self.away_s = dict(away_s)


@pytest.fixture
def clock():
    """Return a clock that is set."""
    return Clock()


@pytest.fixture
def presence(clock):
    """Return one that has known two clients for a moment."""
    made = Presence(PIN_S, clock=clock)
    made.enter(ONE)
    made.enter(TWO)
    return made


def floating(presence):
    """Return the evictable clients."""
    return [each for each in (ONE, TWO, THREE) if presence.is_evictable(each)]


def test_pins_for_a_while(presence, clock):
    """After its last connection a client retains entries for the configured time."""
    presence.on_connect(ONE)
    presence.on_connect(TWO)
    presence.on_connect(TWO)
    clock.now_s += 1000
    presence.on_disconnect(TWO)
    clock.now_s += 1000
    assert floating(presence) == []
    assert presence.away_s(TWO) is None
    presence.on_disconnect(TWO)
    assert presence.evictable_in_s((TWO,)) == PIN_S
    assert presence.evictable_in_s((ONE, TWO)) is None
    clock.now_s += PIN_S - 1
    assert floating(presence) == []
    clock.now_s += 1
    assert floating(presence) == [TWO]
    assert presence.away_s(TWO) == PIN_S
    presence.on_connect(TWO)
    assert floating(presence) == []


def test_the_last_one_pins(presence, clock):
    """While no client is connected, the one that was seen last retains always."""
    presence.on_connect(TWO)
    presence.on_disconnect(TWO)
    clock.now_s += 1
    presence.on_connect(ONE)
    presence.on_disconnect(ONE)
    clock.now_s += 1_000_000
    assert floating(presence) == [TWO]
    presence.saw(TWO)
    assert floating(presence) == [ONE]
    presence.forget(TWO)
    assert floating(presence) == []


def test_the_only_one_pins(clock):
    """A single client retains without limit, and so does one that is not known."""
    presence = Presence(0, clock=clock)
    presence.enter(ONE)
    clock.now_s += 1_000_000
    assert floating(presence) == []
    assert presence.evictable_in_s(()) is None
    presence.on_connect(THREE)
    assert floating(presence) == []
    presence.enter(THREE)
    assert floating(presence) == [ONE]


def test_for_ever(clock):
    """With a negative time no client is ever evictable, and nothing is stored."""
    kept = Kept()
    presence = Presence(-1, kept, clock=clock)
    presence.start(Stop())
    presence.enter(ONE)
    presence.on_connect(TWO)
    presence.enter(TWO)
    clock.now_s += 1_000_000
    assert floating(presence) == []
    presence.stop()
    assert kept.away_s == {}


def test_kept(clock):
    """The disconnected time survives a restart; a connected client is seen then."""
    kept = Kept()
    presence = Presence(PIN_S, kept, what="shop", clock=clock)
    presence.start(Stop())
    for each in (ONE, TWO, THREE):
        presence.enter(each)
    presence.on_connect(ONE)
    presence.on_connect(TWO)
    clock.now_s += 250
    presence.on_disconnect(TWO)
    clock.now_s += 100
    presence.stop()
    presence.stop()
    assert kept.away_s == {TWO: 100, THREE: 350}
    assert not kept.is_open

    clock.now_s += 1_000_000  # while no server runs
    presence = Presence(PIN_S, kept, what="shop", clock=clock)
    presence.start(Stop())
    for each in (ONE, TWO, THREE):
        presence.enter(each)
    assert floating(presence) == [THREE]
    assert presence.evictable_in_s((TWO,)) == 200
    presence.stop()


def test_one_that_reads_by_itself(clock):
    """A connected client that reads what the ring lacks is evictable on restart."""
    kept, late = Kept(), {TWO}
    presence = Presence(
        PIN_S, kept, what="shop", clock=clock, is_late=late.__contains__
    )
    presence.start(Stop())
    presence.enter(ONE)
    presence.enter(TWO)
    presence.on_connect(ONE)
    presence.on_connect(TWO)
    presence.look_again()
    presence.stop()
    assert kept.away_s == {TWO: PIN_S}


def test_one_that_reads_by_itself_and_left_last(clock):
    """It is evictable after a restart even when all others had disconnected before."""
    kept, late = Kept(), {TWO}
    presence = Presence(0, kept, what="shop", clock=clock, is_late=late.__contains__)
    presence.start(Stop())
    presence.enter(ONE)
    clock.now_s += 5
    presence.enter(TWO)
    presence.stop()
    presence = Presence(0, kept, what="shop", clock=clock)
    presence.start(Stop())
    presence.enter(ONE)
    presence.enter(TWO)
    assert floating(presence) == [TWO]
    presence.stop()


def test_positions_that_fail(clock, caplog):
    """A failing read stops the start; a failing write is logged."""
    kept = Kept()
    kept.error = MetaStoreError("no rights")
    presence = Presence(PIN_S, kept, what="shop", clock=clock)
    with pytest.raises(MetaStoreError, match="no rights"):
        presence.start(Stop())
    assert not kept.is_open
    presence.stop()  # nothing was started
    kept.error = None
    presence.start(Stop())
    presence.enter(ONE)
    kept.error = MetaStoreError("no room")
    presence.stop()  # whose failure delays no shutdown
    assert "no room; after the next start" in caplog.text
    assert not kept.is_open


def test_thousands_of_clients_are_judged_in_one_walk(monkeypatch):
    """Each of many evictable clients is found without a pass over all for each."""
    now_s = [0.0]
    presence = Presence(10, clock=lambda: now_s[0])
    for client_id in range(2_000):
        presence.enter(client_id)
    walks: list[int] = []

    class Seen(dict[int, float]):
        def __iter__(self):
            walks.append(1)
            return super().__iter__()

    monkeypatch.setattr(presence, "_seen_s", Seen(presence._seen_s))
    now_s[0] = 11.0
    floating = [each for each in range(2_000) if presence.is_evictable(each)]
    assert floating == list(range(1, 2_000))  # the last one seen retains
    assert len(walks) <= 2
    presence.on_connect(5)
    assert [presence.is_evictable(each) for each in (0, 5)] == [True, False]
