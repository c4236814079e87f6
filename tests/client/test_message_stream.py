"""A client that iterates: acks, reconnects, whole transactions, stops; sync.

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
from client_entries import row, statement, transaction
from fix_server import DESTINATION, PATIENCE_S, FakeInstances

from canal_server.client import CanalClient, ClientError, TransactionTooLarge
from canal_server.protocol.auth import stored_form
from canal_server.runtime.lifecycle import Deadline


def ids(changes):
    """Return the ids of inserted rows."""
    return [change.after["id"] for change in changes]


def take(client, count):
    """Return the ids of so many rows, and leave the loop within the last one."""
    return ids(itertools.islice(client, count))


@pytest.fixture
def store(instance):
    """Give the store of the server."""
    return instance.store


@pytest.fixture
def client(serve):
    """Return a function that makes a client of a fresh server."""
    port = serve().port
    clients = []

    def make(**options):
        clients.append(CanalClient("127.0.0.1", port, DESTINATION, **options))
        return clients[-1]

    yield make
    for each in clients:
        each.close()


def acked_by(store, client_id=1001):
    """Return how many entries a client acked."""
    return store.cursors[client_id].acked


def stop_after(client, changes, count):
    """Return the ids of the rows until `stop`, which comes after so many."""
    found = []
    for change in changes:
        found.append(change.after["id"])
        if len(found) == count:
            client.stop()
    return found


class TestIteration:
    """What is handed out, and what is acked."""

    def test_connects_and_subscribes(self, client, store):
        """A loop needs no other call, and acks what it handled."""
        store.append(*transaction(1, 3))
        reader = client()
        assert stop_after(reader, reader, 3) == [1, 2, 3]
        reader.close()
        assert store.cursors[1001].acked == 5

    def test_filter_of_the_client(self, client, instance):
        """The filter of the constructor is the subscription's."""
        instance.store.append(row(1))
        take(client(filter=r"shop\..*"), 1)
        assert instance.meta.subscriptions(DESTINATION)[0].filter == r"shop\..*"

    def test_break(self, client, store):
        """What a broken loop had at hand comes again, in this client and others."""
        store.append(*map(row, (1, 2, 3)))
        reader = client(batch_size=1)
        assert take(reader, 2) == [1, 2]
        assert take(reader, 2) == [2, 3]
        reader.close()
        assert take(client(), 1) == [3]

    def test_error_in_the_loop(self, client, store):
        """A message whose handling failed is not acked."""
        store.append(*map(row, (1, 2)))
        reader = client(batch_size=1)

        def fail_at_2():
            for change in reader:
                assert change.after["id"] != 2

        with pytest.raises(AssertionError):
            fail_at_2()
        reader.close()
        assert acked_by(store) == 1

    def test_one_table(self, client, store, instance):
        """`table` selects a table, here and by the subscription."""
        store.append(row(1), row(2, "persons"), row(3))
        reader = client()
        found = stop_after(reader, reader.changes("shop.orders"), 2)
        assert found == [1, 3]
        assert instance.meta.subscriptions(DESTINATION)[0].filter == r"shop\.orders"

    def test_one_table_beside_a_filter(self, client, store, instance):
        """A filter of the client's own stays."""
        store.append(row(1), row(2, "persons"), row(3))
        reader = client(filter=r"shop\..*")
        assert stop_after(reader, reader.changes("shop.orders"), 2) == [1, 3]
        assert instance.meta.subscriptions(DESTINATION)[0].filter == r"shop\..*"

    def test_one_table_after_another(self, client, store, instance):
        """A table that one loop was about does not limit the next loop."""
        store.append(row(1), row(2, "persons"), row(3, "items"))
        reader = client()
        assert ids(itertools.islice(reader.changes("shop.orders"), 1)) == [1]
        assert ids(itertools.islice(reader.changes("shop.persons"), 1)) == [2]
        assert instance.meta.subscriptions(DESTINATION)[0].filter == r"shop\.persons"
        assert ids(itertools.islice(reader, 3)) == [1, 2, 3]
        assert instance.meta.subscriptions(DESTINATION)[0].filter == ""

    @pytest.mark.parametrize("name", ["orders", ".orders", "shop."])
    def test_invalid_table(self, client, name):
        """A table without its schema is refused with the form that is expected."""
        with pytest.raises(ValueError, match=f"'{name}': expected schema.table"):
            next(client().changes(name))

    def test_empty_server(self, client, store):
        """A loop waits for changes, for longer than one request does."""
        reader = client()
        found = []
        thread = threading.Thread(
            target=lambda: found.extend(
                stop_after_messages(reader, reader.messages(timeout_s=0.01), 1)
            )
        )
        thread.start()
        for _ in range(3):
            store.wait_for_getters(1)
            store.wait_for_getters(0)
        store.append(row(1))
        thread.join(PATIENCE_S)
        assert found == [1]


