"""Listening, the limit of connections, stopping."""

from __future__ import annotations

import logging
import socket
import threading

import pytest
from fix_server import DESTINATION, PATIENCE_S, Wire, make_entry
from fix_store import eventually

from canal_server.config.schema import ServerConfig
from canal_server.errors import ClientError, ConfigError, UnknownSubscription
from canal_server.protocol.framing import frame
from canal_server.protocol.packets import (
    Ack,
    ClientAuth,
    Get,
    PacketType,
    Sub,
    encode_packet,
)
from canal_server.protocol.protobuf import decode
from canal_server.protocol.server_session import ACK_FRAME
from canal_server.runtime import refusal_log
from canal_server.runtime.lifecycle import Deadline
from canal_server.server.listener import Server

WHO = (DESTINATION, "1001")


def logged_in(port: int) -> Wire:
    """Return a connection that has logged in and subscribed."""
    wire = Wire(port)
    wire.receive()
    for kind, content in (
        (PacketType.CLIENTAUTHENTICATION, ClientAuth()),
        (PacketType.SUBSCRIPTION, Sub(*WHO)),
    ):
        wire.send(frame(encode_packet(kind, content)))
        assert wire.receive() == ACK_FRAME
    return wire


def stop(server: Server) -> bool:
    """Stop the server; return whether it ended."""
    server.request_stop()
    return server.join(Deadline(PATIENCE_S))


def test_what_the_process_uses_itself_stays(instances):
    """An operator cannot remove it: what it had not delivered would be lost."""
    reserved = {1001: "the delivery to kafka"}
    config = ServerConfig(ip="127.0.0.1", port=0)
    server = Server(config, instances, reserved=reserved)
    text = f"client 1001 of {DESTINATION} is the delivery to kafka, which would lose"
    with pytest.raises(ClientError, match=text):
        server.unsubscribe(DESTINATION, 1001)
    with pytest.raises(UnknownSubscription):
        server.unsubscribe(DESTINATION, 1002)


def test_port_is_known(serve):
    """A server on port 0 reports the port it got, and greets there."""
    server = serve()
    assert server.port > 0
    with Wire(server.port) as wire:
        assert wire.packet().type == PacketType.HANDSHAKE


def test_port_in_use(serve, instances):
    """A port in use is an error that names address and keys."""
    port = serve().port
    second = Server(ServerConfig(ip="127.0.0.1", port=port), instances)
    with pytest.raises(ConfigError) as refused:
        second.start()
    assert str(refused.value) == (
        f"canal.ip, canal.port: cannot listen on 127.0.0.1:{port}: "
        "Address already in use; is another server running there?"
    )


def test_an_address_of_another_machine(instances):
    """The error of a foreign address differs from that of a port in use."""
    server = Server(ServerConfig(ip="192.0.2.1", port=0), instances)
    with pytest.raises(ConfigError, match="must be an address of this machine"):
        server.start()


def test_all_addresses(instances):
    """Without an address the server listens on all, also for IPv4 clients."""
    server = Server(ServerConfig(ip="", port=0), instances)
    server.start()
    with Wire(server.port) as wire:
        assert wire.packet().type == PacketType.HANDSHAKE
        assert [peer.rpartition(":")[0] for peer in server.connections()] == [
            "127.0.0.1"
        ]
    assert stop(server)


def test_one_client_too_many(serve, caplog):
    """A client beyond the limit gets an error and is closed; later ones are served."""
    server = serve(connections_max=2)
    wires = [logged_in(server.port) for _ in range(2)]
    for _ in range(3):
        with Wire(server.port) as wire:
            refusal = decode(Ack, wire.packet().body)
            assert refusal.error_code == 400
            assert refusal.error_message == "2 clients are connected, the limit"
            assert wire.receive() == b""
    assert caplog.text.count("the limit") == 1  # one line for a crowd

    wires.pop().close()
    while True:  # until the server noticed that one disconnected
        with Wire(server.port) as wire:
            if wire.packet().type == PacketType.HANDSHAKE:
                break
    wires.pop().close()


