"""Which client lags most, and whether it is connected."""

from __future__ import annotations

from canal_server.position.memory_meta import MemoryMetaManager
from canal_server.position.presence import Presence
from canal_server.position.slowest_client import slowest_client


class Clock:
    """A clock that is set."""

    now_s = 100.0

    def __call__(self) -> float:
        """Return its time."""
        return self.now_s


def test_whether_the_slowest_is_connected():
    """A disconnected client is shown as such, with the seconds since then."""
    meta, clock = MemoryMetaManager(), Clock()
    presence = Presence(-1.0, clock=clock)
    presence.enter(7)
    presence.on_connect(7)
    here = slowest_client(meta, "a", (7, 3, 1.5), presence)
    assert here == {
        "client": 7,
        "entries": 3,
        "seconds": 1.5,
        "connected": True,
        "away_s": None,
    }
    presence.on_disconnect(7)
    clock.now_s = 160.0
    away = slowest_client(meta, "a", (7, 3, 1.5), presence)
    assert away == here | {"connected": False, "away_s": 60.0}
    assert slowest_client(meta, "a", None, presence) is None
