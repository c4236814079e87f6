"""What is advised about a server, by values."""

from __future__ import annotations

import pytest
from facts_of_source import NOW_S, checked_of, facts_of

from canal_server.errors import SourceRefused
from canal_server.model.check_results import Outcome
from canal_server.source.check.server_checks import (
    SKEW_S_MAX,
    check_clock,
    check_other_replicas,
    check_row_metadata,
    check_row_value_options,
)
from canal_server.source.check.source_facts import OtherReplica, SourceClock

DENIED = SourceRefused("denied")
OK, WARN, FAIL, SKIP = Outcome.OK, Outcome.WARN, Outcome.FAIL, Outcome.SKIP


@pytest.mark.parametrize(
    ("value", "outcome"),
    [("FULL", OK), ("minimal", WARN), ("NO_LOG", WARN), ("", OK)],
)
def test_row_metadata(value, outcome):
    """Less than FULL is worth a warning, if the server has the variable."""
    facts = facts_of(variables={"binlog_row_metadata": value})
    assert check_row_metadata(facts, checked_of()).outcome is outcome


@pytest.mark.parametrize(("value", "outcome"), [("", OK), ("PARTIAL_JSON", WARN)])
def test_row_value_options(value, outcome):
    """Updates of parts of a document arrive as expressions."""
    facts = facts_of(variables={"binlog_row_value_options": value})
    assert check_row_value_options(facts, checked_of()).outcome is outcome


@pytest.mark.parametrize(
    ("ahead_s", "outcome", "words"),
    [
        (0.0, OK, "agrees"),
        (SKEW_S_MAX, OK, "agrees"),
        (-SKEW_S_MAX, OK, "agrees"),
        (17.4, WARN, "17 s ahead of that of this machine"),
        (-3600.0, WARN, "3600 s behind that of this machine"),
    ],
)
def test_clocks(ahead_s, outcome, words):
    """A difference is named with its direction."""
    found = check_clock(facts_of(clock=SourceClock(NOW_S, ahead_s)), checked_of())
    assert found.outcome is outcome
    assert words in found.text


def test_a_clock_that_is_not_known():
    """The check is skipped with the reason."""
    found = check_clock(facts_of(clock=DENIED), checked_of())
    assert found.outcome is SKIP
    assert found.text.endswith(": denied")


OTHER = OtherReplica(9, "there")


@pytest.mark.parametrize(
    ("replicas", "checked", "outcome"),
    [
        ([OTHER], checked_of(), OK),
        ([OTHER], checked_of(slave_id=8), OK),
        ([OTHER], checked_of(slave_id=9), FAIL),
        # It may be the connection of our own server that was stopped just now.
        ([OtherReplica(9, "here")], checked_of(slave_id=9), WARN),
        ([OtherReplica(9, "here"), OTHER], checked_of(slave_id=9), FAIL),
        # Our own server is among them while it reads.
        ([OtherReplica(9, "here")], checked_of(slave_id=9, is_running=True), OK),
        ([OTHER], checked_of(slave_id=9, is_running=True), FAIL),
        (DENIED, checked_of(slave_id=9), SKIP),
        (DENIED, checked_of(), OK),
    ],
)
def test_other_replicas(replicas, checked, outcome):
    """Two replicas may not have one id."""
    found = check_other_replicas(facts_of(replicas=replicas), checked)
    assert found.outcome is outcome
    if outcome is FAIL:
        assert found.text.startswith("canal.instance.mysql.slaveId is 9, which a")


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        (
            {"version": "11.4.2-MariaDB"},
            (
                "only accounts with REPLICATION MASTER ADMIN see the replicas; it is"
                " optional, for this check alone: GRANT REPLICATION MASTER ADMIN ON *.*"
                " TO 'u'@'%'"
            ),
        ),
        ({}, "denied"),
    ],
)
def test_replicas_that_are_not_shown(variables, why):
    """What a MariaDB wants for it is not what reading its binlog needs."""
    facts = facts_of(variables=variables, replicas=SourceRefused("denied", errno=1227))
    found = check_other_replicas(facts, checked_of(slave_id=9))
    assert found.outcome is SKIP
    assert found.text == f"cannot check canal.instance.mysql.slaveId = 9: {why}"
