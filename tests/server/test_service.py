"""The rules of subscribe, get, ack and rollback, without sockets."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

import pytest
from fix_server import (
    DESTINATION,
    FakeInstance,
    StoreCursor,
)
from service_calls import ELSEWHERE, OTHER, WHO, get, put, put_ends, read

from canal_server.errors import ClientError
from canal_server.model.identity import ClientIdentity
from canal_server.protocol import server_session
from canal_server.protocol.framing import EMPTY_FRAME
from canal_server.protocol.packets import Ack, Packet
from canal_server.protocol.protobuf import decode
from canal_server.protocol.server_session import ACK_FRAME
from canal_server.runtime.log_context import logged_subject

if TYPE_CHECKING:
    from canal_server.server.service import Visits

# --------------------------------------------------------------------------------
# Subscribing
# --------------------------------------------------------------------------------


def test_subscribe_starts_a_lazy_instance(service, instances):
    """The first client of an instance starts it, and its cursor is kept."""
    instances.lazy["lazy"] = lazy = FakeInstance("lazy")
    put(lazy, 5)
    lazy.store.free_before = 1
    service.subscribe(ClientIdentity("lazy", 1, "a"))
    assert lazy.meta.subscriptions("lazy")[0].filter == "a"
    cursor = lazy.meta.cursor(ClientIdentity("lazy", 1))
    assert cursor is not None
    assert cursor.position.position == 5
    assert cursor.identity.address == "db"


def test_subscribe_keeps_a_cursor(service, instance):
    """A known client keeps its acked position."""
    put_ends(instance, 5, 6)
    service.subscribe(WHO)
    service.ack(WHO, get(service)[0])
    service.subscribe(WHO)
    assert instance.meta.cursor(WHO).position.position == 6


def test_the_subject_of_log_lines(service):
    """It is a configured destination, never a name that a client made up."""
    for destination, subject in ((DESTINATION, DESTINATION), ("../../up", "")):
        identity = ClientIdentity(destination, 1001, "")
        service.answer(server_session.Subscribe(identity), None, 0.0, {})
        assert logged_subject().destination == subject


def test_a_filter_in_the_log(service, caplog):
    """It is logged as the client wrote it, to be copied."""
    caplog.set_level("INFO")
    service.subscribe(ClientIdentity(DESTINATION, 1001, r"shop\..*"))
    assert caplog.messages[-1].endswith(r"with filter 'shop\..*'")


def test_a_client_whose_position_is_lost(service, instance):
    """The error says why it gets nothing; it may roll back, as all do, and leave."""
    service.subscribe(WHO)
    instance.lost[WHO.client_id] = "its position is purged"
    for ask in (service.subscribe, lambda who: service.get(who, 1, 0.0)):
        with pytest.raises(ClientError, match="its position is purged"):
            ask(WHO)
    with pytest.raises(ClientError, match="its position is purged"):
        service.ack(WHO, 1)
    service.rollback(WHO, 0)
    service.unsubscribe(WHO)
    assert not instance.meta.has_subscribed(WHO)


def test_a_client_whose_stored_filter_cannot_be_used(service, instance):
    """The error says why; it may roll back, and is served once it has another one."""
    service.subscribe(WHO)
    instance.refused[WHO.client_id] = "its filter is too large"
    for ask in (
        lambda: service.get(WHO, 1, 0.0),
        lambda: service.ack(WHO, 1),
    ):
        with pytest.raises(ClientError, match="its filter is too large"):
            ask()
    service.rollback(WHO, 0)
    service.subscribe(WHO)


def test_no_room_for_another_client(service, instance):
    """A client beyond the limit is refused and not stored; known ones may return."""
    service.subscribe(WHO)
    instance.clients_max = 1
    with pytest.raises(ClientError, match="no room"):
        service.subscribe(OTHER)
    assert not instance.meta.has_subscribed(OTHER)
    service.subscribe(WHO)


def test_subscribe_to_an_unknown_destination(service, instances):
    """A name that is not configured is refused and creates nothing."""
    with pytest.raises(ClientError, match="can't find destination:nowhere"):
        service.subscribe(ELSEWHERE)
    assert instances.running("nowhere") is None


def test_subscribe_to_what_cannot_start(service, instances):
    """An instance that does not run here after a start is reported."""
    instances.broken.add("nowhere")
    with pytest.raises(ClientError, match="destination:nowhere should start first"):
        service.subscribe(ELSEWHERE)


def test_bad_filter_is_not_kept(service, instance):
    """An invalid filter is refused, and the old one stays."""
    service.subscribe(ClientIdentity(DESTINATION, 1001, "good"))
    with pytest.raises(ClientError, match="filter"):
        service.subscribe(ClientIdentity(DESTINATION, 1001, "(bad"))
    assert instance.meta.subscriptions(DESTINATION)[0].filter == "good"


def test_unsubscribe(service, instance):
    """After the end of a subscription gets are refused; the position is kept."""
    put_ends(instance, 5)
    service.subscribe(WHO)
    batch_id, _ = get(service)
    service.ack(WHO, batch_id)
    service.unsubscribe(WHO)
    with pytest.raises(ClientError, match="should subscribe first"):
        get(service)
    assert instance.meta.cursor(WHO).position.position == 5
    assert instance.store.cursors == {}


def test_subscribe_again_after_what_is_held(service, instance, caplog):
    """A client that unsubscribed and missed entries is logged once, with positions."""
    put_ends(instance, 5)
    service.subscribe(WHO)
    service.ack(WHO, get(service)[0])
    service.unsubscribe(WHO)
    service.subscribe(WHO)
    assert not caplog.records  # nothing was freed meanwhile
    service.unsubscribe(WHO)
    put_ends(instance, 6, 7)
    instance.store.free_before = 2  # because others acked 6
    service.subscribe(WHO)
    service.subscribe(WHO)
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert "client 1001 of example has acked up to binlog.000001:5" in caplog.text
    assert "begin after binlog.000001:6" in caplog.text
    assert instance.meta.cursor(WHO).position.position == 5
    assert get(service)[1] == [7]


def test_unsubscribe_keeps_what_was_passed(service, instance, caplog):
    """What a client's filter rejected before it unsubscribed is not missed."""
    put_ends(instance, 5)
    service.subscribe(WHO)
    service.ack(WHO, get(service)[0])
    put_ends(instance, 6)
    instance.store.cursors[1001] = StoreCursor(2, 2)  # as a filter that rejects 6 does
    service.unsubscribe(WHO)
    assert instance.meta.cursor(WHO).position.position == 6
    put_ends(instance, 7)
    instance.store.free_before = 2
    service.subscribe(WHO)
    assert not caplog.records
    assert get(service)[1] == [7]


