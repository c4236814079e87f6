"""What ends when a certificate, a user or a right is withdrawn, at each port."""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from fix_server import DESTINATION, PATIENCE_S, Wire
from fix_store import eventually
from fix_tls import Authority
from web_operations import NotedServer

from canal_server.client import CanalClient
from canal_server.config.schema import ClientCertificates
from canal_server.observe.all_metrics import metrics_server, metrics_text
from canal_server.protocol.auth import Credentials, scramble, stored_form
from canal_server.protocol.framing import frame
from canal_server.protocol.packets import (
    Ack,
    ClientAuth,
    Get,
    Handshake,
    PacketType,
    encode_packet,
)
from canal_server.protocol.protobuf import decode
from canal_server.runtime.lifecycle import Deadline
from canal_server.server import client_connection
from canal_server.tls.server_tls import ServerTls
from canal_server.users.user_directory import UserDirectory, UsersWatch
from canal_server.users.users_file import parse_users, users_text
from canal_server.web.web_server import WebServer

if TYPE_CHECKING:
    from canal_server.runtime.lifecycle import Stage
    from canal_server.web.server_operations import Operations

PORTS = ("clients", "page", "metrics")
LOST = (ssl.SSLError, OSError, EOFError, http.client.HTTPException)
USER = {"read": [{"destination": "*"}], "observe": ["*"], "certificates": ["CN=bot"]}
LIFE_S = 4  # of a certificate
PAGE = "/api/v1/destinations/one"


class Ports:
    """A server of each kind, with the same certificate and users."""

    def __init__(self, serve: Any, authority: Authority, folder: Any) -> None:
        self.opened = contextlib.ExitStack()
        self.users_file = folder / "users.yml"
        self.ca_file = folder / "clients-ca.pem"
        self.ca_file.write_bytes(authority.ca_file.read_bytes())
        self.config = authority.server(
            client_ca_file=self.ca_file, client_certificates=ClientCertificates.OPTIONAL
        )
        self.write_users(USER)
        self.clients = serve(tls=self.config, users_file=self.users_file)
        self.users = UserDirectory(self.users_file, Credentials())
        tls = ServerTls(self.config, asks_visitors=True)
        server = NotedServer()
        operations = cast("Operations", server)
        self.web = WebServer("127.0.0.1", 0, operations, "1", users=self.users, tls=tls)
        text = metrics_text(server.readings, "1")
        self.metrics = metrics_server("127.0.0.1", 0, text, tls, self.users)
        self.stages: list[Stage] = [
            self.web,
            self.metrics,
            UsersWatch(self.clients.users),
        ]
        for each in self.stages:
            each.start()
        ports = (self.clients.port, self.web.port, self.metrics.port)
        self.of = dict(zip(PORTS, ports, strict=True))

    def write_users(
        self, user: dict[str, Any] | None, password: str = "secret"
    ) -> None:
        """Replace the file, as an editor and Kubernetes do."""
        found = parse_users(str({"users": {} if user is None else {"bot": user}}), "")
        stored = stored_form(password)
        text = users_text(replace(u, password_hash=stored) for u in found.values())
        fresh = self.users_file.with_suffix(".new")
        fresh.touch(0o600)
        fresh.write_text(text)
        fresh.replace(self.users_file)

    def close(self) -> None:
        """End all."""
        self.opened.close()
        for each in self.stages:
            each.request_stop()
        for each in self.stages:
            assert each.join(Deadline(PATIENCE_S))


@pytest.fixture
def ports(serve, authority, tmp_path, monkeypatch):
    """Give the ports."""
    monkeypatch.setattr(client_connection, "REQUIRED_WAIT_S", 0.5)
    made = Ports(serve, authority, tmp_path)
    yield made
    made.close()


