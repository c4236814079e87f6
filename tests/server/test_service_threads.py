"""Requests of several connections at a time, and cursors that are moved meanwhile."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from fix_server import (
    DESTINATION,
    PATIENCE_S,
    FakeInstance,
    FakeStore,
    make_entry,
)
from service_calls import WHO, get, put, put_ends

from canal_server.errors import ClientError, StoreError
from canal_server.model.positions import EntryPosition
from canal_server.protocol import server_session
from canal_server.protocol.entry_messages import EntryType
from canal_server.protocol.framing import EMPTY_FRAME
from canal_server.protocol.packets import Packet
from canal_server.protocol.protobuf import decode

if TYPE_CHECKING:
    from canal_server.model.identity import ClientIdentity

# --------------------------------------------------------------------------------
# Where threads coincide
# --------------------------------------------------------------------------------


def test_waiting_get_holds_nobody_up(service, instance, pool):
    """While a get waits, others of its identity are answered in their time."""
    service.subscribe(WHO)
    pending = pool.submit(get, service, timeout_s=PATIENCE_S)
    instance.store.wait_for_getters(1)
    assert get(service) == (-1, [])
    assert get(service, timeout_s=0.01) == (-1, [])
    service.ack(WHO, -1)
    service.rollback(WHO, 0)
    service.subscribe(WHO)
    put(instance, 5)
    assert pending.result(PATIENCE_S) == (1, [5])


def test_get_ends_with_its_peer(service, instance, pool):
    """A get whose client closes ends at once, and no entry is fetched."""
    service.subscribe(WHO)
    ours, theirs = socket.socketpair()
    with ours:
        pending = pool.submit(service.get, WHO, 100, None, ours.fileno())
        instance.store.wait_for_getters(1)
        theirs.close()
        assert pending.result(PATIENCE_S) == (EMPTY_FRAME,)
    assert instance.meta.batches(WHO) == {}
    put(instance, 5)
    assert get(service) == (1, [5])


def test_a_get_whose_instance_goes(service, instance, instances, pool):
    """A waiting get fails when the destination no longer runs here.

    Then the client looks for it elsewhere.
    """
    service.subscribe(WHO)
    pending = pool.submit(get, service, timeout_s=PATIENCE_S)
    instance.store.wait_for_getters(1)
    del instances.started[DESTINATION]
    put(instance, 5)
    with pytest.raises(ClientError, match="should start first"):
        pending.result(PATIENCE_S)


def test_a_get_whose_position_is_purged(service, instance, pool):
    """A waiting get gets the reason and the remedy, as at the next request."""
    why = "needs bin.1:4, which the source no longer has; reload its tables"
    service.subscribe(WHO)
    pending = pool.submit(get, service, timeout_s=PATIENCE_S)
    instance.store.wait_for_getters(1)
    instance.lost[WHO.client_id] = why
    instance.store.unsubscribe(WHO.client_id)
    with pytest.raises(ClientError, match=why):
        pending.result(PATIENCE_S)


def test_a_get_of_a_client_that_unsubscribes(service, instance, pool):
    """Without such a reason the store's error is returned."""
    service.subscribe(WHO)
    pending = pool.submit(get, service, timeout_s=PATIENCE_S)
    instance.store.wait_for_getters(1)
    instance.store.unsubscribe(WHO.client_id)
    with pytest.raises(StoreError):
        pending.result(PATIENCE_S)


def test_what_was_fetched_when_the_instance_stopped(service, instance, instances):
    """Undelivered entries come again, with those delivered and not acked.

    Forbidden: one of them is skipped when the same instance may serve again.
    """
    instances.broken.add(DESTINATION)  # it is still configured
    put(instance, 5, 6)
    service.subscribe(WHO)
    assert get(service, size=1) == (1, [5])

    def go() -> None:
        instances.started.pop(DESTINATION, None)

    instance.store.on_fetched = go
    with pytest.raises(ClientError, match="should start first"):
        get(service)
    with pytest.raises(ClientError, match="should start first"):
        service.ack(WHO, 1)
    instance.store.on_fetched = lambda: None
    instances.started[DESTINATION] = instance
    with pytest.raises(ClientError, match="is not exist"):
        service.ack(WHO, 1)
    assert get(service) == (2, [5, 6])


def test_rollback_between_take_and_register(service, instance, pool):
    """Entries that a get fetched before a rollback are delivered once, in one batch."""
    put(instance, 5, 6)
    service.subscribe(WHO)
    get(service, size=1)
    received, go_on = threading.Event(), threading.Event()

    def stop_once() -> None:
        instance.store.on_fetched = lambda: None
        received.set()
        assert go_on.wait(PATIENCE_S)

    instance.store.on_fetched = stop_once
    late = pool.submit(get, service)
    assert received.wait(PATIENCE_S)
    service.rollback(WHO, 0)
    go_on.set()
    assert late.result(PATIENCE_S) == (2, [5, 6])
    assert list(instance.meta.batches(WHO)) == [2]
    assert get(service) == (-1, [])
    service.ack(WHO, 2)


def test_unsubscribe_between_take_and_register(service, instance):
    """A batch that was fetched when the subscription ended is not registered."""
    put(instance, 5)
    service.subscribe(WHO)
    instance.store.on_fetched = lambda: service.unsubscribe(WHO)
    reply = service.answer(server_session.Fetch(WHO, 1, 0.0), None, 1.0)
    assert decode(Packet, reply[0][4:]).type == 3
    assert instance.meta.batches(WHO) == {}


