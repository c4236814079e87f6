"""Whether a source has a position, by what is known of its binlog."""

from __future__ import annotations

import pytest
from facts_of_source import NOW_S, checked_of, client_at, facts_of
from server_variables import MARIADB

from canal_server.config.schema import HostConfig
from canal_server.errors import SourceRefused
from canal_server.model.check_results import Outcome
from canal_server.model.positions import LogIdentity
from canal_server.source.check.position_checks import (
    check_cursors,
    check_expiry,
    check_start,
)

UUID = "6a2e1c1e-0000-4000-8000-000000000001"
DENIED = SourceRefused("denied")
ELSEWHERE = LogIdentity("other", 3306)
OK, WARN, FAIL, SKIP = Outcome.OK, Outcome.WARN, Outcome.FAIL, Outcome.SKIP


@pytest.mark.parametrize(
    ("facts", "checked", "outcome", "words"),
    [
        ({}, checked_of(), OK, "no client has a stored position"),
        ({}, checked_of(client_at("binlog.000003")), OK, "which the source has"),
        (
            {},
            checked_of(
                client_at("binlog.000004"), client_at("binlog.000003", client=7)
            ),
            OK,
            "client 7 is at binlog.000003:4, which",
        ),
        (
            {},
            checked_of(client_at("binlog.000001")),
            FAIL,
            (
                "but binlog.000001 to binlog.000002 (2 files) was purged; the oldest"
                " file is binlog.000003"
            ),
        ),
        (
            {},
            checked_of(client_at("binlog.000005", 1001)),
            FAIL,
            "at binlog.000005:1001, which is not in the binlog",
        ),
        (
            {},
            checked_of(client_at("binlog.000005", 1001), is_reading=True),
            OK,
            "a position of the server that had this address before",
        ),
        (
            {},
            checked_of(client_at("binlog.000001"), is_reading=True),
            FAIL,
            "but binlog.000001 to binlog.000002 (2 files) was purged",
        ),
        (
            {},
            checked_of(
                client_at("binlog.000002"),
                client_at("binlog.000004", client=8),
                client_at("binlog.000001", client=9),
            ),
            FAIL,
            (
                "client 1001 is at binlog.000002:4, but binlog.000002 was purged; the"
                " oldest file is binlog.000003 (also lost: the positions of client 9)"
            ),
        ),
        (
            {},
            checked_of(client_at("binlog.000001", server=ELSEWHERE)),
            OK,
            "a position of another server, found by time or GTID",
        ),
        (
            {"purged": f"{UUID}:1-5"},
            checked_of(client_at("binlog.000001", gtid=f"{UUID}:1-9"), gtid_on=True),
            OK,
            "client 1001",
        ),
        (
            {"purged": f"{UUID}:1-5"},
            checked_of(client_at("binlog.000004", gtid=f"{UUID}:1-3"), gtid_on=True),
            FAIL,
            f"at a GTID set after which {UUID}:4-5 was purged",
        ),
        (
            {"purged": DENIED},
            checked_of(client_at("binlog.000004", gtid="x"), gtid_on=True),
            SKIP,
            ": denied",
        ),
        ({"files": DENIED}, checked_of(client_at("binlog.000004")), SKIP, "denied"),
        (
            {"variables": {"log_bin": "OFF"}},
            checked_of(client_at("binlog.000004")),
            SKIP,
            ": log_bin is OFF",
        ),
    ],
)
def test_cursors(facts, checked, outcome, words):
    """A file or a set decides; of what is not known nothing is said."""
    found = check_cursors(facts_of(**facts), checked)
    assert (found.check, found.outcome) == ("cursors", outcome)
    assert words in found.text


def test_the_remedy_of_a_lost_position():
    """It is the command that moves the client, also in a source of a group."""
    found = check_cursors(
        facts_of(),
        checked_of(client_at("binlog.000001"), destination="all/master2", number=2),
    )
    assert found.remedy.endswith(
        "canal-server position seek --destination all --source master2 --client-id 1001"
        " --to oldest"
    )


DAY = {"binlog_expire_logs_seconds": "86400"}