class Session:
    """A connection on which somebody is logged in, by password or certificate."""

    def __init__(
        self,
        ports: Ports,
        port: str,
        context: ssl.SSLContext,
        password: str = "",
        session: ssl.SSLSession | None = None,
    ) -> None:
        self._is_http = port != "clients"
        raw = socket.create_connection(("127.0.0.1", ports.of[port]), PATIENCE_S)
        ports.opened.callback(raw.close)
        self.sock = context.wrap_socket(
            raw, server_hostname="127.0.0.1", session=session
        )
        ports.opened.callback(self.sock.close)
        if self._is_http:
            self._http = http.client.HTTPConnection("127.0.0.1", timeout=PATIENCE_S)
            self._http.sock = self.sock
            self._path = PAGE if port == "page" else "/metrics"
            self._headers = {}
            if password:
                login = base64.b64encode(f"bot:{password}".encode()).decode()
                self._headers["Authorization"] = f"Basic {login}"
            return
        self._wire = Wire.__new__(Wire)
        self._wire.sock = self.sock
        seed = decode(Handshake, self._wire.packet().body).seeds
        token = scramble(password, seed) if password else b""
        auth = ClientAuth("bot", token, destination=DESTINATION, client_id="1")
        self._wire.send(frame(encode_packet(PacketType.CLIENTAUTHENTICATION, auth)))
        error = decode(Ack, self._wire.packet().body)
        assert not error.error_code, error.error_message

    def ask(self) -> int:
        """Return the status of a request on this connection."""
        if self._is_http:
            self._http.request("GET", self._path, headers=self._headers)
            answer = self._http.getresponse()
            answer.read()
            return answer.status
        get = Get(DESTINATION, "1", 1, -1)
        self._wire.send(frame(encode_packet(PacketType.GET, get)))
        return 200 if self._wire.packet().type == PacketType.MESSAGES else 400

    def wait_for_end(self) -> None:
        """Return when the server has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while self.sock.recv(1 << 16):
                pass


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("port", PORTS)
def test_an_expired_certificate(ports, authority, port, version):
    """It is no log-in, and the connection ends; one that is valid is one."""
    for days, may in ((1, True), (-1, False)):
        context = authority.client_context("bot", days=days)
        context.maximum_version = version
        if may:
            assert Session(ports, port, context).ask() == 200
        else:
            with pytest.raises(LOST):
                Session(ports, port, context).ask()
    # As somebody else, with a password.
    assert Session(ports, port, authority.client_context(), "secret").ask() == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("port", ["clients", "page"])
def test_a_session_of_an_expired_certificate(ports, authority, port, version):
    """OpenSSL resumes it, but it is no log-in any more."""
    context = authority.client_context("bot", days=LIFE_S / 86_400)
    context.maximum_version = version
    session = Session(ports, port, context)
    assert session.ask() == 200
    valid = session.sock.session

    def status() -> int:
        try:
            return Session(ports, port, context, session=valid).ask()
        except LOST:
            return 0

    eventually(lambda: status() != 200)
    assert status() == (401 if port == "page" else 0)


@pytest.mark.parametrize("port", PORTS)
def test_another_authority(ports, authority, tmp_path, port):
    """Certificates of an authority that was replaced are refused, also in sessions."""
    (tmp_path / "new").mkdir()
    new = Authority(tmp_path / "new", "new authority")
    contexts = [authority.client_context("bot"), authority.client_context()]
    contexts[1].load_cert_chain(*new.issue("bot"))
    session = Session(ports, port, contexts[0])
    assert session.ask() == 200
    with pytest.raises(LOST):
        Session(ports, port, contexts[1]).ask()
    fresh = ports.ca_file.with_suffix(".fresh")
    fresh.write_bytes(new.ca_file.read_bytes())
    fresh.replace(ports.ca_file)
    assert Session(ports, port, contexts[1]).ask() == 200
    with pytest.raises(LOST):
        Session(ports, port, contexts[0]).ask()
    with pytest.raises(LOST):
        Session(ports, port, contexts[0], session=session.sock.session).ask()


@pytest.mark.parametrize("port", ["clients", "page"])
def test_a_replaced_certificate(ports, authority, port):
    """Connections are kept, and the next one has the new certificate."""
    kept = Session(ports, port, authority.client_context(), "secret")
    for file in authority.issue("new"):
        file.replace(file.with_stem("server"))
    new = Session(ports, port, authority.client_context(), "secret")
    for session, name in ((new, "new"), (kept, "server")):
        assert session.ask() == 200
        shown = session.sock.getpeercert()
        assert shown
        assert (("commonName", name),) in cast("tuple[object, ...]", shown["subject"])


def test_an_expired_certificate_of_the_server(ports, authority):
    """Clients say so; with another one the same server serves them again."""
    files = authority.issue("server", days=-1)

    def client() -> CanalClient:
        return CanalClient(
            "127.0.0.1", ports.clients.port, DESTINATION, 1, "bot", "secret",
            tls=True, tls_ca_file=authority.ca_file, reconnect_for_s=0,
        )  # fmt: skip

    with pytest.raises(OSError, match="certificate has expired"), client():
        pass
    assert authority.issue("server") == files
    with client() as again:
        again.subscribe()


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("password", ["secret", ""])
@pytest.mark.parametrize(
    ("user", "new_password", "status"),
    [
        (None, "secret", 401),
        ({**USER, "certificates": []}, "another", 401),
        ({"certificates": ["CN=bot"]}, "secret", 403),
    ],
)
def test_users(ports, authority, port, password, user, new_password, status):  # noqa: PLR0917
    """Who is removed, has another log-in or lost a right is served no more."""
    context = authority.client_context("" if password else "bot")
    session = Session(ports, port, context, password)
    assert session.ask() == 200
    ports.write_users(user, new_password)
    if port == "clients":
        session.wait_for_end()
        with pytest.raises(
            (AssertionError, EOFError), match=r"auth failed|may not read"
        ):
            Session(ports, port, context, password)
        return
    if port == "metrics":  # a connection has one request
        session = Session(ports, port, context, password)
    assert session.ask() == status
