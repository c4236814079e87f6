"""TLS on the port for clients, beside clear text, on real sockets."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import closing, suppress

import pytest
from fix_server import DESTINATION, PATIENCE_S, Wire, make_entry
from fix_store import eventually
from fix_tls import Authority

from canal_server.config.schema import ClientCertificates
from canal_server.protocol.framing import frame
from canal_server.protocol.packets import (
    Ack,
    ClientAuth,
    Get,
    Messages,
    PacketType,
    Sub,
    encode_packet,
)
from canal_server.protocol.protobuf import decode
from canal_server.protocol.server_session import ACK_FRAME
from canal_server.server import client_connection

WHO = (DESTINATION, "1001")
LOGIN = frame(encode_packet(PacketType.CLIENTAUTHENTICATION, ClientAuth()))
SUBSCRIBE = frame(encode_packet(PacketType.SUBSCRIPTION, Sub(*WHO)))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Let the server wait less for the first byte; clear text has to wait for it."""
    monkeypatch.setattr(client_connection, "REQUIRED_WAIT_S", 0.5)


def log_in(wire: Wire) -> Wire:
    """Log in and subscribe."""
    assert wire.packet().type == PacketType.HANDSHAKE
    for request in (LOGIN, SUBSCRIBE):
        wire.send(request)
        assert wire.receive() == ACK_FRAME
    return wire


def get(wire: Wire, size: int = 100_000, timeout_ms: int = -1) -> tuple[bytes, ...]:
    """Return the entries of the next batch."""
    request = Get(*WHO, size, timeout_ms, 2, auto_ack=False)
    wire.send(frame(encode_packet(PacketType.GET, request)))
    return decode(Messages, wire.packet().body).messages


def has_logged(caplog, text: str) -> None:
    """Wait for a line of the log."""
    eventually(lambda: any(text in line for line in caplog.messages))


def test_both_on_one_port(serve, authority, instance):
    """Clients with and without TLS are served the same."""
    server = serve(tls=authority.server())
    entries = tuple(make_entry(number) for number in range(5))
    for context in (None, authority.client_context()):
        with Wire(server.port, context) as wire:
            log_in(wire)
            instance.store.rollback(1001)
            if context is None:
                instance.store.append(*entries)
            assert get(wire) == entries


def test_large_answers(serve, authority, instance, rng):
    """Answers of many records, of small and large parts, arrive as they are."""
    server = serve(tls=authority.server())
    entries = [
        make_entry(number) + b"\x22\x00" * rng.choice((0, 10, 9000, 300_000))
        for number in range(60)
    ]
    with Wire(server.port, authority.client_context()) as wire:
        log_in(wire)
        instance.store.append(*entries)
        assert list(get(wire)) == entries


def test_requests_in_small_parts(serve, authority):
    """A request may be spread over any number of records, and records over packets."""
    server = serve(tls=authority.server())
    with Wire(server.port, authority.client_context()) as wire:
        assert wire.packet().type == PacketType.HANDSHAKE
        for request in (LOGIN, SUBSCRIBE):
            for at in range(len(request)):
                wire.send(request[at : at + 1])
            assert wire.receive() == ACK_FRAME


def test_required(serve, authority, caplog):
    """Clear text is refused with the reason, and logged; TLS is served."""
    server = serve(tls=authority.server(required=True))
    with Wire(server.port) as wire:
        ack = decode(Ack, wire.packet().body)
        assert ack.error_code == 400
        assert "connect with TLS" in ack.error_message
        assert wire.receive() == b""
    has_logged(caplog, "clear text is not accepted")
    with Wire(server.port, authority.client_context()) as wire:
        log_in(wire)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions(serve, authority, caplog):
    """TLS 1.1 and older is refused."""
    server = serve(tls=authority.server())
    context = authority.client_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        Wire(server.port, context)
    has_logged(caplog, "TLS handshake failed: unsupported protocol")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("required", list(ClientCertificates))
