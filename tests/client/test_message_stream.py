"""A client that iterates: acks, whole transactions, state; sync.

The same conversations serve the client of asyncio; see test_async_client.
"""

# mypy: disable-error-code="func-returns-value"
# Lambdas of several calls return a tuple that nobody reads.

from __future__ import annotations

import itertools
import threading

import pytest
from client_entries import row, statement, transaction
from fix_server import DESTINATION, PATIENCE_S
from loop_changes import acked_by, ids, take

from canal_server.client import TransactionTooLarge
from canal_server.runtime.lifecycle import Deadline


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

    def test_a_ring_that_is_full_of_what_was_handled(self, client, store, instances):
        """What acks every so often would still hold is acked before that."""
        store.append(*transaction(1, 1), *transaction(10, 2)[:-1])  # 3 + 3 entries
        instances.state["blocked"] = {"clients": [1001]}
        reader = client(whole_transactions=True, timeout_s=0.2, ack=60.0, batch_size=3)
        messages = reader.messages(timeout_s=0.05)
        assert ids(next(messages).changes()) == [1]
        with pytest.raises(TransactionTooLarge):
            next(messages)
        assert acked_by(store) == 3

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
