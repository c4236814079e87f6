"""Positions, replicas and table histories in `canal-server check`, on real servers."""

from __future__ import annotations

import socket

import pytest
from fix_check import HOUR_MS, MARIADB, MYSQL, SECRET, account, applied
from fix_store import eventually

from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.file_meta import MetaFiles
from canal_server.position.stored_meta import StoredClient


@pytest.mark.parametrize(
    "case",
    [
        (
            ("journal.name = binlog.999999",),
            "fail",
            "master.journal.name = binlog.999999: binlog.999999 does not exist yet",
        ),
        (
            ("journal.name = mysql-bin.000001",),
            "fail",
            "no binlog file has the name mysql-bin.000001",
        ),
        (
            ("journal.name = binlog.000001", "position = 4000000000"),
            "fail",
            "binlog.000001:4000000000 does not exist: binlog.000001 ends at",
        ),
        (
            ("timestamp = 1700000000",),
            "fail",
            "canal.instance.master.timestamp = 1700000000 (1970-01-20T",
        ),
        (("timestamp = 4000000000000",), "warn", "is in the future"),
        (("journal.name = oldest",), "ok", "starts at the oldest file"),
        (("journal.name = binlog.000001", "position = 4"), "ok", "the source has"),
    ],
)
def test_a_configured_start(checked_server, conf_for, check, case):
    """A start that the source does not have is named by its key."""
    lines, outcome, words = case
    conf = conf_for(
        checked_server, *(f"canal.instance.master.{line}" for line in lines)
    )
    found = check(conf)
    ((was, message),) = found.of("start_position")
    assert was == outcome
    assert words in message


def test_a_configured_set(checked_server, conf_for, check):
    """A GTID set of the other kind of server is no start here."""
    other = (
        "0-1-5"
        if checked_server.flavour == MYSQL
        else f"{'a' * 8}-1-1-1-{'b' * 12}:1-5"
    )
    conf = conf_for(
        checked_server,
        "canal.instance.gtidon = true",
        f"canal.instance.master.gtid = {other}",
    )
    found = check(conf)
    ((outcome, message),) = found.of("start_position")
    assert outcome == "fail"
    assert message.startswith("canal.instance.master.gtid = ")
    assert found.failing() == ["start_position"]


def stored_at(conf, server, file: str, offset: int, *, age_ms: int = 0, gtid=None):
    """Store the position of client 1001."""
    now_ms = int(server.execute("SELECT 1000 * UNIX_TIMESTAMP()")[0][0])
    position = EntryPosition(file, offset, now_ms - age_ms, 1, gtid)
    cursor = LogPosition(LogIdentity("127.0.0.1", server.port), position)
    client = StoredClient(ClientIdentity("example", 1001, ""), cursor)
    MetaFiles(conf).write("example", [client])


def purged_to(server) -> str:
    """Begin a new binlog file and purge those before it; returns its name."""
    server.execute("FLUSH BINARY LOGS")
    file = str(server.binlog_position()[0])

    def is_purged():
        # MariaDB keeps a file until it has noted that recovery does not need it.
        server.execute(f"PURGE BINARY LOGS TO '{file}'")
        return server.execute("SHOW BINARY LOGS")[0][0] == file

    eventually(is_purged)
    return file


def test_a_cursor_whose_file_was_purged(checked_server, conf_for, check):
    """The client is named with the files, and the command that moves it."""
    conf = conf_for(checked_server)
    file = purged_to(checked_server)
    stored_at(conf, checked_server, "binlog.000001", 4)
    found = check(conf)
    ((outcome, message),) = found.of("cursors")
    assert outcome == "fail"
    assert "client 1001 is at binlog.000001:4, but binlog.000001" in message
    assert f"the oldest file is {file}" in message
    seek = f"canal-server position seek --conf {conf} --destination example"
    assert f"{seek} --client-id 1001 --to oldest" in message
    assert found.failing() == ["cursors"]
    # What is there is not lost.
    stored_at(conf, checked_server, *checked_server.binlog_position())
    assert check(conf).failing() == []


def test_a_cursor_of_another_binlog(checked_server, conf_for, check):
    """A position that no file of the source can have was of another binlog."""
    conf = conf_for(checked_server)
    stored_at(conf, checked_server, "mysql-bin.000001", 4)
    ((outcome, message),) = check(conf).of("cursors")
    assert outcome == "fail"
    assert "mysql-bin.000001:4, which is not in the binlog" in message


