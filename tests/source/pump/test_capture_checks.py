"""What is checked of a source, and of what its account sees."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from fake_mysql import account
from fix_source_access import access_of

from canal_server.config.schema import FilterConfig, SourceConfig
from canal_server.errors import ConnectionLost, SourceError, SourceRefused
from canal_server.mysql.binlogs import binary_logs
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_errors import account_text
from canal_server.runtime.lifecycle import Stop
from canal_server.source.pump import capture_checks
from canal_server.source.pump.capture_checks import CaptureChecks
from canal_server.source.pump.session_failures import Failures

REPLICA = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{}'@'%'"


def warnings_of(control, caplog, **filters: Any) -> list[str]:
    """Return what a new look at a source warns of."""
    checks = CaptureChecks(SourceConfig(), FilterConfig(**filters))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        checks.examine(control, Failures("example"))
    first = [record.getMessage() for record in caplog.records]
    caplog.clear()
    checks.examine(control, Failures("example"))
    assert not caplog.records, "each server is looked at once"
    return first


def test_an_account_without_select(source_server, database, caplog):
    """An account that may only replicate is advised to get SELECT, no other one is."""
    name = f"u{database[-8:]}"
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    with account(source_server, name, "IDENTIFIED BY 'x'", REPLICA.format(name)):
        access = access_of(source_server, user=name, password="x")
        with ControlConnection(access) as control:
            (warning,) = warnings_of(control, caplog)
            assert f"account {name} at" in warning
            assert "sees no table" in warning
            assert warning.endswith(f"run: GRANT SELECT ON *.* TO '{name}'@'%'")
        source_server.execute(f"GRANT SELECT ON {database}.* TO '{name}'@'%'")
        with ControlConnection(access) as control:
            assert warnings_of(control, caplog) == []
            (warning,) = warnings_of(
                control, caplog, regex=rf"{database}\.t,other\.t,mysql\..*"
            )
            assert r"matches 'other\.t', 'mysql\..*':" in warning
            assert warning.endswith(f"run: GRANT SELECT ON *.* TO '{name}'@'%'")


def test_a_grant_of_select_names_the_account_of_this_host(
    source_server, database, caplog
):
    """The statement of the warning can be run: it names the account that exists."""
    account = f"'u{database[-8:]}'@'127.0.0.0/255.0.0.0'"
    source_server.execute(
        f"CREATE USER {account} IDENTIFIED BY 'x'",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}",
    )
    try:
        user = account.split("'")[1]
        access = access_of(source_server, user=user, password="x")
        with ControlConnection(access) as control:
            (warning,) = warnings_of(control, caplog)
        source_server.execute(warning.partition(" run: ")[2])
        with ControlConnection(access) as control:
            assert warnings_of(control, caplog) == []
    finally:
        source_server.execute(f"DROP USER {account}")


def test_warnings_hold_until_they_are_mended(
    source_server, database, caplog, monkeypatch
):
    """1. no SELECT: a warning; 2. still none: the same, logged once; 3. it is granted.

    4. the next session finds it revoked.
    """
    monkeypatch.setattr(capture_checks, "LOOK_AGAIN_S", 0.0)
    name = f"u{database[-8:]}"
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    checks, failures = CaptureChecks(SourceConfig(), FilterConfig()), Failures("d")
    with account(source_server, name, "IDENTIFIED BY 'x'", REPLICA.format(name)):
        access = access_of(source_server, user=name, password="x")
        with ControlConnection(access) as control:
            checks.examine(control, failures)
        (found,) = checks.warnings
        assert "sees no table" in found
        checks.look_again(access, Stop(), failures)
        assert list(checks.warnings) == [found]
        assert caplog.text.count("sees no table") == 1
        # On all schemas it counts for new connections only.
        source_server.execute(f"GRANT SELECT ON *.* TO '{name}'@'%'")
        checks.look_again(access, Stop(), failures)
        assert not list(checks.warnings)
        source_server.execute(f"REVOKE SELECT ON *.* FROM '{name}'@'%'")
        with ControlConnection(access) as control:
            checks.examine(control, failures)
        assert list(checks.warnings) == [found]


def test_files_that_are_not_listed(source_server, database):
    """That holds until the account may ask for them."""
    name = f"u{database[-8:]}"
    rights = f"GRANT SELECT, REPLICATION SLAVE ON *.* TO '{name}'@'%'"
    clock_s, failures = [1000.0], Failures("d")
    checks = CaptureChecks(SourceConfig(), FilterConfig(), lambda: clock_s[0])
    with account(source_server, name, "IDENTIFIED BY 'x'", rights):
        access = access_of(source_server, user=name, password="x")
        with ControlConnection(access) as control:
            with pytest.raises(SourceRefused):
                binary_logs(control)
            checks.examine(control, failures)
        checks.note_unlisted("denied", failures)
        (found,) = checks.warnings
        assert found.endswith("so stored positions cannot be checked: denied")
        checks.look_again(access, Stop(), failures)
        assert list(checks.warnings) == [found], "it was looked at just now"
        clock_s[0] += capture_checks.LOOK_AGAIN_S
        checks.look_again(access, Stop(), failures)
        assert list(checks.warnings) == [found]
        source_server.execute(REPLICA.format(name))
        clock_s[0] += 2 * capture_checks.LOOK_AGAIN_S - 1
        checks.look_again(access, Stop(), failures)
        assert list(checks.warnings) == [found], "the next look is twice as far"
        clock_s[0] += 1
        checks.look_again(access, Stop(), failures)
        assert not list(checks.warnings)


def test_a_filter_without_a_table(source_server, database, caplog):
    """Each piece of the filter that matches nothing there is named."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    with ControlConnection(access_of(source_server)) as control:
        assert warnings_of(control, caplog, regex=rf"{database}\..*") == []
        (warning,) = warnings_of(control, caplog, regex=rf"{database}\.T2")
        assert rf"{database}\.T2" in warning
        assert "correct it" in warning


