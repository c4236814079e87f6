"""What it means when Kafka refuses something, and the remedy, by keys of settings.

Texts of librdkafka name its own settings, which nobody here has written, and guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

NOTES_KEY: Final = "canal.mq.tooLargeTopic"
TOPIC_LIMIT: Final = "max.message.bytes"
_BROKER_LIMIT: Final = "message.max.bytes"
_OF_TOPIC: Final = 1  # source of a setting: it is set for the topic itself
_ADDRESS: Final = re.compile(r"\S+?(?=/(?:bootstrap|\d+): )")
_NO_KAFKA: Final = re.compile(r"Invalid response size|while requesting ApiVersion")
_NO_TLS: Final = re.compile(r"SSL handshake failed.*wrong version number")
# It continues with a part of the value, which may be a secret.
_OF_LOGIN: Final = re.compile(
    r"(sasl\.oauthbearer\.config beginning at: ).*", re.DOTALL
)
_ALL_DOWN: Final = re.compile(r"\d+/\d+ brokers are down")
_PARTITION_KEYS: Final = (
    "canal.mq.partitionsNum, canal.mq.dynamicTopicPartitionNum or canal.mq.partition"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """The words for refusals; the defaults are those of the server's settings.

    `partitions_of` returns how many partitions a topic is to have. `notes_topic` gets
    notes in place of messages that are too large; empty: none does. `notes_key` is the
    setting for it; empty: no note can be sent, whatever is set.
    """

    servers_key: str = "kafka.bootstrap.servers"
    protocol_key: str = "kafka.security.protocol"
    buffer_key: str = "kafka.buffer.memory"
    size_key: str = "kafka.max.request.size"
    batch_key: str = "kafka.batch.size"
    batch_note: str = "; 16384 counts as not set"
    restart: str = " and restart canal-server"
    start: str = ", and start the destination"
    notes_key: str = NOTES_KEY
    notes_topic: str = ""
    create: str = "set canal.mq.topics.create = true, "
    has_keys: bool = False  # messages have them where tables have a primary key
    creates_compacted: bool = False
    topics_key: str = "canal.mq.dynamicTopic"
    partition_keys: str = _PARTITION_KEYS
    unkeyed: str = "set canal.mq.keys = primaryKey, or "
    partitions_of: Callable[[str], int] | None = None

    def own_limit(self, limit: str) -> str:
        """Return why a message is refused that is too large for the producer."""
        return (
            f"is larger than {self.size_key} = {limit}: raise it{self.restart}"
            f"{self._notes}"
        )

    def topic_limit(self, topic: str, setting: Any) -> str:
        """Return why a message is refused that is too large for its topic.

        `setting` is `max.message.bytes` as the brokers report it, None: unknown. A
        delivery that has sent a note continues by itself.
        """
        sends_note = self.notes_topic and topic != self.notes_topic
        start = "" if sends_note else self.start
        if setting is None:
            limit = f"{TOPIC_LIMIT} of the topic, or {_BROKER_LIMIT} of the brokers,"
            return f"is larger than {limit} allows: raise it{start}{self._notes}"
        return (
            f"is larger than {_limit_of(setting)}: raise {TOPIC_LIMIT} of the"
            f" topic{start}{self._notes}"
        )

    def small_batches(self, topic: str, setting: Any, batch_bytes: str) -> str:
        """Return what follows when a topic refuses a batch of several messages."""
        limit = f"a lower {TOPIC_LIMIT}" if setting is None else _limit_of(setting)
        return (
            f"topic {topic} refuses a batch, as it has {limit}, and batches have up to"
            f" {batch_bytes} bytes ({self.batch_key}{self.batch_note}): from now on"
            " messages are sent one by one, which is slower; raise"
            f" {TOPIC_LIMIT} of the topic, or lower {self.batch_key}"
        )

    def no_key(self, topic: str, about: str) -> str:
        """Return why a compacted topic refuses a message without a key."""
        policy = "set cleanup.policy = delete for it"
        if self.creates_compacted and topic != self.notes_topic:
            policy += " and in canal.mq.topics.settings"
        if topic == self.notes_topic:
            remedy = f"it is that of notes ({self.notes_key}), so {policy}"
        elif self.has_keys:
            before = ""
            if self.creates_compacted:  # it would be the same with any new topic
                before = ", which you create before with cleanup.policy = delete"
            remedy = (
                "the table has no primary key: send it to another topic with"
                f" canal.mq.dynamicTopic{before}, leave it out with"
                f" canal.instance.filter.black.regex, or {policy}"
            )
        else:
            remedy = f"{self.unkeyed}{policy}"
        return (
            f"topic {topic} is compacted and refuses a message without a key"
            f"{about and f' ({about})'}: {remedy}"
        )

    def missing(self, topic: str, servers: str, partition: int) -> str:
        """Return what to do about a topic that does not exist."""
        needed = partition + 1
        if self.partitions_of is not None:
            needed = max(needed, self.partitions_of(topic))
        number = "1 partition" if needed == 1 else f"{needed} partitions"
        return (
            f"topic {topic} does not exist at {servers}, or the account may not see it:"
            f" create it with {number}, {self.create}or let the brokers do so"
            " (auto.create.topics.enable)"
        )

    def few_partitions(self, topic: str, count: int, partition: int) -> str:
        """Return what to do about a topic without the partition of a message."""
        return (
            f"topic {topic} has {count} partitions, a message is for partition"
            f" {partition}: add partitions, or lower {self.partition_keys}"
        )

    def no_name(self, topic: str) -> str:
        """Return what to do about a name that no topic can have."""
        return (
            f"topic {topic}: Kafka accepts letters of ASCII, digits, '.', '_' and '-'"
            " in a name: name the topic of such tables with topic:expression in"
            f" {self.topics_key}"
        )

    @property
    def buffer_limit(self) -> str:
        """Return why a message is refused that no buffer has room for."""
        return f"is larger than {self.buffer_key}: raise that"

    def of_connection(self, text: str) -> str:
        """Return what an error of a connection says, without advice that misleads."""
        found = _ADDRESS.search(text)
        address = found[0] if found else "the address"
        if _NO_KAFKA.search(text):
            return (
                f"{address} does not answer as Kafka does: it is the port of another"
                f" service, or expects TLS ({self.protocol_key} = SSL or SASL_SSL);"
                f" check {self.servers_key}"
            )
        if _NO_TLS.search(text):
            return (
                f"{address} does not answer with TLS: it is a listener of Kafka without"
                f" TLS ({self.protocol_key} = PLAINTEXT or SASL_PLAINTEXT), or the port"
                f" of another service; check {self.servers_key}"
            )
        if _ALL_DOWN.fullmatch(text):
            return (
                f"connections are closed without an answer: check {self.servers_key},"
                f" which may be another service, and {self.protocol_key}"
            )
        return _OF_LOGIN.sub(r"\1(hidden)", text)

    @property
    def _notes(self) -> str:
        if not self.notes_key or self.notes_topic:
            return ""
        return f", or set {self.notes_key}"


def _limit_of(setting: Any) -> str:
    if setting.source == _OF_TOPIC:
        return f"{TOPIC_LIMIT} = {setting.value} of the topic"
    return f"{_BROKER_LIMIT} = {setting.value} of the brokers"
