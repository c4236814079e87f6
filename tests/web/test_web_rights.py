"""The rights of users at the HTTP port and the port for metrics, each cell tried."""

from __future__ import annotations

import base64
import json
import re
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

import pytest
from event_stream import EventStream
from fix_server import PATIENCE_S
from starlette.testclient import TestClient
from web_operations import NotedServer

from canal_server.errors import ClientError
from canal_server.observe.all_metrics import metrics_server, metrics_text
from canal_server.observe.certificate_expiry import CLIENT, SERVER, Certificate
from canal_server.observe.metrics_login import MetricsLogin
from canal_server.protocol.auth import Credentials, stored_form
from canal_server.runtime.lifecycle import Deadline
from canal_server.users.audit_log import AuditLog
from canal_server.users.failed_logins import FailedLogins
from canal_server.users.rights import Right
from canal_server.users.user_directory import UserDirectory
from canal_server.users.users_file import parse_users, users_text
from canal_server.web.access_rules import AccessRules, Login
from canal_server.web.live_tail import TAILS_MAX, TAILS_OF_USER_MAX, Tails
from canal_server.web.problem_details import Problem
from canal_server.web.throughput import Throughput
from canal_server.web.web_server import WebServer, application

if TYPE_CHECKING:
    from canal_server.web.server_operations import Operations

BASE = "/api/v1"
USERS = """
users:
  all: {read: [{destination: "*"}], operate: ["*"]}
  reader: {read: [{destination: one}]}
  observer: {observe: [one]}
  everywhere: {observe: ["*"]}
  operator: {operate: [two]}
  nothing: {}
"""
# By user: the destinations of which it has each right.
RIGHTS = {
    "all": {Right.READ: "one two", Right.OBSERVE: "one two", Right.OPERATE: "one two"},
    "reader": {Right.READ: "one"},
    "observer": {Right.OBSERVE: "one"},
    "everywhere": {Right.OBSERVE: "one two"},
    "operator": {Right.OBSERVE: "two", Right.OPERATE: "two"},
    "nothing": {},
}
OF_ONE = [
    ("GET", "", Right.OBSERVE, None),
    ("GET", "/throughput", Right.OBSERVE, None),
    ("GET", "/positions", Right.OBSERVE, None),
    ("GET", "/subscriptions", Right.OBSERVE, None),
    ("GET", "/tables", Right.OBSERVE, None),
    ("GET", "/tables/s.t/history", Right.OBSERVE, None),
    ("GET", "/tables/s.t", Right.OBSERVE, None),
    ("GET", "/schema", Right.OBSERVE, None),
    ("GET", "/schema?format=sql", Right.OBSERVE, None),
    ("GET", "/schema/export", Right.OBSERVE, None),
    ("POST", "/schema/verify", Right.OPERATE, {}),
    ("HEAD", "/tail", Right.READ, None),
    ("POST", "/seek", Right.OPERATE, {"to": "latest"}),
    ("POST", "/start", Right.OPERATE, {}),
    ("POST", "/stop", Right.OPERATE, {}),
    ("DELETE", "/clients/1", Right.OPERATE, None),
    ("DELETE", "/subscriptions/lake", Right.OPERATE, None),
]


class Noted(NotedServer):
    """A server that refuses every move, and whose status has texts about files."""

    def status(self):
        """Return a status with what no destination owns."""
        files = {"refused": {"two": "why"}, "changed_settings": ["conf/two/a"]}
        return {**super().status(), **files}

    def plan_move(self, destination, to, *, source, client_ids):
        """Refuse."""
        raise ClientError("no")

    def move(self, plan):
        """Not be asked: there is no plan."""
        raise AssertionError("not asked")


@pytest.fixture
def users(tmp_path):
    """Give users whose password is `secret`."""
    path = tmp_path / "users.yml"
    stored = stored_form("secret")
    found = parse_users(USERS, "users.yml").values()
    path.write_text(users_text(replace(each, password_hash=stored) for each in found))
    path.chmod(0o600)
    return UserDirectory(path, Credentials())


@pytest.fixture
def failed_logins():
    """Give the failed log-ins of the port, with delays that last."""
    return FailedLogins(delay_max_s=3600)


