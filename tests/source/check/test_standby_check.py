"""Whether a standby could take over, with real replicas."""

from __future__ import annotations

from dataclasses import replace

from facts_of_source import checked_of
from fix_source_access import access_of

from canal_server.model.check_results import Outcome
from canal_server.source.check.source_check import check_source


def standby_result(server):
    """Return what is found of a server as a standby."""
    checked = replace(checked_of(), role="standby")
    return next(
        each
        for each in check_source(access_of(server), checked)
        if each.check == "standby"
    )


def test_a_replica(replicas, replicated_schema):
    """1. it replicates and is fit; 2. it is stopped, and the remedy is named."""
    replicas.source.execute(f"CREATE TABLE {replicated_schema}.t (a INT)")
    replicas.catch_up()
    assert standby_result(replicas.replica).outcome is Outcome.OK
    replicas.replica.execute("STOP REPLICA")
    found = standby_result(replicas.replica)
    assert found.outcome is Outcome.FAIL
    assert found.text.startswith("it could not take over: its replication is stopped")
    assert "run START REPLICA" in found.text


def test_a_replica_whose_lag_is_not_visible(replicas):
    """On MariaDB an account without REPLICA MONITOR cannot see it: a warning."""
    rights = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
    replicas.source.execute(
        "CREATE USER blind IDENTIFIED BY 'x'", f"GRANT {rights} ON *.* TO blind"
    )
    replicas.catch_up()
    access = access_of(replicas.replica, user="blind", password="x")
    checked = replace(checked_of(), role="standby")
    found = {each.check: each for each in check_source(access, checked)}["standby"]
    if replicas.flavour == "mariadb":
        assert found.outcome is Outcome.WARN
        assert "its lag is not visible" in found.text
    else:
        assert found.outcome is Outcome.OK
    replicas.source.execute("DROP USER blind")
