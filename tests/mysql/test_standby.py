"""Whether a server may become the source: the rules, and real replicas."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from fix_source_access import PATIENCE_S, access_of

from canal_server.errors import SourceRefused
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.mysql.standby import (
    Channel,
    Requirements,
    Verdict,
    _channel_refusal,
    examine,
    replica_channels,
    without_lost,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fix_replicas import Replicas
    from servers import PrivateServer

YES, CONNECTING, NO = "Yes", "Connecting", "No"
GTIDS = Requirements(gtid_on=True, gtids="required", lag_max_s=10)
TIME = Requirements(gtid_on=False, lag_max_s=10)
POLL_S = 0.02


def channel(
    receives: str = YES,
    *,
    applies: bool = True,
    lag_s: int | None = 0,
    applied_all: bool = True,
) -> Channel:
    """Return a replica's channel; by default all is well."""
    return Channel(
        name="",
        receives=receives,
        applies=applies,
        lag_s=lag_s,
        applied_all=applied_all,
    )


@pytest.mark.parametrize(
    ("required", "missing", "found", "why"),
    [
        (GTIDS, "", channel(), ""),
        (GTIDS, "", channel(NO, applies=False, lag_s=None), ""),
        (GTIDS, "", channel(lag_s=11), "lags 11 s"),
        (GTIDS, "a:1", channel(), "not yet received a:1"),
        (GTIDS, "a:1", channel(applied_all=False), "not yet received a:1"),
        (GTIDS, "a:1", channel(applies=False), "stopped and it lacks a:1"),
        (GTIDS, "a:1", channel(NO), "stopped and it lacks a:1"),
        (GTIDS, "a:1", channel(CONNECTING, lag_s=None), "source does not answer"),
        (
            GTIDS,
            "a:1",
            channel(CONNECTING, lag_s=None, applied_all=False),
            "is still applying",
        ),
        (TIME, "", channel(), ""),
        (TIME, "", channel(lag_s=10, applied_all=False), ""),
        (TIME, "", channel(lag_s=11), "lags 11 s"),
        (TIME, "", channel(CONNECTING, lag_s=None), ""),
        (
            TIME,
            "",
            channel(CONNECTING, lag_s=None, applied_all=False),
            "is still applying",
        ),
        (TIME, "", channel(applies=False, lag_s=None), "run START REPLICA"),
        (Requirements(gtid_on=False), "", channel(lag_s=10**6), ""),
    ],
)
def test_rules(required: Requirements, missing: str, found: Channel, why: str) -> None:
    """Each state of a replica is refused with its reason, or accepted."""
    refusal = _channel_refusal([found], required, missing=missing)
    assert (why in refusal) if why else refusal == ""


@contextmanager
def asked(server: PrivateServer) -> Iterator[ControlConnection]:
    """Yield a connection of the account under test."""
    with ControlConnection(access_of(server)) as control:
        yield control


def verdict_on(
    server: PrivateServer, gtids: str = "", *, lag_max_s: int = 0
) -> Verdict:
    """Return the verdict on a server, in GTID mode when there is a set."""
    required = Requirements(gtid_on=bool(gtids), gtids=gtids, lag_max_s=lag_max_s)
    with asked(server) as control:
        return examine(control, required)


def wait_for_refusal(server: PrivateServer, gtids: str, why: str) -> None:
    """Poll until a server is refused for a reason."""
    give_up_at = time.monotonic() + PATIENCE_S
    while why not in (verdict := verdict_on(server, gtids)).refusal:
        assert time.monotonic() < give_up_at, verdict
        time.sleep(POLL_S)


@contextmanager
def delayed(replicas: Replicas, seconds: int) -> Iterator[None]:
    """Inside, the replica receives at once and applies with a delay."""
    word = "SOURCE" if replicas.flavour == "mysql" else "MASTER"
    change = "CHANGE REPLICATION SOURCE TO" if word == "SOURCE" else "CHANGE MASTER TO"
    for delay in (seconds, 0):
        replicas.replica.execute(
            "STOP REPLICA", f"{change} {word}_DELAY = {delay}", "START REPLICA"
        )
        if delay:
            yield


def write(replicas: Replicas, schema: str, *before: str) -> str:
    """Write a transaction at the source; return all that it has executed."""
    replicas.source.execute(
        *before,
        f"CREATE TABLE IF NOT EXISTS {schema}.t (a INT AUTO_INCREMENT PRIMARY KEY)",
        f"INSERT INTO {schema}.t () VALUES ()",
    )
    return replicas.executed(replicas.source)


def test_a_replica_that_has_all(replicas: Replicas, replicated_schema: str) -> None:
    """A replica that has what was delivered is accepted, read-only or not."""
    gtids = write(replicas, replicated_schema)
    replicas.catch_up()
    replicas.replica.execute("SET GLOBAL read_only = ON")
    found = verdict_on(replicas.replica, gtids, lag_max_s=1)
    replicas.replica.execute("SET GLOBAL read_only = OFF")
    assert (found.refusal, found.warnings) == ("", ())
    assert str(replicas.replica.port) in found.server
    assert verdict_on(replicas.replica).refusal == ""