FOREIGN = (
    "CREATE TABLE p (id INT PRIMARY KEY)",
    (
        "CREATE TABLE c (p INT, CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (id)"
        " ON DELETE CASCADE)"
    ),
)


def test_foreign_keys_of_mariadb(mariadb_server, database, caplog):
    """What they change is in no event: said once, if a client may get the table."""
    mariadb_server.execute(f"USE {database}", *FOREIGN)
    with ControlConnection(access_of(mariadb_server)) as control:
        (warning,) = warnings_of(control, caplog, regex=rf"{database}\..*")
        assert (
            f"clients do not receive them: {database}.c: foreign key fk (p)" in warning
        )
        assert warnings_of(control, caplog, regex=rf"{database}\.p") == []


def test_foreign_keys_of_mysql(mysql_server, database, caplog):
    """MySQL 9.7 has them in its binlog, so there is nothing to say."""
    mysql_server.execute(f"USE {database}", *FOREIGN)
    with ControlConnection(access_of(mysql_server)) as control:
        assert warnings_of(control, caplog, regex=rf"{database}\..*") == []


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
@pytest.mark.parametrize(
    ("option", "left"), [("binlog-ignore-db=b", "'b'"), ("binlog-do-db=b", "'a', 'c'")]
)
def test_schemas_that_are_not_logged(own_server, flavour, option, left, caplog):
    """A schema that the binlog leaves out is named, if a client may ask for it."""
    server = own_server(flavour, (f"--{option}",))
    for schema in "abc":
        server.execute(f"CREATE DATABASE {schema}", f"CREATE TABLE {schema}.t (id INT)")
    with ControlConnection(access_of(server)) as control:
        (warning,) = warnings_of(control, caplog, regex=r"[abc]\.t")
        assert f"the server does not log {left}, so clients do not receive" in warning
        assert "binlog_ignore_db" in warning
        logged = next(schema for schema in "abc" if schema not in left)
        assert warnings_of(control, caplog, regex=rf"{logged}\.t") == []


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_replica_that_logs_nothing(own_server, flavour, caplog):
    """What a source replicates without logging it is reported."""
    options = ("--log-slave-updates=OFF",)
    change = "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'nobody'"
    if flavour == "mysql":
        options = ("--log-replica-updates=OFF",)
        change = change.replace("MASTER TO MASTER", "REPLICATION SOURCE TO SOURCE")
        change = change.replace("MASTER_USER", "SOURCE_USER")
    server = own_server(flavour, options)
    server.execute("CREATE DATABASE a", "CREATE TABLE a.t (id INT)")
    with ControlConnection(access_of(server)) as control:
        assert warnings_of(control, caplog, regex=r"a\.t") == []
        server.execute(change)
        if flavour == "mariadb":  # shows replication to few accounts
            account = account_text(*control.account())
            server.execute(f"GRANT REPLICA MONITOR ON *.* TO {account}")
    with ControlConnection(access_of(server)) as control:
        (warning,) = warnings_of(control, caplog, regex=r"a\.t")
        assert "is a replica that does not log what it replicates" in warning