def test_unsubscribe_of_a_stranger(service, instance, caplog):
    """A client that is not subscribed may unsubscribe nevertheless; it is logged."""
    with caplog.at_level(logging.INFO):
        service.unsubscribe(WHO)
    (record,) = caplog.records
    assert record.getMessage().endswith(", but was not subscribed")
    assert instance.meta.subscriptions(DESTINATION) == []


def test_unsubscribe_forgets_open_batches(service, instance):
    """A batch of an ended subscription can no longer be acked."""
    put(instance, 5)
    service.subscribe(WHO)
    batch_id, _ = get(service)
    service.unsubscribe(WHO)
    service.subscribe(WHO)
    with pytest.raises(ClientError, match="is not exist"):
        service.ack(WHO, batch_id)


# --------------------------------------------------------------------------------
# Batches
# --------------------------------------------------------------------------------


def test_batches_in_order(service, instance):
    """Batches are numbered from 1 and hold the entries in their order."""
    put(instance, 5, 6, 7)
    service.subscribe(WHO)
    assert get(service, size=2) == (1, [5, 6])
    assert get(service, size=2) == (2, [7])
    assert service.get(WHO, 2, 0.0) == (EMPTY_FRAME,)


def test_clients_have_their_own_batches(service, instance):
    """Each client receives everything, with its own batch ids."""
    put(instance, 5)
    for identity in (WHO, OTHER):
        service.subscribe(identity)
    assert get(service, WHO) == get(service, OTHER) == (1, [5])


def test_ack_moves_the_cursor_to_the_last_end(service, instance):
    """An ack moves the cursor to the batch's last position to resume from, if any."""
    service.subscribe(WHO)
    put_ends(instance, 5)
    put(instance, 6, 7)
    service.ack(WHO, get(service, size=2)[0])
    assert instance.meta.cursor(WHO).position.position == 5
    service.ack(WHO, get(service, size=2)[0])  # it has no such position
    assert instance.meta.cursor(WHO).position.position == 5
    assert instance.store.cursors[1001].acked == 3


def test_ack_out_of_order(service, instance):
    """Only the oldest open batch can be acked; nothing moves otherwise."""
    put(instance, 5, 6)
    service.subscribe(WHO)
    get(service, size=1)
    get(service, size=1)
    with pytest.raises(ClientError, match="batch 2 is not the oldest"):
        service.ack(WHO, 2)
    assert instance.store.cursors[1001].acked == 0
    service.ack(WHO, 1)
    service.ack(WHO, 2)


def test_ack_of_nothing(service):
    """The ack of an empty batch is accepted, that of an unknown one is refused."""
    service.subscribe(WHO)
    service.ack(WHO, -1)
    for batch_id in (9, -2):
        with pytest.raises(ClientError, match=f"ack error .*batchId:{batch_id} is not"):
            service.ack(WHO, batch_id)


