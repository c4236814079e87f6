"""Sends messages to Apache Kafka: idempotent, confirmed by all replicas, in order."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from canal_server.messages import delivery_messages
from canal_server.queues.message_content import subject_of
from canal_server.queues.producers.kafka_admin import (
    Details,
    KafkaAdmin,
    TopicSettings,
)
from canal_server.queues.producers.kafka_refusals import Refusals
from canal_server.queues.producers.kafka_settings import (
    SettingRefusedError,
    refused_texts,
)
from canal_server.queues.producers.queue_producer import (
    KEYED,
    BrokerUnavailableError,
    MessageRefusedError,
    headers_of,
    key_of,
    size_of,
)
from canal_server.runtime.optional_packages import optional_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from canal_server.errors import CanalError
    from canal_server.queues.producers.kafka_admin import TopicCreation
    from canal_server.queues.producers.queue_producer import Message, Sending

log = logging.getLogger(__name__)

OPEN_S: Final = 3.0  # that a call waits for brokers; whoever needs more repeats it
CREATED_S: Final = 3.0  # until a topic is there that brokers create
_POLL_S: Final = 0.05
_OF_MESSAGES: Final = (
    "batch.size", "compression.level", "compression.type", "linger.ms", "max.in.flight",
    "queue.buffering.max.kbytes", "transaction.timeout.ms", "transactional.id",
)  # fmt: skip
AUTO_CREATE: Final = "auto.create.topics.enable"  # of the brokers
_LINGER: Final = "linger.ms"
_SIZE: Final = "message.max.bytes"
_BATCH: Final = "batch.size"
_OURS: Final = {
    _LINGER: "5",
    "compression.type": "lz4",
    _SIZE: "1048576",  # as of the Java client
    # A request has messages of one partition. What waits for an answer grows into
    # larger ones: with more of them on their way, brokers are busy with small ones.
    "max.in.flight": "2",
}
# While more follows, requests grow; what comes last is pushed.
_PUSHED: Final = {_LINGER: "50"}
_PUSH_S: Final = 0.002  # until its thread has seen it, or all is confirmed
# The broker's limit is one of batches, so a batch of small messages may be too large.
_ONE_BY_ONE: Final = {"batch.num.messages": "1"}
# After an error of a message it would send those that follow: they fail as well.
_NO_GAPS: Final = {"enable.gapless.guarantee": "true"}
# How long a producer that sends nothing more waits for answers. What follows the failed
# message was refused, and librdkafka would send that again for ever.
_DEAD_S: Final = 2.0
_BATCH_BYTES: Final = "1000000"  # librdkafka's default
OF_SERVER: Final = Refusals()
_FIXED: Final = {
    "enable.idempotence": "true",  # implies acks=all, and keeps the order of partitions
    "message.timeout.ms": "0",  # never given up by the library
    "acks": "all",
}


class KafkaProducer:
    """A producer of one thread; implements `queue_producer.Producer`.

    `settings` are those of librdkafka, with `bootstrap.servers`; without `creation`,
    the brokers create topics, or nobody. Raises ConfigError for settings that are
    refused.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        purpose: str = "Kafka",
        refusals: Refusals = OF_SERVER,
        creation: TopicCreation | None = None,
        fixed: Mapping[str, str] | None = None,
        passes_refused: bool = False,
        is_pushed: bool = False,
    ) -> None:
        """Check the settings; `fixed` are further ones that nobody can change.

        `refusals` has the words for what brokers refuse.
        `is_pushed`: whoever sends calls `push` when nothing follows soon. So messages
        wait for others that long, unless `settings` say how long they do.
        `passes_refused`: what follows a message that is too large is sent. Else no
        message of a partition is sent after one that failed.
        """
        self._kafka = optional_module("confluent_kafka", purpose, extra="kafka")
        # Of a transaction with a failed message nothing is delivered anyway.
        self._is_ordered = "transactional.id" not in (fixed or {})
        self._is_pushed = is_pushed and _LINGER not in settings
        ours = _OURS | _PUSHED if self._is_pushed else _OURS
        self._config = {**ours, **settings, **_FIXED, **(fixed or {})}
        self.servers = settings["bootstrap.servers"]
        self._refusals = refusals
        self._topic_settings = TopicSettings(
            lambda topic: self.admin().topic_settings([topic]).get(topic, {})
        )
        self._creation = creation
        self._passes_refused = passes_refused
        self.last_error = ""
        self.confirmed = 0
        self._counts: dict[str, int] = {}  # partitions of topics that are there
        self._on_way = 0
        self._sending: Sending | None = None  # the last one, with what notes answers
        self._report: Callable[[Any, Any], None] | None = None
        # Messages that failed during a call of librdkafka, with their errors.
        self._unanswered: deque[tuple[Sending, Message, Any]] = deque()
        # The same of those that were purged before they were sent. They are answered
        # last: what is confirmed meanwhile was before them.
        self._purged: list[tuple[Sending, Message, Any]] = []
        self._is_single = False  # a message is a batch, for the present producer
        self._wants_single = False  # and for the next one
        self._is_spent = False  # the producer must be replaced
        self._dead_since_s: float | None = None  # and sends nothing more
        # Partitions in which brokers confirmed a message of the present producer, and
        # those in which the first one is on its way.
        self._proven: set[tuple[str, int]] = set()
        self._proving: set[tuple[str, int]] = set()
        self._fatal: Any = None  # the error for which it must be
        # Why the present producer fails: of what it then drops, librdkafka says only
        # that it dropped it.
        self._cause: CanalError | None = None
        try:
            self._producer: Any = self._made()  # connects to nobody yet
        except (self._kafka.KafkaException, ValueError, TypeError) as error:
            texts = list(refused_texts(self._config, self._refusal_of))
            raise SettingRefusedError(*(texts or [_text_of(error)])) from None

    @property
    def batch_bytes(self) -> str:
        """Return how large batches may become; a larger message is one of its own."""
        return str(self._config.get(_BATCH, _BATCH_BYTES))

    def open(self) -> None:
        """Ask the brokers for their topics. Raises BrokerUnavailableError."""
        try:
            self._producer.list_topics(timeout=OPEN_S)
        except self._kafka.KafkaException as error:
            raise self._unavailable(error) from None
        self.last_error = ""

    def prepare(self, messages: Iterable[Message]) -> None:
        """Find the topics of messages, which the brokers may create on that occasion.

        Raises BrokerUnavailableError when one is missing, or has too few partitions.
        """
        counts = self._counts
        for message in messages:
            if message[1] >= counts.get(message[0], 0):
                self._find(message[0], message[1])

    def try_send(self, message: Message, sending: Sending) -> bool:
        """Hand a message to librdkafka; false: not now.

        Its queue is full, or the first message to that partition is not answered yet:
        of a producer that they do not know, brokers accept what follows a message that
        they refused. Raises MessageRefusedError, BrokerUnavailableError.
        """
        target = message[:2]
        if target not in self._proven and target in self._proving:
            return False
        if self._passes_on:
            self._check_order(message)
        if sending is not self._sending:
            self._sending, self._report = sending, self._report_to(sending)
        produce, report = self._producer.produce, self._report
        topic, partition, value = message[:3]
        key, headers = key_of(message), headers_of(message)
        sending.is_keyed = len(message) == KEYED
        size = len(value or b"") + len(key or b"")
        try:
            if headers:
                produce(topic, value, key, partition, report, headers=headers)
            else:
                produce(topic, value, key, partition, report)
        except BufferError:
            if self._on_way == 0:  # it will never be accepted
                raise _refused(message, self._refusals.buffer_limit) from None
            return False
        except self._kafka.KafkaException as error:
            raise self._refusal(error.args[0], message) from None
        self._on_way += 1
        if self._is_ordered and target not in self._proven:
            self._proving.add(target)
        sending.note(target, size)
        return True

    def _check_order(self, message: Message) -> None:
        """Raise BrokerUnavailableError when it may not be sent, or nothing after it.

        Librdkafka goes on after a message that the brokers refuse.
        """
        if self._dead_since_s is not None:
            raise self._cause or BrokerUnavailableError(
                f"Kafka at {self.servers}: {self.last_error or 'a message was refused'}"
            )
        is_unkeyed = len(message) == KEYED and key_of(message) is None
        if is_unkeyed and self._topic_settings.is_compacted(message[0]):
            # It is refused for sure, perhaps noticed after others were sent.
            self._topic_settings.clear()  # the next try asks again
            subject = subject_of(message)
            why = self._refusals.no_key(message[0], subject.shown)
            raise BrokerUnavailableError(why, subject.key)

    def _report_to(self, sending: Sending) -> Callable[[Any, Any], None]:
        """Return what notes the answers to the messages of a sending.

        It holds no message: what is on its way would be in memory twice.
        """

        def on_delivery(error: Any, answered: Any) -> None:
            self._on_way -= 1
            if self._proving:
                partition = answered.topic(), answered.partition()
                self._proving.discard(partition)
                if error is None:
                    self._proven.add(partition)
            if error is None:
                self.last_error = ""
                self.confirmed += 1
                if sending.stopped:
                    sending.confirmed((answered.topic(), answered.partition()))
                else:
                    sending.pending -= 1
                return
            message = (
                answered.topic(), answered.partition(), answered.value(),
                answered.key(), None,
            )  # fmt: skip
            failed = sending, message if sending.is_keyed else message[:3], error
            if error.code() == self._kafka.KafkaError._PURGE_QUEUE:  # noqa: SLF001
                self._purged.append(failed)
                return
            # Now: others of the partition may be confirmed before this is answered.
            sending.stop((answered.topic(), answered.partition()))
            if self._is_gapless or (self._passes_on and not self._is_size(error)):
                # Librdkafka does not say so by `error_cb`, or would send on.
                self._die()
            self._unanswered.append(failed)

        return on_delivery

    def _answer_failures(self) -> None:
        """Answer the messages that failed.

        After the call of librdkafka that reported them: to find out what an error means
        may take questions to the brokers.
        """
        is_logged = False
        if self._purged and self._on_way <= 0:
            self._unanswered.extend(self._purged)
            self._purged.clear()
        if len(self._unanswered) > 1:
            # With one of them all records of a batch are refused: the one without a key
            # is the reason. What is purged says nothing.
            self._unanswered = deque(sorted(self._unanswered, key=self._order))
        while self._unanswered:
            sending, message, error = self._unanswered.popleft()
            try:
                failure = self._answer_to(error, message, sending)
            except Exception as problem:  # noqa: BLE001  # it waits for an answer
                # Its text may have values of the message: only the log has it.
                failure = BrokerUnavailableError(
                    f"topic {message[0]}: {error.str()} (what that means is not known:"
                    f" internal error {type(problem).__name__}, see the log)"
                )
                if not is_logged:  # thousands may fail for the same reason
                    delivery_messages.KAFKA_ANSWER_UNCLEAR.log(
                        log, message[0], error.str(), exc_info=True
                    )
                    is_logged = True
            sending.answered(message, failure)

    def push(self) -> None:
        """Have librdkafka send now what waits for more."""
        if self._is_pushed and self._on_way:
            self._serve(self._producer.flush, _PUSH_S)

    def poll(self, timeout_s: float) -> None:
        """Note what was confirmed, waiting for the first confirmation."""
        if self._dead_since_s is not None and self._on_way:
            # What was handed over while it died would wait for ever. What is in flight
            # is purged if it would be, too; else it is answered.
            is_late = time.monotonic() > self._dead_since_s + _DEAD_S
            self._producer.purge(in_flight=is_late and self._is_gapless, blocking=False)
        self._serve(self._producer.poll, timeout_s)

    def _serve(self, call: Callable[[float], Any], timeout_s: float) -> None:
        """Call librdkafka, which reports what was confirmed."""
        try:
            call(timeout_s)
        except self._kafka.KafkaException as error:  # a fatal one
            self._is_spent = True
            self._fatal = error.args[0]
            self._cause = self._cause or self._ended(error.args[0])
            self.last_error = _text_of(error)
        self._answer_failures()

    def renew(self) -> None:
        """Replace a producer that failed for good, or whose batches are too large."""
        if self._is_spent:
            self._replace()

    def _replace(self) -> None:
        self._producer.purge(blocking=True)
        self.poll(0)
        self._on_way = 0
        self._answer_failures()
        self._producer = self._made()
        self._is_spent = False
        self._dead_since_s = self._fatal = self._cause = None
        self._topic_settings.clear()
        self._proven, self._proving = set(), set()

    def abandon(self, wait_s: float) -> None:
        """Forget what is not confirmed.

        Waits for the answers to requests that are on their way, which would otherwise
        be carried out after later ones.
        """
        if not self._on_way:
            self.renew()
            return
        self._producer.purge(in_flight=False, blocking=True)
        deadline_s = time.monotonic() + wait_s
        while self._on_way and time.monotonic() < deadline_s:
            self.poll(_POLL_S)
        # Its producer ends, with requests that nobody answers; and it might purge what
        # is handed over next.
        self._replace()

    def close(self, wait_s: float) -> None:
        """Disconnect, after a wait for what is not confirmed."""
        if wait_s:
            self._producer.flush(wait_s)
        self._producer.purge(blocking=True)
        self.poll(0)

    def _made(self) -> Any:
        self._is_single = self._wants_single
        more = _ONE_BY_ONE if self._is_single else {}
        self._passes_on = self._is_ordered and self._is_single and self._passes_refused
        self._is_gapless = self._is_ordered and not self._passes_on
        if self._is_gapless:
            more = more | _NO_GAPS
        config = self._config | more | {"error_cb": self._on_error}
        return self._kafka.Producer(config, logger=Details())

    def _refusal_of(self, settings: Mapping[str, str]) -> str:
        """Return what librdkafka says of settings; empty: it accepts them."""
        try:
            self._kafka.Producer(dict(settings), logger=Details())
        except (self._kafka.KafkaException, ValueError, TypeError) as error:
            return _text_of(error)
        return ""

    def _find(self, topic: str, partition: int) -> None:
        """Learn how many partitions a topic has. Raises BrokerUnavailableError."""
        creation = self._creation
        # Of all topics: to ask for this one would have brokers create it.
        if creation and topic not in self._counts and topic not in self.topics():
            partitions = max(creation.partitions_of(topic), partition + 1)
            self.admin().create(topic, partitions, creation)
        found = self._looked_up(topic)
        codes = self._kafka.KafkaError
        give_up_at = time.monotonic() + CREATED_S
        while _code_of(found) in being_created(codes) and (
            time.monotonic() < give_up_at
        ):
            # Brokers that create it do so on this occasion, and are soon done.
            self.poll(_POLL_S)
            found = self._looked_up(topic)
        if _code_of(found) == codes.UNKNOWN_TOPIC_OR_PART:
            why = self._refusals.missing(topic, self.servers, partition)
            raise BrokerUnavailableError(why)
        if _code_of(found) == codes.TOPIC_EXCEPTION:
            raise BrokerUnavailableError(self._refusals.no_name(topic))
        if found is not None and found.error is not None:
            raise BrokerUnavailableError(f"topic {topic}: {found.error.str()}")
        count = 0 if found is None else len(found.partitions)
        if count == 0:
            raise BrokerUnavailableError(f"topic {topic} is being created")
        if partition >= count:
            raise BrokerUnavailableError(
                self._refusals.few_partitions(topic, count, partition)
            )
        self._counts[topic] = count

    def _of_connections(self) -> dict[str, str]:
        """Return the settings that are not those of messages."""
        return {
            key: value
            for key, value in self._config.items()
            if key not in _FIXED and key not in _OF_MESSAGES
        }

    def _looked_up(self, topic: str) -> Any:
        """Return what the brokers say of a topic. Raises BrokerUnavailableError."""
        try:
            return self._producer.list_topics(topic, timeout=OPEN_S).topics.get(topic)
        except self._kafka.KafkaException as error:
            raise self._unavailable(error) from None

    def admin(self) -> KafkaAdmin:
        """Return a client of the brokers for what is no message."""
        return KafkaAdmin(self._of_connections(), self.servers, lambda: self.last_error)

    def topics(self) -> dict[str, int]:
        """Return all topics that the account may see, with their partitions.

        Raises BrokerUnavailableError.
        """
        try:
            found = self._producer.list_topics(timeout=OPEN_S).topics
        except self._kafka.KafkaException as error:
            raise self._unavailable(error) from None
        return {name: len(each.partitions) for name, each in found.items()}

    def broker_setting(self, name: str) -> str:
        """Return a setting of the brokers; empty: the account may not read it.

        Raises BrokerUnavailableError.
        """
        try:
            brokers = self._producer.list_topics(timeout=OPEN_S).brokers
        except self._kafka.KafkaException as error:
            raise self._unavailable(error) from None
        return self.admin().broker_setting(min(brokers), name)

    def creates_topics(self) -> bool | None:
        """Return whether the brokers create topics that are needed; None: unknown."""
        try:
            found = self.broker_setting(AUTO_CREATE)
        except BrokerUnavailableError:
            return None
        return {"true": True, "false": False}.get(found.lower())

    def _unavailable(self, error: Exception) -> BrokerUnavailableError:
        self.poll(0)  # for the reason
        return BrokerUnavailableError(
            f"Kafka at {self.servers} does not answer: "
            f"{self.last_error or _text_of(error)}"
        )

    def _answer_to(self, error: Any, message: Message, sending: Sending) -> CanalError:
        """Return what an error of a message that was sent means."""
        found: CanalError
        if self._is_size(error):
            found = self._too_large(message, sending)
        elif self._is_record(error):
            self._counts.pop(message[0], None)
            # Of thousands in a batch, the first one explains the rest.
            found = sending.failure or self._invalid(error, message)
        else:
            found = self._meaning(error, message[0])
        if not isinstance(found, MessageRefusedError):
            self._cause = self._cause or found
        return found

    def _refusal(self, error: Any, message: Message) -> CanalError:
        """Return why librdkafka does not take a message."""
        if self._is_size(error):
            why = self._refusals.own_limit(str(self._config[_SIZE]))
            return _refused(message, why)
        found = self._meaning(error, message[0])
        self._cause = self._cause or found
        return found

    def _is_size(self, error: Any) -> bool:
        codes = self._kafka.KafkaError
        return error.code() in (codes.MSG_SIZE_TOO_LARGE, codes.INVALID_MSG_SIZE)

    def _too_large(self, message: Message, sending: Sending) -> CanalError:
        topic, words, settings = message[0], self._refusals, self._topic_settings
        if self._is_single:
            limit = settings.limit_below(topic, size_of(message), sending)
            return _refused(message, words.topic_limit(topic, limit))
        self._wants_single = self._is_spent = True
        return BrokerUnavailableError(
            words.small_batches(topic, settings.limit(topic), self.batch_bytes)
        )

    def _meaning(self, error: Any, topic: str) -> CanalError:
        codes = self._kafka.KafkaError
        if self._is_purged(error):
            return self._cause or BrokerUnavailableError(
                f"Kafka at {self.servers}: {self.last_error or error.str()}"
            )
        self._counts.pop(topic, None)
        if error.fatal() or error.code() == codes._FATAL:  # noqa: SLF001  # their name
            self._is_spent = True
            reason = f"{error.str()}: {self.last_error}" if self.last_error else ""
            return BrokerUnavailableError(f"topic {topic}: {reason or error.str()}")
        if error.code() == codes.TOPIC_EXCEPTION:
            return BrokerUnavailableError(self._refusals.no_name(topic))
        return BrokerUnavailableError(f"topic {topic}: {error.str()}")

    def _order(self, unanswered: tuple[Sending, Message, Any]) -> int:
        """Return how late an answer is looked at, as others may explain it."""
        _, message, error = unanswered
        if self._is_purged(error):
            return 2
        return int(self._is_record(error) and key_of(message) is not None)

    def _is_purged(self, error: Any) -> bool:
        codes = self._kafka.KafkaError
        return error.code() in (codes._PURGE_QUEUE, codes._PURGE_INFLIGHT)  # noqa: SLF001

    def _is_record(self, error: Any) -> bool:
        codes = self._kafka.KafkaError
        return error.code() in (codes.INVALID_RECORD, codes._INVALID_DIFFERENT_RECORD)  # noqa: SLF001

    def _invalid(self, error: Any, message: Message) -> CanalError:
        """Return why a message is refused, or another one of its batch."""
        topic, subject = message[0], subject_of(message)
        if key_of(message) is None:
            why = self._refusals.no_key(topic, subject.shown)
            return BrokerUnavailableError(why, subject.key)
        if self._topic_settings.is_compacted(topic):
            about = f"in a batch with {subject.shown}" if subject.shown else ""
            return BrokerUnavailableError(self._refusals.no_key(topic, about))
        shown = f" ({subject.shown})" if subject.shown else ""
        return BrokerUnavailableError(
            f"topic {topic} refuses a message{shown}: {error.str()}",
            subject.key,
        )

    def _on_error(self, error: Any) -> None:
        codes = self._kafka.KafkaError
        if error.code() != codes._ALL_BROKERS_DOWN or not self.last_error:  # noqa: SLF001
            self.last_error = self._refusals.of_connection(error.str())
        if error.fatal():
            self._die()
            self._cause = self._cause or self._ended(error)

    def _ended(self, error: Any) -> CanalError:
        """Return what a fatal error of the producer means."""
        return BrokerUnavailableError(f"Kafka at {self.servers}: {error.str()}")

    def _die(self) -> None:
        """Note that the present producer sends nothing more."""
        self._is_spent = True
        self._dead_since_s = self._dead_since_s or time.monotonic()


def _refused(message: Message, why: str) -> MessageRefusedError:
    return MessageRefusedError(message[0], size_of(message), why, subject_of(message))


def _code_of(found: Any) -> Any:
    """Return the code of what brokers say of a topic, None without an error."""
    return None if found is None or found.error is None else found.error.code()


def being_created(codes: Any) -> tuple[Any, ...]:
    """Return the codes of a topic that may be there soon."""
    return codes.UNKNOWN_TOPIC_OR_PART, codes.LEADER_NOT_AVAILABLE


def _text_of(error: Exception) -> str:
    found = error.args[0] if error.args else error
    text = found.str() if hasattr(found, "str") else found
    return str(text)
