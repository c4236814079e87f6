"""The port for canal-admin, as its connector uses it, on a real socket."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
from admin_connector import Connector
from fix_random import longer
from fix_server import PATIENCE_S, received_after
from hostile_requests import AdminRequests

from canal_server.admin import admin_actions, admin_server
from canal_server.admin.admin_actions import AdminActions
from canal_server.admin.admin_messages import (
    AdminHandshake,
    AdminPacketType,
    InstanceAdmin,
    LogAdmin,
    ServerAdmin,
)
from canal_server.admin.admin_server import (
    AdminServer,
    address_for,
    is_in_clear_text,
)
from canal_server.admin.log_reading import LogReading
from canal_server.config.schema import ServerConfig, TlsConfig
from canal_server.errors import CanalError, ClientError
from canal_server.protocol.auth import Credentials, stored_form
from canal_server.runtime.lifecycle import Deadline
from canal_server.server.transport import Transport
from canal_server.users.audit_log import AuditLog

PASSWORD = "open sesame"
SERVER, INSTANCE, LOG = (
    AdminPacketType.SERVER,
    AdminPacketType.INSTANCE,
    AdminPacketType.LOG,
)


class Destinations:
    """Destinations that stop and start at once."""

    def __init__(self):
        self.lives = {"one": "running", "two": "running", "lazy": "idle"}
        self.shared = {"two"}
        self.asked: list[tuple[str, str]] = []

    def names(self):
        """Return all names."""
        return list(self.lives)

    def is_held(self, destination):
        """Return whether it was stopped."""
        return self.lives[destination] == "stopped"

    def is_shared(self, destination):
        """Return whether it is in a cluster."""
        return destination in self.shared

    def status_of(self, destination):
        """Return its status."""
        life = self.lives.get(destination)
        return None if life is None else {"life": life}

    def stop(self, destination):
        """Stop it."""
        self._note("stop", destination, "stopped")

    def resume(self, destination):
        """Start it."""
        self._note("resume", destination, "running")

    def _note(self, what, destination, life):
        if destination not in self.lives:
            raise ClientError(f"can't find destination:{destination}")
        self.asked.append((what, destination))
        self.lives[destination] = life


@pytest.fixture
def destinations():
    """Give destinations."""
    return Destinations()


@pytest.fixture
def port(destinations, tmp_path):
    """Give the port of a server with log files."""
    for name in ("canal", "one"):
        (tmp_path / name).mkdir()
        lines = "".join(f"{name} {number}\n" for number in range(100))
        (tmp_path / name / f"{name}.log").write_text(lines)
    (tmp_path / "one/one.log.1").write_text("old\n")
    (tmp_path / "one/link.log").symlink_to("/etc/passwd")
    server = AdminServer(
        "127.0.0.1",
        0,
        Credentials("admin", stored_form(PASSWORD)),
        AdminActions(destinations),
        LogReading(tmp_path),
        audit=AuditLog(tmp_path / "audit.jsonl"),
    )
    server.start()
    assert server.port
    yield server.port
    server.request_stop()
    assert server.join(Deadline(PATIENCE_S))


@pytest.fixture
def connector(port):
    """Give a connection that has logged in."""
    with closing(Connector(port)) as connector:
        assert connector.log_in("admin", PASSWORD).code == 0
        yield connector


@pytest.mark.parametrize(
    ("user", "password"),
    [("admin", "wrong"), ("admin", ""), ("other", PASSWORD), ("", PASSWORD)],
)
def test_refused_logins(port, caplog, user, password):
    """A wrong login is answered, logged, and ends the connection."""
    with closing(Connector(port)) as connector:
        answer = connector.log_in(user, password)
        assert answer.code == 300
        assert answer.message == f"auth failed for user:{user}"
        with pytest.raises(EOFError):
            connector.packet()
    assert "refused the login of canal-admin at 127.0.0.1" in caplog.text


def test_guesses_are_slowed_down(port, monkeypatch):
    """After a wrong login the right one waits as well, unless it was right before."""
    waited = []
    monkeypatch.setattr(
        Transport, "wait_for_close", lambda _, seconds: waited.append(seconds)
    )
    for password in ("wrong", PASSWORD, "wrong", PASSWORD, "wrong"):
        with closing(Connector(port)) as connector:
            code = connector.log_in("admin", password).code
            assert code == (0 if password == PASSWORD else 300)
    assert waited == [0.25, 0.5, 0.25, 0.5]


def test_no_request_before_the_login(port, destinations):
    """The first packet is a login, whatever its type says."""
    with closing(Connector(port)) as connector:
        assert connector.ask(SERVER, ServerAdmin("stop")).code == 300
    assert destinations.asked == []


@pytest.mark.parametrize(
    ("kind", "content", "answer", "asked"),
    [
        (SERVER, ServerAdmin("check"), "1", []),
        (SERVER, ServerAdmin("list"), "one,two", []),
        (SERVER, ServerAdmin("start"), "0", []),
        (INSTANCE, InstanceAdmin("one", "check"), "1", []),
        (INSTANCE, InstanceAdmin("lazy", "check"), "0", []),
        (INSTANCE, InstanceAdmin("lazy", "start"), "1", ["resume lazy"]),
        (INSTANCE, InstanceAdmin("one", "stop"), "1", ["stop one"]),
        (INSTANCE, InstanceAdmin("one", "restart"), "1", ["stop one", "resume one"]),
        (INSTANCE, InstanceAdmin("one", "release"), "1", ["stop one"]),
        (INSTANCE, InstanceAdmin("two", "release"), "1", ["stop two", "resume two"]),
        (INSTANCE, InstanceAdmin("none", "check"), "0", []),
        (INSTANCE, InstanceAdmin("none", "stop"), "0", []),
        (INSTANCE, InstanceAdmin("../x", "restart"), "0", []),
        (LOG, LogAdmin("server", "list", "", "", 0), "canal.log", []),
        (LOG, LogAdmin("server", "file", "", "", 2), "canal 98\ncanal 99", []),
        (LOG, LogAdmin("server", "file", "", "", 0), "", []),
        (LOG, LogAdmin("instance", "file", "one", "", 1), "one 99", []),
        (LOG, LogAdmin("instance", "file", "one", "one.log.1", 9), "old", []),
    ],
)
def test_requests(connector, destinations, kind, content, answer, asked):  # noqa: PLR0917
    """Each request has the answer that canal-admin reads, and its effect."""
    found = connector.ask(kind, content)
    assert (found.code, found.message) == (0, answer)
    assert [" ".join(each) for each in destinations.asked] == asked


def test_log_files_of_a_destination(connector):
    """All names are listed."""
    found = connector.ask(LOG, LogAdmin("instance", "list", "one", "", 0)).message
    assert set(found.split(",")) >= {"one.log", "one.log.1"}


def test_the_server_stops_and_starts(connector, destinations):
    """To stop it is to stop all its destinations; it answers meanwhile."""

    def ask(action):
        return connector.ask(SERVER, ServerAdmin(action)).message

    assert [ask("stop"), ask("check"), ask("stop"), ask("list")] == ["1", "0", "0", ""]
    assert [ask("start"), ask("check"), ask("start")] == ["1", "1", "0"]
    assert ask("restart") == "1"
    assert set(destinations.lives.values()) == {"running"}


def test_one_that_does_not_stop(connector, destinations, monkeypatch):
    """A restart that takes too long is a failure."""
    monkeypatch.setattr(admin_actions, "STOP_S", 0.1)
    monkeypatch.setattr(destinations, "stop", lambda _: None)
    assert connector.ask(INSTANCE, InstanceAdmin("one", "restart")).message == "0"
    assert destinations.asked == []


@pytest.mark.parametrize(
    ("kind", "content", "code", "text"),
    [
        (SERVER, ServerAdmin("explode"), 301, "ServerAdmin action: explode is unknown"),
        (INSTANCE, InstanceAdmin("one", "x"), 301, "InstanceAdmin action: x is unk"),
        (LOG, LogAdmin("x", "list"), 301, "LogAdmin type: x is unknown"),
        (LOG, LogAdmin("instance", "list", ".."), 400, "is not the name of a dest"),
        (LOG, LogAdmin("instance", "list", "a/b"), 400, "is not the name of a dest"),
        (LOG, LogAdmin("instance", "file", "one", "../canal/canal.log", 5), 400, "not"),
        (LOG, LogAdmin("instance", "file", "one", "link.log", 5), 400, "log file link"),
        (LOG, LogAdmin("instance", "file", "none", "", 5), 400, "No such file"),
        (AdminPacketType.HANDSHAKE, AdminHandshake(), 300, "packet type: HANDSHAKE is"),
    ],
)
def test_refusals(connector, destinations, kind, content, code, text):  # noqa: PLR0917
    """What cannot be done has a code and a reason; the connection stays."""
    found = connector.ask(kind, content)
    assert found.code == code
    assert text in found.message
    assert connector.ask(SERVER, ServerAdmin("check")).message == "1"
    assert destinations.asked == []


def test_no_log_files():
    """A server that logs elsewhere says so."""
    with pytest.raises(CanalError, match="start it with --log-dir"):
        LogReading(None).names()


@pytest.mark.parametrize(
    "sent",
    [b"\xff\xff\xff\xff", b"\x7f\0\0\0", b"\0\0\0\5\xff\xff\xff\xff\xff"],
)
def test_hostile_bytes(port, sent):
    """What is no packet ends the connection, and only that."""
    with closing(Connector(port)) as connector:
        connector.sock.sendall(sent)
        with pytest.raises((EOFError, ConnectionError)):
            connector.packet()
    with closing(Connector(port)) as connector:
        assert connector.log_in("admin", PASSWORD).code == 0


def test_hostile_requests(port, destinations, tmp_path, rng, caplog):
    """Damaged requests after the log-in get answers or end; nothing else is read."""
    (tmp_path / "secret.log").write_text("geheim")
    requests = AdminRequests(rng, "lazy", "one")
    for _ in range(longer(150)):
        with closing(Connector(port)) as connector:
            assert not connector.log_in("admin", PASSWORD).code
            sent = b"".join(requests.frame() for _ in range(rng.randint(1, 12)))
            answer = received_after(connector.sock, sent)
        assert b"geheim" not in answer
        assert b"root:" not in answer
        assert b"login" not in answer  # the audit is in the folder, too
    assert {name for _, name in destinations.asked} == {"lazy"}
    assert not [each for each in caplog.records if each.exc_info]
    with closing(Connector(port)) as connector:
        assert not connector.log_in("admin", PASSWORD).code
        assert connector.ask(SERVER, ServerAdmin("check")).message == "1"


def test_silent_peers(port, monkeypatch):
    """Who does not log in is disconnected, and makes room for others."""
    monkeypatch.setattr(admin_server, "LOGIN_S", 0.2)
    with ExitStack() as opened:
        for _ in range(admin_server.CONNECTIONS_MAX // 2):
            silent = opened.enter_context(closing(Connector(port)))
        with pytest.raises((EOFError, ConnectionError)):
            silent.packet()
    monkeypatch.setattr(admin_server, "LOGIN_S", PATIENCE_S)
    with closing(Connector(port)) as connector:
        assert connector.log_in("admin", PASSWORD).code == 0


@pytest.mark.parametrize(
    ("passwd", "address"),
    [
        ("", "127.0.0.1"),
        ("4acfe3202a5ff5cf467898fc58aab1d615029441", "127.0.0.1"),
        (stored_form("another"), "192.0.2.1"),
    ],
)
def test_where_it_listens(passwd, address):
    """Beyond this host only with a password that is not public."""
    assert address_for("192.0.2.1", Credentials("admin", passwd)) == address


def test_audit(connector, port, tmp_path):
    """Log-ins and actions of canal-admin are noted, questions are not."""
    with closing(Connector(port)) as other:
        assert other.log_in("root", "wrong").code
    for action in ("list", "stop"):
        connector.ask(SERVER, ServerAdmin(action))
    connector.ask(INSTANCE, InstanceAdmin("one", "restart"))
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    for each in found:
        assert each.pop("time")
        assert each.pop("address") == "127.0.0.1"
    assert found == [
        {"event": "login", "user": "admin", "how": "canal-admin"},
        {"event": "login_refused", "user": "root"},
        {"event": "admin", "user": "admin", "action": "stop", "destination": None},
        {"event": "admin", "user": "admin", "action": "restart", "destination": "one"},
    ]


@pytest.mark.parametrize("ip", ["", "0.0.0.0", "192.0.2.1"])
def test_clear_text(ip):
    """The port has no TLS: others reach it although TLS is required."""
    hash_ = stored_form(PASSWORD)
    server = ServerConfig(ip=ip, admin_port=11110, admin_passwd=hash_)
    required = TlsConfig(required=True)
    assert not is_in_clear_text(server)
    assert is_in_clear_text(replace(server, tls=required))
    assert not is_in_clear_text(replace(server, tls=required, admin_port=-1))
    assert not is_in_clear_text(replace(server, tls=required, ip="127.0.0.1"))
    # With the password of canal's files, it listens on the loopback interface.
    shipped = replace(server, tls=required, admin_passwd=stored_form("admin"))
    assert not is_in_clear_text(shipped)
