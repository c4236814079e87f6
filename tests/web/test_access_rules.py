"""Who may use the HTTP port."""

from __future__ import annotations

import base64
import hashlib

import pytest
from starlette.datastructures import Headers

from canal_server.runtime.loopback import is_loopback
from canal_server.users.rights import Right
from canal_server.web.access_rules import AccessRules, Login, check_action, check_site
from canal_server.web.problem_details import Problem

LOGIN = Login(
    "ops", hashlib.sha1(hashlib.sha1(b"s3:cret").digest()).hexdigest()
)  # fmt: skip
LOOPBACK, OPEN = AccessRules("127.0.0.1", None), AccessRules("0.0.0.0", None)
WITH_LOGIN = AccessRules("0.0.0.0", LOGIN)


def basic(text: str) -> str:
    """Return the header of a name and a password."""
    return "Basic " + base64.b64encode(text.encode()).decode()


def status_of(rules, method="GET", host="127.0.0.1:11113", **headers) -> int:
    """Return the status with which a request is refused; 0 if it is allowed."""
    found = Headers({"host": host, **headers})
    return status_when(lambda: check_action(method, found, rules.visitor(found)))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:11113", 0),
        ("localhost", 0),
        ("LOCALHOST:1", 0),
        ("[::1]:11113", 0),
        ("127.9.9.9", 0),
        ("attacker.example:11113", 421),
        ("127.0.0.1.attacker.example", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
def test_names_of_the_loopback_interface(host, expected):
    """Without a login, only names of this host are answered there (DNS rebinding)."""
    assert status_of(LOOPBACK, host=host) == expected


def test_other_addresses_may_have_any_name():
    """A port that others reach is called as they call it; it is read-only."""
    assert status_of(OPEN, host="canal.example:11113") == 0
    assert status_of(OPEN, "POST", host="canal.example:11113") == 403
    assert status_of(LOOPBACK, "POST") == 0


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (basic("ops:s3:cret"), 0),
        (basic("ops:s3:cret").replace("Basic", "basic"), 0),
        (basic("ops:wrong"), 401),
        (basic("root:s3:cret"), 401),
        (basic("ops"), 401),
        ("", 401),
        ("Bearer x", 401),
        ("Basic ???", 401),
        ("Basic /w==", 401),  # not UTF-8
        ("Basic \xfc", 401),
    ],
)
def test_login(authorization, expected):
    """With a login, reading and acting need it, whatever the address."""
    for method in ("GET", "POST"):
        assert status_of(WITH_LOGIN, method, authorization=authorization) == expected


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://127.0.0.1:11113", 0),
        ("http://attacker.example", 403),
        ("http://127.0.0.1:8080", 403),
        ("null", 403),
        ("http://[::1", 403),
    ],
)
@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
def test_pages_of_others_may_not_act(method, origin, expected):
    """A browser sends where a page is from; other pages are refused actions."""
    assert status_of(LOOPBACK, method, origin=origin) == expected


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (LOOPBACK, 0),
        (OPEN, 403),
        (WITH_LOGIN, 0),
        (AccessRules("127.0.0.1", None, clients_log_in=True), 403),
        (AccessRules("127.0.0.1", LOGIN, clients_log_in=True), 0),
    ],
)
def test_data_of_tables(rules, expected):
    """Data is for who may act; the port is no way around the password of clients."""
    headers = Headers({"host": "localhost", "authorization": basic("ops:s3:cret")})
    visitor = rules.visitor(headers)
    assert visitor.may(Right.READ, "one") == (expected == 0)
    assert status_when(visitor.check, Right.READ, "one") == expected


@pytest.mark.parametrize(
    ("site", "expected"),
    [("same-origin", 0), ("none", 0), ("same-site", 403), ("cross-site", 403)],
)
def test_pages_of_others_get_no_data(site, expected):
    """A browser says that a request is from another site's page, also for an image."""
    assert status_when(check_site, Headers({"sec-fetch-site": site})) == expected


def status_when(check, *arguments) -> int:
    """Return the status with which a check refuses; 0 if it does not."""
    try:
        check(*arguments)
    except Problem as problem:
        return problem.status
    return 0


def test_the_password_is_not_shown():
    """The text of a login has no hash."""
    assert LOGIN.password_hash not in repr(LOGIN)


def test_loopback():
    """Addresses of the loopback interface, and its name."""
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example")))
