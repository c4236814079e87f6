"""The file of users, as `canal-server check` sees it."""

from __future__ import annotations

import pytest
from fix_conf import ACCOUNT

from canal_server.cli.check.user_checks import check_users
from canal_server.cli.conf_options import load_chosen
from canal_server.config.load import load

NOWHERE = f"canal.instance.master.address = 127.0.0.1:1\n{ACCOUNT}"
MAIN = "canal.destinations = example,other\ncanal.users.file = users.yml\n"
ASKS = (
    "canal.tls.certFile = a.pem\ncanal.tls.clientCaFile = ca.pem\n"
    "canal.tls.clientCertificates = optional\n"
)
WEB_ASKS = ASKS.replace("optional", "none")
BOT = "users: {bot: {certificates: [CN=bot], RIGHT}}"
READER = BOT.replace("RIGHT", "read: [{destination: '*'}]")
OBSERVER = BOT.replace("RIGHT", "observe: ['*']")
HASH = "0" * 40


@pytest.fixture
def results(make_conf):
    """Return a function that checks a file of users: outcomes and texts."""

    def run(text, main="", mode=0o600, chosen=None):
        conf = make_conf(MAIN + main, example=NOWHERE, other=NOWHERE)
        if text is not None:
            (conf / "users.yml").write_text(text)
            (conf / "users.yml").chmod(mode)
        config = load_chosen(conf, chosen, {}) if chosen else load(conf, {})
        return [
            (each.outcome.value, "; ".join(filter(None, (each.text, each.remedy))))
            for each in check_users(config)
        ]

    return run


@pytest.mark.parametrize(
    ("text", "mode", "outcome", "expected"),
    [
        (f"users: {{a: {{password: {HASH}, observe: ['*']}}}}", 0o600, "ok", "1 users"),
        ("users: {a: {observe: ['*']}}", 0o600, "warn", "cannot log in, or have no"),
        (f"users: {{a: {{password: {HASH}}}}}", 0o600, "warn", "no rights: 'a'; give"),
        ("", 0o600, "warn", "no users, so that nobody can log in; add one"),
        ("users: [", 0o600, "fail", "users.yml:1:9: not valid YAML"),
        ("", 0o644, "fail", "mode 0644 lets others read or change it: run chmod 600"),
        (
            None,
            0,
            "fail",
            "add a user with `canal-server user add --file ",
        ),
    ],
)
def test_the_file(results, text, mode, outcome, expected):
    """It is read, and users that can do nothing are named."""
    ((was, message),) = results(text, mode=mode)
    assert was == outcome
    assert expected in message


@pytest.mark.parametrize(
    ("text", "main", "outcome"),
    [
        (READER, ASKS, "ok"),
        (READER, WEB_ASKS, "warn"),
        (READER, "", "warn"),
        # The page asks for a certificate as soon as there is an authority.
        (OBSERVER, WEB_ASKS, "ok"),
        (OBSERVER, "", "warn"),
    ],
)
def test_certificates_that_nothing_asks_for(results, text, main, outcome):
    """A certificate is no log-in where the server does not ask for it."""
    ((was, message),) = results(text, main)
    assert was == outcome
    if outcome == "warn":
        assert "asks for no certificate, which is the only log-in of 'bot'" in message
        assert "canal.tls.clientCertificates = optional" in message


def test_rights_for_nothing(results):
    """A pattern that matches no destination is named with its user."""
    rights = "read: [{destination: 'ex*'}, {destination: shp}], operate: [other, x]"
    text = f"users: {{a: {{password: {HASH}, {rights}}}}}"
    expected = "rights for destinations that do not exist: 'shp' of user 'a', 'x' of"
    ((was, message),) = results(text)
    assert was == "warn"
    assert expected in message
    # The others exist, although only one was chosen.
    ((_, message),) = results(text, chosen="other")
    assert expected in message
    # There may be others later.
    assert results(text, "canal.auto.scan = true")[0][0] == "ok"
