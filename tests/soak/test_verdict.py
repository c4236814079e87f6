"""What is wrong at the end is said, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from soak.checker import Follower, Row
from soak.ledger import ID, TX, Ledger, N, State
from soak.verdict import ended, missing, never_committed, other_orders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Give a ledger of three tables with a row each, whose commits overlap."""
    made = Ledger(tmp_path / "values")
    items = [made.note_rows([[made.change(*args)]]) for args in changes()]
    for item in items:
        made.settle(item, State.DONE)
    yield made
    made.close()


def changes():
    """Return what was written."""
    for number, table in enumerate(("s.a", "s.b", "s.c")):
        after = {ID: "1", TX: str(number), N: "1"}
        yield table, "INSERT", {}, after


def follower_of(ledger, *numbers):
    """Return a follower to which these transactions arrived."""
    made = Follower(ledger, f"of {numbers}", lambda _: True, statements=True)
    written = [Row(*each) for each in changes()]
    for number in numbers:
        made.transaction([written[number]])
    return made


def test_all_is_well(ledger):
    """Nothing is said of two streams with everything in one order."""
    both = [follower_of(ledger, 1, 0, 2), follower_of(ledger, 1, 0, 2)]
    assert missing(both) == never_committed(ledger, both) == other_orders(both) == []


def test_missing(ledger):
    """Who lacks something is named, with what it is."""
    (said,) = missing([follower_of(ledger, 0, 1, 2), follower_of(ledger, 0, 2)])
    assert said.startswith("of (0, 2): 1 items are missing, the first ones are item 1 ")


def test_orders_that_differ(ledger):
    """Commits that overlap may come in either order, but to all in the same one."""
    both = [follower_of(ledger, 0, 1, 2), follower_of(ledger, 0, 2, 1)]
    assert other_orders(both) == [
        "of (0, 2, 1) has item 1 after item 2, of (0, 1, 2) before it"
    ]


def test_some_tables_only(ledger):
    """A stream of fewer tables has the order of the others."""
    assert other_orders([follower_of(ledger, 1, 0, 2), follower_of(ledger, 1, 2)]) == []


def test_found_out_later(ledger):
    """What arrived is wrong, too, if its commit turned out to have failed later."""
    both = [follower_of(ledger, 0, 1, 2)]
    ledger.settle(ledger.items[1], State.UNCOMMITTED)
    (said,) = never_committed(ledger, both)
    assert "item 1 " in said


class Process:
    """A process that ended, or not."""

    def __init__(self, status: int | None) -> None:
        self._status = status

    def ended(self) -> int | None:
        """Return its status."""
        return self._status

    def log_end(self) -> str:
        """Return the end of a log."""
        return "out of memory"


def test_ended():
    """Who ended by itself is named, whatever its status; who runs is not."""
    processes = {"one": Process(None), "two": Process(0), "three": Process(1)}
    assert ended(processes) == [
        "two has ended, status 0: out of memory",
        "three has ended, status 1: out of memory",
    ]
