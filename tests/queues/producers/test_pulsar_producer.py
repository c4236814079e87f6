"""The producer for Pulsar, with a real broker."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pulsar", reason="the extra `pulsar` is not installed")

from canal_server.queues.producers.pulsar_producer import PulsarProducer
from canal_server.queues.producers.pulsar_settings import pulsar_settings
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
    Sending,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from fix_pulsar import Pulsar

    from canal_server.queues.producers.queue_producer import Message

PATIENCE_S = 90.0
SECRET = "s3cret-of-a-role"
KEY = bytes(range(64))  # of tokens


def token_of(role: str) -> str:
    """Return a token of a role, by the key of the broker."""

    def text(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    head = text(json.dumps({"alg": "HS256"}).encode())
    signed = f"{head}.{text(json.dumps({'sub': role}).encode())}"
    mac = hmac.new(KEY, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{text(mac)}"


def of(
    broker: Pulsar, /, partitions_of: Callable[[str], int] | None = None, **more: str
) -> PulsarProducer:
    """Return a producer."""
    given = {"serverUrl": broker.url, **more}
    return PulsarProducer(pulsar_settings(given), partitions_of=partitions_of)


def poll_until(producer: PulsarProducer, condition: Callable[[], Any]) -> None:
    """Poll until something is the case."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        producer.poll(0.05)
        assert time.monotonic() < give_up_at, producer.last_error


def opened(producer: PulsarProducer, messages: Sequence[Message]) -> None:
    """Prepare messages; a broker that has just started may need several attempts."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            producer.prepare(messages)
        except BrokerUnavailableError:
            assert time.monotonic() < give_up_at
            producer.poll(0.2)
        else:
            return


def send(producer: PulsarProducer, messages: Sequence[Message]) -> Sending:
    """Send messages, and wait until all are answered, or until one fails."""
    opened(producer, messages)
    sending = Sending()
    for each in messages:
        while not producer.try_send(each, sending):
            producer.poll(0.05)
    sending.is_complete = True
    poll_until(producer, lambda: not sending.pending)
    return sending


def test_partitions(shared_pulsar: Pulsar, rng: random.Random) -> None:
    """Many messages of any size are in their partitions, in order, with its number.

    A number that is too large goes to the rest of the division, as in the original;
    all of them to a topic without partitions.
    """
    shared_pulsar.create("parted", 3)
    sizes = [1, 200_000, 131_072] + [rng.randrange(1, 5000) for _ in range(3000)]
    messages = [
        (topic, rng.randrange(7), rng.randbytes(each))
        for each in sizes
        for topic in ("parted", "whole")
    ]
    producer = of(shared_pulsar)
    producer.open()
    sending, most = Sending(), 0
    opened(producer, messages)
    for each in messages:
        while not producer.try_send(each, sending):
            producer.poll(0.05)
        most = max(most, sending.pending)
    sending.is_complete = True
    poll_until(producer, lambda: not sending.pending)
    assert sending.is_confirmed
    assert most > 100
    assert producer.confirmed == len(messages)
    producer.close(1.0)
    parted = {f"parted-partition-{number}": ("parted", number) for number in range(3)}
    for name, (topic, number) in (parted | {"whole": ("whole", None)}).items():
        expected = [
            each
            for each in messages
            if each[0] == topic and number in (None, each[1] % 3)
        ]
        found = shared_pulsar.messages(name, len(expected))
        assert [each.data() for each in found] == [each[2] for each in expected]
        assert [each.properties() for each in found] == [
            {"partitionNum": str(each[1])} for each in expected
        ]


def test_keys_headers_and_tombstones(shared_pulsar: Pulsar) -> None:
    """A message has its key, its headers as properties, and perhaps no value."""
    producer = of(shared_pulsar, topicTenantPrefix="persistent://public/default/")
    headers = [("file", b"bin.1"), ("position", b"4")]
    sending = send(
        producer,
        [
            ("keyed", 0, b"x", b'{"id":1}', headers),
            ("keyed", 0, None, b'"\xc3\xa4"', None),
        ],
    )
    assert sending.is_confirmed
    producer.close(1.0)
    first, second = shared_pulsar.messages("public/default/keyed", 2)
    assert (first.partition_key(), first.data()) == ('{"id":1}', b"x")
    expected = {"partitionNum": "0", "file": "bin.1", "position": "4"}
    assert first.properties() == expected
    assert (second.partition_key(), second.has_null_value()) == ('"ä"', True)


@pytest.mark.parametrize("compression", ["LZ4", "ZLIB", "ZSTD", "SNAPPY"])
def test_compression(shared_pulsar: Pulsar, compression: str) -> None:
    """Each of Pulsar's arrives as it was sent."""
    topic, text = f"small{compression}", b"abc" * 10_000
    producer = of(shared_pulsar, compressionType=compression)
    assert send(producer, [(topic, 0, text)]).is_confirmed
    producer.close(1.0)
    assert [each.data() for each in shared_pulsar.messages(topic, 1)] == [text]


