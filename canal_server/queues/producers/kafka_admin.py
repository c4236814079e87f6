"""Asks the brokers of Kafka about topics, settings and rights, and creates topics."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from canal_server.queues.producers.kafka_refusals import TOPIC_LIMIT
from canal_server.queues.producers.queue_producer import BrokerUnavailableError
from canal_server.runtime.optional_packages import optional_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

logger = logging.getLogger(__name__)

ANSWER_S: Final = 3.0  # that a call waits for brokers
CLEANUP: Final = "cleanup.policy"
COMPACT: Final = "compact"
_NO_CREATION: Final = "; allow Create on it or on the cluster, or create it"
_PARTITIONS: Final = (
    "; lower canal.mq.partitionsNum, canal.mq.dynamicTopicPartitionNum or"
    " canal.mq.partition"
)


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """How topics are created: their partitions, replicas and settings.

    `partitions_of` returns how many partitions a topic is to have. -1 replicas: as many
    as the brokers make by default. `uncompacted` are never compacted.
    """

    partitions_of: Callable[[str], int]
    replicas: int = -1
    settings: Mapping[str, str] = field(default_factory=dict)
    uncompacted: frozenset[str] = frozenset()

    def settings_of(self, topic: str) -> dict[str, str]:
        """Return the settings of one topic."""
        found = dict(self.settings)
        if topic in self.uncompacted and COMPACT in found.get(CLEANUP, ""):
            del found[CLEANUP]  # the brokers' default holds
        return found


class Unread(NamedTuple):
    """Why settings cannot be read; `is_forbidden`: the account may not."""

    text: str
    is_forbidden: bool


class Described(NamedTuple):
    """Settings of topics or brokers by name, and why others could not be read."""

    settings: dict[str, dict[str, Any]]
    unread: dict[str, Unread]


class KafkaAdmin:
    """A client of the brokers for what is no message.

    `settings` are those of connections; `last_error` returns the last error of one.
    """

    def __init__(
        self, settings: Mapping[str, Any], servers: str, last_error: Callable[[], str]
    ) -> None:
        self._kafka = optional_module("confluent_kafka", "Kafka", extra="kafka")
        self._module = optional_module("confluent_kafka.admin", "Kafka", extra="kafka")
        self._client = self._module.AdminClient(dict(settings), logger=Details())
        self._servers = servers
        self._last_error = last_error

    # --- topics that are created ------------------------------------------------------

    def create(self, topic: str, partitions: int, creation: TopicCreation) -> bool:
        """Create a topic; false: it exists. Raises BrokerUnavailableError."""
        why_not = self._creation({topic: partitions}, creation, only_asks=False)[topic]
        if why_not:
            raise BrokerUnavailableError(why_not)
        return why_not is not None

    def why_not_created(
        self, wanted: Mapping[str, int], creation: TopicCreation
    ) -> dict[str, str | None]:
        """Return why topics cannot be created, by their names; nothing is created.

        `wanted` are their partitions. Empty: it can be; None: it exists.
        """
        return self._creation(wanted, creation, only_asks=True)

    def _creation(
        self, wanted: Mapping[str, int], creation: TopicCreation, *, only_asks: bool
    ) -> dict[str, str | None]:
        new = [
            self._module.NewTopic(
                topic,
                num_partitions=partitions,
                replication_factor=creation.replicas,
                config=creation.settings_of(topic),
            )
            for topic, partitions in wanted.items()
        ]
        if not new:
            return {}
        whys: dict[str, str | None]
        try:
            answers = self._client.create_topics(
                new, operation_timeout=ANSWER_S, validate_only=only_asks
            )
        except ValueError as error:
            if len(wanted) > 1:  # which of them is it?
                return {
                    topic: self._creation({topic: each}, creation, only_asks=only_asks)[
                        topic
                    ]
                    for topic, each in wanted.items()
                }
            remedy = _PARTITIONS if "num_partitions" in str(error) else ""
            whys = dict.fromkeys(wanted, f"{error}{remedy}")
        else:
            whys = {
                topic: self._why_not(answer, creation)
                for topic, answer in answers.items()
            }
        for topic, why in whys.items():
            if why:
                whys[topic] = f"topic {topic} cannot be created: {why}"
            elif why == "" and not only_asks:
                logger.info("created topic %s at %s", topic, self._servers)
        return whys

    def _why_not(self, answer: Any, creation: TopicCreation) -> str | None:
        """Return why a topic cannot be created; empty: it can be, None: it exists."""
        codes = self._kafka.KafkaError
        try:
            answer.result(ANSWER_S)
        except TimeoutError:
            return f"Kafka at {self._servers} does not answer: {self._last_error()}"
        except self._kafka.KafkaException as error:
            code, text = error.args[0].code(), error.args[0].str()
        else:
            return ""
        if code == codes.TOPIC_ALREADY_EXISTS:
            return None
        listed = ",".join(
            f"{name}={value}" for name, value in creation.settings.items()
        )
        remedies = {
            codes.TOPIC_AUTHORIZATION_FAILED: _NO_CREATION,
            codes.CLUSTER_AUTHORIZATION_FAILED: _NO_CREATION,
            codes.INVALID_CONFIG: f"; correct canal.mq.topics.settings = {listed}",
            codes.INVALID_REPLICATION_FACTOR: (
                f"; lower canal.mq.topics.replicas = {creation.replicas}"
            ),
            codes.INVALID_PARTITIONS: _PARTITIONS,
        }
        return f"{text.rstrip('.')}{remedies.get(code, '')}"

    # --- settings ---------------------------------------------------------------------

    def broker_setting(self, broker: int, name: str) -> str:
        """Return a setting of a broker; empty: the account may not read it.

        Raises BrokerUnavailableError when there is no answer.
        """
        described = self._described("BROKER", [str(broker)])
        if (why := described.unread.get(str(broker))) is not None:
            if not why.is_forbidden:
                raise BrokerUnavailableError(
                    f"settings of broker {broker} of Kafka at {self._servers}:"
                    f" {why.text}"
                )
            return ""
        found = described.settings[str(broker)]
        return found[name].value or "" if name in found else ""

    def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the settings of topics, but of those that cannot be read.

        Each has `value`, and `source`, which says where it is set.
        """
        return self.described_topics(topics).settings

    def described_topics(self, topics: Iterable[str]) -> Described:
        """Return the same, and why others cannot be read."""
        return self._described("TOPIC", topics)

    def _described(self, kind: str, names: Iterable[str]) -> Described:
        of_kind = self._module.ResourceType[kind]
        asked = [self._module.ConfigResource(of_kind, each) for each in names]
        found = Described({}, {})
        if not asked:
            return found
        codes = self._kafka.KafkaError
        forbidden = (
            codes.TOPIC_AUTHORIZATION_FAILED, codes.CLUSTER_AUTHORIZATION_FAILED
        )  # fmt: skip
        answers = self._client.describe_configs(asked, request_timeout=ANSWER_S)
        for resource, answer in answers.items():
            try:
                found.settings[resource.name] = answer.result(ANSWER_S)
            except self._kafka.KafkaException as error:
                cause = error.args[0]
                why = Unread(cause.str(), cause.code() in forbidden)
                found.unread[resource.name] = why
            except TimeoutError:
                found.unread[resource.name] = Unread("no answer", is_forbidden=False)
        return found

    # --- rights -----------------------------------------------------------------------

    def denied(self, topics: Iterable[str], *wanted: str) -> dict[str, list[str]]:
        """Return what the account may not do with existing topics, by their names.

        `wanted` are operations such as "Write". Brokers before 2.3 do not report them.
        Raises BrokerUnavailableError.
        """
        names = list(topics)
        if not names:
            return {}
        answers = self._client.describe_topics(
            self._kafka.TopicCollection(names),
            request_timeout=ANSWER_S,
            include_authorized_operations=True,
        )
        found = {}
        for name, answer in answers.items():
            try:
                allowed = answer.result(ANSWER_S).authorized_operations
            except self._kafka.KafkaException as error:
                raise BrokerUnavailableError(
                    f"topic {name}: {error.args[0].str()}"
                ) from None
            except TimeoutError:
                raise BrokerUnavailableError(
                    f"topic {name}: Kafka at {self._servers} does not answer"
                ) from None
            operations = self._module.AclOperation
            missing = [
                each
                for each in wanted
                if allowed and operations[each.upper()] not in allowed
            ]
            if missing:
                found[name] = missing
        return found


