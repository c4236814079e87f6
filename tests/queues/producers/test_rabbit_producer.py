"""The producer for RabbitMQ, with a real broker."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import pytest
from fix_tls import Authority
from servers import free_port

pytest.importorskip("pika", reason="the extra `rabbitmq` is not installed")

from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
    Sending,
)
from canal_server.queues.producers.rabbit_producer import RabbitProducer
from canal_server.queues.producers.rabbit_settings import rabbit_settings

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rabbit_brokers import Rabbit

    from canal_server.queues.producers.queue_producer import Message

PATIENCE_S = 60.0
QUEUE = "shop"
FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}


def of(rabbit: Rabbit, **more: str) -> RabbitProducer:
    """Return a producer; names of settings have `__` for a point."""
    given = {
        "host": rabbit.address,
        "username": rabbit.user,
        "password": rabbit.password,
    }
    named = {key.replace("__", "."): value for key, value in more.items()}
    return RabbitProducer(rabbit_settings(given | named))


@pytest.fixture
def producer(rabbit: Rabbit) -> Iterator[RabbitProducer]:
    """Give a connected producer that sends to queues by their names."""
    rabbit.create(QUEUE)
    made = of(rabbit)
    made.open()
    yield made
    made.close(0.0)


def poll_until(producer: RabbitProducer, condition: Callable[[], Any]) -> None:
    """Poll until something is the case."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        producer.poll(0.05)
        assert time.monotonic() < give_up_at, producer.last_error


def send(producer: RabbitProducer, messages: Sequence[Message]) -> Sending:
    """Send messages, and wait until all are answered, or until one fails."""
    sending = Sending()
    for each in messages:
        while not producer.try_send(each, sending):
            producer.poll(0.05)
    sending.is_complete = True
    poll_until(producer, lambda: not sending.pending)
    return sending


def test_many_messages(
    rabbit: Rabbit, producer: RabbitProducer, rng: random.Random
) -> None:
    """All are confirmed, of any size, in their order, with the original's properties.

    Many are on their way at a time.
    """
    sizes = [0, 1, 200_000, 131_072] + [rng.randrange(5000) for _ in range(3000)]
    messages = [(QUEUE, 5, rng.randbytes(each)) for each in sizes]
    producer.prepare(messages)
    assert send(producer, messages[:1]).is_confirmed
    sending, most = Sending(), 0
    for each in messages[1:]:
        while not producer.try_send(each, sending):
            producer.poll(0.05)
        most = max(most, sending.pending)
    poll_until(producer, lambda: not sending.pending)
    assert most > 100
    assert producer.confirmed == len(messages)
    connection = rabbit.connection()
    method, properties, body = connection.channel().basic_get(QUEUE, auto_ack=True)
    connection.close()
    assert (method.exchange, method.routing_key, body) == ("", QUEUE, messages[0][2])
    found = properties.content_type, properties.delivery_mode, properties.priority
    assert found == ("text/plain", 2, 0)
    assert rabbit.messages(QUEUE) == [value for _, _, value in messages[1:]]


def test_what_is_declared(rabbit: Rabbit) -> None:
    """The queue alone, or with the exchange; what exists stays as it is."""
    given = {"queue": "all", "exchange": "changes", "routingKey": "#"}
    made = of(rabbit, **given)
    with pytest.raises(BrokerUnavailableError, match="exchange changes does not exist"):
        made.open()
    made.close(0.0)
    for kind in ("topic", "topic", "fanout"):  # the last one differs from what exists
        made = of(rabbit, **given, deliveryMode=kind)
        made.open()
        assert send(made, [("a_b", 0, b"x"), ("c", 0, b"y")]).is_confirmed
        made.close(1.0)
    rabbit.create("all", "changes")  # of the same kinds, or this fails
    assert rabbit.messages("all") == [b"x", b"y"] * 3


def test_a_message_that_reaches_no_queue(
    rabbit: Rabbit, producer: RabbitProducer
) -> None:
    """It is an error with the remedy; nothing after it is sent before `renew`."""
    sending = Sending()
    assert send(producer, [(QUEUE, 0, b"1")]).is_confirmed
    assert producer.try_send((QUEUE, 0, b"2"), sending)
    assert producer.try_send(("nowhere", 0, b"3"), sending)
    assert not producer.try_send((QUEUE, 0, b"4"), sending)
    poll_until(producer, lambda: not sending.pending)
    assert "topic nowhere: no queue takes it in virtual host /" in str(sending.failure)
    assert "create queue nowhere, or set rabbitmq.exchange" in str(sending.failure)
    with pytest.raises(BrokerUnavailableError, match="nowhere"):
        producer.try_send((QUEUE, 0, b"4"), sending)
    with pytest.raises(BrokerUnavailableError, match="nowhere"):
        producer.prepare([(QUEUE, 0, b"4")])
    rabbit.create("nowhere")
    producer.renew()
    messages = [("nowhere", 0, b"3"), (QUEUE, 0, b"4")]
    producer.prepare(messages)
    assert send(producer, messages).is_confirmed
    assert rabbit.messages(QUEUE) == [b"1", b"2", b"4"]


