"""How long log-ins wait: those that guess, and those beside an old password."""

from __future__ import annotations

from canal_server.runtime.admission import group_of
from canal_server.users.failed_logins import (
    EXCESS_MAX,
    EXCESS_S,
    EXCESS_TOLERATED,
    FORGET_S,
    KEPT_MAX,
    WAITING_MAX,
    WAITING_OF_ADDRESS_MAX,
    FailedLogins,
)

GOOD = "hash of the right password"


def wrong(failed: FailedLogins, now_s: float, address="a", name="n") -> float | None:
    """Try a wrong password to the end; returns how long it waited."""
    return tried(failed, now_s, "", address, name)


def tried(
    failed: FailedLogins, now_s: float, proof=GOOD, address="a", name="n"
) -> float | None:
    """Try a password to the end; returns how long it waited."""
    delay_s = failed.begin(address, name, proof, now_s)
    if delay_s:
        failed.has_waited(address, name, proof)
    return delay_s


def test_addresses():
    """IPv6 counts by one customer's network, IPv4 by address."""
    assert group_of("192.0.2.7") == "192.0.2.7"
    assert group_of("2001:db8:1:2::1") == group_of("2001:db8:1:2:ffff::")
    assert group_of("2001:db8:1:2::1") != group_of("2001:db8:1:3::1")
    assert group_of("fe80::1%eth0") == group_of("fe80::2")
    assert group_of("what") == "what"


def test_delays_grow_and_are_forgotten():
    """The delay of a name doubles up to a limit, and is reset after a while."""
    failed = FailedLogins()
    assert [wrong(failed, i) for i in range(7)] == [0.25, 0.5, 1, 2, 4, 5, 5]
    assert wrong(failed, 7, "b") == 0.25
    assert wrong(failed, 7, name="other") == 0.25
    assert wrong(failed, 7 + FORGET_S + 1) == 0.25
    assert [wrong(FailedLogins(2.0), i) for i in range(2)] == [0.25, 0.25]
    low = FailedLogins(0.4)
    assert [wrong(low, i) for i in range(3)] == [0.25, 0.4, 0.4]


def test_no_password_is_recognized_by_its_delay():
    """After a failure, the right password waits as a wrong one does."""
    for failures in range(8):
        one, other = FailedLogins(), FailedLogins()
        for i in range(failures):
            assert wrong(one, i) == wrong(other, i)
        delay_s = one.begin("a", "n", GOOD, failures)
        if failures:
            assert delay_s == other.begin("a", "n", "", failures)
            # Nor by the delay of the next one, sent at the same time.
            assert one.begin("a", "n", "", failures) == other.begin(
                "a", "n", "", failures
            )
        else:
            assert delay_s == 0
    # An address that has logged in elsewhere, or as somebody else, is no exception.
    failed = FailedLogins()
    assert tried(failed, 0, address="b") == tried(failed, 0, name="m") == 0
    assert wrong(failed, 0) == 0.25
    assert tried(failed, 1) == 0.5


def test_few_wait_at_a_time():
    """More than a few log-ins of a name are not answered, whatever the password is."""
    failed = FailedLogins()
    for _ in range(WAITING_MAX):
        assert failed.begin("a", "n", "", 0) is not None
    assert failed.begin("a", "n", "", 0) is None
    assert failed.begin("a", "n", GOOD, 0) is None
    assert failed.begin("b", "n", GOOD, 0) == 0
    assert failed.begin("a", "other", GOOD, 0) == 0
    assert failed.begin("a", "n", GOOD, 0.2) is None
    # Until the first one's delay is over, however early it has disconnected.
    assert failed.begin("a", "n", GOOD, 0.25) is not None

    # Nor do more than some of all names.
    failed = FailedLogins()
    begun = [failed.begin("a", str(number), "", 0) for number in range(50)]
    assert begun == [0.25] * WAITING_OF_ADDRESS_MAX + [None] * (
        50 - WAITING_OF_ADDRESS_MAX
    )
    assert failed.begin("a", "good", GOOD, 0) == 0


def test_who_has_logged_in_before_is_not_delayed():
    """A program with an old password, which retries, does not delay the others."""
    failed = FailedLogins()
    assert tried(failed, 0) == 0
    now_s = 0.0
    for _ in range(200):
        delay_s = wrong(failed, now_s)
        assert delay_s is not None
        now_s += delay_s
        assert tried(failed, now_s) == 0
    # Another password, such as the next one, has to wait once.
    assert tried(failed, now_s, "hash of another") == 5
    assert tried(failed, now_s, "hash of another") == 0
    assert wrong(failed, now_s) == 0.25


def test_guesses_delay_even_known_passwords():
    """Where somebody guesses, the right password is not recognized by its speed."""
    failed = FailedLogins()
    assert tried(failed, 0) == 0
    for _ in range(EXCESS_TOLERATED + 1):
        failed.begin("a", "n", "", 0)
    assert failed.begin("a", "n", GOOD, 0) is None
    assert tried(failed, 0, name="other") == 0
    # However often a program with the right one tries.
    assert [failed.begin("a", "n", GOOD, 0.1) for _ in range(5)] == [None] * 5
    assert tried(failed, 8 * EXCESS_S) == 0  # there were few of them

    for _ in range(10 * EXCESS_MAX):
        failed.begin("a", "n", "", 0)
    assert failed.begin("a", "n", GOOD, 0) is None
    # It ends soon after the guesses do.
    assert failed.begin("a", "n", GOOD, FORGET_S + 1) == 0


def test_tables_have_a_limit():
    """The name that failed longest ago is forgotten, and who logged in longest ago."""
    failed = FailedLogins()
    for number in range(KEPT_MAX + 1):
        wrong(failed, 0, str(number))
    assert wrong(failed, 0, str(KEPT_MAX)) == 0.5
    assert wrong(failed, 0, "0") == 0.25

    failed = FailedLogins()
    for number in range(KEPT_MAX + 1):
        assert tried(failed, 0, name=str(number)) == 0
    for name in ("0", "1"):
        wrong(failed, 0, name=name)
    assert tried(failed, 0, name="1") == 0
    assert tried(failed, 0, name="0") == 0.5