def test_topics_that_are_created(shared_pulsar: Pulsar) -> None:
    """With the administrative service, a missing topic gets its partitions.

    One that exists stays as it is. Without the service, brokers create topics.
    """
    shared_pulsar.create("made_before", 2)
    producer = of(shared_pulsar, lambda _: 4, adminServerUrl=shared_pulsar.admin_url)
    producer.open()
    for topic, count in (("made_now", 4), ("made_before", 2)):
        assert producer.partitions(topic) == count
        assert send(producer, [(topic, 3, b"x")]).is_confirmed
        assert len(shared_pulsar.messages(f"{topic}-partition-{3 % count}", 1)) == 1
    producer.close(1.0)
    producer = of(shared_pulsar, lambda _: 4)
    assert producer.partitions("made_by_the_broker") == 0
    assert send(producer, [("made_by_the_broker", 3, b"x")]).is_confirmed
    producer.close(1.0)


def test_what_is_refused(shared_pulsar: Pulsar) -> None:
    """A namespace that does not exist; a terminated topic; each names the remedy.

    Nothing is sent after a failure before `renew`.
    """
    producer = of(shared_pulsar, topicTenantPrefix="public/none")
    with pytest.raises(BrokerUnavailableError, match=r"topic a: .* create it, set"):
        producer.prepare([("a", 0, b"x")])
    producer.close(0.0)
    producer = of(
        shared_pulsar,
        lambda _: 2,
        topicTenantPrefix="public/none",
        adminServerUrl=shared_pulsar.admin_url,
    )
    with pytest.raises(BrokerUnavailableError, match=r"it was not created: .* 404 "):
        producer.prepare([("a", 0, b"x")])
    producer.close(0.0)
    producer = of(shared_pulsar)
    assert send(producer, [("ended", 0, b"1"), ("other", 0, b"1")]).is_confirmed
    shared_pulsar.admin("POST", "persistent/public/default/ended/terminate")
    sending = Sending()
    assert producer.try_send(("ended", 0, b"2"), sending)
    poll_until(producer, lambda: not sending.pending)
    assert "has the topic terminated" in str(sending.failure)
    with pytest.raises(BrokerUnavailableError, match="terminated"):
        producer.try_send(("other", 0, b"2"), sending)
    with pytest.raises(BrokerUnavailableError, match="terminated"):
        producer.prepare([("other", 0, b"2")])
    producer.renew()
    assert send(producer, [("other", 0, b"2")]).is_confirmed
    producer.close(1.0)


