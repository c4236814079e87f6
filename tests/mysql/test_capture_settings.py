"""Whether settings and privileges allow capture, as values and on real servers."""

from __future__ import annotations

import pytest
from server_variables import MARIADB, MYSQL

from canal_server.errors import SourceRefused
from canal_server.model.check_results import Outcome
from canal_server.mysql.account_grants import parse_grants
from canal_server.mysql.capture_settings import (
    REQUIREMENTS,
    CaptureFacts,
    CaptureNeeds,
    capture_results,
    check_capture,
    read_capture_facts,
)
from canal_server.mysql.flavour import server_info

GRANTS = parse_grants(["GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `u`@`%`"])
STRICT = CaptureNeeds(formats=["ROW"], images=["FULL"], gtid_on=True, slave_id=9)


def facts_of(grants=GRANTS, server=None, **variables):
    """Return the facts of a good server, but for these variables."""
    info = server_info((server or MYSQL) | variables)
    return CaptureFacts(info=info, account=("u", "10.%"), grants=grants)


def outcomes(facts, needs=STRICT):
    """Return what does not hold: the outcome and the message, by the check."""
    return {
        each.check: (each.outcome, each.message)
        for each in capture_results(facts, needs)
        if each.outcome is not Outcome.OK
    }


@pytest.mark.parametrize("server", [MYSQL, MARIADB])
def test_a_good_server_passes(server):
    """Settings that allow capture raise nothing, and need no warning."""
    facts = facts_of(server=server)
    assert outcomes(facts) == {}
    assert check_capture(facts, STRICT, address="db:3306") == []


FAILURES = [
    ({"log_bin": "OFF"}, "log_bin", "log_bin is OFF", "set log_bin in"),
    (
        {"binlog_storage_engine": "InnoDB"},
        "log_bin",
        "binlog_storage_engine is INNODB: the server does not report files",
        "remove binlog_storage_engine from",
    ),
    ({"server_id": "0"}, "server_id", "server_id is 0", "SET GLOBAL server_id = 1"),
    (
        {"binlog_format": "MIXED"},
        "binlog_format",
        "is MIXED, allowed by canal.instance.binlog.format: ROW",
        "run SET GLOBAL binlog_format = 'ROW' and reconnect all writers, or allow",
    ),
    (
        {"binlog_row_image": "minimal"},
        "binlog_row_image",
        "is MINIMAL, allowed by canal.instance.binlog.image: FULL",
        "run SET GLOBAL binlog_row_image = 'FULL' and reconnect all writers",
    ),
    (
        {"gtid_mode": "ON_PERMISSIVE"},
        "gtid_mode",
        "gtid_mode is ON_PERMISSIVE, but canal.instance.gtidon is true",
        "run SET GLOBAL gtid_mode = 'ON'",
    ),
    (
        {"server_id": "9"},
        "replica_id",
        "canal.instance.mysql.slaveId is 9, the server_id of the source itself",
        "set canal.instance.mysql.slaveId = 0",
    ),
]


@pytest.mark.parametrize(
    ("variables", "check", "text", "remedy"),
    FAILURES,
    ids=[next(iter(each[0])) for each in FAILURES],
)
def test_settings_that_forbid_capture(variables, check, text, remedy):
    """Each is found alone, by its name and value, with the statement that mends it."""
    ((name, (outcome, message)),) = outcomes(facts_of(**variables)).items()
    assert (name, outcome) == (check, Outcome.FAIL)
    assert text in message
    assert remedy in message


@pytest.mark.parametrize("server", [MYSQL, MARIADB])
def test_missing_privileges(server):
    """Each is named as the server names it, with the account that has to get it."""
    grants = parse_grants(["GRANT SELECT ON *.* TO `u`@`10.%`"])
    found = outcomes(facts_of(grants, server))
    client = "BINLOG MONITOR" if server is MARIADB else "REPLICATION CLIENT"
    outcome, message = found["replication_slave"]
    assert outcome is Outcome.FAIL
    assert message.startswith(
        "account u lacks REPLICATION SLAVE; have an administrator"
    )
    assert message.endswith("run: GRANT REPLICATION SLAVE ON *.* TO 'u'@'10.%'")
    assert f"lacks {client}" in found["replication_client"][1]
    assert f"GRANT {client} ON *.* TO 'u'@'10.%'" in found["replication_client"][1]


@pytest.mark.parametrize(
    ("grants", "why"),
    [
        (None, "the server does not show the grants"),
        (parse_grants(["?"]), "some grants cannot be read"),
    ],
)
def test_unknown_privileges(grants, why):
    """They are not called missing, and forbid nothing."""
    facts = facts_of(grants)
    found = outcomes(facts)
    assert set(found) == {"replication_slave", "replication_client"}
    for outcome, message in found.values():
        assert outcome is Outcome.SKIP
        assert why in message
    assert check_capture(facts, STRICT, address="db:3306") == []