class TopicSettings:
    """Settings of topics that refused something, as the brokers report them.

    Messages are refused by the thousands: the brokers are asked once for a topic, until
    `clear`. What the account may not read is unknown.
    """

    def __init__(self, ask: Callable[[str], dict[str, Any]]) -> None:
        """Set what asks the brokers for the settings of a topic."""
        self._ask = ask
        self._known: dict[str, dict[str, Any]] = {}
        self._occasion: object = None
        self._again: set[str] = set()  # asked again, on that occasion

    def limit(self, topic: str) -> Any:
        """Return how large batches may be, with `value` and `source`; None: unknown."""
        return self._of(topic).get(TOPIC_LIMIT)

    def limit_below(self, topic: str, size: int, occasion: object) -> Any:
        """Return the same, after a message of a size was refused.

        Of a size that is allowed, the limit was lowered: the brokers are asked again,
        but once on an occasion.
        """
        if occasion is not self._occasion:
            self._occasion, self._again = occasion, set()
        if topic not in self._known:
            self._again.add(topic)
        found = self.limit(topic)
        if found and size <= int(found.value) and topic not in self._again:
            self._again.add(topic)
            del self._known[topic]
            found = self.limit(topic)
        return found

    def is_compacted(self, topic: str) -> bool:
        """Return whether a topic is compacted, as far as that is known."""
        return is_compacted(self._of(topic))

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()
        self._occasion, self._again = None, set()

    def _of(self, topic: str) -> dict[str, Any]:
        if topic not in self._known:
            self._known[topic] = {}  # also if the question fails
            self._known[topic] = self._ask(topic)
        return self._known[topic]


def is_compacted(settings: Mapping[str, Any]) -> bool:
    """Return whether a topic with these settings is compacted."""
    return CLEANUP in settings and COMPACT in (settings[CLEANUP].value or "")


class Details:
    """Takes what librdkafka logs: its errors are in those of messages and calls."""

    def log(self, _level: int, text: str, *args: object) -> None:
        """Log it for those who look for details."""
        logger.debug(text, *args)
