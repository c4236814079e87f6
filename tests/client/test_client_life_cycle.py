"""A client that iterates: servers that end, refuse or are silent, and `stop`; sync.

The same conversations serve the client of asyncio; see test_async_client.
"""

# mypy: disable-error-code="func-returns-value"
# Lambdas of several calls return a tuple that nobody reads.

from __future__ import annotations

import itertools
import signal
import socket
import threading

import pytest
from client_entries import row
from fix_server import DESTINATION, PATIENCE_S, FakeInstances
from loop_changes import acked_by, ids, take

from canal_server.client import CanalClient, ClientError
from canal_server.protocol.auth import stored_form
from canal_server.runtime.lifecycle import Deadline


class TestReconnect:
    """Connections that end, and servers that refuse."""

    def test_next_address(self, serve, store):
        """When a server ends, the next one continues after the last ack."""
        first, second = serve(), serve()
        store.append(*map(row, (1, 2, 3)))
        events: list[object] = []
        client = CanalClient(
            f"127.0.0.1:{first.port},127.0.0.1:{second.port}",
            destination=DESTINATION,
            batch_size=1,
            on_connect=events.append,
            on_disconnect=lambda _: events.append("lost"),
            on_redelivery=lambda: events.append("again"),
        )
        changes = iter(client)
        assert ids(itertools.islice(changes, 2)) == [1, 2]
        first.request_stop()
        assert first.join(Deadline(PATIENCE_S))
        assert ids(itertools.islice(changes, 2)) == [2, 3]
        client.close()
        assert events[0] == f"127.0.0.1:{first.port}"
        assert events[1] == "lost"
        assert events[2:] == [f"127.0.0.1:{second.port}", "again"]

    def test_acks_that_a_server_may_not_have_stored(self, serve, store):
        """All was acked, but a server that was killed may deliver it again."""
        first, second = serve(), serve()
        store.append(row(1))
        events: list[str] = []
        client = CanalClient(
            f"127.0.0.1:{first.port},127.0.0.1:{second.port}",
            destination=DESTINATION,
            on_redelivery=lambda: events.append("again"),
        )
        messages = client.messages(timeout_s=0.01, empty=True)
        assert next(messages)
        assert not next(messages)  # its request succeeded after the ack
        assert not events
        first.request_stop()
        assert first.join(Deadline(PATIENCE_S))
        store.append(row(2))
        assert any(messages)
        assert events == ["again"]
        client.close()

    def test_first_address_refuses(self, serve, store):
        """Of several addresses the first that accepts is used, also by `connect`."""
        port = serve().port
        store.append(row(1))
        with CanalClient(
            f"127.0.0.1:1,127.0.0.1:{port}", destination=DESTINATION
        ) as client:
            assert take(client, 1) == [1]

    @pytest.mark.parametrize(
        ("first", "why"),
        [
            (FakeInstances(broken={DESTINATION}), "should start first"),
            (FakeInstances(), "can't find destination"),
        ],
        ids=["stands by", "knows nothing"],
    )
    def test_first_address_does_not_run_it(self, serve, store, first, why):
        """A server that lets a client log in only does not hide the next one."""
        idle, running = serve(among=first), serve()
        store.append(row(1))
        lost: list[Exception] = []
        client = CanalClient(
            f"127.0.0.1:{idle.port},127.0.0.1:{running.port}",
            destination=DESTINATION,
            reconnect_for_s=0,
            on_disconnect=lost.append,
        )
        assert take(client, 1) == [1]
        client.close()
        assert [why in str(error) for error in lost] == [True]

    def test_connected_to_one_that_stands_by(self, serve, store):
        """`connect` takes the first that lets it in; the loop goes on to the next."""
        idle, running = serve(among=FakeInstances(broken={DESTINATION})), serve()
        store.append(row(1))
        with CanalClient(
            f"127.0.0.1:{idle.port},127.0.0.1:{running.port}", destination=DESTINATION
        ) as client:
            assert take(client, 1) == [1]

    def test_one_may_accept_it_later(self, serve, instance, instances, store):
        """While one server stands by, that another one refuses is not the end."""
        instances.started.clear()
        instances.broken.add(DESTINATION)
        store.append(row(1))
        other = serve(among=FakeInstances())
        found, tried = [], threading.Event()
        client = CanalClient(
            f"127.0.0.1:{serve().port},127.0.0.1:{other.port}",
            destination=DESTINATION,
            on_disconnect=lambda _: tried.set(),
        )
        thread = threading.Thread(target=lambda: found.extend(take(client, 1)))
        thread.start()
        assert tried.wait(PATIENCE_S)
        instances.started[DESTINATION] = instance
        thread.join(PATIENCE_S)
        client.close()
        assert found == [1]

    def test_not_at_all(self, serve):
        """With `reconnect_for_s=0` the first failure is raised."""
        client = CanalClient("127.0.0.1", 1, DESTINATION, reconnect_for_s=0)
        with pytest.raises(ConnectionError):
            next(client.messages())

    def test_wrong_password(self, serve):
        """A refused login is raised at once, whatever the limit."""
        port = serve(user="canal", passwd=stored_form("secret")).port
        client = CanalClient("127.0.0.1", port, user="canal", password="wrong")
        with pytest.raises(ClientError, match="auth failed"):
            next(client.messages())

    def test_unknown_destination(self, serve):
        """A destination that was never served is raised at once."""
        client = CanalClient("127.0.0.1", serve().port, "exmaple")
        with pytest.raises(ClientError, match="can't find destination:exmaple"):
            next(client.messages())

    def test_destination_that_starts_later(self, serve, instance, instances, caplog):
        """A destination that is not running yet is waited for, and that is logged."""
        instances.started.clear()
        instances.broken.add(DESTINATION)
        instance.store.append(row(1))
        client = CanalClient("127.0.0.1", serve().port, DESTINATION)
        found = []
        thread = threading.Thread(target=lambda: found.extend(take(client, 1)))
        thread.start()
        deadline = Deadline(PATIENCE_S)
        while "should start first" not in caplog.text and not deadline.passed():
            threading.Event().wait(0.01)
        instances.broken.clear()
        instances.started[DESTINATION] = instance
        thread.join(PATIENCE_S)
        assert found == [1]
        assert "next attempt in" in caplog.text
        client.close()

    def test_refusals_in_a_row(self, serve, instance, store):
        """A refusal that stays is raised after some attempts; a lost client's, too."""
        store.append(row(1))
        client = CanalClient("127.0.0.1", serve().port, DESTINATION)
        changes = iter(client)
        assert next(changes).after == {"id": 1}
        instance.lost[1001] = "the binlog was purged"
        with pytest.raises(ClientError, match="the binlog was purged"):
            next(changes)
        client.close()

    def test_an_ack_from_before(self, serve, store):
        """An ack of a message from before a reconnect does not disturb."""
        first, second = serve(), serve()
        store.append(*map(row, (1, 2)))
        again = threading.Event()
        client = CanalClient(
            f"127.0.0.1:{first.port},127.0.0.1:{second.port}",
            destination=DESTINATION,
            batch_size=1,
            ack="manual",
            on_redelivery=again.set,
        )
        messages = client.messages()
        old = next(messages)
        first.request_stop()
        assert first.join(Deadline(PATIENCE_S))
        found = []
        while not again.is_set():  # the second one may have been on its way
            found = ids(next(messages).changes())
        client.ack(old.id)
        assert found == [1]
        assert ids(next(messages).changes()) == [2]
        client.close()
        assert acked_by(store) == 0