def guess(failed_logins: FailedLogins, address: str, user: str) -> None:
    """Guess once a second, until as many wait as may: for half a minute and more."""
    now_s = time.monotonic()
    begun = [
        failed_logins.begin(address, user, "", now_s - 40 + number)
        for number in range(41)
    ]
    assert begun[-1] is None


@pytest.fixture
def rules(users, failed_logins):
    """Give the rules of a port with these users and a login."""
    login = Login("http", stored_form("of http"))
    return AccessRules("127.0.0.1", login, users=users, failed_logins=failed_logins)


@pytest.fixture
def http(rules):
    """Give a client of the port."""
    server = Noted()
    app = application(server, Throughput(server.received), rules, "1")
    return TestClient(app, "http://127.0.0.1:11113", raise_server_exceptions=False)


def basic(user: str, password: str = "secret") -> dict[str, str]:
    """Return the header of a log-in."""
    text = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {text}"}


@pytest.mark.parametrize("user", RIGHTS)
def test_every_endpoint(http, user):
    """A user may use an endpoint of a destination if, and only if, it has the right."""
    for name in ("one", "two", "three"):
        for method, path, right, body in OF_ONE:
            url = f"{BASE}/destinations/{name}{path}"
            answer = http.request(method, url, headers=basic(user), json=body)
            may = name in RIGHTS[user].get(right, "").split() or (
                name == "three"
                and (user == "all" or (user, right) == ("everywhere", Right.OBSERVE))
            )
            assert (answer.status_code != 403) is may, (name, method, path)
            if not may and method != "HEAD":
                assert f"'{user}' may not" in answer.json()["detail"]


def test_files_are_for_those_who_observe_all(http):
    """Names of files may be of any destination; others do not get them."""
    for user, may in (("everywhere", True), ("observer", False)):
        found = http.get(f"{BASE}/status", headers=basic(user)).json()
        assert bool(found["refused"]) is may
        assert bool(found["changed_settings"]) is may


@pytest.mark.parametrize("user", RIGHTS)
def test_lists_have_what_may_be_observed(http, user):
    """Lists leave out what a user may not observe, and say what it may do."""
    seen = RIGHTS[user].get(Right.OBSERVE, "").split()
    found = http.get(f"{BASE}/destinations", headers=basic(user)).json()
    assert [each["destination"] for each in found["destinations"]] == seen
    assert bool(found["host"]) == (seen == ["one", "two"])  # it is of all of them
    for each in found["destinations"]:
        name = each["destination"]
        operable = RIGHTS[user].get(Right.OPERATE, "").split()
        assert each["allows_actions"] is (name in operable)
        assert each["allows_tail"] is (name in RIGHTS[user].get(Right.READ, "").split())


@pytest.mark.parametrize("user", RIGHTS)
def test_clusters_have_what_may_be_observed(http, user):
    """Servers are named to those who may observe a destination of the cluster."""
    seen = RIGHTS[user].get(Right.OBSERVE, "").split()
    found = http.get(f"{BASE}/clusters", headers=basic(user)).json()
    assert [sorted(each["destinations"]) for each in found["clusters"]] == (
        [seen] if seen else []
    )
    assert (found["this_server"] is not None) is bool(seen)


def test_refusals_are_noted(rules, tmp_path):
    """The audit has who logged in, once, and what was refused; not of strangers."""
    server, path = Noted(), tmp_path / "audit.jsonl"
    throughput = Throughput(server.received)
    app = application(server, throughput, rules, "1", audit=AuditLog(path))
    http = TestClient(app, "http://127.0.0.1:11113", raise_server_exceptions=False)
    of_one = f"{BASE}/destinations/one"
    for headers in (basic("observer"), basic("operator"), {}):
        assert http.post(f"{of_one}/stop", headers=headers, json={}).is_client_error
        http.get(of_one, headers=headers)
        http.get(f"{BASE}/destinations", headers=headers)
    noted = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["event"], each["user"], each.get("action")) for each in noted] == [
        ("login", "observer", None),
        ("access_refused", "observer", f"POST {of_one}/stop"),
        ("login", "operator", None),
        ("access_refused", "operator", f"POST {of_one}/stop"),
        ("access_refused", "operator", f"GET {of_one}"),
    ]


