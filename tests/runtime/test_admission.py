"""Who may connect, by address and log-in."""

from __future__ import annotations

from canal_server.runtime.admission import Admission, Limits


def admission(**limits) -> Admission[str]:
    """Return an empty one with low limits."""
    return Admission(
        Limits(**{"all": 4, "per_address": 3, "pending": 2, "per_user": 9} | limits)
    )


def test_oldest_of_the_address_with_most_is_displaced():
    """An address that has many silent connections loses its own, not others'."""
    known = admission(all=10, pending=4)
    known.add("honest", "b")
    for name in ("a1", "a2", "a3"):
        known.add(name, "a")
    assert known.displaced() == "a1"
    known.add("c1", "c")
    assert known.displaced() == "a2"
    assert known.displaced() is None


def test_no_room_for_more_than_logged_in():
    """When all are logged in, none is displaced and the next one is refused."""
    known = admission()
    for name in "abcd":
        known.add(name, name)
        known.logged_in(name)
    assert known.displaced() is None
    assert known.refusal("e") == "4 clients are connected"
    known.remove("a")
    assert not known.refusal("e")
    assert len(known) == 3


def test_pending_make_room_when_all_is_full():
    """A client that has not logged in is displaced when the limit is reached."""
    known = admission(pending=10)
    for name in "abcd":
        known.add(name, name)
    for name in "abc":
        known.logged_in(name)
    assert not known.refusal("e")
    assert known.displaced() == "d"


def test_address_limit():
    """An address has a limit, and ended connections free it again."""
    known = admission(all=10)
    for name in ("x", "y", "z"):
        known.add(name, "a")
    assert "from one address" in known.refusal("a")
    assert not known.refusal("b")
    known.remove("y")
    assert not known.refusal("a")


def test_user_limit():
    """A user has a limit, his own if he has one, and ended connections free it."""
    known = admission(all=20, per_address=20, pending=20, per_user=2)
    for name in ("r", "s", "t", "u", "v"):
        known.add(name, "a")
    assert not known.logged_in("r", "ann")
    assert not known.logged_in("s", "ann")
    assert known.logged_in("t", "ann") == (
        "2 clients are connected as this user, the limit"
    )
    assert not known.logged_in("t", "bob", 1)
    assert known.logged_in("u", "bob", 1).startswith("1 clients")
    assert not known.logged_in("u", "")  # who needs no name has no limit
    known.remove("t")
    assert not known.logged_in("v", "bob", 1)
    # Again, or as somebody else, after a subscription that was refused.
    assert not known.logged_in("v", "bob", 1)
    assert not known.logged_in("v", "eve", 1)
    assert not known.logged_in("u", "bob", 1)