def test_two_connections_of_one_identity(service, instance, pool, rng):
    """Batches of one identity that several threads fetch are registered in order.

    Forbidden: an entry in no batch or in two; ids in another order than entries.
    """
    numbers = list(range(1, 400))
    service.subscribe(WHO)

    def fetch(sizes: list[int]) -> list[tuple[int, list[int]]]:
        return [get(service, size=size) for size in sizes]

    work = [
        pool.submit(fetch, [rng.randrange(1, 4) for _ in range(300)]) for _ in range(3)
    ]
    for number in numbers:
        put(instance, number)
    batches = [batch for each in work for batch in each.result(PATIENCE_S)]
    batches.append(get(service, size=len(numbers)))
    full = sorted(batch for batch in batches if batch[0] != -1)
    assert [number for _, batch in full for number in batch] == numbers
    for batch_id, _ in full:
        service.ack(WHO, batch_id)
    assert instance.store.cursors[1001].acked == len(numbers)


def test_rollbacks_among_gets(service, instance, pool):
    """Under rollbacks at any moment the batches that stay open cover all entries.

    Forbidden: an entry that was fetched, is in no open batch and does not come again.
    """
    service.subscribe(WHO)
    numbers = list(range(1, 100))
    put(instance, *numbers)
    done = threading.Event()

    def roll_back() -> None:
        while not done.is_set():
            service.rollback(WHO, 0)

    meddler = pool.submit(roll_back)
    fetched = [get(service, size=3) for _ in range(300)]
    done.set()
    meddler.result(PATIENCE_S)
    open_ids = list(instance.meta.batches(WHO))
    by_id = dict(fetched)
    covered = [number for each in open_ids for number in by_id[each]]
    rest = get(service, size=len(numbers))[1]
    assert covered + rest == numbers


# --------------------------------------------------------------------------------
# Cursors that an operator moves
# --------------------------------------------------------------------------------


def move(instance: FakeInstance, offset: int, *numbers: int) -> None:
    """Move the client as an instance does: another store, which holds these."""
    with instance.steady():
        instance.meta.clear_batches(WHO)
        position = EntryPosition("binlog.000001", offset)
        instance.meta.update_cursor(WHO, instance.log_position(position))
        old = instance.store
        store = FakeStore()
        store.append(*(make_entry(n, EntryType.TRANSACTIONEND) for n in numbers))
        store.subscribe(WHO.client_id, None, None)
        instance.store = store
        old.close()


def test_batches_of_before_a_move(service, instance):
    """They are void: their ack moves nothing, and new batches have new ids."""
    put_ends(instance, 8, 9)
    service.subscribe(WHO)
    assert get(service) == (1, [8, 9])
    move(instance, 3, 4, 5)
    with pytest.raises(ClientError, match="batchId:1 is not exist"):
        service.ack(WHO, 1)
    assert instance.meta.cursor(WHO).position.position == 3
    assert get(service) == (2, [4, 5])
    service.ack(WHO, 2)
    assert instance.meta.cursor(WHO).position.position == 5


def test_a_get_during_a_move(service, instance, pool):
    """A waiting get finds nothing, and the next one finds what follows the position."""
    service.subscribe(WHO)
    waiting = pool.submit(service.get, WHO, 100, PATIENCE_S)
    instance.store.wait_for_getters(1)
    old = instance.store
    move(instance, 3, 4)
    with old.lock:
        old.wake()
    assert waiting.result(PATIENCE_S) == (EMPTY_FRAME,)
    assert get(service) == (1, [4])


def test_a_batch_fetched_during_a_move(service, instance, pool):
    """What was fetched from the old store is not delivered after the move."""
    put_ends(instance, 8)
    service.subscribe(WHO)
    instance.store.on_fetched = lambda: move(instance, 3, 4)
    assert service.get(WHO, 100, 0.0) == (EMPTY_FRAME,)
    assert instance.meta.batches(WHO) == {}
    assert get(service) == (1, [4])


def test_an_ack_waits_for_a_move(service, instance, pool):
    """An ack during a move is refused after it, and does not undo it."""
    put_ends(instance, 8)
    service.subscribe(WHO)
    get(service)
    with instance.steady():
        acking = pool.submit(service.ack, WHO, 1)
        instance.meta.clear_batches(WHO)
        position = instance.log_position(EntryPosition("binlog.000001", 3))
        instance.meta.update_cursor(WHO, position)
        instance.store = FakeStore()
        instance.store.subscribe(WHO.client_id, None, None)
    with pytest.raises(ClientError, match="is not exist"):
        acking.result(PATIENCE_S)
    assert instance.meta.cursor(WHO) == position


def test_visits(service, instance, instances):
    """The instance knows of a client before its first request counts, and its end."""
    visits: dict[ClientIdentity, Any] = {}
    service.answer(server_session.Subscribe(WHO), None, 0.0, visits)
    service.answer(server_session.Fetch(WHO, 1, 0.0), None, 0.0, visits)
    assert instance.visits == [("connected", WHO.client_id)]
    instances.started[DESTINATION] = restarted_one = FakeInstance(DESTINATION)
    service.answer(server_session.Fetch(WHO, 1, 0.0), None, 0.0, visits)
    assert instance.visits[1:] == [("disconnected", WHO.client_id)]
    service.on_disconnect(visits)
    assert restarted_one.visits == [
        ("connected", WHO.client_id),
        ("disconnected", WHO.client_id),
    ]
