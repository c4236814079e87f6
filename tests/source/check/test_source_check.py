"""The table of all checks of a source, and facts that cannot be read."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest
from facts_of_source import checked_of, client_at, facts_of
from fix_source_access import access_of

from canal_server.config.schema import HostConfig
from canal_server.errors import CanalError, SourceRefused
from canal_server.model.check_results import Outcome
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.source.check.source_check import (
    CONNECT_S,
    check_source,
    impatient,
    results_of,
)
from canal_server.source.check.source_facts import SourceFacts, read_source_facts
from canal_server.tls.source_tls import TlsMode, TlsOptions

if TYPE_CHECKING:
    from canal_server.mysql.control_connection import ControlConnection

PARTS = {
    "clock",
    "tables",
    "keys",
    "files",
    "end_file",
    "purged",
    "replicas",
    "unlogged",
}
DENIED = SourceRefused("denied")


def test_names_occur_once():
    """Each check has a name of its own, for programs that look for it."""
    names = [each.check for each in results_of(facts_of(), checked_of())]
    assert len(set(names)) == len(names)


def test_what_cannot_be_read_is_skipped():
    """A part that the server refuses fails no check, and hides no other part."""
    denied: dict[str, Any] = dict.fromkeys(PARTS, DENIED)
    facts = facts_of(**denied, oldest_ms=DENIED)
    checked = checked_of(
        client_at("binlog.000001"), host=HostConfig(journal_name="x"), slave_id=9
    )
    outcomes = {each.check: each.outcome for each in results_of(facts, checked)}
    assert Outcome.FAIL not in outcomes.values()
    skipped = [name for name, each in outcomes.items() if each is Outcome.SKIP]
    assert skipped == [
        "other_replicas",
        "clock",
        "filter",
        "select",
        "foreign_keys",
        "binlog_filters",
        "cursors",
    ]


def test_facts_of_a_real_server(source_server, source):
    """All parts of it can be read with the account that the manual asks for."""
    facts = read_source_facts(source, checked_of().config, with_oldest=True)
    unread = {
        each.name
        for each in fields(SourceFacts)
        if isinstance(getattr(facts, each.name), CanalError)
    }
    # MariaDB shows replicas to accounts with REPLICATION MASTER ADMIN.
    assert unread == ({"replicas"} if source_server.flavour == "mariadb" else set())
    assert isinstance(facts.oldest_ms, int)


@pytest.mark.parametrize("ahead_s", [-100.0, 100.0])
def test_the_clock_of_a_real_server(source, ahead_s):
    """Its difference from the clock of this machine is measured in both directions."""
    (now_s,) = source.query("SELECT UNIX_TIMESTAMP()")[0]
    facts = read_source_facts(
        source, checked_of().config, clock=lambda: float(now_s) - ahead_s
    )
    assert not isinstance(facts.clock, CanalError)
    # The real clock continues meanwhile.
    assert ahead_s <= facts.clock.ahead_s <= ahead_s + 60


def test_a_connection_that_breaks(source_server, monkeypatch):
    """What was found stays, and what follows is one failure."""
    module = "canal_server.source.check.source_check.read_source_facts"

    def broken(control: ControlConnection, *_: object, **__: object) -> None:
        control.query("KILL CONNECTION_ID()")

    monkeypatch.setattr(module, broken)
    found = check_source(access_of(source_server), checked_of())
    assert [(each.check, each.outcome) for each in found] == [
        ("reachable", Outcome.OK),
        ("login", Outcome.OK),
        ("settings", Outcome.FAIL),
    ]


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_certificates(own_server, authority, flavour):
    """Those of both sides are checked, with the limit of the settings."""
    cert, key = authority.issue("source", days=10)
    server = own_server(
        flavour,
        [f"--ssl-ca={authority.ca_file}", f"--ssl-cert={cert}", f"--ssl-key={key}"],
    )
    shown, shown_key = authority.issue("client", days=40)
    tls = TlsOptions(TlsMode.REQUIRED, cert=str(shown), key=str(shown_key))
    checked = checked_of()
    for days, outcomes in (
        (30, ("warn", "ok")),
        (5, ("ok", "ok")),
        (50, ("warn",) * 2),
    ):
        found = check_source(
            access_of(server, tls=tls), replace(checked, expiry_warning_days=days)
        )
        by_name = {each.check: each for each in found}
        both = by_name["source_certificate"], by_name["client_certificate"]
        assert tuple(each.outcome for each in both) == outcomes
    assert f"master 127.0.0.1:{server.port}: the certificate is valid until" in (
        both[0].text
    )
    assert both[1].text.startswith(f"{shown}, shown to 127.0.0.1:{server.port}: ")


def test_patience():
    """Time-outs are short, and those of the settings count if they are shorter."""
    access = Access(
        address=Address("db"),
        credentials=Credentials("u", ""),
        connect_timeout_s=60.0,
        io_timeout_s=1.0,
    )
    quick = impatient(access)
    assert (quick.connect_timeout_s, quick.io_timeout_s) == (CONNECT_S, 1.0)