def test_sums_of_refusals_wait_for_no_other(serve, caplog, monkeypatch):
    """The count of what was refused is logged although nobody else connects."""
    monkeypatch.setattr(refusal_log, "PERIOD_S", 2.0)
    server = serve(connections_max=1)
    with logged_in(server.port):
        for _ in range(3):
            with Wire(server.port) as wire:
                assert decode(Ack, wire.packet().body).error_code == 400
        eventually(lambda: "more refusals for 127.0.0.1" in caplog.text)


@pytest.mark.parametrize("limits", [{"connections_max": 3}, {"pending_max": 2}])
def test_strangers_take_no_connection_of_clients(serve, limits, caplog):
    """However many connect and stay silent, a client that logs in can connect."""
    server = serve(**limits)
    client = logged_in(server.port)
    silent = []
    for _ in range(20):
        silent.append(Wire(server.port))
        assert silent[-1].packet().type == PacketType.HANDSHAKE
    other = logged_in(server.port)
    assert silent[0].receive() == b""  # the oldest was displaced
    for wire in (client, other):
        wire.send(frame(encode_packet(PacketType.GET, Get(*WHO, 100, -1, 2))))
        assert wire.packet().type == PacketType.MESSAGES
    for wire in (*silent, client, other):
        wire.close()
    assert caplog.text.count("the limit of connections is reached") == 1


def test_one_address_has_a_limit(serve):
    """Connections from one address have their own limit."""
    server = serve(per_address_max=2)
    wires = [logged_in(server.port) for _ in range(2)]
    with Wire(server.port) as wire:
        refusal = decode(Ack, wire.packet().body)
        expected = "2 clients are connected from one address, the limit"
        assert refusal.error_message == expected
    for wire in wires:
        wire.close()


def test_stop_ends_everything(serve, instance):
    """A stop ends idle, waiting and half-open connections and all threads."""
    server = serve()
    idle, waiting, half_open = (
        logged_in(server.port), logged_in(server.port), Wire(server.port),
    )  # fmt: skip
    half_open.receive()
    get = encode_packet(PacketType.GET, Get(*WHO, 100, 0, 2))
    waiting.send(frame(get))
    instance.store.wait_for_getters(1)
    assert stop(server)
    for wire in (idle, waiting, half_open):
        assert wire.receive() in (b"", wire_empty())
        wire.close()
    assert server.connections() == []
    names = {thread.name for thread in threading.enumerate()}
    assert not any(name.startswith(("client-", "canal-accept")) for name in names)
    with pytest.raises(ConnectionError):
        Wire(server.port)


def wire_empty() -> bytes:
    """Return the answers of a get that was woken by the stop."""
    return bytes.fromhex("000000111001180 72a0b08ffffffffffffffffff01".replace(" ", ""))


def test_stop_while_a_client_does_not_read(serve, instance):
    """A stop does not wait for a client that reads its reply too slowly."""
    server = serve()
    body = bytes(1 << 16)
    instance.store.append(
        *(make_entry(n) + b"\x1a\x80\x80\x04" + body for n in range(1, 1000))
    )
    with logged_in(server.port) as wire:
        get = encode_packet(PacketType.GET, Get(*WHO, 1000, -1, 2))
        wire.send(frame(get))
        wire.sock.recv(1)  # the reply is being sent
        assert stop(server)


def test_stop_is_idempotent(serve):
    """A stop may be requested more than once, even before the start."""
    server = serve()
    server.request_stop()
    server.request_stop()
    assert server.join(Deadline(PATIENCE_S))
    assert server.join(Deadline(0))


def test_join_without_start(instances):
    """A server that never started has nothing to wait for."""
    assert Server(ServerConfig(port=0), instances).join(Deadline(0))


def test_client_that_breaks_off(serve, caplog):
    """A client that resets its connection leaves no trace above DEBUG."""
    server = serve()
    with caplog.at_level(logging.INFO):
        with Wire(server.port) as wire:
            wire.receive()
            linger = (1).to_bytes(4, "little") + bytes(4)
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        with Wire(server.port) as wire:
            assert wire.receive()
        assert stop(server)
    assert not [r for r in caplog.records if r.levelno > logging.INFO]