def test_a_queue_that_goes(rabbit: Rabbit, producer: RabbitProducer) -> None:
    """Messages on their way are told apart by their content."""
    rabbit.create("other")
    messages = [(QUEUE, 0, b"0"), ("other", 0, b"0")]
    assert send(producer, messages).is_confirmed
    rabbit.delete(QUEUE)
    lost, kept = Sending(), Sending()
    assert producer.try_send(("other", 0, b"1"), kept)
    assert producer.try_send((QUEUE, 0, b"1"), lost)
    assert producer.try_send((QUEUE, 0, b"2"), lost)
    assert producer.try_send(("other", 0, b"2"), kept)
    poll_until(producer, lambda: not lost.pending and not kept.pending)
    assert lost.failure is not None
    assert kept.failure is None
    assert rabbit.messages("other") == [b"0", b"1", b"2"]


def test_a_queue_that_is_full(rabbit: Rabbit, producer: RabbitProducer) -> None:
    """What it rejects is not confirmed."""
    rabbit.create("small", arguments=FULL)
    assert send(producer, [("small", 0, b"1")]).is_confirmed
    failure = send(producer, [("small", 0, b"2")]).failure
    assert "topic small: a queue does not accept the message" in str(failure)
    assert rabbit.messages("small") == [b"1"]


def test_a_message_that_is_too_large(make_rabbit: Callable[..., Rabbit]) -> None:
    """The broker names its limit, and from then on such messages are refused."""
    rabbit = make_rabbit("max_message_size = 100000")
    rabbit.create(QUEUE)
    producer = of(rabbit)
    producer.open()
    large = (QUEUE, 0, b"x" * 100_001)
    assert send(producer, [(QUEUE, 0, b"x" * 100_000)]).is_confirmed
    for _ in range(2):  # again once it was refused: the limit may be another one
        failure = send(producer, [large]).failure
        assert "message size 100001 is larger than" in str(failure)
        producer.renew()
        producer.prepare([large])
        with pytest.raises(
            MessageRefusedError,
            match=r"than the 100000 bytes .* raise max_message_size",
        ):
            producer.try_send(large, Sending())
        assert send(producer, [(QUEUE, 0, b"y")]).is_confirmed
        producer.renew()
    producer.close(1.0)


def test_a_broker_that_ends(rabbit: Rabbit, producer: RabbitProducer) -> None:
    """What was not confirmed fails; it connects again when the broker is back."""
    sending = Sending()
    assert send(producer, [(QUEUE, 0, b"1")]).is_confirmed
    rabbit.pause()
    assert producer.try_send((QUEUE, 0, b"2"), sending)
    producer.poll(0)
    rabbit.kill()
    poll_until(producer, lambda: not sending.pending)
    assert rabbit.address in str(sending.failure)
    assert producer.last_error == str(sending.failure)
    producer.renew()
    with pytest.raises(BrokerUnavailableError, match="does not answer: Connection ref"):
        producer.prepare([(QUEUE, 0, b"2")])
    rabbit.start()
    producer.prepare([(QUEUE, 0, b"2")])
    assert send(producer, [(QUEUE, 0, b"2")]).is_confirmed
    assert producer.last_error == ""


def test_a_broker_that_is_silent(rabbit: Rabbit) -> None:
    """Heartbeats notice it; `abandon` and `close` do not wait for it."""
    rabbit.create(QUEUE)
    producer = of(rabbit, heartbeat="1")
    producer.open()
    silent = of(rabbit)
    silent.open()
    rabbit.pause()
    sending, forgotten = Sending(), Sending()
    assert silent.try_send((QUEUE, 0, b"never"), forgotten)
    silent.abandon(0.1)
    assert not forgotten.pending
    silent.close(0.1)
    assert producer.try_send((QUEUE, 0, b"x"), sending)
    poll_until(producer, lambda: not sending.pending)
    assert "heartbeat" in str(sending.failure).lower()
    rabbit.resume()
    producer.close(0.1)