class Answers:
    """A connection whose answers to the look at the tables fail, one after another."""

    def __init__(self, control: ControlConnection, *errors: SourceError) -> None:
        self._control = control
        self._errors = list(errors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._control, name)

    def query(self, sql: str, *given: Any) -> Any:
        """Answer, or fail while there are errors left."""
        if "information_schema.TABLES" in sql and self._errors:
            raise self._errors.pop(0)
        return self._control.query(sql, *given)


def test_a_look_that_fails(source_server, caplog):
    """Where the link breaks, the next session looks; what is refused is a warning."""
    checks = CaptureChecks(SourceConfig(), FilterConfig(regex=r"x\.y"))
    with ControlConnection(access_of(source_server)) as control:
        lost: Any = Answers(control, ConnectionLost("lost"))
        with pytest.raises(ConnectionLost):
            checks.examine(lost, Failures("example"))
        checks.examine(lost, Failures("example"))
        assert r"matches 'x\.y'" in checks.warnings[0]

        checks = CaptureChecks(SourceConfig(), FilterConfig())
        denied: Any = Answers(control, SourceRefused("command denied"))
        checks.examine(denied, Failures("example"))
        (warning,) = checks.warnings
        assert warning.startswith("cannot check the tables that ")
        assert warning.endswith(" sees: command denied")
        assert warning in caplog.text


def test_settings_that_forbid_capture(source_server):
    """A format that is not allowed is refused before tables are looked at."""
    checks = CaptureChecks(SourceConfig(binlog_formats=("STATEMENT",)), FilterConfig())
    with (
        ControlConnection(access_of(source_server)) as control,
        pytest.raises(SourceRefused, match="binlog_format is ROW"),
    ):
        checks.examine(control, Failures("example"))


def test_everything_that_forbids_capture_at_once(source_server, database):
    """One error names a format, a missing privilege and an id, each with its remedy."""
    name = f"u{database[-8:]}"
    formats = SourceConfig(binlog_formats=("STATEMENT",), slave_id=1)
    grant = f"GRANT SELECT ON *.* TO '{name}'@'%'"
    with account(source_server, name, "IDENTIFIED BY 'x'", grant):
        access = access_of(source_server, user=name, password="x")
        with ControlConnection(access) as control:
            server_id = int(control.query("SELECT @@server_id")[0][0])
            checks = CaptureChecks(replace(formats, slave_id=server_id), FilterConfig())
            with pytest.raises(SourceRefused) as refused:
                checks.examine(control, Failures("example"))
    text = str(refused.value)
    assert text.startswith(f"server {access.address} (")
    assert "binlog_format is ROW, allowed by canal.instance.binlog.format" in text
    assert f"run: GRANT REPLICATION SLAVE ON *.* TO '{name}'@'%'" in text
    assert "lacks REPLICATION CLIENT" in text or "lacks BINLOG MONITOR" in text
    assert f"canal.instance.mysql.slaveId is {server_id}" in text
