"""The words for what Kafka refuses."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from canal_server.queues.producers.kafka_refusals import Refusals
from canal_server.queues.producers.queue_producer import BrokerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_message_without_a_key() -> None:
    """The remedy fits the settings: keys or none, own topics, and that of notes."""
    plain = Refusals().no_key("shop", "table a.b")
    assert plain == (
        "topic shop is compacted and refuses a message without a key (table a.b): set"
        " canal.mq.keys = primaryKey, or set cleanup.policy = delete for it"
    )
    keyed = Refusals(has_keys=True, creates_compacted=True).no_key("shop", "table a.b")
    assert "canal.mq.keys" not in keyed
    assert "leave it out with canal.instance.filter.black.regex" in keyed
    assert keyed.endswith("= delete for it and in canal.mq.topics.settings")
    assert ", which you create before with cleanup.policy = delete, leave" in keyed
    other = Refusals(has_keys=True).no_key("shop", "table a.b")
    assert "with canal.mq.dynamicTopic, leave it out" in other
    notes = Refusals(notes_topic="notes", has_keys=True).no_key("notes", "table a.b")
    assert notes.endswith(
        "it is that of notes (canal.mq.tooLargeTopic), so set cleanup.policy = delete"
        " for it"
    )


def test_a_missing_topic() -> None:
    """The key that has it created is there, and how many partitions it needs."""
    words = Refusals(partitions_of=lambda _: 4)
    text = words.missing("shop", "a:9092", 0)
    assert "create it with 4 partitions, set canal.mq.topics.create = true" in text
    assert "with 7 partitions" in words.missing("shop", "a:9092", 6)
    assert "with 1 partition," in Refusals().missing("shop", "a:9092", 0)


def test_a_topic_of_notes_is_not_proposed_twice() -> None:
    """Who has it needs no advice to set it."""
    assert "canal.mq.tooLargeTopic" in Refusals().own_limit("5")
    assert "tooLarge" not in Refusals(notes_topic="notes").own_limit("5")
    assert "tooLarge" not in Refusals(notes_topic="notes").topic_limit("shop", None)


def test_a_start_is_advised_where_delivery_has_stopped() -> None:
    """Not where a note was sent; where none can be, as its own topic refuses it."""
    begins = ", and start the destination"
    with_notes = Refusals(notes_topic="notes")
    assert begins not in with_notes.topic_limit("shop", None)
    assert begins in with_notes.topic_limit("notes", None)
    assert begins in Refusals().topic_limit("shop", None)
    unable = Refusals(notes_key="")
    assert begins in unable.topic_limit("shop", None)
    assert "canal.mq.tooLargeTopic" not in unable.topic_limit("shop", None)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (
            (
                "a.b:3306/bootstrap: Receive failed: Invalid response size 1241513984"
                " (0..100000000): increase receive.message.max.bytes (after 0ms in"
                " state APIVERSION_QUERY)"
            ),
            "a.b:3306 does not answer as Kafka does: it is the port of another service",
        ),
        (
            (
                "ssl://[::1]:9/bootstrap: Disconnected while requesting ApiVersion:"
                " might be caused by incorrect security.protocol configuration"
                " (connecting to a SSL listener?) or broker version is < 0.10"
            ),
            "ssl://[::1]:9 does not answer as Kafka does",
        ),
        (
            (
                "ssl://a:9/1: SSL handshake failed: error:0A00010B:SSL routines::wrong"
                " version number: connecting to a PLAINTEXT broker listener?"
            ),
            "ssl://a:9 does not answer with TLS: it is a listener of Kafka without TLS",
        ),
        ("0/2 brokers are down", "connections are closed without an answer"),
        ("a:9/bootstrap: Connection refused", "a:9/bootstrap: Connection refused"),
    ],
)
def test_advice_that_misleads(text: str, meant: str) -> None:
    """It is replaced by what it may be, with the keys to look at; the rest stays."""
    found = Refusals().of_connection(text)
    assert found.startswith(meant)
    assert found == text or "kafka.bootstrap.servers" in found


def test_a_login_is_not_shown() -> None:
    """What librdkafka repeats of the parameters of a token is left out."""
    text = "Failed: Unrecognized sasl.oauthbearer.config beginning at: x=s3cret"
    found = Refusals().of_connection(text)
    assert (
        found == "Failed: Unrecognized sasl.oauthbearer.config beginning at: (hidden)"
    )


@pytest.fixture(params=[b"HTTP/1.1 400 Bad Request\r\n\r\n", b"J\0\0\0\n8.0.36\0", b""])
def other_service(request: pytest.FixtureRequest) -> Iterator[int]:
    """Give the port of something that answers in another protocol, or not at all."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:  # the end of the test
                return
            with peer:
                peer.recv(1000)
                if request.param:
                    peer.sendall(request.param)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_a_port_of_another_service(other_service: int) -> None:
    """The error says that it does not speak Kafka, and names the key of addresses."""
    pytest.importorskip("confluent_kafka", reason="no extra `kafka`")
    module: Any = pytest.importorskip("canal_server.queues.producers.kafka_producer")
    producer = module.KafkaProducer({"bootstrap.servers": f"127.0.0.1:{other_service}"})
    with pytest.raises(BrokerUnavailableError) as raised:
        producer.open()
    producer.close(0.0)
    assert "kafka.bootstrap.servers" in str(raised.value)
    assert "SSL listener" not in str(raised.value)
    assert "receive.message.max.bytes" not in str(raised.value)
