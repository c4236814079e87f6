"""Numbers for the names that entries are about."""

from __future__ import annotations

from canal_server.core.subjects import NO_SUBJECT, Subjects


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