def test_a_replica_that_lags(replicas: Replicas, replicated_schema: str) -> None:
    """One that applies a received transaction later is refused until then."""
    with delayed(replicas, 1000):
        gtids = write(
            replicas, replicated_schema, "SET timestamp = UNIX_TIMESTAMP()-99"
        )
        wait_for_refusal(replicas.replica, gtids, "it has not yet received")
        give_up_at = time.monotonic() + PATIENCE_S
        while "it lags" not in verdict_on(replicas.replica, lag_max_s=10).refusal:
            assert time.monotonic() < give_up_at
            time.sleep(POLL_S)
    replicas.catch_up()
    assert verdict_on(replicas.replica, gtids).refusal == ""


def test_a_replica_that_was_stopped(replicas: Replicas, replicated_schema: str) -> None:
    """One that does not apply is refused, as long as something is missing by GTID."""
    before = replicas.executed(replicas.source)
    with replicas.lag():
        gtids = write(replicas, replicated_schema)
        assert "its replication is stopped" in verdict_on(replicas.replica).refusal
        assert "and it lacks" in verdict_on(replicas.replica, gtids).refusal
        assert verdict_on(replicas.replica, before).refusal == ""


def test_a_replica_whose_source_is_dead(
    replicas: Replicas, replicated_schema: str
) -> None:
    """One that has all is accepted; one that lacks some is, once it is the source."""
    gtids = write(replicas, replicated_schema)
    replicas.catch_up()
    replicas.replica.execute("STOP REPLICA IO_THREAD")
    lost = write(replicas, replicated_schema)
    replicas.source.kill()
    replicas.replica.execute("START REPLICA IO_THREAD")
    wait_for_refusal(replicas.replica, lost, "its source does not answer")
    assert verdict_on(replicas.replica, gtids).refusal == ""
    assert verdict_on(replicas.replica).refusal == ""
    replicas.take_over()
    found = verdict_on(replicas.source, lost)
    # The other one, which has more than its source now, cannot be a replica.
    replicas.take_back()
    assert found.refusal == ""
    assert "they were lost with the other server" in found.warnings[0]


def test_a_replica_without_a_log_of_its_own(replicas: Replicas) -> None:
    """One that does not log what it replicates is refused; a source need not."""
    server, options = replicas.replica, replicas.replica.options
    word = "replica" if replicas.flavour == "mysql" else "slave"
    server.restart([*options, f"--log-{word}-updates=OFF"])
    try:
        refused = verdict_on(server).refusal
        server.execute("STOP REPLICA", "RESET REPLICA ALL")
        fit = verdict_on(server).refusal
    finally:
        server.restart(options)
        replicas.follow()
    assert "it does not log what it replicates" in refused
    assert fit == ""


def test_what_rules_a_server_out(replicas: Replicas) -> None:
    """Another kind of server in GTID mode, or a format that is not allowed."""
    replicas.catch_up()
    with asked(replicas.replica) as control:
        other = examine(
            control,
            Requirements(gtid_on=True, is_mariadb=replicas.flavour == "mysql"),
        )
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            by_time = examine(
                control,
                Requirements(gtid_on=False, is_mariadb=replicas.flavour == "mysql"),
            )
            # What is applied is committed before the applier reports that it is done.
            if "is still applying" not in by_time.refusal:
                break
            assert time.monotonic() < give_up_at, by_time
        strict = examine(control, Requirements(gtid_on=False, formats=("STATEMENT",)))
    assert "are incompatible" in other.refusal
    assert by_time.refusal == ""
    assert "binlog_format is ROW" in strict.refusal


def test_an_account_that_may_not_look(replicas: Replicas) -> None:
    """A MariaDB reports at least whether it replicates; a MySQL needs the privilege."""
    user = "blind"
    replicas.source.execute(
        f"CREATE USER {user} IDENTIFIED BY 'x'",
        f"GRANT SELECT, REPLICATION SLAVE ON *.* TO {user}",
    )
    replicas.catch_up()
    access = access_of(replicas.replica, user=user, password="x")
    with ControlConnection(access) as control:
        info = read_server_info(control)
        if info.is_mariadb:
            found = examine(control, Requirements(gtid_on=False))
            assert found.refusal == ""
            assert "its lag is not visible" in found.warnings[0]
            replicas.replica.execute("STOP REPLICA")
            assert replica_channels(control, info) == ()
        else:
            with pytest.raises(SourceRefused, match="REPLICATION CLIENT"):
                examine(control, Requirements(gtid_on=False))
    replicas.source.execute(f"DROP USER {user}")


def test_channels_of_a_source(replicas: Replicas) -> None:
    """A server that replicates nothing has no channels."""
    with asked(replicas.source) as control:
        assert replica_channels(control, read_server_info(control)) == ()


def test_without_what_was_lost(replicas: Replicas, replicated_schema: str) -> None:
    """A promoted MariaDB resumes where it was, in domains where it was."""
    if replicas.flavour == "mysql":
        pytest.skip("MySQL needs no such thing")
    write(replicas, replicated_schema)
    replicas.catch_up()
    state = replicas.executed(replicas.replica)
    domain, server, sequence = state.split(",")[0].split("-")
    with asked(replicas.replica) as control:
        ahead = f"{domain}-{server}-{int(sequence) + 5},77-1-3"
        assert without_lost(control, ahead) == f"{domain}-{server}-{sequence},77-1-3"
        earlier = f"{domain}-{server}-{int(sequence) - 1}"
        assert without_lost(control, earlier) == earlier
        assert without_lost(control, "") == ""
        # Its own were not lost with another server: the binlog was reset.
        own = f"{domain}-{read_server_info(control).server_id}-999999"
        assert without_lost(control, own) == own
