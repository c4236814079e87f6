"""The client against our server."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading

import pytest
from fix_server import DESTINATION, PATIENCE_S, make_entry

from canal_server.client import CanalClient, ClientError, Message, ProtocolError
from canal_server.protocol.auth import stored_form
from canal_server.protocol.entry_messages import EntryType
from canal_server.protocol.framing import frame
from canal_server.protocol.packets import Handshake, PacketType, encode_packet
from canal_server.runtime.lifecycle import Deadline


@pytest.fixture
def client(serve):
    """Give a client that is connected to a fresh server."""
    with CanalClient("127.0.0.1", serve().port, DESTINATION) as client:
        yield client


def numbers(message: Message) -> list[int]:
    """Return the numbers of `make_entry`."""
    return [entry.header.logfile_offset for entry in message.entries]


def test_get_and_ack(client, instance):
    """Entries come typed, in order, and an ack moves the server's cursor."""
    client.subscribe()
    instance.store.append(make_entry(5), make_entry(6, EntryType.TRANSACTIONEND))
    message = client.get()
    assert message
    assert (message.id, numbers(message)) == (1, [5, 6])
    assert message.entries[0].header.logfile_name == "binlog.000001"
    assert message.entries[1].entry_type is EntryType.TRANSACTIONEND
    client.ack(message.id)
    empty = client.get()  # answered after the ack was carried out
    assert not empty
    assert empty == Message.of_entries(-1, ())
    (identity,) = instance.meta.subscriptions(DESTINATION)
    assert instance.meta.cursor(identity).position.position == 6


def test_ack_all(client, instance):
    """`ack` without an id acks all that `get` returned, and nothing twice."""
    instance.store.append(*map(make_entry, (5, 6, 7)))
    client.subscribe()
    client.ack()
    assert [numbers(client.get(1)) for _ in range(2)] == [[5], [6]]
    client.ack()
    client.ack()
    assert numbers(client.get(1)) == [7]  # answered after the acks were carried out
    assert instance.store.cursors[1001].acked == 2


def test_last_ack(serve, instance, monkeypatch):
    """An ack is carried out when `close` returns, however slow the server is."""
    port = serve().port
    instance.store.append(make_entry(5), make_entry(6, EntryType.TRANSACTIONEND))
    update = instance.meta.update_cursor

    def late_update(*args):
        threading.Event().wait(0.5)  # longer than a close without waiting
        update(*args)

    with CanalClient("127.0.0.1", port, DESTINATION) as client:
        client.subscribe()
        message = client.get(timeout_s=PATIENCE_S)
        monkeypatch.setattr(instance.meta, "update_cursor", late_update)
        client.ack(message.id)
    (identity,) = instance.meta.subscriptions(DESTINATION)
    assert instance.meta.cursor(identity).position.position == 6


def test_filter(client, instance):
    """The filter reaches the server; one that it refuses is an error with a code."""
    client.subscribe("shop\\..*")
    assert instance.meta.subscriptions(DESTINATION)[0].filter == "shop\\..*"
    with pytest.raises(ClientError, match="filter") as caught:
        client.subscribe("(")
    assert caught.value.code == 400


@pytest.mark.parametrize("timeout_s", [None, PATIENCE_S])
def test_waiting_get(client, instance, timeout_s):
    """A get with a timeout is answered as soon as there is something."""
    client.subscribe()

    def append() -> None:
        instance.store.wait_for_getters(1)
        instance.store.append(make_entry(5))

    thread = threading.Thread(target=append)
    thread.start()
    assert numbers(client.get(timeout_s=timeout_s)) == [5]
    thread.join()


def test_get_that_ends_empty(client):
    """A get returns an empty message at its timeout, however short."""
    client.subscribe()
    for timeout_s in (0.0001, 0.01):
        assert not client.get(timeout_s=timeout_s)


def test_unacked_messages_come_again(client, instance):
    """What a connection left unacked comes again after the next subscription."""
    instance.store.append(*map(make_entry, (5, 6, 7)))
    client.subscribe()
    client.ack(client.get(batch_size=1).id)
    client.get(batch_size=1)
    client.connect()
    client.subscribe()
    assert numbers(client.get()) == [6, 7]


def test_rollback(client, instance):
    """After a rollback messages come again."""
    instance.store.append(make_entry(5))
    client.subscribe()
    first = client.get()
    client.rollback()
    second = client.get()
    client.rollback(second.id)
    assert numbers(first) == numbers(second) == numbers(client.get()) == [5]