@pytest.mark.parametrize("user", RIGHTS)
def test_status_has_what_may_be_observed(http, user):
    """The status of the host is for those who may observe all destinations."""
    seen = RIGHTS[user].get(Right.OBSERVE, "").split()
    found = http.get(f"{BASE}/status", headers=basic(user)).json()
    assert [each["destination"] for each in found["instances"]] == seen
    is_all = user in ("all", "everywhere")
    assert ("conf" in found, "pid" in found, bool(found["refused"])) == (is_all,) * 3
    assert found["version"] == "1"


@pytest.mark.parametrize(
    ("user", "destination", "status"),
    [
        ("all", "", 200),
        ("all", "two", 200),
        ("operator", "", 403),
        ("operator", "two", 200),
        ("operator", "one", 403),
        ("everywhere", "", 403),
    ],
)
def test_log_levels(http, user, destination, status):
    """A level is set by who operates the destination, the default by who does all."""
    body = {"level": "debug", "destination": destination}
    answer = http.put(f"{BASE}/log-levels", headers=basic(user), json=body)
    assert answer.status_code == status


def test_log_ins(http, rules):
    """Users, and the login of the settings, log in; nobody else, nor without."""
    url = f"{BASE}/destinations"
    assert http.get(url, headers=basic("reader")).status_code == 200
    assert http.get(url, headers=basic("http", "of http")).status_code == 200
    assert http.get(url).status_code == 401
    for user, password in [("reader", "x"), ("http", "secret"), ("", ""), ("x", "x")]:
        answer = http.get(url, headers=basic(user, password))
        assert answer.status_code == 401
        assert "canal.users.file" in answer.json()["detail"]
    assert http.get("/healthz").status_code == 200
    assert http.get("/readyz").json() == {"status": "ready"}  # no names


def test_certificates(http, rules, users):
    """A verified certificate logs in, unless a password is sent as well."""
    with_names = parse_users(
        "users: {bot: {certificates: [dns:bot], operate: ['*']}}", ""
    )
    users._users = {**users._users, **with_names}
    url = f"{BASE}/destinations"
    app = http.app

    async def certified(scope, receive, send):
        scope["state"] = {"certificate_names": ("CN=x", "dns:bot")}
        await app(scope, receive, send)

    client = TestClient(certified, "http://127.0.0.1:11113")
    assert client.get(url).status_code == 200
    assert client.get(url, headers=basic("bot", "x")).status_code == 401


def test_guesses_are_slowed_down(http, failed_logins):
    """While wrong passwords wait, the right one is refused as well, unless known."""

    def status(user: str, password: str = "secret", method: str = "GET") -> int:
        url, login = f"{BASE}/destinations", basic(user, password)
        return int(http.request(method, url, headers=login).status_code)

    assert status("observer") == 200
    for user in ("reader", "observer"):
        guess(failed_logins, "testclient", user)
    for method in ("GET", "POST", "OPTIONS"):
        for password in ("secret", "wrong"):
            assert status("reader", password, method) == 429
    assert status("observer", "wrong") == 429
    # Others are not delayed, nor who has logged in from there before.
    assert status("everywhere") == 200
    assert status("observer") == 200
    assert status("operator", "wrong") == 401
    for _ in range(2):  # the first one waits
        assert status("operator") == 200


@pytest.fixture
def anyio_backend():
    """Run on asyncio."""
    return "asyncio"


@pytest.mark.anyio
async def test_tails_end_with_the_right(users):
    """A tail ends with a reason when the rights of its user have changed."""
    allowed = True
    tails = Tails(Noted())
    tail = await tails.open("one", "", is_allowed=lambda: allowed)
    events = tail.events()
    assert b"event: state" in await anext(events)
    allowed = False
    tails.look_again()
    last = await anext(events)
    assert b'"not_allowed"' in last
    with pytest.raises(StopAsyncIteration):
        await anext(events)
    tail.close()


@pytest.mark.anyio
async def test_one_user_leaves_tails_to_others(users):
    """A user has fewer than all; closed ones count no more."""
    tails = Tails(Noted())
    of_ann = [await tails.open("one", "", user="ann") for _ in range(TAILS_OF_USER_MAX)]
    with pytest.raises(Problem, match="tails of this user are open") as raised:
        await tails.open("one", "", user="ann")
    assert raised.value.status is HTTPStatus.TOO_MANY_REQUESTS
    others = [await tails.open("one", "", user="bob")]
    of_ann.pop().close()
    of_ann.append(await tails.open("one", "", user="ann"))
    for each in of_ann + others:
        each.close()
    # Where names are not known, there is the limit of all only.
    nobody = [await tails.open("one", "") for _ in range(TAILS_MAX)]
    with pytest.raises(Problem, match="and a server has no more"):
        await tails.open("one", "", user="ann")
    for each in nobody:
        each.close()