def test_a_memory_alarm(rabbit: Rabbit, producer: RabbitProducer) -> None:
    """Nothing more is sent while the broker blocks publishers, and the reason shows."""
    assert send(producer, [(QUEUE, 0, b"1")]).is_confirmed
    rabbit.control("set_vm_memory_high_watermark", "0.0000001")
    sending = Sending()
    assert producer.try_send((QUEUE, 0, b"2"), sending)
    poll_until(producer, lambda: producer.last_error)
    assert "blocks publishers: low on memory" in producer.last_error
    assert not producer.try_send((QUEUE, 0, b"3"), sending)
    rabbit.control("set_vm_memory_high_watermark", "0.4")
    poll_until(producer, lambda: not sending.pending)
    assert producer.last_error == ""
    assert sending.failure is None


def test_refusals(rabbit: Rabbit, caplog: pytest.LogCaptureFixture) -> None:
    """Each names what is refused and the remedy; no secret shows, not in the log."""
    caplog.set_level(logging.DEBUG)
    for more, expected in (
        (
            {"password": "wr0ng"},
            "refuses the account canal: .* check rabbitmq.username",
        ),
        ({"virtual__host": "nope"}, "refuses the virtual host nope: .* check rabbitmq"),
        ({"exchange": "nope"}, "exchange nope does not exist in virtual host /"),
        ({"host": "127.0.0.1:1"}, "127.0.0.1:1 does not answer: Connection refused"),
    ):
        producer = of(rabbit, **more)
        with pytest.raises(BrokerUnavailableError, match=expected) as raised:
            producer.open()
        producer.close(0.0)
        assert "wr0ng" not in str(raised.value)
    # One that may read only.
    rabbit.create(QUEUE, "changes")
    rabbit.control("add_user", "reader", "s3cret")
    rabbit.control("set_permissions", "reader", "", "", ".*")
    producer = of(rabbit, username="reader", password="s3cret", exchange="changes")
    producer.open()
    failure = send(producer, [("a", 0, b"x")]).failure
    assert "refuses access to account reader: ACCESS_REFUSED" in str(failure)
    assert "rabbitmqctl set_permissions" in str(failure)
    producer.close(0.0)
    ours = [each for each in caplog.records if each.name.startswith("canal_server")]
    assert {each.levelno for each in ours} == {logging.DEBUG}
    for secret in ("wr0ng", "s3cret", rabbit.password):
        assert secret not in caplog.text


def test_several_addresses(rabbit: Rabbit) -> None:
    """The next one is tried if one does not answer."""
    rabbit.create(QUEUE)
    producer = of(rabbit, host=f"127.0.0.1:1,{rabbit.address}")
    producer.open()
    assert send(producer, [(QUEUE, 0, b"x")]).is_confirmed
    producer.close(1.0)


def test_tls(make_rabbit: Callable[..., Rabbit], tmp_path: Path) -> None:
    """Both sides show a certificate, which the other one verifies."""
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    cert, key = authority.issue("broker")
    port = free_port()
    rabbit = make_rabbit(
        f"listeners.ssl.1 = 127.0.0.1:{port}",
        f"ssl_options.cacertfile = {authority.ca_file}",
        f"ssl_options.certfile = {cert}",
        f"ssl_options.keyfile = {key}",
        "ssl_options.verify = verify_peer",
        "ssl_options.fail_if_no_peer_cert = true",
    )
    rabbit.create(QUEUE)
    store = authority.store("client", "changeit", *authority.issue("client"))
    given = {
        "host": f"127.0.0.1:{port}",
        "ssl__enabled": "true",
        "ssl__keystore__location": str(store),
        "ssl__keystore__password": "changeit",
    }
    producer = of(rabbit, **given, ssl__truststore__location=str(authority.ca_file))
    producer.open()
    messages = [(QUEUE, 0, bytes([number]) * 50_000) for number in range(100)]
    assert send(producer, messages).is_confirmed
    producer.close(1.0)
    assert rabbit.messages(QUEUE) == [value for _, _, value in messages]
    producer = of(rabbit, **given, ssl__truststore__location=str(stranger.ca_file))
    with pytest.raises(BrokerUnavailableError, match="certificate"):
        producer.open()
    producer.close(0.0)


def test_a_topic_with_a_long_name(producer: RabbitProducer) -> None:
    """It cannot be a routing key: the error says so before anything is sent."""
    with pytest.raises(BrokerUnavailableError, match="RabbitMQ accepts 255 bytes"):
        producer.prepare([("ä" * 128, 0, b"x")])
