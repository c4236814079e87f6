"""`canal-server check` against real servers: each wrong set-up is found by its name.

A wrong set-up is a setting of a server, an account, or a conf folder. Nothing is
started: the command alone says what is wrong, and how to mend it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from fix_check import MARIADB, MYSQL, REPLICATE, SECRET, SELECT, account, applied
from fix_servers import FLAVOURS

from canal_server import cli


def test_a_good_set_up(checked_server, conf_for, check):
    """Nothing fails, the exit status is 0, and the conf folder is left as it was."""
    conf = conf_for(checked_server, "canal.instance.gtidon = true")
    before = sorted(conf.rglob("*"))
    found = check(conf)
    assert found.failing() == []
    assert found.status == 0
    assert found.of("reachable")[0][0] == "ok"
    # MariaDB shows replicas only to accounts with one more privilege, and no account
    # needs that here.
    assert {each["outcome"] for each in found.checks} <= {"ok", "warn"}
    assert sorted(conf.rglob("*")) == before


def test_lines_for_people(checked_server, conf_for, capsys):
    """Each thing is one line: an outcome, the destination, what was found."""
    conf = conf_for(checked_server)
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
        "fail",
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
        "'MINIMAL'",
        "'FULL'",
        "fail",
        ("unchanged values; run SET GLOBAL binlog_row_image = 'FULL'",),
        ("canal.instance.binlog.image = FULL,MINIMAL",),
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
def test_a_wrong_variable(checked_server, conf_for, check, wrong):
    """It is named with its value and the statement that corrects it, and it alone."""
    if checked_server.flavour not in wrong.flavours:
        pytest.skip(f"{checked_server.flavour} cannot have it")
    conf = conf_for(checked_server, *wrong.lines)
    undo = f"SET GLOBAL {wrong.name} = {wrong.good}"
    with applied(checked_server, f"SET GLOBAL {wrong.name} = {wrong.value}", undo):
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
        "cannot check where to start: log_bin is OFF",
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
def test_an_account_without_a_privilege(checked_server, conf_for, check, name):
    """The privilege is named with the statement that grants it, and that helps."""
    grants, expected, words = ACCOUNTS[name]
    with account(checked_server, *grants):
        conf = conf_for(checked_server, user="u", password=SECRET)
        found = check(conf)
        ((outcome, message),) = found.of(expected)
        assert outcome == "fail"
        for word in words:
            assert word in message
        assert found.failing() == [expected]
        checked_server.execute(message.partition(" run: ")[2])
        assert check(conf).failing() == []


def test_a_role_that_is_not_active(checked_server, conf_for, check):
    """A privilege of a role counts only if the account has the role when it logs in."""
    checked_server.execute("CREATE ROLE r", "GRANT REPLICATION SLAVE ON *.* TO r")
    try:
        rights = "GRANT SELECT, REPLICATION CLIENT ON *.* TO '{user}'@'%'"
        with account(checked_server, rights, "GRANT r TO '{user}'@'%'"):
            found = check(conf_for(checked_server, user="u", password=SECRET))
            assert found.failing() == ["replication_slave"]
            word = "TO" if checked_server.flavour == MYSQL else "FOR"
            checked_server.execute(f"SET DEFAULT ROLE r {word} 'u'@'%'")
            assert (
                check(conf_for(checked_server, user="u", password=SECRET)).status == 0
            )
    finally:
        checked_server.execute("DROP ROLE r")


@pytest.mark.parametrize(
    "case",
    [
        (f"IDENTIFIED BY '{SECRET}'", "other", "Access denied"),
        (f"IDENTIFIED BY '{SECRET}' ACCOUNT LOCK", SECRET, "lock"),
        (f"IDENTIFIED BY '{SECRET}' REQUIRE X509", SECRET, "Access denied"),
    ],
    ids=["password", "locked", "certificate"],
)
def test_an_account_that_may_not_log_in(checked_server, conf_for, check, case):
    """The server is reachable, the login fails, and the rest is skipped."""
    created, password, words = case
    with account(checked_server, REPLICATE, SELECT, created=created):
        found = check(conf_for(checked_server, user="u", password=password))
    assert found.of("reachable")[0][0] == "ok"
    ((outcome, message),) = found.of("login")
    assert outcome == "fail"
    assert words in message
    ((outcome, message),) = found.of("settings")
    assert outcome == "skip"
    assert ": there is no connection to 127.0.0.1:" in message
    assert found.status == 1


def test_an_unknown_account(checked_server, conf_for, check):
    """The account is named with the statement that creates it."""
    found = check(conf_for(checked_server, user="nobody", password=SECRET))
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
def test_a_filter_that_matches_nothing(checked_server, conf_for, check, case):
    """It is named; if only a part matches nothing, that is a warning."""
    lines, outcome, words = case
    found = check(conf_for(checked_server, *lines))
    ((was, message),) = found.of("filter")
    assert was == outcome
    assert words in message


def test_foreign_keys(checked_server, conf_for, check):
    """Where their changes are in no event, that is a hint."""
    found = check(conf_for(checked_server, "canal.instance.filter.regex = shop\\\\..*"))
    ((outcome, message),) = found.of("foreign_keys")
    assert outcome == ("warn" if checked_server.flavour == MARIADB else "ok")
    assert ("shop.items: foreign key fk" in message) == (outcome == "warn")


def test_all_is_said_in_one_run(checked_server, conf_for, check):
    """Wrong settings of server, account, filter and start do not hide each other."""
    with ExitStack() as stack:
        stack.enter_context(
            applied(
                checked_server,
                "SET GLOBAL binlog_format = 'MIXED'",
                "SET GLOBAL binlog_format = 'ROW'",
            )
        )
        stack.enter_context(
            account(checked_server, "GRANT SELECT ON *.* TO '{user}'@'%'")
        )
        conf = conf_for(
            checked_server,
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