def test_a_user_over_http(users):
    """The limit is that of the name that logged in."""
    operations = cast("Operations", Noted())
    web = WebServer("127.0.0.1", 0, operations, "1", users=users)
    web.start()
    path = f"{BASE}/destinations/one/tail"
    try:
        with ExitStack() as stack:

            def tail(user: str) -> EventStream:
                made = EventStream(web.port or 0, path, basic(user))
                return stack.enter_context(made)

            tails = [tail("all") for _ in range(TAILS_OF_USER_MAX + 1)]
            statuses = [each.status for each in tails]
            assert statuses == [200] * TAILS_OF_USER_MAX + [429]
            assert tails[-1].problem()["limit"] == TAILS_OF_USER_MAX
            assert tail("reader").status == 200
    finally:
        web.request_stop()
        assert web.join(Deadline(PATIENCE_S))


def test_metrics(users):
    """Metrics are of what a user may observe; who may observe nothing gets 403."""
    certificates = [
        Certificate(role, name, name or "server.pem", "", 0.0)
        for role, name in ((SERVER, ""), (CLIENT, "one"), (CLIENT, "two"))
    ]
    text = metrics_text(Noted().readings, "1", certificates=lambda: certificates)
    port = metrics_server("127.0.0.1", 0, text, users=users)
    port.start()
    url = f"http://127.0.0.1:{port.port}/metrics"

    seen: list[str] = []

    def status(headers: dict[str, str]) -> int:
        request = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                sent = answer.read().decode()
                assert re.search("^canal_server_info", sent, re.MULTILINE)
                seen[:] = sorted(set(re.findall('destination="([^"]*)"', sent)))
                has_process = "process_resident_memory_bytes" in sent
                assert has_process is ("" in seen)  # as the server's certificate
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    try:
        assert status(basic("all")) == 200
        assert status(basic("everywhere")) == 200
        assert seen == ["", "one", "two"]
        assert status(basic("observer")) == 200
        assert seen == ["one"]
        assert status(basic("operator")) == 200
        assert seen == ["two"]
        assert status(basic("reader")) == 403
        assert status(basic("nothing")) == 403
        assert status(basic("all", "wrong")) == 401
        assert status({}) == 401
    finally:
        port.request_stop()
        assert port.join(Deadline(PATIENCE_S))


def test_metrics_are_noted(users, tmp_path):
    """The audit has who logged in, once, wrong passwords, and refusals."""
    path = tmp_path / "audit.jsonl"
    login = MetricsLogin(users, audit=AuditLog(path))
    for port in (1, 2):
        for user, password in [("all", "secret"), ("all", "x"), ("nothing", "secret")]:
            authorization = basic(user, password)["authorization"]
            login.status(authorization, None, "10.0.0.7", port)
        login.status("", None, "10.0.0.7", port)  # without a log-in
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert {each["address"] for each in found} == {"10.0.0.7:1", "10.0.0.7:2"}
    assert [(each["event"], each["user"]) for each in found] == [
        ("login", "all"),
        ("login_refused", "all"),
        ("login", "nothing"),
        ("access_refused", "nothing"),
        ("login_refused", "all"),
    ]
    assert found[0]["service"] == "metrics"


def test_guesses_at_the_port_for_metrics(users):
    """While wrong passwords wait there, the right one is refused as well."""
    failed = FailedLogins(delay_max_s=3600)
    login = MetricsLogin(users, failed)

    def status(user: str, password: str = "secret") -> object:
        return login.status(basic(user, password)["authorization"], None, "a")

    guess(failed, "a", "all")
    for password in ("secret", "wrong"):
        assert status("all", password) is HTTPStatus.TOO_MANY_REQUESTS
    assert status("everywhere") is HTTPStatus.OK
    assert status("everywhere", "wrong") is HTTPStatus.UNAUTHORIZED
    assert status("everywhere") is HTTPStatus.OK  # known
    assert status("nothing", "wrong") is HTTPStatus.UNAUTHORIZED
    assert status("nothing") is HTTPStatus.FORBIDDEN  # after it has waited
