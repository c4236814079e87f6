"""Cursors leave files that have ended."""

from __future__ import annotations

import threading

import pytest

from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.ended_files import LOOK_S, LeavingCursors, furthest_of

HERE = LogIdentity("127.0.0.1", 3306)
OTHER = LogIdentity("127.0.0.2", 3306)
ONE, TWO = ClientIdentity("example", 1), ClientIdentity("example", 2)


def at(file, offset=4, server=HERE):
    """Return a position."""
    return LogPosition(server, EntryPosition(f"binlog.{file:06}", offset))


class Clients:
    """Cursors of two clients, some of which have received everything."""

    def __init__(self, first, second) -> None:
        self.cursors = {ONE: first, TWO: second}
        self.have_all = {1, 2}
        self.steady = threading.Lock()
        self.looks = 0
        self.now_s = 0.0
        self.leaving = LeavingCursors(
            self._all,
            self.have_all.__contains__,
            self.cursors.__setitem__,
            self.steady,
            lambda: self.now_s,
        )

    def _all(self):
        self.looks += 1
        return list(self.cursors.items())

    def look(self, position):
        """Check, and return the cursors."""
        self.leaving.look(position)
        return [self.cursors[ONE], self.cursors[TWO]]


def test_who_has_all_is_moved() -> None:
    """A client stays until a later check finds that it has received everything."""
    clients = Clients(at(8), at(8, 900))
    clients.have_all.discard(2)
    assert clients.look(at(9, 100)) == [at(9, 100), at(8, 900)]
    clients.have_all.add(2)
    assert clients.look(at(9, 200)) == [at(9, 100), at(8, 900)]
    clients.now_s += LOOK_S
    assert clients.look(at(9, 200)) == [at(9, 100), at(9, 200)]
    assert clients.look(at(10)) == [at(10), at(10)]


@pytest.mark.parametrize(
    "cursor", [None, at(9, 50), at(10), at(8, server=OTHER), at(9, 700)]
)
def test_who_stays(cursor) -> None:
    """No client is moved within a file, backward, or from another server's position."""
    assert Clients(cursor, None).look(at(9, 100)) == [cursor, None]


def test_looks_are_few() -> None:
    """A position within the same file causes no check before the interval is over."""
    clients = Clients(at(8), at(8))
    for offset in range(100, 200):
        clients.look(at(9, offset))
    clients.look(None)
    assert clients.looks == 1


def test_waits_for_nobody() -> None:
    """While another thread holds `steady`, the check is put off without a wait."""
    clients = Clients(at(8), at(8))
    with clients.steady:
        assert clients.look(at(9, 100)) == [at(8), at(8)]
    assert clients.look(at(9, 200)) == [at(9, 200), at(9, 200)]


def test_the_furthest_of_two() -> None:
    """The end of what was put counts if it is later, and on the same server."""
    assert furthest_of(at(8), at(9)) == at(9)
    assert furthest_of(at(9, 50), at(9)) == at(9, 50)
    assert furthest_of(None, at(9)) is None
    assert furthest_of(at(8), None) == at(8)
    assert furthest_of(at(8), at(9, server=OTHER)) == at(8)