@pytest.mark.parametrize("shown", ["none", "theirs", "another"])
def test_certificates_of_clients(  # noqa: PLR0917  # a table
    serve, authority, tmp_path, version, required, shown
):
    """With `required`, only clients of the authority get in; `optional` lets others."""
    settings = authority.server(
        client_ca_file=authority.ca_file, client_certificates=required
    )
    server = serve(tls=settings)
    context = authority.client_context("client" if shown == "theirs" else "")
    if shown == "another":
        (tmp_path / "x").mkdir()
        context.load_cert_chain(*Authority(tmp_path / "x", "x").issue("client"))
    context.maximum_version = version
    refused = (required == "required" and shown != "theirs") or (
        required == "optional" and shown == "another"
    )
    if not refused:
        with Wire(server.port, context) as wire:
            log_in(wire)
        return
    # A client of TLS 1.3 learns of it with the first answer.
    with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):  # noqa: SIM117
        with Wire(server.port, context) as wire:
            wire.packet()


def test_a_get_ends_with_its_client(serve, authority, instance):
    """A get that waits is given up when its client closes."""
    server = serve(tls=authority.server())
    wire = log_in(Wire(server.port, authority.client_context()))
    request = Get(*WHO, 10, 0, 2, auto_ack=False)
    wire.send(frame(encode_packet(PacketType.GET, request)))
    eventually(lambda: instance.store.waiting)
    wire.close()
    eventually(lambda: not server.connections())


def test_the_end_of_a_connection(serve, authority):
    """Who is disconnected gets the word of TLS for it, so that nobody else can say it.

    Without that word there is an SSLEOFError.
    """
    server = serve(tls=authority.server(), handshake_timeout_s=0.5)
    context = authority.client_context()
    raw = socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)
    with context.wrap_socket(
        raw, server_hostname="127.0.0.1", suppress_ragged_eofs=False
    ) as sock:
        while sock.recv(100):
            pass


def test_no_tls(serve, authority, caplog):
    """What begins like TLS and is not is refused, with the reason."""
    server = serve(tls=authority.server())
    with Wire(server.port) as wire:
        wire.send(b"\x16" + bytes(100))
        while wire.sock.recv(100):  # the alert
            pass
    has_logged(caplog, "TLS handshake failed: wrong version number")


@pytest.mark.parametrize("sent", [b"\x16", b"\x16\x03\x01\x02\x00\x01"])
def test_half_open(serve, authority, sent):
    """A client that does not finish the handshake is disconnected in time."""
    server = serve(tls=authority.server(), handshake_timeout_s=0.5)
    with Wire(server.port) as wire:
        wire.send(sent)
        assert wire.sock.recv(1) == b""


class Meddler:
    """A proxy for one connection, which changes a byte of what the client sends."""

    def __init__(self, port: int, at: int) -> None:
        self._at = at
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._server = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._client: socket.socket | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self._client, _ = self._listener.accept()
        threading.Thread(target=self._back, daemon=True).start()
        passed = 0
        with suppress(OSError):  # either side has disconnected
            while data := bytearray(self._client.recv(65536)):
                if passed <= self._at < passed + len(data):
                    data[self._at - passed] ^= 0x40
                passed += len(data)
                self._server.sendall(data)

    def _back(self) -> None:
        assert self._client is not None
        with suppress(OSError), self._client:
            while data := self._server.recv(65536):
                self._client.sendall(data)

    def close(self) -> None:
        """Close all."""
        for each in (self._listener, self._server, self._client):
            if each is not None:
                each.close()


def test_changed_bytes(serve, authority, instance, rng):
    """Whichever byte of a client is changed, what follows is not accepted."""
    server = serve(tls=authority.server())
    for turn in range(20):
        ids = range(3 * turn, 3 * turn + 3)
        with (
            closing(Meddler(server.port, rng.randrange(800))) as meddler,
            pytest.raises((OSError, EOFError, AssertionError)),
        ):
            _subscribe(meddler.port, authority, ids)
        known = {each.client_id for each in instance.meta.subscriptions(DESTINATION)}
        assert not known >= set(ids)


def _subscribe(port: int, authority: Authority, ids: range) -> None:
    """Subscribe clients over one connection, with requests of some hundred bytes."""
    with Wire(port, authority.client_context()) as wire:
        assert wire.packet().type == PacketType.HANDSHAKE
        wire.send(LOGIN)
        assert wire.receive() == ACK_FRAME
        for number in ids:
            sub = Sub(DESTINATION, str(number), "x" * 300)
            wire.send(frame(encode_packet(PacketType.SUBSCRIPTION, sub)))
            assert wire.receive() == ACK_FRAME
