"""The rights of canal-admin's account and of users, at each port: every cell tried."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import urllib.error
import urllib.request
from contextlib import closing
from dataclasses import replace

import pytest
from admin_connector import Connector
from fix_conf import ACCOUNT
from fix_store import eventually

from canal_server.admin.admin_messages import (
    AdminPacketType,
    InstanceAdmin,
    LogAdmin,
    ServerAdmin,
    packet,
)
from canal_server.client import CanalClient
from canal_server.config.load import load
from canal_server.daemon import control
from canal_server.daemon.daemon import Daemon
from canal_server.errors import ClientError
from canal_server.instance.instance import Instance
from canal_server.protocol.auth import stored_form
from canal_server.runtime.lifecycle import Deadline
from canal_server.users.users_file import parse_users, users_text

PATIENCE_S = 60.0
AT_ONCE = 10  # connections; the port has 16
NOWHERE = f"canal.instance.master.address = 127.0.0.1:1\n{ACCOUNT}"
SERVER, INSTANCE, LOG = (
    AdminPacketType.SERVER,
    AdminPacketType.INSTANCE,
    AdminPacketType.LOG,
)
MAIN = f"""
canal.ip = 127.0.0.1
canal.port = 0
canal.http.port = 0
canal.metrics.pull.port = 0
canal.admin.port = 0
canal.destinations = one, two
canal.users.file = users.yml
canal.user = canal
canal.passwd = {stored_form("of canal")}
canal.http.user = http
canal.http.passwd = {stored_form("of http")}
canal.audit.file = audit.jsonl
"""
ADMIN = f"""
canal.admin.user = manager
canal.admin.passwd = {stored_form("of manager")}
"""
# `manager` has the name of canal-admin's account, and no right but to read `two`.
USERS = """
users:
  all: {read: [{destination: "*"}], ranges: ["*"], operate: ["*"], observe: ["*"]}
  operator: {operate: [one]}
  observer: {observe: ["*"]}
  reader: {read: [{destination: one}]}
  nothing: {}
  manager: {read: [{destination: two}]}
"""
# Who logs in at the port for canal-admin: name, password, and whether that is right.
ACCOUNTS = [
    ("manager", "of manager", True),
    *((name, "of users", False) for name in
      ("all", "operator", "observer", "reader", "nothing", "manager")),
    ("canal", "of canal", False),
    ("http", "of http", False),
    ("all", "of manager", False),
    ("MANAGER", "of manager", False),
    ("", "of manager", False),
    ("manager", "", False),
]  # fmt: skip
# What can be asked for, in an order in which each has an effect, and the answer.
OPERATIONS = [
    (SERVER, ServerAdmin("check"), "1"),
    (SERVER, ServerAdmin("list"), "one,two"),
    *(
        (INSTANCE, InstanceAdmin(name, action), answer)
        for name, known in (("one", True), ("two", True), ("three", False))
        for action, answer in (
            ("check", "01"[known]),
            ("stop", "01"[known]),
            ("start", "01"[known]),
            ("restart", "01"[known]),
            ("release", "01"[known]),
            ("start", "01"[known]),
        )
    ),
    (LOG, LogAdmin("server", "list"), "canal.log"),
    (LOG, LogAdmin("server", "file", count=1), "of canal"),
    (LOG, LogAdmin("instance", "list", "one"), "one.log"),
    (LOG, LogAdmin("instance", "file", "two", count=1), "of two"),
    (SERVER, ServerAdmin("stop"), "1"),
    (SERVER, ServerAdmin("start"), "1"),
    (SERVER, ServerAdmin("restart"), "1"),
]


@pytest.fixture
def make_daemon(make_conf, tmp_path):
    """Give a function that starts a server with users and all of its ports."""
    logs = tmp_path / "logs"
    for name in ("canal", "one", "two"):
        (logs / name).mkdir(parents=True)
        (logs / name / f"{name}.log").write_text(f"of {name}\n")

    with contextlib.ExitStack() as stack:

        def make(main: str = MAIN + ADMIN) -> Daemon:
            conf = make_conf(main, one=NOWHERE, two=NOWHERE)
            stored = stored_form("of users")
            users = parse_users(USERS, "users.yml").values()
            text = users_text(replace(each, password_hash=stored) for each in users)
            (conf / "users.yml").touch(0o600)
            (conf / "users.yml").write_text(text)
            daemon = Daemon(load(conf, {}), Instance, log_dir=logs)
            daemon.start()
            stack.callback(lambda: daemon.join(Deadline(PATIENCE_S)))
            stack.callback(daemon.request_stop)
            eventually(lambda: lives(conf) == ["running"] * 2)
            return daemon

        yield make


def status_of(conf):
    """Return the status of the server."""
    return control.ask(conf, "status")


def lives(conf) -> list[str]:
    """Return what the destinations do."""
    return [each["life"] for each in status_of(conf)["instances"]]


def notes(conf) -> list[tuple[str, str, str]]:
    """Return the events of the audit, with their users and actions."""
    path = conf / "audit.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = map(json.loads, lines)
    return [(each["event"], each["user"], each.get("action", "")) for each in found]


@pytest.mark.parametrize(("user", "password", "may"), ACCOUNTS)
def test_every_operation(make_daemon, tmp_path, user, password, may):
    """canal-admin's account may do all of them; nobody else may do any."""
    make_daemon()
    conf = tmp_path / "conf"
    with closing(Connector(status_of(conf)["admin_port"])) as connector:
        answer = connector.log_in(user, password)
        assert (answer.code, answer.message) == (
            (0, "") if may else (300, f"auth failed for user:{user}")
        )
        if may:
            for kind, content, expected in OPERATIONS:
                found = connector.ask(kind, content)
                assert (found.code, found.message) == (0, expected), content
            eventually(lambda: lives(conf) == ["running"] * 2)
            return
    # Each operation on a connection of its own, sent before the refusal is received.
    port = status_of(conf)["admin_port"]
    numbered = list(enumerate(OPERATIONS))
    for first in range(0, len(numbered), AT_ONCE):
        with contextlib.ExitStack() as stack:
            connectors = []
            for number, (kind, content, _) in numbered[first : first + AT_ONCE]:
                # From other addresses, as guesses from one wait for each other.
                connector = Connector(port, f"127.0.{number + 1}.1")
                stack.callback(connector.close)
                connector.pipeline(user, password, packet(kind, content))
                connectors.append(connector)
            for connector in connectors:
                with contextlib.suppress(EOFError, ConnectionError):
                    assert connector.answer().code == 300
                    connector.answer()
                    pytest.fail("a request was answered after the refusal")
    assert lives(conf) == ["running"] * 2
    assert {event for event, _, _ in notes(conf)} == {"login_refused"}


