"""Which of the noted sets completes a position."""

from __future__ import annotations

import pytest

from canal_server.model.positions import (
    EntryPosition,
    Executed,
    LogIdentity,
    LogPosition,
)
from canal_server.position.gtid_cache import NOTED_MAX, ExecutedSets

HERE = LogIdentity("127.0.0.1", 3306)


def at(offset, *, file="binlog.000002", included=False, identity=HERE):
    """Return a position."""
    return LogPosition(identity, EntryPosition(file, offset, included=included))


def given(sets, position):
    """Return the text of the set that completes a position, None without one."""
    executed = sets.completed(position).executed
    return executed and executed.gtids


@pytest.fixture
def sets():
    """Return sets of three boundaries in two files."""
    made = ExecutedSets()
    made.begin(HERE)
    made.note(Executed("binlog.000001", 500, 531, "one"))
    made.note(Executed("binlog.000002", 200, 200, "two"))  # its event is not known
    made.note(Executed("binlog.000002", 300, 331, "three"))
    return made


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (at(499, file="binlog.000001"), None),
        (at(500, file="binlog.000001"), "one"),
        (at(199), "one"),
        (at(200), "two"),
        (at(299), "two"),
        (at(300), "three"),  # the last event of the boundary was acknowledged
        (at(330, included=True), "two"),  # here it was not
        (at(331, included=True), "three"),
        (at(10**9), "three"),
        (at(4, file="binlog.1000000"), "three"),
        (at(None, file=None), None),
    ],
)
def test_the_last_one_at_or_before(sets, position, expected):
    """A set that contains anything after the position would skip that."""
    assert given(sets, position) == expected


def test_another_session(sets):
    """Sets of one session do not complete another's positions, despite equal names."""
    again = LogIdentity(HERE.address, HERE.port)
    assert given(sets, at(300, identity=again)) is None
    sets.begin(again)
    assert given(sets, at(300, identity=again)) is None
    sets.note(Executed("binlog.000002", 100, 131, "other"))
    assert given(sets, at(300, identity=again)) == "other"
    assert given(sets, at(300)) == "three"


def test_what_is_known_stays(sets):
    """A position that was stored with its set keeps it."""
    known = sets.completed(at(200))
    assert sets.completed(known) is known


def test_many():
    """The number of sets is bounded, and a position still finds one near it."""
    sets = ExecutedSets()
    sets.begin(HERE)
    for number in range(20 * NOTED_MAX):
        sets.note(Executed("binlog.000002", number, number, str(number)))
    assert given(sets, at(0)) == "0"
    for offset in range(19 * NOTED_MAX, 20 * NOTED_MAX, 7):
        found = int(given(sets, at(offset)))
        assert offset - NOTED_MAX < found <= offset
