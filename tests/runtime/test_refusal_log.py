"""Refusals are logged once for each address, and then as a count."""

from __future__ import annotations

import logging

from canal_server.messages.server_messages import (
    CLIENT_REFUSALS_REPEATED,
    CLIENT_REFUSED,
)
from canal_server.runtime.refusal_log import ADDRESSES_MAX, PERIOD_S, Refusals

log = logging.getLogger(__name__)


def refusals_at(now_s: list[float]) -> Refusals:
    """Return refusals with a clock that shows the number in a list."""
    return Refusals(
        lambda what, level: CLIENT_REFUSED.log(log, what, level=level),
        lambda *more: CLIENT_REFUSALS_REPEATED.log(log, *more[:4], level=more[4]),
        lambda: now_s[0],
    )


def test_first_at_once_and_the_rest_in_sum(caplog):
    """A thousand refusals of one address are two lines, and others' one each."""
    now_s = [0.0]
    refusals = refusals_at(now_s)
    for number in range(1_000):
        refusals.note("a", f"refused {number}")
    refusals.note("b", "refused b")
    assert caplog.messages == ["refused 0", "refused b"]
    now_s[0] = PERIOD_S
    refusals.note("c", "refused c")
    assert caplog.messages[2:] == [
        "999 more refusals for a within 60 s; the last one: refused 999",
        "refused c",
    ]
    refusals.note("a", "refused again")
    assert caplog.messages[4:] == ["refused again"]


def test_a_sum_when_its_period_ends(caplog):
    """A burst that stops is logged in sum, although no other refusal follows."""
    now_s = [0.0]
    refusals = refusals_at(now_s)
    assert refusals.log_ended() == PERIOD_S
    now_s[0] = PERIOD_S - 10
    for number in range(9):
        refusals.note("a", f"refused {number}")
    assert refusals.log_ended() == PERIOD_S
    now_s[0] += 20
    refusals.note("b", "refused b")
    assert refusals.log_ended() == PERIOD_S - 20
    assert caplog.messages == ["refused 0", "refused b"]
    now_s[0] += PERIOD_S - 20
    assert refusals.log_ended() == 20
    assert caplog.messages[2:] == [
        "8 more refusals for a within 60 s; the last one: refused 8"
    ]


def test_flush(caplog):
    """The remaining counts are logged at the end."""
    refusals = refusals_at([0.0])
    refusals.note("a", "refused 1")
    refusals.note("a", "refused 2")
    refusals.flush()
    refusals.flush()
    assert len(caplog.messages) == 2
    assert "1 more refusals for a" in caplog.messages[1]


def test_many_addresses_are_few_lines(caplog):
    """Addresses are distinguished up to a limit; neither log nor memory grow."""
    caplog.set_level("INFO")
    refusals = refusals_at([0.0])
    refusals.note("0", "timed out", logging.INFO)
    assert caplog.messages == ["timed out"]
    for number in range(5 * ADDRESSES_MAX):
        refusals.note(str(number), "refused")
    assert len(caplog.messages) <= ADDRESSES_MAX + 2