def test_rollback_of_all(service, instance):
    """After a rollback all unacked entries come again under new ids."""
    put(instance, 5, 6, 7)
    service.subscribe(WHO)
    service.ack(WHO, get(service, size=1)[0])
    get(service, size=1)
    get(service, size=1)
    service.rollback(WHO, 0)
    assert get(service) == (4, [6, 7])
    service.ack(WHO, 4)


def test_rollback_of_one_forgets_the_later_ones(service, instance):
    """A rollback of the oldest open batch forgets those after it as well."""
    put(instance, 5, 6, 7)
    service.subscribe(WHO)
    get(service, size=1)
    get(service, size=1)
    service.rollback(WHO, 1)
    assert instance.meta.batches(WHO) == {}
    assert get(service) == (3, [5, 6, 7])
    service.ack(WHO, 3)


def test_rollback_of_a_wrong_batch(service, instance):
    """Only the oldest open batch can be rolled back; nothing moves otherwise."""
    put(instance, 5, 6, 7)
    service.subscribe(WHO)
    get(service, size=1)
    get(service, size=1)
    with pytest.raises(ClientError, match="batch 2 is not the oldest"):
        service.rollback(WHO, 2)
    for unknown in (9, -1):
        with pytest.raises(ClientError, match=f"rollback error .*batchId:{unknown} is"):
            service.rollback(WHO, unknown)
    assert get(service) == (3, [7])


def test_rollback_that_nobody_waits_for(service, instances):
    """A rollback of all before the instance or the subscription exists is accepted."""
    service.rollback(WHO, 0)
    instances.broken.add("nowhere")
    service.rollback(ELSEWHERE, 0)
    with pytest.raises(ClientError, match="should start first"):
        service.rollback(ELSEWHERE, 1)


def test_requests_of_strangers(service, instances):
    """Gets and acks need a running instance and a subscription."""
    for ask in (get, lambda service, who: service.ack(who, 1)):
        with pytest.raises(ClientError, match=r"clientId=1001\] should subscribe"):
            ask(service, WHO)
        with pytest.raises(ClientError, match="can't find destination"):
            ask(service, ELSEWHERE)
    instances.broken.add("nowhere")
    with pytest.raises(ClientError, match="destination:nowhere should start first"):
        get(service, ELSEWHERE)


def test_instance_restarted(service, instances, instance):
    """Batches of an old store are forgotten: their sequences mean nothing."""
    put(instance, 5)
    service.subscribe(WHO)
    get(service)
    instances.started[DESTINATION] = restarted_one = FakeInstance(DESTINATION)
    restarted_one.meta = instance.meta
    service.subscribe(WHO)
    with pytest.raises(ClientError, match="is not exist"):
        service.ack(WHO, 1)
    put(restarted_one, 5)
    assert get(service) == (2, [5])


def restarted(instances, *numbers: int) -> FakeInstance:
    """Replace the instance by another one, with its client and entries."""
    instances.started[DESTINATION] = restarted_one = FakeInstance(DESTINATION)
    restarted_one.meta.subscribe(WHO)
    restarted_one.subscribed(WHO)
    put(restarted_one, *numbers)
    return restarted_one


FETCH = server_session.Fetch(WHO, 100, 0.0)


def test_restarted_while_a_connection_is_silent(service, instances, instance):
    """Its next request is refused, once: earlier entries may come again.

    Forbidden: they come again without an error, or an ack of an earlier batch counts
    for one with the same number that holds more.
    """
    visits: Visits = {}
    other: Visits = {}  # another connection of the same client

    def answer(request, visits=visits):
        return service.answer(request, None, 1.0, visits)

    answer(server_session.Subscribe(WHO))
    answer(server_session.Subscribe(WHO), other)
    put(instance, 5)
    assert read(answer(FETCH)) == (1, [5])
    restarted_one = restarted(instances, 5, 6)
    code, text = error_of(answer(FETCH))
    assert code == 400
    assert text.startswith("destination:example should start first: it was restarted")
    assert read(answer(FETCH)) == (1, [5, 6])
    assert error_of(answer(server_session.Acknowledge(WHO, 1), other))[0] == 400
    assert list(restarted_one.meta.batches(WHO)) == [1]
    assert answer(server_session.Acknowledge(WHO, 1)) == ()
    assert not restarted_one.meta.batches(WHO)


