"""An attacker between client and server, and one that floods the port with handshakes.

Whatever the attacker does to the bytes, the client gets either what the server sent, or
an error; and the server carries out only what the client asked for.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import warnings
from typing import TYPE_CHECKING

import pytest
from client_entries import transaction
from fix_random import longer
from fix_server import DESTINATION, PATIENCE_S, Wire
from fix_store import eventually

from canal_server.client import CanalClient
from canal_server.errors import CanalError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from canal_server.protocol.entry_messages import Entry

ENTRIES = [*transaction(1, 20), *transaction(30, 20)]


class Between:
    """Passes bytes between one client and the server, through `change`.

    `change` gets the direction (0: to the server), how many bytes were passed in it
    before, and a piece; it returns what is passed on, or None to cut the connection.
    """

    def __init__(
        self, port: int, change: Callable[[int, int, bytes], bytes | None]
    ) -> None:
        self._server_port = port
        self._change = change
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.recorded: tuple[bytearray, bytearray] = bytearray(), bytearray()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._sockets += client, server
                for direction, (source, target) in enumerate(
                    ((client, server), (server, client))
                ):
                    threading.Thread(
                        target=self._pass, args=(direction, source, target), daemon=True
                    ).start()

    def _pass(
        self, direction: int, source: socket.socket, target: socket.socket
    ) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self.recorded[direction].extend(data)
                changed = self._change(direction, passed, data)
                passed += len(data)
                if changed is None:
                    break
                target.sendall(changed)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all connections."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # a thread may wait in `recv`
            each.close()


@contextlib.contextmanager
def between(port: int, change: Callable[[int, int, bytes], bytes | None]):
    """Give a proxy."""
    proxy = Between(port, change)
    try:
        yield proxy
    finally:
        proxy.close()


def read_all(port: int, authority) -> tuple[Entry, ...]:
    """Return what a client gets of all entries. Raises OSError, CanalError."""
    with CanalClient(
        "127.0.0.1", port, DESTINATION, 5, reconnect_for_s=0, timeout_s=2.0,
        tls=True, tls_ca_file=authority.ca_file,
    ) as client:  # fmt: skip
        client.subscribe()
        client.rollback()
        return client.get(10_000).entries


def untouched(direction: int, passed: int, data: bytes) -> bytes:
    """Change nothing."""
    return data


@pytest.fixture
def server(serve, authority, instance):
    """Give a server with TLS and entries."""
    instance.store.append(*ENTRIES)
    return serve(tls=authority.server(), handshake_timeout_s=5)


def test_changed_bytes(server, authority, rng: random.Random):
    """A bit that is changed on the way ends the connection, and is not accepted."""
    with between(server.port, untouched) as proxy:
        expected = read_all(proxy.port, authority)
        sizes = [len(each) for each in proxy.recorded]
    assert all(size > 500 for size in sizes)
    refused = 0
    for _ in range(longer(40)):
        which, at = rng.randrange(2), 0
        at = rng.randrange(sizes[which])
        bit = 1 << rng.randrange(8)

        def flip(direction, passed, data, where=(which, at), bit=bit):
            at = where[1] - passed
            if direction == where[0] and 0 <= at < len(data):
                changed = bytearray(data)
                changed[at] ^= bit
                return bytes(changed)
            return data

        with between(server.port, flip) as proxy:
            try:
                found = read_all(proxy.port, authority)
            except (OSError, CanalError):
                refused += 1
            else:
                # The last bytes may be those of a goodbye, after all was read.
                assert found == expected
    assert refused > longer(40) // 2
    assert read_all(server.port, authority) == expected


def test_cut_connections(server, authority, rng: random.Random):
    """A connection that is cut anywhere is an error of the client, and never hangs."""
    with between(server.port, untouched) as proxy:
        expected = read_all(proxy.port, authority)
        sizes = [len(each) for each in proxy.recorded]
    for _ in range(longer(30)):
        which = rng.randrange(2)
        at = rng.randrange(sizes[which])

        def cut(direction, passed, data, which=which, at=at):
            if direction == which and passed + len(data) > at:
                return None
            return data

        with between(server.port, cut) as proxy:
            try:
                assert read_all(proxy.port, authority) == expected
            except (OSError, CanalError):
                continue
    assert read_all(server.port, authority) == expected


def test_replayed_bytes(server, authority, instance):
    """What a client has sent is worth nothing on another connection."""
    with between(server.port, untouched) as proxy:
        read_all(proxy.port, authority)
        sent = bytes(proxy.recorded[0])
    eventually(lambda: not server.connections())
    before = list(instance.visits)
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as sock:
        sock.sendall(sent)
        answer = b""
        with contextlib.suppress(OSError):
            while data := sock.recv(65_536):
                answer += data
    assert b"binlog.000001" not in answer
    assert instance.visits == before
    eventually(lambda: not server.connections())


def test_downgrades(server, authority):
    """A client that wants TLS takes no clear text, and no older version."""

    def clear(direction, passed, data):
        # Instead of the server's answer, the greeting of clear text.
        return b"\0\0\0\x20" + b"\0" * 32 if direction else data

    def old(direction, passed, data):
        # The client's offer of versions becomes TLS 1.0.
        if direction == 0 and passed == 0:
            return data.replace(b"\x03\x04", b"\x03\x01").replace(
                b"\x03\x03", b"\x03\x01"
            )
        return data

    for change in (clear, old):
        with (
            between(server.port, change) as proxy,
            pytest.raises((OSError, CanalError)),
        ):
            read_all(proxy.port, authority)

    # One that offers nothing newer is refused by the server.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.ca_file)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with contextlib.suppress(ssl.SSLError):
        context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((OSError, ssl.SSLError)):
        Wire(server.port, context)


def test_a_flood_of_handshakes(server, authority):
    """Thousands of handshakes that never end displace each other, not a client."""
    hello = ssl.MemoryBIO()
    offer = authority.client_context().wrap_bio(
        ssl.MemoryBIO(), hello, server_hostname="127.0.0.1"
    )
    with contextlib.suppress(ssl.SSLWantReadError):
        offer.do_handshake()
    first = hello.read()
    is_over = threading.Event()
    count, opened = longer(2000), 0

    def flood() -> None:
        nonlocal opened
        held: list[socket.socket] = []
        while opened < count and not is_over.is_set():
            with contextlib.suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", server.port), 5))
                held[-1].sendall(first[: 1 + opened % len(first)])
            opened += 1
            if len(held) > 200:
                held.pop(0).close()
        for each in held:
            each.close()

    attacker = threading.Thread(target=flood)
    attacker.start()
    try:
        expected = read_all(server.port, authority)
        rounds = 0
        while attacker.is_alive():
            assert read_all(server.port, authority) == expected
            rounds += 1
        assert opened == count
        assert rounds
    finally:
        is_over.set()
        attacker.join()
    eventually(lambda: not server.connections())


def test_garbage_after_the_handshake(server, authority, rng: random.Random):
    """Random bytes in a session of TLS end it with an error, and nothing else."""
    context = authority.client_context()
    for _ in range(longer(50)):
        with Wire(server.port, context) as wire, contextlib.suppress(OSError, EOFError):
            wire.packet()
            wire.send(rng.randbytes(rng.choice([1, 4, 100, 70_000])))
            wire.sock.shutdown(socket.SHUT_RDWR)
    eventually(lambda: not server.connections())
    assert read_all(server.port, authority)
