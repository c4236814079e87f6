"""Numbers for the names that entries are about."""

from __future__ import annotations

import pytest

from canal_server.core.table_ids import NO_SUBJECT, Subjects


def test_numbers() -> None:
    """The same names have the same number, others another; it leads back to them."""
    subjects = Subjects()
    one = subjects.ordinal_of((("db", "t"),))
    two = subjects.ordinal_of((("db", "t"), ("db", "u")))
    assert one == subjects.ordinal_of((("db", "t"),))
    assert len({one, two, NO_SUBJECT}) == 3
    assert subjects.names_of(one) == (("db", "t"),)
    assert subjects.names_of(two) == (("db", "t"), ("db", "u"))
    assert len(subjects) == 3


def test_no_names() -> None:
    """Entries without a table have the number that every filter lets through."""
    subjects = Subjects()
    assert subjects.ordinal_of(()) == NO_SUBJECT
    assert subjects.names_of(NO_SUBJECT) == ()


def test_small_numbers() -> None:
    """Numbers are handed out without gaps: they index the judgements of a filter."""
    subjects = Subjects()
    found = [subjects.ordinal_of((("db", str(n)),)) for n in range(100)]
    assert found == list(range(1, 101))


def test_an_epoch_begins_with_too_many_names() -> None:
    """Names are numbered anew then; what the old numbers stand for is still told."""
    subjects = Subjects(names_max=2)
    old = [subjects.ordinal_of((("db", name),)) for name in "ab"]
    assert (subjects.epoch, subjects.ageing) == (0, False)
    new = [subjects.ordinal_of((("db", name),)) for name in "cab"]
    assert (subjects.epoch, subjects.ageing) == (1, True)
    assert len({*old, *new}) == 5
    assert [subjects.names_of(each) for each in old] == [(("db", "a"),), (("db", "b"),)]
    assert subjects.ordinal_of(()) == NO_SUBJECT


def test_forgotten_names() -> None:
    """The names of the epoch before are forgotten when told; others stay."""
    subjects = Subjects(names_max=2)
    old = [subjects.ordinal_of((("db", name),)) for name in "ab"]
    new = subjects.ordinal_of((("db", "c"),))
    subjects.forget_old()
    assert subjects.names_of(new) == (("db", "c"),)
    assert len(subjects) == 2
    with pytest.raises(LookupError, match=f"subject {old[-1]} is forgotten"):
        subjects.names_of(old[-1])


def test_no_second_epoch_while_names_of_the_first_are_kept() -> None:
    """Old numbers are those of one epoch: the next waits until they are forgotten."""
    subjects = Subjects(names_max=2)
    for n in range(9):
        subjects.ordinal_of((("db", str(n)),))
    assert subjects.epoch == 1
    subjects.forget_old()
    last = subjects.ordinal_of((("db", "8"),))
    assert subjects.epoch == 1
    assert subjects.ordinal_of((("db", "9"),)) == last + 1
    assert subjects.epoch == 2


def test_names_since() -> None:
    """They begin with the number asked for, or the lowest that is left."""
    subjects = Subjects(names_max=2)
    for name in "abcd":
        subjects.ordinal_of((("db", name),))
    assert subjects.since(0) == (1, [((("db", name),)) for name in "abcd"])
    assert subjects.since(4) == (1, [(("db", "d"),)])
    assert subjects.since(5) == (1, [])
    subjects.forget_old()
    assert subjects.since(1) == (3, [(("db", "c"),), (("db", "d"),)])