def basic(user: str, password: str) -> dict[str, str]:
    """Return the header of a log-in."""
    text = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {text}"}


def http_status(port: int, path: str, user: str, password: str) -> int:
    """Return the status of an answer."""
    url = f"http://127.0.0.1:{port}{path}"
    request = urllib.request.Request(url, headers=basic(user, password))
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    ("user", "password", "reads", "sees", "scrapes"),
    [
        # The account of canal-admin is none at the other ports.
        ("manager", "of manager", "", 401, 401),
        # Its name is that of somebody else there.
        ("manager", "of users", "two", 403, 403),
        ("all", "of users", "one two", 200, 200),
        ("observer", "of users", "", 200, 200),
        ("reader", "of users", "one", 403, 403),
        ("canal", "of canal", "one two", 401, 401),
        ("http", "of http", "", 200, 401),
    ],
)
def test_the_other_ports(make_daemon, tmp_path, user, password, reads, sees, scrapes):  # noqa: PLR0917
    """Each account is one of its port: what it may do there, and nowhere else."""
    make_daemon()
    status = status_of(tmp_path / "conf")
    may = []
    for destination in ("one", "two"):
        client = CanalClient(
            "127.0.0.1", status["port"], destination, 1, user, password,
            reconnect_for_s=0,
        )  # fmt: skip
        try:
            with client:
                client.subscribe()
        except ClientError as error:
            assert re.search("auth failed|may not read", str(error))  # noqa: PT017
        else:
            may.append(destination)
    assert " ".join(may) == reads
    page = "/api/v1/destinations/one"
    assert http_status(status["http_port"], page, user, password) == sees
    assert http_status(status["metrics_port"], "/metrics", user, password) == scrapes


@pytest.mark.parametrize("passwd", ["", stored_form("admin")])
def test_with_a_public_password(make_daemon, tmp_path, caplog, passwd):
    """Beside a file of users, the port is closed to everybody, and says why."""
    make_daemon(f"{MAIN}canal.admin.user = admin\ncanal.admin.passwd = {passwd}\n")
    assert status_of(tmp_path / "conf")["admin_port"] is None
    names = [getattr(each, "message_name", "") for each in caplog.records]
    assert names.count("admin-port-closed") == 1
    assert "admin-port-limited" not in names


def test_users_are_not_for_canal_admin(make_daemon, tmp_path):
    """Whose rights are taken away from users.yml changes nothing for canal-admin."""
    make_daemon()
    conf = tmp_path / "conf"
    with closing(Connector(status_of(conf)["admin_port"])) as connector:
        assert connector.log_in("manager", "of manager").code == 0
        (conf / "users.yml").write_text("users: {}\n")
        eventually(lambda: "users" in [event for event, _, _ in notes(conf)])
        assert connector.ask(SERVER, ServerAdmin("list")).message == "one,two"
