"""`canal-server check` against real servers: each wrong set-up is found by its name.

A wrong set-up is a setting of a server, an account, or a conf folder. Nothing is
started: the command alone says what is wrong, and how to mend it.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from fix_conf import ACCOUNT
from fix_servers import FLAVOURS
from fix_store import eventually
from servers import PrivateServer, Unavailable

from canal_server import cli
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.file_meta import MetaFiles
from canal_server.position.write_behind import StoredClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECRET = "the-secret"  # of accounts that are made here
MYSQL, MARIADB = FLAVOURS
HOUR_MS = 3_600_000
SET_UP = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, n INT)",
    (
        "CREATE TABLE shop.items (id INT PRIMARY KEY, o INT,"
        " CONSTRAINT fk FOREIGN KEY (o) REFERENCES shop.orders (id) ON DELETE CASCADE)"
    ),
)
REPLICATE = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%'"
SELECT = "GRANT SELECT ON *.* TO '{user}'@'%'"


def _servers(flavour: str, *options: str, statements=SET_UP) -> Iterator[PrivateServer]:
    try:
        with PrivateServer(flavour, options) as server:
            server.execute(*statements)
            yield server
    except Unavailable as error:
        pytest.skip(f"no {flavour} of our own: {error}")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in FLAVOURS],
)
def server(request) -> Iterator[PrivateServer]:
    """Give a server that is set up well, a MySQL and then a MariaDB."""
    yield from _servers(request.param)


@pytest.fixture(scope="module")
def server_without_binlog(server) -> Iterator[PrivateServer]:
    """Give another one, which writes no binlog and is set up badly in other ways."""
    yield from _servers(
        server.flavour,
        "--skip-log-bin",
        "--binlog-format=STATEMENT",
        "--binlog-row-image=MINIMAL",
    )


@dataclass
class Found:
    """What a run of the command printed, and its exit status."""

    status: int
    checks: list[dict[str, str]]

    def of(self, check: str, subject: str = "example") -> list[tuple[str, str]]:
        """Return outcome and message of a check about a subject."""
        return [
            (each["outcome"], "; ".join(filter(None, (each["text"], each["remedy"]))))
            for each in self.checks
            if (each["check"], each["subject"]) == (check, subject)
        ]

    def failing(self) -> list[str]:
        """Return the names of all checks that fail."""
        return [each["check"] for each in self.checks if each["outcome"] == "fail"]


@pytest.fixture
def check(capsys) -> Callable[..., Found]:
    """Return a function that runs the command, and finds no secret in its output."""

    def run(conf: Path, *arguments: str) -> Found:
        status = cli.main(["check", "--conf", str(conf), "--json", *arguments])
        printed = capsys.readouterr()
        assert SECRET not in printed.out + printed.err
        answer = json.loads(printed.out)
        assert answer["ok"] == (status == 0)
        return Found(status, answer["checks"])

    return run


@pytest.fixture
def conf_for(make_conf) -> Callable[..., Path]:
    """Return a function that writes a conf folder for a server, and more lines."""

    def make(server, *lines: str, main: str = "", user="canal", password="canal"):
        return make_conf(
            f"canal.destinations = example\ncanal.port = 0\n{main}\n",
            example="\n".join(
                [
                    f"canal.instance.master.address = 127.0.0.1:{server.port}",
                    f"canal.instance.dbUsername = {user}",
                    f"canal.instance.dbPassword = {password}",
                    "canal.instance.filter.regex = shop\\\\.orders",
                    *lines,
                ]
            ),
        )

    return make


@contextmanager
def applied(server, statement: str, undo: str) -> Iterator[None]:
    """Have a server changed by a statement."""
    server.execute(statement)
    try:
        yield
    finally:
        server.execute(undo)


@contextmanager
def account(server, *grants: str, created: str = f"IDENTIFIED BY '{SECRET}'"):
    """Have an account on a server; gives its name."""
    server.execute(f"CREATE USER 'u'@'%' {created}")
    try:
        server.execute("DO 1", *(grant.format(user="u") for grant in grants))
        yield "u"
    finally:
        server.execute("DROP USER 'u'@'%'")


def test_a_good_set_up(server, conf_for, check):
    """Nothing fails, the exit status is 0, and the conf folder is left as it was."""
    conf = conf_for(server, "canal.instance.gtidon = true")
    before = sorted(conf.rglob("*"))
    found = check(conf)
    assert found.failing() == []
    assert found.status == 0
    assert found.of("reachable")[0][0] == "ok"
    # MariaDB shows replicas only to accounts with one more privilege, and no account
    # needs that here.
    assert {each["outcome"] for each in found.checks} <= {"ok", "warn"}
    assert sorted(conf.rglob("*")) == before


def test_lines_for_people(server, conf_for, capsys):
    """Each thing is one line: an outcome, the destination, what was found."""
    conf = conf_for(server)
    assert cli.main(["check", "--conf", str(conf)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ok    example: binlog_format is ROW" in lines
    assert {line[:5] for line in lines} <= {"ok   ", "warn ", "skip "}
    assert {line[6:].partition(":")[0] for line in lines} == {
        "conf",
        "server",
        "example",
    }


# --- settings of a server -------------------------------------------------------------


@dataclass(frozen=True)
class Wrong:
    """A wrong global variable; `lines` of the conf folder; `words` of the message."""

    name: str
    value: str
    good: str
    outcome: str
    words: tuple[str, ...]
    lines: tuple[str, ...] = ()
    flavours: tuple[str, ...] = FLAVOURS
    check: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.value}-{self.outcome}"


VARIABLES = [
    Wrong(
        "binlog_format",
        "'MIXED'",
        "'ROW'",
        "fail",
        (
            "binlog_format is MIXED, allowed by canal.instance.binlog.format: ROW",
            "run SET GLOBAL binlog_format = 'ROW' and reconnect all writers",
        ),
        ("canal.instance.binlog.format = ROW",),
    ),
    Wrong(
        "binlog_format",
        "'STATEMENT'",
        "'ROW'",
        "warn",
        ("binlog_format is STATEMENT", "run SET GLOBAL binlog_format = 'ROW'"),
    ),
    Wrong(
        "binlog_row_image",
        "'MINIMAL'",
        "'FULL'",
        "fail",
        (
            "is MINIMAL, allowed by canal.instance.binlog.image: FULL",
            "run SET GLOBAL binlog_row_image = 'FULL' and reconnect all writers",
        ),
        ("canal.instance.binlog.image = FULL",),
    ),
    Wrong(
        "binlog_row_image",
        "'NOBLOB'",
        "'FULL'",
        "warn",
        ("binlog_row_image is NOBLOB", "SET GLOBAL binlog_row_image = 'FULL'"),
    ),
    Wrong(
        "binlog_row_metadata",
        "'MINIMAL'",
        "'FULL'",
        "warn",
        ("is MINIMAL", "run SET GLOBAL binlog_row_metadata = 'FULL'"),
    ),
    Wrong(
        "binlog_row_value_options",
        "'PARTIAL_JSON'",
        "''",
        "warn",
        ("is PARTIAL_JSON", "run SET GLOBAL binlog_row_value_options = ''"),
        flavours=(MYSQL,),
    ),
    Wrong(
        "gtid_mode",
        "'ON_PERMISSIVE'",
        "'ON'",
        "fail",
        (
            "gtid_mode is ON_PERMISSIVE, but canal.instance.gtidon is true",
            "run SET GLOBAL gtid_mode = 'ON'",
        ),
        ("canal.instance.gtidon = true",),
        flavours=(MYSQL,),
    ),
    Wrong(
        "server_id",
        "0",
        "7",
        "fail",
        ("server_id is 0", "run SET GLOBAL server_id = 1"),
        flavours=(MYSQL,),
    ),
    Wrong(
        "server_id",
        "77",
        "7",
        "fail",
        (
            "canal.instance.mysql.slaveId is 77, the server_id of the source itself",
            "set canal.instance.mysql.slaveId = 0",
        ),
        ("canal.instance.mysql.slaveId = 77",),
        check="replica_id",
    ),
]


@pytest.mark.parametrize("wrong", VARIABLES, ids=str)
def test_a_wrong_variable(server, conf_for, check, wrong):
    """It is named with its value and the statement that corrects it, and it alone."""
    if server.flavour not in wrong.flavours:
        pytest.skip(f"{server.flavour} cannot have it")
    conf = conf_for(server, *wrong.lines)
    undo = f"SET GLOBAL {wrong.name} = {wrong.good}"
    with applied(server, f"SET GLOBAL {wrong.name} = {wrong.value}", undo):
        found = check(conf)
    name = wrong.check or wrong.name
    ((outcome, message),) = found.of(name)
    assert outcome == wrong.outcome
    for word in wrong.words:
        assert word in message
    assert found.failing() == ([name] if outcome == "fail" else [])
    assert found.status == (1 if outcome == "fail" else 0)


def test_no_binlog(server_without_binlog, conf_for, check):
    """Everything that is wrong with a server is found in one run."""
    conf = conf_for(
        server_without_binlog,
        "canal.instance.binlog.format = ROW",
        "canal.instance.binlog.image = FULL",
    )
    found = check(conf)
    assert found.failing() == ["log_bin", "binlog_format", "binlog_row_image"]
    ((_, message),) = found.of("log_bin")
    assert message.startswith("log_bin is OFF")
    assert "set log_bin in the server's configuration file" in message
    ((outcome, message),) = found.of("start_position")
    assert (outcome, message) == (
        "skip",
        "where to start was not checked because log_bin is OFF",
    )


# --- accounts -------------------------------------------------------------------------

ACCOUNTS = {
    "no REPLICATION SLAVE": (
        ("GRANT SELECT, REPLICATION CLIENT ON *.* TO '{user}'@'%'",),
        "replication_slave",
        ("account u lacks REPLICATION SLAVE", "GRANT REPLICATION SLAVE ON *.* TO 'u'"),
    ),
    "no REPLICATION CLIENT": (
        ("GRANT SELECT, REPLICATION SLAVE ON *.* TO '{user}'@'%'",),
        "replication_client",
        ("account u lacks ", "have an administrator run: GRANT "),
    ),
    "no SELECT": (
        (REPLICATE,),
        "filter",
        ("account u at 127", "sees no table", "GRANT SELECT ON *.* TO 'u'@'%'"),
    ),
    "INSERT instead of SELECT": (
        (REPLICATE, "GRANT INSERT ON shop.orders TO '{user}'@'%'"),
        "select",
        ("lacks SELECT on 'shop.orders'", "GRANT SELECT ON `shop`.* TO 'u'@'%'"),
    ),
    "SELECT on a column": (
        (REPLICATE, "GRANT SELECT (id) ON shop.orders TO '{user}'@'%'"),
        "select",
        ("lacks SELECT on 'shop.orders'", "GRANT SELECT ON `shop`.* TO 'u'@'%'"),
    ),
    "SELECT on another table": (
        (REPLICATE, "GRANT SELECT ON shop.items TO '{user}'@'%'"),
        "filter",
        (r"no table that account u", r"matches 'shop\.orders'", "GRANT SELECT"),
    ),
}


@pytest.mark.parametrize("name", ACCOUNTS)
def test_an_account_without_a_privilege(server, conf_for, check, name):
    """The privilege is named with the statement that grants it, and that helps."""
    grants, wanted, words = ACCOUNTS[name]
    with account(server, *grants):
        conf = conf_for(server, user="u", password=SECRET)
        found = check(conf)
        ((outcome, message),) = found.of(wanted)
        assert outcome == "fail"
        for word in words:
            assert word in message
        assert found.failing() == [wanted]
        server.execute(message.partition(" run: ")[2])
        assert check(conf).failing() == []


def test_a_role_that_is_not_active(server, conf_for, check):
    """A privilege of a role counts only if the account has the role when it logs in."""
    server.execute("CREATE ROLE r", "GRANT REPLICATION SLAVE ON *.* TO r")
    try:
        rights = "GRANT SELECT, REPLICATION CLIENT ON *.* TO '{user}'@'%'"
        with account(server, rights, "GRANT r TO '{user}'@'%'"):
            found = check(conf_for(server, user="u", password=SECRET))
            assert found.failing() == ["replication_slave"]
            word = "TO" if server.flavour == MYSQL else "FOR"
            server.execute(f"SET DEFAULT ROLE r {word} 'u'@'%'")
            assert check(conf_for(server, user="u", password=SECRET)).status == 0
    finally:
        server.execute("DROP ROLE r")


@pytest.mark.parametrize(
    "case",
    [
        (f"IDENTIFIED BY '{SECRET}'", "other", "Access denied"),
        (f"IDENTIFIED BY '{SECRET}' ACCOUNT LOCK", SECRET, "lock"),
        (f"IDENTIFIED BY '{SECRET}' REQUIRE X509", SECRET, "Access denied"),
    ],
    ids=["password", "locked", "certificate"],
)
def test_an_account_that_may_not_log_in(server, conf_for, check, case):
    """The server is reachable, the login fails, and the rest is skipped."""
    created, password, words = case
    with account(server, REPLICATE, SELECT, created=created):
        found = check(conf_for(server, user="u", password=password))
    assert found.of("reachable")[0][0] == "ok"
    ((outcome, message),) = found.of("login")
    assert outcome == "fail"
    assert words in message
    ((outcome, message),) = found.of("settings")
    assert outcome == "skip"
    assert "because there is no connection to 127.0.0.1:" in message
    assert found.status == 1


def test_an_unknown_account(server, conf_for, check):
    """The account is named with the statement that creates it."""
    found = check(conf_for(server, user="nobody", password=SECRET))
    ((_, message),) = found.of("login")
    assert "CREATE USER 'nobody'@'%'" in message
    assert found.failing() == ["login"]


# --- the filter -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        (("canal.instance.filter.regex = shop\\\\.order",), "fail", r"'shop\.order'"),
        (
            ("canal.instance.filter.regex = shop\\\\.orders,x\\\\..*",),
            "warn",
            r"matches 'x\..*'",
        ),
        (
            ("canal.instance.filter.black.regex = shop\\\\..*",),
            "fail",
            "canal.instance.filter.black.regex excludes all",
        ),
    ],
)
def test_a_filter_that_matches_nothing(server, conf_for, check, case):
    """It is named; if only a part matches nothing, that is a warning."""
    lines, outcome, words = case
    found = check(conf_for(server, *lines))
    ((was, message),) = found.of("filter")
    assert was == outcome
    assert words in message


def test_foreign_keys(server, conf_for, check):
    """Where their changes are in no event, that is a hint."""
    found = check(conf_for(server, "canal.instance.filter.regex = shop\\\\..*"))
    ((outcome, message),) = found.of("foreign_keys")
    assert outcome == ("warn" if server.flavour == MARIADB else "ok")
    assert ("shop.items: foreign key fk" in message) == (outcome == "warn")


# --- addresses ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "cannot connect to 127.0.0.1:1"),
        ("no-such-host.invalid:3306", "host no-such-host.invalid is unknown"),
    ],
)
def test_nothing_answers(conf_for, check, address, words):
    """The address and its key are named, and the rest is skipped."""

    class Nowhere:
        port = 1

    conf = conf_for(Nowhere, f"canal.instance.master.address = {address}")
    found = check(conf)
    ((outcome, message),) = found.of("reachable")
    assert outcome == "fail"
    assert words in message
    assert message.count("canal.instance.master.address") == 1
    assert found.failing() == ["reachable"]


def test_something_else_answers(conf_for, check):
    """What does not speak as MySQL does is no source."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with closing(listener.accept()[0]) as peer:
                peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=serve)
        thread.start()

        class Other:
            port = listener.getsockname()[1]

        found = check(conf_for(Other))
        thread.join()
    assert found.status == 1
    assert len(found.failing()) == 1


