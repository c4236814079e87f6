"""Clients that use TLS, against the server's port for clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from contextlib import closing

import pytest
from fix_server import DESTINATION, Wire, make_entry, offsets
from fix_store import eventually, in_thread

from canal_server.client import AsyncCanalClient, CanalClient
from canal_server.client.range_client import RangedClient
from canal_server.config.schema import ClientCertificates
from canal_server.errors import ClientError
from canal_server.protocol.protobuf import varint
from canal_server.server import client_connection
from canal_server.tls.client_context import own_server_context

LARGE = 40  # entries of 300 kB


@pytest.fixture
def server(serve, authority, monkeypatch):
    """Give a server that accepts TLS alone."""
    monkeypatch.setattr(client_connection, "REQUIRED_WAIT_S", 0.5)
    return serve(tls=authority.server(required=True))


@pytest.fixture
def large(instance):
    """Give entries that are many records of TLS, in the store."""
    filler = b"\x22" + varint(300_000) + bytes(300_000)
    entries = [make_entry(n) + filler for n in range(LARGE)]

    def put():
        instance.store.append(*entries)
        return entries

    return put


def options(server, authority, **more):
    """Return the options of a client."""
    return {
        "host": "127.0.0.1",
        "port": server.port,
        "tls": True,
        "tls_ca_file": authority.ca_file,
        **more,
    }


def numbers(message) -> list[int]:
    """Return the numbers of the entries of a message."""
    return [each.header.logfile_offset for each in message.entries]


def test_a_client_that_blocks(server, authority, large, instance):
    """It receives large messages, its acks arrive, and it can be stopped in a wait."""
    client = CanalClient(**options(server, authority), destination=DESTINATION)
    with client:
        client.connect()
        client.subscribe()
        large()
        received: list[int] = []
        while len(received) < LARGE:
            message = client.get(1_000_000, timeout_s=1.0)
            received += numbers(message)
            client.ack(message.id)
    assert received == list(range(LARGE))
    assert instance.store.cursors[1001].acked == LARGE
    with CanalClient(**options(server, authority), destination=DESTINATION) as client:
        waiting = in_thread(list, client.messages())
        eventually(lambda: instance.store.waiting)
        client.stop()
        assert waiting.result(60) == []


def test_a_client_of_asyncio(server, authority, large, instance):
    """The same; its last ack is executed before it has disconnected."""

    async def run():
        client = AsyncCanalClient(
            **options(server, authority), destination=DESTINATION, batch_size=1_000_000
        )
        async with client:
            await client.connect()
            await client.subscribe()
            large()
            received: list[int] = []
            while len(received) < LARGE:
                message = await client.get(1_000_000, timeout_s=1.0)
                received += numbers(message)
                await client.ack(message.id)
        return received

    assert asyncio.run(run()) == list(range(LARGE))
    assert instance.store.cursors[1001].acked == LARGE


def test_ranged_reads(server, authority):
    """The connection is made, and a request answered."""
    with (
        RangedClient(**options(server, authority)) as client,
        pytest.raises(ClientError, match="can't find destination:nowhere"),
    ):
        client.subscribe("nowhere", "lake")


def connect(client) -> None:
    """Connect a client of any kind."""
    if isinstance(client, AsyncCanalClient):
        asyncio.run(client.connect())
    else:
        with closing(client):
            client.connect()


@pytest.mark.parametrize("kind", [CanalClient, AsyncCanalClient, RangedClient])
@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("untrusted", "its TLS certificate is not trusted: unable to get local issuer"),
        ("other name", "its TLS certificate is not trusted: IP address mismatch"),
        ("clear text", "connect with TLS"),
        ("no tls", "answers in clear text: it has no TLS"),
    ],
)
def test_failures(serve, server, authority, kind, case, text):  # noqa: PLR0917
    """Each is an error with the server and the reason."""
    required = options(server, authority)
    if case == "untrusted":
        required["tls_ca_file"] = ""
    elif case == "other name":
        cert, key = authority.issue("elsewhere", host="192.0.2.1")
        config = authority.server()
        cert.replace(config.cert_file)
        key.replace(config.key_file)
        required["port"] = serve(tls=config).port
    elif case == "clear text":
        required = {"host": "127.0.0.1", "port": server.port}
    else:
        required["port"] = serve().port
    with pytest.raises((ConnectionError, ClientError), match=text) as failed:
        connect(kind(**required))
    if case != "clear text":
        assert f"127.0.0.1:{required['port']}" in str(failed.value)


def test_certificates_of_clients(serve, authority):
    """A client shows its certificate where it has one."""
    config = authority.server(
        client_ca_file=authority.ca_file,
        client_certificates=ClientCertificates.REQUIRED,
    )
    cert, key = authority.issue("client")
    required = options(serve(tls=config), authority, destination=DESTINATION)
    connect(CanalClient(**required, tls_cert_file=cert, tls_key_file=key))
    with pytest.raises(ConnectionError):
        connect(CanalClient(**required))


@pytest.mark.parametrize(
    ("required", "text"),
    [
        ({"tls_ca_file": "x"}, "tls_ca_file = x: expected tls = true, too"),
        ({"tls": True, "tls_ca_file": "x"}, "tls_ca_file = x: No such file"),
        ({"tls": True, "tls_ca_file": __file__}, "tls_ca_file = .*: not what is exp"),
        ({"tls": True, "tls_cert_file": "x"}, "tls_cert_file = x: No such file"),
        ({"tls": True, "tls_key_file": "x"}, "tls_key_file = x: needs tls_cert_file"),
    ],
)
@pytest.mark.parametrize("kind", [CanalClient, AsyncCanalClient, RangedClient])
def test_wrong_options(kind, required, text):
    """Each is named, before anything is connected."""
    with pytest.raises(ValueError, match=text):
        kind(**required)


def test_the_server_of_this_host(server, authority, tmp_path):
    """Its certificate is trusted under any name; that of another server is not."""
    cert = tmp_path / "server.pem"
    with Wire(server.port, own_server_context(cert)) as wire:
        assert wire.packet()
    other, _ = authority.issue("other")
    with pytest.raises(ssl.SSLCertVerificationError):
        Wire(server.port, own_server_context(other))


def test_a_server_that_ends_within_a_frame(authority):
    """The end of the connection is an error, and not an answer."""
    config = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(config.cert_file, config.key_file)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            with context.wrap_socket(listener.accept()[0], server_side=True) as sock:
                sock.sendall(b"\0\0\1\0half")

        threading.Thread(target=answer, daemon=True).start()
        client = CanalClient(
            "127.0.0.1",
            listener.getsockname()[1],
            tls=True,
            tls_ca_file=authority.ca_file,
        )
        with pytest.raises(ConnectionError, match="closed the connection"):
            client.connect()


def test_entries_are_equal(server, authority, large):
    """What arrives is what was stored, byte for byte."""
    with CanalClient(**options(server, authority), destination=DESTINATION) as client:
        client.connect()
        client.subscribe()
        put = large()
        message = client.get(1_000_000, timeout_s=1.0)
        assert numbers(message) == offsets(tuple(put))[: len(message.entries)]
