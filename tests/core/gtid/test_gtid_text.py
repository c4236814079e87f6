"""The common behaviour of GTID sets of both kinds, tested with each."""

from __future__ import annotations

import pytest

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet

SETS = [
    GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"),
    MariaGtidSet.parse("0-1-5"),
]


def test_kinds_are_never_equal() -> None:
    """A set equals those of its kind with the same text, but no others, and no text."""
    mysql, maria = SETS
    assert GtidSet() != MariaGtidSet()
    assert mysql != maria
    assert mysql == mysql.copy()
    assert mysql != str(mysql)


@pytest.mark.parametrize("one", SETS)
def test_truth_and_name(one: GtidSet | MariaGtidSet) -> None:
    """An empty set is false; its repr has its kind and its text."""
    assert one
    assert not type(one)()
    assert str(type(one)()) == ""
    assert repr(one) == f"<{type(one).__name__} {one}>"


@pytest.mark.parametrize("one", SETS)
def test_change(one: GtidSet | MariaGtidSet) -> None:
    """A set that changes is no key of a dict; its copy is independent."""
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    text, copy = str(one), one.copy()
    if isinstance(copy, GtidSet):
        copy.add(bytes(16), 7)
    else:
        copy.update(3, 1, 7)
    assert copy != one
    assert str(one) == text