def test_a_server_that_says_nothing(conf_for, check, monkeypatch):
    """The wait for a greeting ends, and that is a failure."""
    monkeypatch.setattr("canal_server.source.check.source_check.CONNECT_S", 0.1)
    monkeypatch.setattr("canal_server.source.check.source_check.ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        class Silent:
            port = listener.getsockname()[1]

        found = check(conf_for(Silent))
    assert found.failing() == ["reachable"]


def test_a_group(make_conf, check):
    """Each source of a group has lines of its own, with its own keys."""
    conf = make_conf(
        "canal.destinations = all\ncanal.port = 0\n"
        "canal.instance.global.spring.xml = group-instance.xml\n",
        all="canal.instance.master1.address = 127.0.0.1:1\n"
        f"canal.instance.master2.address = 127.0.0.1:2\n{ACCOUNT}",
    )
    found = check(conf)
    for number in (1, 2):
        ((outcome, message),) = found.of("reachable", f"all/master{number}")
        assert outcome == "fail"
        assert f"cannot connect to 127.0.0.1:{number}" in message
        assert f"check canal.instance.master{number}.address" in message


def test_each_server_is_checked(server, server_without_binlog, conf_for, check):
    """A standby has lines of its own, with the keys of the standby."""
    conf = conf_for(
        server,
        f"canal.instance.standby.address = 127.0.0.1:{server_without_binlog.port}",
        "canal.instance.detecting.enable = true",
        "canal.instance.detecting.heartbeatHaEnable = true",
    )
    found = check(conf)
    assert found.of("log_bin")[0][0] == "ok"
    assert found.of("log_bin", "example standby")[0][0] == "fail"
    ((outcome, message),) = found.of("standby", "example standby")
    assert outcome == "skip"
    assert "because log_bin must be corrected first" in message
    conf = conf_for(
        server,
        "canal.instance.standby.address = 127.0.0.1:1",
        "canal.instance.detecting.enable = true",
        "canal.instance.detecting.heartbeatHaEnable = true",
    )
    ((_, message),) = check(conf).of("reachable", "example standby")
    assert "check canal.instance.standby.address" in message


# --- positions ------------------------------------------------------------------------


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
def test_a_configured_start(server, conf_for, check, case):
    """A start that the source does not have is named by its key."""
    lines, outcome, words = case
    conf = conf_for(server, *(f"canal.instance.master.{line}" for line in lines))
    found = check(conf)
    ((was, message),) = found.of("start_position")
    assert was == outcome
    assert words in message


def test_a_configured_set(server, conf_for, check):
    """A GTID set of the other kind of server is no start here."""
    other = "0-1-5" if server.flavour == MYSQL else f"{'a' * 8}-1-1-1-{'b' * 12}:1-5"
    conf = conf_for(
        server,
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


def test_a_cursor_whose_file_was_purged(server, conf_for, check):
    """The client is named with the files, and the command that moves it."""
    conf = conf_for(server)
    file = purged_to(server)
    stored_at(conf, server, "binlog.000001", 4)
    found = check(conf)
    ((outcome, message),) = found.of("cursors")
    assert outcome == "fail"
    assert "client 1001 is at binlog.000001:4, but binlog.000001" in message
    assert f"the oldest file is {file}" in message
    seek = "canal-server position seek --destination example --client 1001 --to oldest"
    assert seek in message
    assert found.failing() == ["cursors"]
    # What is there is not lost.
    stored_at(conf, server, *server.binlog_position())
    assert check(conf).failing() == []


def test_a_cursor_of_another_binlog(server, conf_for, check):
    """A position that no file of the source can have was of another binlog."""
    conf = conf_for(server)
    stored_at(conf, server, "mysql-bin.000001", 4)
    ((outcome, message),) = check(conf).of("cursors")
    assert outcome == "fail"
    assert "mysql-bin.000001:4, which is not in the binlog" in message


@pytest.mark.parametrize("server", [MYSQL], indirect=True)
def test_a_cursor_whose_transactions_were_purged(server, conf_for, check):
    """In GTID mode the set decides, whatever the file is called."""
    conf = conf_for(server, "canal.instance.gtidon = true")
    server.execute("FLUSH BINARY LOGS")
    file, end = server.binlog_position()
    server.execute(f"PURGE BINARY LOGS TO '{file}'")
    stored_at(conf, server, file, end, gtid="")
    assert check(conf).of("cursors")[0][0] == "ok"
    (uuid,) = server.execute("SELECT @@server_uuid")[0]
    stored_at(conf, server, file, end, gtid=f"{uuid}:1")
    ((outcome, message),) = check(conf).of("cursors")
    assert outcome == "fail"
    assert f"at a GTID set after which {uuid}:2" in message


def test_files_that_expire_soon(server, conf_for, check):
    """A client that is older than three quarters of the limit is worth a warning."""
    conf = conf_for(server)
    file, end = server.binlog_position()
    server.execute("FLUSH BINARY LOGS")
    stored_at(conf, server, file, end, age_ms=9 * HOUR_MS)
    name = "binlog_expire_logs_seconds"
    good = server.execute(f"SELECT @@global.{name}")[0][0]
    with applied(
        server, f"SET GLOBAL {name} = 36000", f"SET GLOBAL {name} = {int(good)}"
    ):
        found = check(conf)
    ((outcome, message),) = found.of("binlog_expiry")
    assert outcome == "warn"
    assert "purges binlog files after 10 hours" in message
    assert "the position of client 1001 is 9.0 hours old" in message
    assert f"SET GLOBAL {name} = 72000" in message
    assert found.status == 0


# --- replicas -------------------------------------------------------------------------


def test_another_replica_has_the_id(server, conf_for, check, dump, monkeypatch):
    """Where the source shows its replicas, one with the configured id is named."""
    stream = dump(server)
    stream.event()
    (replica,) = server.execute(
        "SHOW REPLICAS" if server.flavour == MYSQL else "SHOW SLAVE HOSTS"
    )
    conf = conf_for(server, f"canal.instance.mysql.slaveId = {replica[0]}")
    # The replica runs here; from now on this machine has another name.
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    found = check(conf)
    ((outcome, message),) = found.of("other_replicas")
    if server.flavour == MARIADB:
        assert outcome == "skip"
        assert "REPLICATION MASTER ADMIN" in message
        grant = "REPLICATION MASTER ADMIN ON *.* {} canal"
        with applied(
            server, f"GRANT {grant.format('TO')}", f"REVOKE {grant.format('FROM')}"
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


def test_a_history_in_a_database(server, conf_for, check):
    """1. no privileges; 2. no database; 3. read-only; 4. all is well."""
    rights = "GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON `history`.* TO 'u'@'%'"
    with account(server):
        conf = conf_for(server, *history_lines(server, "history", "u", SECRET))
        found = check(conf)
        ((outcome, message),) = found.of("table_history")
        assert outcome == "fail"
        assert message.endswith(f"have an administrator run: {rights}")
        assert found.failing() == ["table_history"]

        server.execute(rights)
        ((outcome, message),) = check(conf).of("table_history")
        assert outcome == "fail"
        assert message.endswith("run: CREATE DATABASE `history`")

        with applied(
            server, "CREATE DATABASE `history`", "DROP DATABASE IF EXISTS history"
        ):
            with applied(
                server, "SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF"
            ):
                ((outcome, message),) = check(conf).of("table_history")
                assert outcome == "fail"
                assert "the server is read-only" in message
            assert check(conf).status == 0


def test_a_history_that_cannot_be_reached(server, conf_for, check):
    """The key with its address is named; its password is not shown."""

    class Nowhere:
        port = 1

    found = check(conf_for(server, *history_lines(Nowhere, "h", "u", SECRET)))
    ((outcome, message),) = found.of("table_history")
    assert outcome == "fail"
    assert "h on 127.0.0.1:1" in message
    assert "check canal.instance.tsdb.url" in message


def test_all_is_said_in_one_run(server, conf_for, check):
    """Wrong settings of server, account, filter and start do not hide each other."""
    with ExitStack() as stack:
        stack.enter_context(
            applied(
                server,
                "SET GLOBAL binlog_format = 'MIXED'",
                "SET GLOBAL binlog_format = 'ROW'",
            )
        )
        stack.enter_context(account(server, "GRANT SELECT ON *.* TO '{user}'@'%'"))
        conf = conf_for(
            server,
            "canal.instance.binlog.format = ROW",
            "canal.instance.filter.regex = none\\\\.none",
            "canal.instance.master.journal.name = other.000001",
            user="u",
            password=SECRET,
        )
        found = check(conf)
    assert found.failing() == [
        "binlog_format",
        "replication_slave",
        "replication_client",
        "filter",
    ]
    # Nobody may ask for the files, so the start is not known to be wrong.
    assert found.of("start_position")[0][0] == "skip"