@pytest.mark.parametrize(
    "asks", [server_session.Subscribe(WHO), server_session.Rollback(WHO, 0)]
)
def test_restarted_and_asked_to_begin_again(service, instances, asks):
    """A client that subscribes or rolls back expects entries again: no refusal."""
    visits: Visits = {}
    service.answer(server_session.Subscribe(WHO), None, 1.0, visits)
    restarted(instances, 5)
    assert service.answer(asks, None, 1.0, visits) in ((), (ACK_FRAME,))
    assert read(service.answer(FETCH, None, 1.0, visits)) == (1, [5])


def test_refused_while_it_is_restarted(service, instances):
    """A connection that was refused meanwhile is not refused again."""
    visits: Visits = {}
    service.answer(server_session.Subscribe(WHO), None, 1.0, visits)
    instances.broken.add(DESTINATION)  # it is still configured
    del instances.started[DESTINATION]
    refused = error_of(service.answer(FETCH, None, 1.0, visits))
    assert refused == (400, "destination:example should start first")
    restarted(instances, 5)
    assert read(service.answer(FETCH, None, 1.0, visits)) == (1, [5])


def test_restarted_during_a_request(service, instances, instance, monkeypatch):
    """A successor that runs before the request is carried out does not answer it."""
    visits: Visits = {}
    put(instance, 5)
    for request in (server_session.Acknowledge(WHO, 1), FETCH):
        instances.started[DESTINATION] = instance
        service.answer(server_session.Subscribe(WHO), None, 1.0, visits)

        restarted_one = restarted(instances, 5)
        found = itertools.chain([instance], itertools.repeat(restarted_one))
        with monkeypatch.context() as patched:
            patched.setattr(instances, "running", lambda _, found=found: next(found))
            assert error_of(service.answer(request, None, 1.0, visits))[0] == 400
        assert not restarted_one.meta.batches(WHO)
        assert restarted_one.store.cursors[WHO.client_id] == StoreCursor()


# --------------------------------------------------------------------------------
# Replies
# --------------------------------------------------------------------------------


def error_of(reply) -> tuple[int | None, str]:
    """Return code and text of a refusal."""
    (data,) = reply
    ack = decode(Ack, decode(Packet, data[4:]).body)
    return ack.error_code, ack.error_message


def test_replies(service, instance):
    """Each request is answered as the protocol requires."""
    put(instance, 5)

    def answer(request):
        return service.answer(request, None, 1.0)

    assert answer(server_session.Login(1, 1, None)) == (ACK_FRAME,)
    assert answer(server_session.Subscribe(WHO)) == (ACK_FRAME,)
    assert read(answer(server_session.Fetch(WHO, 1, 0.0))) == (1, [5])
    assert answer(server_session.Acknowledge(WHO, 1)) == ()
    assert answer(server_session.Rollback(WHO, 0)) == ()
    assert answer(server_session.Unsubscribe(WHO)) == (ACK_FRAME,)
    assert error_of(answer(server_session.Refused(402, "no"))) == (402, "no")
    assert error_of(answer(server_session.Fetch(WHO, 1, 0.0)))[0] == 400


def test_login_that_subscribes(service, instance):
    """A log-in subscribes first; when that fails it is refused."""
    good = service.answer(server_session.Login(1, 1, WHO), None, 1.0)
    assert good == (ACK_FRAME,)
    assert instance.meta.has_subscribed(WHO)
    bad = service.answer(server_session.Login(1, 1, ELSEWHERE), None, 1.0)
    assert error_of(bad) == (400, "can't find destination:nowhere")


def test_store_errors_are_answered(service, instance):
    """What the store refuses becomes an answer with code 400."""
    service.subscribe(WHO)
    instance.store.unsubscribe(1001)
    reply = service.answer(server_session.Fetch(WHO, 1, 0.0), None, 1.0)
    assert error_of(reply) == (400, "client 1001 has no cursor")


def test_get_waits_no_longer_than_the_connection(service):
    """A get that would wait beyond its connection's limit ends without an answer."""
    service.subscribe(WHO)
    assert service.answer(server_session.Fetch(WHO, 1, None), None, 0.001) is None
    assert service.answer(server_session.Fetch(WHO, 1, 5.0), None, 0.001) is None
    assert service.answer(server_session.Fetch(WHO, 1, 0.001), None, 5.0) == (
        EMPTY_FRAME,
    )


def test_batch_too_large_for_a_frame(service, instance, monkeypatch):
    """A batch that no frame can hold is refused, and stays open for a rollback."""
    put(instance, 5)
    service.subscribe(WHO)
    monkeypatch.setattr("canal_server.protocol.framing.FRAME_BYTES_MAX", 10)
    reply = service.answer(server_session.Fetch(WHO, 1, 0.0), None, 1.0)
    monkeypatch.undo()
    code, text = error_of(reply)
    assert code == 400
    assert "ask for fewer entries" in text
    service.rollback(WHO, 0)
    assert get(service) == (2, [5])