class TestStop:
    """`stop`, from where programs call it."""

    def test_from_a_thread_while_waiting(self, client, store):
        """A loop that waits for changes ends."""
        reader = client()
        store.append(row(1))
        stopper = threading.Thread(
            target=lambda: (store.wait_for_getters(1), reader.stop())
        )
        stopper.start()
        assert ids(reader) == [1]
        stopper.join()

    def test_in_a_signal_handler(self, client, store):
        """A signal handler that calls `stop` ends the loop."""
        reader = client()
        before = signal.signal(signal.SIGUSR1, lambda *_: reader.stop())
        try:
            main = threading.get_ident()
            sender = threading.Thread(
                target=lambda: (
                    store.wait_for_getters(1),
                    signal.pthread_kill(main, signal.SIGUSR1),
                )
            )
            sender.start()
            assert list(reader) == []
            sender.join()
        finally:
            signal.signal(signal.SIGUSR1, before)

    def test_before_the_next_attempt(self):
        """A client that waits to reconnect ends, too."""
        client = CanalClient("127.0.0.1", 1, DESTINATION, on_disconnect=lambda _: None)
        thread = threading.Thread(target=lambda: list(client))
        thread.start()
        client.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    @pytest.mark.parametrize("accepts", [False, True], ids=["connecting", "login"])
    def test_while_connecting(self, accepts):
        """A server that does not answer is not waited for."""
        with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
            held = [] if accepts else fill(silent)
            client = CanalClient("127.0.0.1", silent.getsockname()[1], DESTINATION)
            thread = threading.Thread(target=lambda: list(client))
            thread.start()
            if accepts:
                held.append(silent.accept()[0])
            client.stop()
            thread.join(PATIENCE_S / 2)
            assert not thread.is_alive()
            for each in held:
                each.close()

    def test_in_the_handshake_of_tls(self):
        """Nor is one that accepts a connection and says nothing of TLS."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            client = CanalClient(
                "127.0.0.1", silent.getsockname()[1], DESTINATION, tls=True
            )
            thread = threading.Thread(target=lambda: list(client))
            thread.start()
            peer, _ = silent.accept()
            assert peer.recv(1)  # the handshake began
            client.stop()
            thread.join(PATIENCE_S / 2)
            assert not thread.is_alive()
            peer.close()

    def test_before_connect(self):
        """A stopped client connects to nobody, and its loop is empty."""
        with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
            client = CanalClient("127.0.0.1", silent.getsockname()[1], DESTINATION)
            client.stop()
            with client:
                assert list(client) == []
            silent.setblocking(False)
            with pytest.raises(BlockingIOError):
                silent.accept()


def fill(server):
    """Fill the queue of a listening socket; connections to it hang from then on."""
    found = []
    for _ in range(8):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(server.getsockname())
        found.append(sock)
    return found
