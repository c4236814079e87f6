"""Slots of copies: how many at a time, in which order, and when a core is left."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from canal_server.mirror.session.slots import HOLD_S, LONG_HOLD_S, Slots

PATIENCE_S = 60.0
TURNS_MAX = 100


def never() -> bool:
    """Return that slots are needed."""
    return False


def at_once(slots: Slots) -> int:
    """Return how many hold a slot at the same time."""
    asked: list[None] = []

    def is_over() -> bool:
        asked.append(None)  # it was polled without a free slot
        return True

    count = 0
    with ExitStack() as slots_held:
        while slots_held.enter_context(slots.slot(is_over)):
            assert not asked
            count += 1
            assert count < TURNS_MAX
    return count


@pytest.mark.parametrize(
    ("connections", "cores", "followed", "expected"),
    [
        (4, 8, False, 4), (4, 2, False, 4), (4, 8, True, 4), (4, 4, True, 3),
        (4, 2, True, 1), (4, 1, True, 1), (1, 8, True, 1), (4, 0, True, 4),
    ],
)  # fmt: skip
def test_how_many(connections: int, cores: int, followed: bool, expected: int) -> None:
    """Connections limit slots, and a core is left once tables follow."""
    slots = Slots(connections, cores=lambda: cores, is_followed=lambda: followed)
    assert at_once(slots) == expected
    assert at_once(slots) == expected  # all were given back


def test_tables_begin_to_follow() -> None:
    """A held slot is kept; the next one is short, and leaves a core."""
    followed = threading.Event()
    slots = Slots(4, cores=lambda: 2, is_followed=followed.is_set)
    assert slots.hold_s == LONG_HOLD_S
    with slots.slot(never), slots.slot(never):
        followed.set()
        assert at_once(slots) == 0
        assert slots.hold_s == HOLD_S
    assert at_once(slots) == 1
    followed.clear()
    assert at_once(slots) == 4


def test_in_order() -> None:
    """A former holder queues after those that wait."""
    slots = Slots(1)
    had: list[str] = []

    def wait(name: str, waits: threading.Event) -> None:
        def is_stopped() -> bool:
            waits.set()
            return False

        with slots.slot(is_stopped) as has_slot:
            assert has_slot
            had.append(name)

    threads = []
    with slots.slot(never):
        for name in "abc":
            waits = threading.Event()
            threads.append(threading.Thread(target=wait, args=(name, waits)))
            threads[-1].start()
            assert waits.wait(PATIENCE_S)
    wait("again", threading.Event())
    for thread in threads:
        thread.join(PATIENCE_S)
    assert had == ["a", "b", "c", "again"]


def test_no_longer_requested() -> None:
    """A waiter that gives up leaves the queue and blocks no other."""
    slots = Slots(1)
    waits, is_over = threading.Event(), threading.Event()
    got: list[bool] = []

    def asked() -> bool:
        waits.set()
        return is_over.is_set()

    def wait() -> None:
        with slots.slot(asked) as has_slot:
            got.append(has_slot)

    thread = threading.Thread(target=wait)
    with slots.slot(never):
        thread.start()
        assert waits.wait(PATIENCE_S)
        is_over.set()
        thread.join(PATIENCE_S)
        assert got == [False]
    assert at_once(slots) == 1