def test_messages(client, instance):
    """The iterator acks a message when the next one is asked for, not before."""
    client.subscribe()
    instance.store.append(*map(make_entry, (5, 6, 7)))
    seen = [
        numbers(message)
        for message in itertools.islice(client.messages(batch_size=1), 2)
    ]
    assert seen == [[5], [6]]
    client.get()  # answered after the acks
    assert instance.store.cursors[1001].acked == 1


def test_unsubscribe(client, instance):
    """After the end of a subscription the server refuses gets; the link lives on."""
    client.subscribe()
    client.unsubscribe()
    assert instance.store.cursors == {}
    with pytest.raises(ClientError, match="should subscribe first"):
        client.get()
    client.subscribe()
    assert not client.get()


def test_refused_ack(client, instance):
    """A refused ack is reported with the next request, and the connection is closed."""
    client.subscribe()
    client.get()
    client.ack(77)
    with pytest.raises(ClientError, match="batchId:77"):
        client.get()
    with pytest.raises(ConnectionError, match="call connect"):
        client.get()
    client.connect()
    client.subscribe()
    assert not client.get()


def test_password(serve):
    """The right password opens the connection, a wrong one is refused."""
    port = serve(user="canal", passwd=stored_form("secret")).port

    def connect(password: str) -> None:
        with CanalClient("127.0.0.1", port, user="canal", password=password) as client:
            client.subscribe()

    connect("secret")
    for wrong in ("", "Secret"):
        with pytest.raises(ClientError, match="auth failed") as caught:
            connect(wrong)
        assert caught.value.code == 400


def test_too_many_clients(serve):
    """A server that is full says so."""
    port = serve(connections_max=1).port
    with (
        CanalClient("127.0.0.1", port),
        pytest.raises(ClientError, match="1 clients are connected, the limit"),
    ):
        CanalClient("127.0.0.1", port).connect()


def test_server_that_stops(serve, instance):
    """When the server stops, a waiting get ends with an error or without entries."""
    server = serve()
    with CanalClient("127.0.0.1", server.port, reconnect_for_s=0) as client:
        client.subscribe()

        def stop() -> None:
            instance.store.wait_for_getters(1)
            server.request_stop()

        thread = threading.Thread(target=stop)
        thread.start()
        # The first get may still be answered; how the link breaks is the kernel's.
        with pytest.raises(OSError):  # noqa: PT011
            next(client.messages(timeout_s=PATIENCE_S))
        thread.join()
        assert server.join(Deadline(PATIENCE_S))


def test_nobody_listens():
    """No server is a ConnectionError."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionError):
        CanalClient("127.0.0.1", port).connect()


@pytest.mark.parametrize(
    ("greeting", "problem"),
    [
        (b"J\0\0\0\n9.7.0\0", "a frame of"),  # MySQL's own port
        (bytes(4), "expected a handshake"),
        (frame(b"\x10\x02\x18\x01"), "of version 2"),
    ],
)
def test_not_a_canal_server(greeting, problem):
    """A server of another kind is named as such at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            with listener.accept()[0] as sock:
                sock.sendall(greeting)
                with contextlib.suppress(ConnectionError):
                    sock.recv(1)  # the client leaves

        thread = threading.Thread(target=greet)
        thread.start()
        client = CanalClient("127.0.0.1", listener.getsockname()[1], timeout_s=5)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ProtocolError, match=f"{address}: .*{problem}"):
            client.connect()
        thread.join()


def test_wrong_answer():
    """An answer of another type is an error, and closes the connection."""
    seed = frame(encode_packet(PacketType.HANDSHAKE, Handshake(seeds=bytes(8))))
    ok = bytes.fromhex("0000000410011803")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as sock:
                sock.sendall(seed + ok + ok)
                while sock.recv(1000):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        client = CanalClient("127.0.0.1", listener.getsockname()[1])
        client.connect()
        with pytest.raises(ProtocolError, match="expected MESSAGES"):
            client.get()
        with pytest.raises(ConnectionError, match="not connected"):
            client.get()
        thread.join()


def test_values_of_an_unknown_kind():
    """A misspelt kind of values is refused with the kinds that exist."""
    with pytest.raises(
        ValueError, match=r"""values = 'txt': expected "typed" or "text"$"""
    ):
        CanalClient(values="txt")  # type: ignore[arg-type]