def stop_after_messages(client, messages, count):
    """Return the ids of rows until `stop`, which comes after so many messages."""
    found = []
    for number, message in enumerate(messages, 1):
        found += ids(message.changes())
        if number == count:
            client.stop()
    return found


class TestAcks:
    """The policies."""

    def test_by_hand(self, client, store):
        """With "manual", only `ack` acks: a message with all before it."""
        store.append(*map(row, range(1, 6)))
        reader = client(ack="manual", batch_size=1)
        messages = reader.messages()
        received = list(itertools.islice(messages, 3))
        reader.ack(received[1].id)
        reader.close()
        assert acked_by(store) == 2

    def test_all_before_the_one_at_hand(self, client, store):
        """`ack` without an id acks what arrived before the message at hand."""
        store.append(*map(row, range(1, 6)))
        reader = client(ack="manual", batch_size=1)
        changes = iter(reader)
        assert ids(itertools.islice(changes, 4)) == [1, 2, 3, 4]
        reader.ack()
        reader.close()
        assert acked_by(store) == 3

    def test_by_transaction(self, client, store):
        """With "transaction", a message waits for the end of its last transaction."""
        store.append(*transaction(1, 1), *transaction(4, 4), *transaction(9, 1))
        reader = client(ack="transaction", batch_size=4)  # 3 + 1, 4, 1 + 3
        acks = []
        messages = reader.messages()
        for message in messages:
            reader_acked = acked_by(store) if 1001 in store.cursors else 0
            acks.append(reader_acked)
            if message.ends_transaction and len(acks) == 3:
                reader.stop()
        reader.close()
        # The second begins within the first message, and ends within the third.
        assert acked_by(store) == 12
        assert max(acks) == 0

    def test_by_transaction_once(self, client, store):
        """With "transaction", no message is acked twice, which a server refuses."""
        store.append(*transaction(1, 2), *transaction(4, 1), *transaction(9, 2))
        lost: list[Exception] = []
        reader = client(ack="transaction", batch_size=4, on_disconnect=lost.append)
        # The first message ends a transaction, the second one is cut within the third.
        assert stop_after_messages(reader, reader.messages(), 3) == [1, 2, 4, 9, 10]
        reader.close()
        assert acked_by(store) == 11
        assert lost == []

    def test_by_time(self, client, store):
        """With a number, nothing is acked before the time, and all at the end."""
        store.append(*map(row, range(1, 4)))
        reader = client(ack=3600.0, batch_size=1)
        assert stop_after(reader, reader, 3) == [1, 2, 3]
        assert acked_by(store) == 0
        reader.close()
        assert acked_by(store) == 3

    def test_by_time_while_nothing_comes(self, client, store):
        """What was handled is acked when the time is over, without another message."""
        store.append(row(1))
        reader = client(ack=0.001)
        thread = threading.Thread(
            target=lambda: list(reader.messages(timeout_s=0.001)), daemon=True
        )
        thread.start()
        deadline = Deadline(PATIENCE_S)
        while (1001 not in store.cursors or not acked_by(store)) and (
            not deadline.passed()
        ):
            store.wait_for_getters(1)
        reader.stop()
        thread.join(PATIENCE_S)
        assert acked_by(store) == 1

    def test_break_acks_what_was_handled(self, client, store):
        """With a time, a break redelivers the message at hand and none before it."""
        store.append(*map(row, (1, 2, 3)))
        reader = client(ack=3600.0, batch_size=1)
        assert take(reader, 2) == [1, 2]
        assert take(reader, 1) == [2]
        reader.close()
        assert acked_by(store) == 1


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