def test_all_problems_are_reported_at_once():
    """One error has everything that fails, also what alone would not forbid capture."""
    facts = facts_of(
        parse_grants(["GRANT REPLICATION SLAVE ON *.* TO `u`@`%`"]),
        log_bin="OFF",
        binlog_format="STATEMENT",
        binlog_row_image="minimal",
    )
    with pytest.raises(SourceRefused) as refused:
        check_capture(facts, STRICT, address="db:3306")
    text = str(refused.value)
    assert text.startswith("server db:3306 (mysql 8.4.3, server id 7): log_bin is OFF")
    for part in (
        "set log_bin",
        "binlog_format is STATEMENT",
        "SET GLOBAL binlog_format = 'ROW'",
        "binlog_row_image is MINIMAL",
        "account u lacks REPLICATION CLIENT",
    ):
        assert part in text


def test_what_does_not_forbid_capture():
    """GTIDs and ids are warnings; the end of the binlog may not be needed."""
    grants = parse_grants(["GRANT REPLICATION SLAVE ON *.* TO `u`@`%`"])
    facts = facts_of(grants, server_id="9", gtid_mode="OFF")
    gtids, replica_id = check_capture(facts, STRICT, address="db:3306")
    assert "gtid_mode is OFF" in gtids
    assert "slaveId is 9" in replica_id


@pytest.mark.parametrize(
    ("value", "formats", "remedy"),
    [
        ("STATEMENT", ["ROW"], "binlog_format = 'ROW' and reconnect all writers, or"),
        ("STATEMENT", ["MIXED"], "run SET GLOBAL binlog_format = 'MIXED' and"),
        ("ROW", ["STATEMENT"], "STATEMENT; allow ROW there"),
    ],
)
def test_the_remedy_fits(value, formats, remedy):
    """The remedy never names the current value or a value that is not allowed."""
    facts = facts_of(binlog_format=value)
    with pytest.raises(SourceRefused) as refused:
        check_capture(facts, CaptureNeeds(formats=formats), address="db:3306")
    assert remedy in str(refused.value)
    assert f"binlog_format = '{value}'" not in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "value", "outcome", "missing"),
    [
        ("binlog_format", "MIXED", Outcome.FAIL, "arrive without rows"),
        ("binlog_format", "STATEMENT", Outcome.FAIL, "arrive without rows"),
        ("binlog_row_image", "minimal", Outcome.FAIL, "lose constant defaults"),
        ("binlog_row_image", "noblob", Outcome.WARN, "BLOB and TEXT"),
    ],
)
@pytest.mark.parametrize("is_named", [False, True])
def test_what_clients_miss(variable, value, outcome, missing, is_named):
    """An allowed value fails if changes or values are lost, and is read all the same.

    A start says the same as a check.
    """
    facts = facts_of(**{variable: value})
    needs = CaptureNeeds(
        formats=["ROW", "MIXED", "STATEMENT"] if is_named else (),
        images=["FULL", "MINIMAL", "NOBLOB"] if is_named else (),
    )
    (found,) = (
        each for each in capture_results(facts, needs) if each.check == variable
    )
    assert found.outcome is outcome
    assert missing in found.text
    assert f"run SET GLOBAL {variable} = " in str(found.remedy)
    assert check_capture(facts, needs, address="db:3306") == [found.message]


def test_format_and_image_are_checked_only_on_request():
    """Without allowed values every format and image is read, with a warning."""
    facts = facts_of(binlog_format="MIXED", binlog_row_image="noblob")
    warnings = check_capture(facts, CaptureNeeds(), address="db:3306")
    for part, line in zip(
        ("binlog_format is MIXED: changes", "binlog_row_image is NOBLOB: rows"),
        warnings,
        strict=True,
    ):
        assert line.startswith(part)
    assert "run SET GLOBAL binlog_format = 'ROW'" in warnings[0]
    with pytest.raises(SourceRefused, match="NOBLOB"):
        check_capture(facts, CaptureNeeds(images=["FULL"]), address="db:3306")


def test_names_occur_once():
    """Each check of the table has a name of its own, whatever it finds."""
    names = [each.check for each in capture_results(facts_of(), STRICT)]
    bad = facts_of(None, log_bin="OFF", binlog_format="MIXED", server_id="0")
    assert names == [each.check for each in capture_results(bad, STRICT)]
    assert len(set(names)) == len(REQUIREMENTS)


def test_a_real_server(source):
    """A server that is set up as the manual says passes, with its own account."""
    facts = read_capture_facts(source)
    assert facts.account == ("canal", "%")
    needs = CaptureNeeds(formats=["ROW"], images=["FULL"], gtid_on=True)
    assert outcomes(facts, needs) == {}
