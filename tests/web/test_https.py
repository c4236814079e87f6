"""TLS on the HTTP ports: of the page, and for Prometheus."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from contextlib import closing
from typing import TYPE_CHECKING, cast

import pytest
from fix_server import PATIENCE_S
from fix_tls import Authority

from canal_server.config.schema import ClientCertificates
from canal_server.observe.all_metrics import metrics_server, metrics_text
from canal_server.protocol.auth import Credentials
from canal_server.runtime.lifecycle import Deadline
from canal_server.tls.server_tls import ServerTls
from canal_server.users.user_directory import UserDirectory
from canal_server.web import http_door
from canal_server.web.web_server import WebServer

if TYPE_CHECKING:
    from canal_server.web.server_operations import Operations


class Nothing:
    """A server without destinations."""

    def readings(self):
        """Return none."""
        return []

    def received(self):
        """Return nothing."""
        return {}


def page(tls, users=None):
    """Return the port of the page."""
    operations = cast("Operations", Nothing())
    return WebServer("127.0.0.1", 0, operations, "1.2.3", users=users, tls=tls)


def metrics(tls, users=None):
    """Return the port for Prometheus."""
    text = metrics_text(Nothing().readings, "1.2.3")
    return metrics_server("127.0.0.1", 0, text, tls, users)


@pytest.fixture(params=[page, metrics])
def port(request, authority, monkeypatch):
    """Give a port with TLS: that of the page, then that for metrics."""
    monkeypatch.setattr(http_door, "HANDSHAKE_S", 0.5)
    handler = "canal_server.doors.prometheus.metrics_server._Handler"
    monkeypatch.setattr(f"{handler}.timeout", 0.5)
    server = request.param(ServerTls(authority.server()))
    server.start()
    assert server.port
    yield server.port
    server.request_stop()
    assert server.join(Deadline(PATIENCE_S))


def get(port, context, path="/healthz"):
    """Return the status of a request."""
    made = http.client.HTTPSConnection(
        "127.0.0.1", port, timeout=PATIENCE_S, context=context
    )
    with closing(made) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.read() or answer.status == 401
        return answer.status


def test_requests(port, authority):
    """A client that trusts the authority is answered, others break off."""
    assert get(port, authority.client_context()) == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        get(port, ssl.create_default_context())
    assert get(port, authority.client_context()) == 200


def test_replaced_files(port, authority):
    """The next connection has the new certificate."""
    for new in authority.issue("new"):
        new.replace(new.with_stem("server"))
    raw = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    context = authority.client_context()
    with context.wrap_socket(raw, server_hostname="127.0.0.1") as sock:
        subject = sock.getpeercert()["subject"]
    assert (("commonName", "new"),) in subject


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b""])
def test_clear_text_and_silence(port, authority, sent):
    """Neither gets an answer of HTTP, and the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
        sock.sendall(sent)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while data := sock.recv(1000):
                received += data
        assert b"HTTP" not in received
    assert get(port, authority.client_context()) == 200


@pytest.mark.parametrize("kind", list(ClientCertificates))
@pytest.mark.parametrize("make", [page, metrics])
def test_client_certificates_are_never_required(authority, make, kind):
    """Probes and browsers need no certificate, also where clients do."""
    config = authority.server(
        client_ca_file=authority.ca_file, client_certificates=kind
    )
    for asks in (False, True):
        server = make(ServerTls(config, asks_visitors=asks))
        server.start()
        try:
            assert get(server.port, authority.client_context()) == 200
        finally:
            server.request_stop()
            assert server.join(Deadline(PATIENCE_S))


@pytest.mark.parametrize("make", [page, metrics])
def test_a_certificate_is_a_log_in(authority, make, tmp_path):
    """Where there are users, a certificate names one; others get 401."""
    path = tmp_path / "users.yml"
    path.write_text("users: {bot: {certificates: [CN=bot], observe: ['*']}}")
    path.chmod(0o600)
    config = authority.server(
        client_ca_file=authority.ca_file,
        client_certificates=ClientCertificates.REQUIRED,
    )
    tls = ServerTls(config, asks_visitors=True)
    server = make(tls, UserDirectory(path, Credentials()))
    server.start()
    try:
        where = "/api/v1/destinations"
        assert get(server.port, authority.client_context("bot"), where) == 200
        assert get(server.port, authority.client_context("other"), where) == 401
        assert get(server.port, authority.client_context(), where) == 401
        stranger = Authority(tmp_path, "stranger").client_context("bot")
        stranger.load_verify_locations(authority.ca_file)
        with pytest.raises((ssl.SSLError, OSError)):
            get(server.port, stranger, where)
    finally:
        server.request_stop()
        assert server.join(Deadline(PATIENCE_S))