@pytest.mark.parametrize(
    ("facts", "checked", "outcome", "words"),
    [
        ({}, checked_of(), OK, "never purges its binlog by itself"),
        ({"variables": DAY}, checked_of(), OK, "after 24 hours"),
        (
            {"variables": DAY},
            checked_of(client_at("binlog.000003", age_s=3600)),
            OK,
            "the oldest position is 1.0 hours old",
        ),
        (
            {"variables": DAY},
            checked_of(client_at("binlog.000003", age_s=64_800)),
            WARN,
            "the position of client 1001 is 18.0 hours old (binlog.000003:4)",
        ),
        # The newest file is never purged, however old its last transaction is.
        (
            {"variables": DAY},
            checked_of(client_at("binlog.000005", age_s=90_000)),
            OK,
            "in the newest file",
        ),
        (
            {"variables": DAY},
            checked_of(client_at("binlog.000003", age_s=90_000, server=ELSEWHERE)),
            OK,
            "after 24 hours",
        ),
        (
            {"variables": DAY, "clock": DENIED},
            checked_of(client_at("binlog.000003", age_s=90_000)),
            OK,
            "after 24 hours",
        ),
        ({"variables": DAY | {"log_bin": "OFF"}}, checked_of(), SKIP, "log_bin is OFF"),
    ],
)
def test_expiry(facts, checked, outcome, words):
    """The age of the oldest position is compared with the limit of the server."""
    found = check_expiry(facts_of(**facts), checked)
    assert (found.check, found.outcome) == ("binlog_expiry", outcome)
    assert words in found.text


def start(**values):
    """Return a source that starts as configured."""
    gtid_on = "gtid" in values
    return checked_of(host=HostConfig(**values), gtid_on=gtid_on)


@pytest.mark.parametrize(
    ("facts", "checked", "outcome", "words"),
    [
        ({}, start(), OK, "starts at the end of the binlog"),
        (
            {},
            checked_of(client_at("binlog.000003"), host=HostConfig(journal_name="x.1")),
            OK,
            "starts at the stored positions",
        ),
        ({}, start(journal_name="Oldest"), OK, "starts at the oldest file"),
        (
            {},
            start(journal_name="binlog.000004", position=1000),
            OK,
            "starts at binlog.000004:1000",
        ),
        (
            {},
            start(journal_name="binlog.000004", position=1001),
            FAIL,
            "binlog.000004:1001 does not exist",
        ),
        (
            {},
            start(journal_name="binlog.000002"),
            FAIL,
            (
                "binlog.000002 was purged: the source has binlog.000003 to"
                " binlog.000005; canal.instance.master.journal.name = oldest starts at"
                " the oldest"
            ),
        ),
        ({}, start(journal_name="binlog.000006"), FAIL, "does not exist yet"),
        ({"files": DENIED}, start(journal_name="binlog.000006"), SKIP, "denied"),
        ({}, start(timestamp_ms=(NOW_S - 60) * 1000), OK, "starts at 2025-11-21T"),
        (
            {},
            start(timestamp_ms=NOW_S - 60),
            FAIL,
            "canal.instance.master.timestamp = 1763719140 (1970-01-21T",
        ),
        ({}, start(timestamp_ms=(NOW_S + 60) * 1000), WARN, "is in the future"),
        ({"oldest_ms": DENIED}, start(timestamp_ms=1), SKIP, ": denied"),
        ({"oldest_ms": None}, start(timestamp_ms=1), SKIP, "binlog was not read"),
        ({}, start(gtid=f"{UUID}:1-5"), OK, "after the configured GTID set"),
        (
            {"purged": f"{UUID}:1-7"},
            start(gtid=f"{UUID}:1-5"),
            FAIL,
            (
                f"canal.instance.master.gtid = {UUID}:1-5 is at a GTID set after which"
                f" {UUID}:6-7 was purged"
            ),
        ),
        ({}, start(gtid="0-1-5"), FAIL, "canal.instance.master.gtid = 0-1-5: "),
        ({"variables": MARIADB}, start(gtid="0-1-5"), OK, "after the configured"),
        ({"variables": {"log_bin": "OFF"}}, start(), SKIP, "log_bin is OFF"),
    ],
)
def test_start(facts, checked, outcome, words):
    """A configured start matters while nothing is stored; it must exist then."""
    found = check_start(facts_of(**facts), checked)
    assert (found.check, found.outcome) == ("start_position", outcome)
    assert words in found.text
    assert bool(found.remedy) == (outcome in (FAIL, WARN))