def test_a_message_that_is_too_large(make_pulsar: Callable[..., Pulsar]) -> None:
    """It is refused for good, with the remedy; a batch that is, is sent one by one.

    With chunking, it is sent in pieces.
    """
    broker = make_pulsar("maxMessageSize=60000")
    producer = of(broker)
    large = ("sizes", 0, b"x" * 200_000)
    (refused,) = send(producer, [("sizes", 0, b"1"), large]).refused
    assert isinstance(refused[1], MessageRefusedError)
    assert "a message of 200000 bytes is larger than" in str(refused[1])
    assert "maxMessageSize" in str(refused[1])
    many = [("sizes", 0, b"%d" % number + b"y" * 20_000) for number in range(6)]
    failure = send(producer, many).failure
    assert "from now on messages are sent one by one" in str(failure)
    producer.renew()
    assert send(producer, many).is_confirmed
    ((message, error),) = send(producer, [("sizes", 0, b"z" * 70_000)]).refused
    assert (message[0], error.size) == ("sizes", 70_000)
    producer.close(1.0)
    producer = of(broker, enableChunking="true")
    assert send(producer, [("pieces", 0, b"x" * 200_000)]).is_confirmed
    producer.close(1.0)
    (found,) = broker.messages("pieces", 1)
    assert found.data() == b"x" * 200_000


def test_a_broker_that_is_away(make_pulsar: Callable[..., Pulsar]) -> None:
    """What was sent is confirmed when it is back; the reason shows meanwhile."""
    broker = make_pulsar()
    producer = of(broker)
    assert send(producer, [("a", 0, b"1")]).is_confirmed
    broker.kill()
    sending = Sending()
    assert producer.try_send(("a", 0, b"2"), sending)
    poll_until(producer, lambda: producer.last_error)
    assert f"{broker.servers} does not answer: Connection refused" in (
        producer.last_error
    )
    other = of(broker)
    with pytest.raises(BrokerUnavailableError, match="does not answer: Connection ref"):
        other.prepare([("a", 0, b"3")])
    other.close(0.0)
    forgotten = of(broker)
    forgotten.close(0.1)
    broker.start()
    poll_until(producer, lambda: not sending.pending)
    assert sending.failure is None
    assert producer.last_error == ""
    assert send(producer, [("a", 0, b"3")]).is_confirmed
    producer.close(1.0)
    assert [each.data() for each in broker.messages("a", 3)] == [b"1", b"2", b"3"]


def test_abandoned_messages(make_pulsar: Callable[..., Pulsar]) -> None:
    """They count as failed, and are not sent when the broker is back."""
    broker = make_pulsar()
    producer = of(broker)
    assert send(producer, [("a", 0, b"1")]).is_confirmed
    broker.kill()
    sending = Sending()
    assert producer.try_send(("a", 0, b"never"), sending)
    producer.abandon(0.1)
    assert not sending.pending
    assert sending.failure is not None
    broker.start()
    assert send(producer, [("a", 0, b"2")]).is_confirmed
    producer.close(1.0)
    assert [each.data() for each in broker.messages("a", 2)] == [b"1", b"2"]


def test_tokens(make_pulsar: Callable[..., Pulsar], tmp_path: Any) -> None:
    """One that is wrong, or may not produce, is reported as such; no token is shown."""
    key = tmp_path / "secret.key"
    key.write_bytes(KEY)
    admin, role = token_of("admin"), token_of("canal")
    broker = make_pulsar(
        "authenticationEnabled=true",
        "authorizationEnabled=true",
        "authenticationProviders=org.apache.pulsar.broker.authentication"
        ".AuthenticationProviderToken",
        f"tokenSecretKey=file://{key}",
        "superUserRoles=admin",
        "brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth"
        ".AuthenticationToken",
        f"brokerClientAuthenticationParameters=token:{admin}",
        token=admin,
    )
    for token, expected in (
        (SECRET, "though it can be connected to: check pulsarmq.roleToken"),
        (role, "does not let the token produce: grant its role"),
    ):
        producer = of(broker, roleToken=token)
        with pytest.raises(BrokerUnavailableError, match=expected) as raised:
            producer.prepare([("a", 0, b"x")])
        producer.close(0.0)
        assert token not in str(raised.value)
    broker.admin("POST", "namespaces/public/default/permissions/canal", '["produce"]')
    producer = of(broker, roleToken=role)
    assert send(producer, [("a", 0, b"x")]).is_confirmed
    producer.close(1.0)
    producer = of(broker, lambda _: 2, roleToken=admin, adminServerUrl=broker.admin_url)
    producer.open()
    assert producer.partitions("made") == 2
    producer.close(1.0)