class TestWholeTransactions:
    """Messages that end with a transaction, however the server cuts."""

    @pytest.mark.parametrize("begins", [True, False])
    @pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 7, 1000])
    def test_whole(self, client, store, begins, batch_size):
        """Each message consists of whole transactions, in order and complete."""
        store.append(
            *transaction(1, 2, begins=begins),
            *transaction(10, 5, begins=begins),
            statement(20, "ALTER TABLE orders ADD x int"),
            *transaction(30, 1, begins=begins),
        )
        reader = client(whole_transactions=True, batch_size=batch_size)
        found = []
        for message in reader.messages():
            assert message.ends_transaction
            changes = list(message.changes())
            assert changes[-1].is_last
            found += [change.position[1] for change in changes]
            if found[-1] == 30:
                reader.stop()
        assert found == [1, 2, 10, 11, 12, 13, 14, 20, 30]
        reader.close()
        assert acked_by(store) == len(store.records)

    def test_acks_never_cut(self, client, store):
        """A batch is acked when all that it holds was handled, not before."""
        store.append(*transaction(1, 1), *transaction(10, 1))  # 3 + 3 entries
        reader = client(whole_transactions=True, batch_size=4)
        messages = reader.messages()
        assert ids(next(messages).changes()) == [1]
        assert ids(next(messages).changes()) == [10]
        # The first transaction was handled; its batch also holds a part of the second.
        assert acked_by(store) == 0
        reader.close()
        again = client(whole_transactions=True)
        assert take(again, 2) == [1, 10]

    def test_beyond_the_limit(self, client, store):
        """A transaction beyond the limit is an error that names the option."""
        store.append(*transaction(1, 20))
        reader = client(
            whole_transactions=True, batch_size=3, transaction_bytes_max=200
        )
        with pytest.raises(TransactionTooLarge, match="transaction_bytes_max = 200"):
            next(reader.messages())
        reader.close()
        assert acked_by(store) == 0

    def test_parts_beyond_the_limit(self, client, store):
        """With "part" it comes in parts, of which only the last one ends it."""
        store.append(*transaction(1, 20), *transaction(50, 1))
        reader = client(
            whole_transactions=True,
            batch_size=3,
            transaction_bytes_max=200,
            over_limit="part",
        )
        found, marks = [], []
        for message in reader.messages():
            marks.append(message.ends_transaction)
            found += ids(message.changes())
            if 50 in found:
                reader.stop()
        assert found == [*range(1, 21), 50]
        assert marks.count(False) >= 2
        assert marks[-1]
        reader.close()
        assert acked_by(store) == len(store.records)

    def test_a_full_ring(self, client, store, instances):
        """A transaction that the server has no room for is an error that says so."""
        store.append(*transaction(1, 2)[:-1])
        instances.state["blocked"] = {"clients": [7, 1001]}
        reader = client(whole_transactions=True, timeout_s=0.2)
        with pytest.raises(TransactionTooLarge, match=r"full.*memory\.buffer\.size"):
            next(reader.messages(timeout_s=0.05))

    def test_a_full_ring_in_parts(self, client, store, instances):
        """With "part", what fills the ring is yielded."""
        whole = transaction(1, 2)
        store.append(*whole[:-1])
        instances.state["blocked"] = {"clients": [1001]}
        reader = client(whole_transactions=True, timeout_s=0.2, over_limit="part")
        messages = reader.messages(timeout_s=0.05)
        assert ids(next(messages).changes()) == [1, 2]
        store.append(whole[-1])
        assert next(messages).ends_transaction

    @pytest.mark.parametrize("clients", [None, [7]], ids=["nobody", "another client"])
    def test_a_slow_source(self, client, store, instances, caplog, clients):
        """A source that stalls in a transaction is waited for, and that is logged."""
        whole = transaction(1, 2)
        store.append(*whole[:-1])
        instances.state["blocked"] = clients and {"clients": clients}
        reader = client(whole_transactions=True, timeout_s=0.1, over_limit="part")
        found = []
        thread = threading.Thread(
            target=lambda: found.append(next(reader.messages(timeout_s=0.05)))
        )
        thread.start()
        deadline = Deadline(PATIENCE_S)
        while caplog.text.count("waits for its end") < 2 and not deadline.passed():
            threading.Event().wait(0.01)
        store.append(whole[-1])
        thread.join(PATIENCE_S)
        assert ids(found[0].changes()) == [1, 2]
        assert found[0].ends_transaction
        assert caplog.text.count("waits for its end") >= 2

    def test_a_server_that_does_not_know(self, client, store, instances, monkeypatch):
        """A server that does not say whether it waits is believed to."""
        monkeypatch.setattr(instances, "status_of", lambda _: None)
        store.append(*transaction(1, 2)[:-1])
        reader = client(whole_transactions=True, timeout_s=0.2)
        with pytest.raises(TransactionTooLarge, match=r"memory\.buffer\.size"):
            next(reader.messages(timeout_s=0.05))


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