@pytest.mark.parametrize("checked_server", [MYSQL], indirect=True)
def test_a_cursor_whose_transactions_were_purged(checked_server, conf_for, check):
    """In GTID mode the set decides, whatever the file is called."""
    conf = conf_for(checked_server, "canal.instance.gtidon = true")
    checked_server.execute("FLUSH BINARY LOGS")
    file, end = checked_server.binlog_position()
    checked_server.execute(f"PURGE BINARY LOGS TO '{file}'")
    stored_at(conf, checked_server, file, end, gtid="")
    assert check(conf).of("cursors")[0][0] == "ok"
    (uuid,) = checked_server.execute("SELECT @@server_uuid")[0]
    stored_at(conf, checked_server, file, end, gtid=f"{uuid}:1")
    ((outcome, message),) = check(conf).of("cursors")
    assert outcome == "fail"
    assert f"at a GTID set after which {uuid}:2" in message


def test_files_that_expire_soon(checked_server, conf_for, check):
    """A client that is older than three quarters of the limit is worth a warning."""
    conf = conf_for(checked_server)
    file, end = checked_server.binlog_position()
    checked_server.execute("FLUSH BINARY LOGS")
    stored_at(conf, checked_server, file, end, age_ms=9 * HOUR_MS)
    name = "binlog_expire_logs_seconds"
    good = checked_server.execute(f"SELECT @@global.{name}")[0][0]
    with applied(
        checked_server, f"SET GLOBAL {name} = 36000", f"SET GLOBAL {name} = {int(good)}"
    ):
        found = check(conf)
    ((outcome, message),) = found.of("binlog_expiry")
    assert outcome == "warn"
    assert "purges binlog files after 10 hours" in message
    assert "the position of client 1001 is 9.0 hours old" in message
    assert f"SET GLOBAL {name} = 72000" in message
    assert found.status == 0


# --- replicas -------------------------------------------------------------------------


def test_another_replica_has_the_id(checked_server, conf_for, check, dump, monkeypatch):
    """Where the source shows its replicas, one with the configured id is named."""
    stream = dump(checked_server)
    stream.event()
    (replica,) = checked_server.execute(
        "SHOW REPLICAS" if checked_server.flavour == MYSQL else "SHOW SLAVE HOSTS"
    )
    conf = conf_for(checked_server, f"canal.instance.mysql.slaveId = {replica[0]}")
    # The replica runs here; from now on this machine has another name.
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    found = check(conf)
    ((outcome, message),) = found.of("other_replicas")
    if checked_server.flavour == MARIADB:
        assert outcome == "skip"
        assert "REPLICATION MASTER ADMIN" in message
        grant = "REPLICATION MASTER ADMIN ON *.* {} canal"
        with applied(
            checked_server,
            f"GRANT {grant.format('TO')}",
            f"REVOKE {grant.format('FROM')}",
        ):
            found = check(conf)
        ((outcome, message),) = found.of("other_replicas")
    assert outcome == "fail"
    assert f"slaveId is {replica[0]}, which a replica at {replica[1]} has" in message
    assert found.failing() == ["other_replicas"]


# --- the table history ----------------------------------------------------------------


def history_lines(server, name: str, user: str = "canal", password: str = "canal"):
    """Return the settings of a history in a database."""
    return (
        f"canal.instance.tsdb.url = jdbc:mysql://127.0.0.1:{server.port}/{name}",
        f"canal.instance.tsdb.dbUsername = {user}",
        f"canal.instance.tsdb.dbPassword = {password}",
    )


def test_a_history_in_a_database(checked_server, conf_for, check):
    """1. no privileges; 2. no database; 3. read-only; 4. all is well."""
    rights = "GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON `history`.* TO 'u'@'%'"
    with account(checked_server):
        conf = conf_for(
            checked_server, *history_lines(checked_server, "history", "u", SECRET)
        )
        found = check(conf)
        ((outcome, message),) = found.of("table_history")
        assert outcome == "fail"
        assert message.endswith(f"have an administrator run: {rights}")
        assert found.failing() == ["table_history"]

        checked_server.execute(rights)
        ((outcome, message),) = check(conf).of("table_history")
        assert outcome == "fail"
        assert message.endswith("run: CREATE DATABASE `history`")

        with applied(
            checked_server,
            "CREATE DATABASE `history`",
            "DROP DATABASE IF EXISTS history",
        ):
            with applied(
                checked_server,
                "SET GLOBAL read_only = ON",
                "SET GLOBAL read_only = OFF",
            ):
                ((outcome, message),) = check(conf).of("table_history")
                assert outcome == "fail"
                assert "the server is read-only" in message
            assert check(conf).status == 0


def test_a_history_that_cannot_be_reached(checked_server, conf_for, check):
    """The key with its address is named; its password is not shown."""

    class Nowhere:
        port = 1

    found = check(conf_for(checked_server, *history_lines(Nowhere, "h", "u", SECRET)))
    ((outcome, message),) = found.of("table_history")
    assert outcome == "fail"
    assert "h on 127.0.0.1:1" in message
    assert "check canal.instance.tsdb.url" in message