def fill(server):
    """Fill the queue of a listening socket; connections to it hang from then on."""
    found = []
    for _ in range(8):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(server.getsockname())
        found.append(sock)
    return found


class TestState:
    """What a client knows."""

    def test_lag(self, client, store):
        """The lag is the age of the newest change, and 0 when all is received."""
        reader = client(batch_size=1)
        assert reader.lag is None
        store.append(row(1), row(2))
        lags: list[float | None] = []
        for change in reader.messages(timeout_s=0.01):
            lags.append(reader.lag)
            if len(lags) == 2:
                store.wait_for_getters(0)
                reader.stop()
            assert change
        assert all(
            lag is not None and lag > 1e6 for lag in lags
        )  # entries of the year 2023
        reader = client(client_id=1002)
        reader.connect()
        reader.subscribe()

    def test_a_slow_handler(self, client, store, monkeypatch):
        """A message that was requested is received while the handler takes long."""
        monkeypatch.setattr(
            "canal_server.client.connection.blocking_connection._LateReader.AFTER_S",
            0.01,
        )
        reader = client(batch_size=2)
        store.append(*map(row, range(1, 7)))
        found: list[int] = []
        for message in reader.messages():
            late = reader._connection._late
            deadline = Deadline(PATIENCE_S)
            while len(found) < 4 and late._frame is None and not deadline.passed():
                threading.Event().wait(0.001)
            found += ids(message.changes())
            if len(found) == 6:
                reader.stop()
        assert found == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"destination": ""}, "destination is empty"),
        ({"client_id": 40_000}, "client_id = 40000: expected -32768 to 32767"),
        ({"ack": "batch"}, "ack = 'batch': expected \"message\""),
        ({"ack": 0.0}, "ack = 0.0: expected seconds"),
        ({"over_limit": "cut"}, "over_limit = 'cut'"),
        ({"timeout_s": 0}, "timeout_s = 0: expected more than 0"),
        ({"batch_size": -1}, "batch_size = -1"),
        ({"reconnect_for_s": -1}, "reconnect_for_s = -1"),
        ({"host": "a b"}, "host = 'a b': expected a name or address"),
        ({"host": "zk://"}, "host = 'zk://': expected zk://host:port"),
        ({"port": 0}, "port = 0: expected 1 to 65535"),
        ({"port": "11111"}, "port = '11111': expected an integer"),
        ({"timeout_s": "3"}, "timeout_s = '3': expected a number of seconds"),
        ({"ack": True}, "ack = True: expected a number"),
        ({"ack": None}, "ack = None: expected seconds"),
        ({"filter": None}, "filter is of type NoneType: expected a text"),
        ({"time_zone": "Europe/Berlin"}, "time_zone = 'Europe/Berlin': expected a tz"),
        ({"load_json": "json"}, "load_json = 'json': expected a function"),
    ],
)
def test_invalid_options(options, problem):
    """An option with a value that makes no sense is named, with what is expected."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # matched below
        CanalClient(**options)
    assert problem in str(caught.value)
