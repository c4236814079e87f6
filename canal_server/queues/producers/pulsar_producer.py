"""Sends messages to Apache Pulsar: confirmed, in order in each partition.

The library calls back in threads of its own, which may do next to nothing: answers go
into a queue, and are noted in `poll`.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from canal_server.queues.message_content import subject_of
from canal_server.queues.producers.pulsar_topics import create_topic
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
    headers_of,
    key_of,
    size_of,
)
from canal_server.runtime.optional_packages import optional_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canal_server.errors import CanalError
    from canal_server.queues.producers.pulsar_settings import PulsarSettings
    from canal_server.queues.producers.queue_producer import Message, Sending

CALL_S: Final = 5  # that a call waits for the brokers; whoever needs more repeats it
PENDING_MAX: Final = 50_000  # messages on their way
BATCH_BYTES: Final = 128 * 1024
BATCH_MS: Final = 2
PARTITION: Final = "partitionNum"  # property of messages, as in the original
_CLOSE_S: Final = 1.0
_POLL_S: Final = 0.05
_LOOK_S: Final = 5.0  # between looks for the reason why nothing is confirmed
_TOO_LARGE: Final = (
    "is larger than the broker accepts: raise maxMessageSize in broker.conf, and"
    " nettyMaxFrameSizeBytes in that of BookKeeper, or set pulsarmq.enableChunking ="
    " true"
)
_MEANINGS: Final = {
    "AuthenticationError": "refuses the token: check pulsarmq.roleToken",
    "AuthorizationError": (
        "does not let the token produce: grant its role `produce` on the namespace"
        " (pulsar-admin namespaces grant-permission)"
    ),
    "TopicNotFound": (
        "does not have the topic: create it, set pulsarmq.adminServerUrl, or let the"
        " brokers do so (allowAutoTopicCreation)"
    ),
    "InvalidTopicName": (
        "does not accept this name: check pulsarmq.topicTenantPrefix, and name the"
        " topic of such tables with topic:expression in canal.mq.dynamicTopic"
    ),
    "ProducerBlockedQuotaExceededException": (
        "accepts no messages, as the backlog of the namespace is full: read or clear"
        " it, or raise its quota (pulsar-admin namespaces set-backlog-quota)"
    ),
    "ProducerBlockedQuotaExceededError": (
        "accepts no messages, as the backlog of the namespace is full: read or clear"
        " it, or raise its quota (pulsar-admin namespaces set-backlog-quota)"
    ),
    "TopicTerminated": "has the topic terminated: delete it, or use another one",
    "IncompatibleSchema": (
        "has a schema for the topic, and messages are bytes: delete that schema"
    ),
}
# The library tries again until its time is up, also when its login is refused.
_UNANSWERED: Final = (
    "%s, though it can be connected to: check pulsarmq.roleToken, which may be wrong or"
    " missing, and that pulsarmq.serverUrl has pulsar+ssl:// for a port with TLS only"
)
_SILENT: Final = (
    "AlreadyClosed", "ConnectError", "LookupError", "NotConnected", "ReadError",
    "Timeout", "UnknownError", "Disconnected",
)  # fmt: skip


class PulsarProducer:
    """A producer of one thread; implements `queue_producer.Producer`.

    There is one of the library for each partition; a message for a partition that does
    not exist goes to the rest of the division by their number, as in the original.
    After a message that failed, nothing more is sent until `renew`, so that the order
    stays. `known_topic` is one that messages go to, for `open`. Raises CanalError when
    the library is not installed.
    """

    def __init__(
        self,
        settings: PulsarSettings,
        *,
        purpose: str = "Pulsar",
        known_topic: str = "",
        partitions_of: Callable[[str], int] | None = None,
    ) -> None:
        """Load the library; with `partitions_of`, missing topics may be created."""
        self._pulsar = optional_module("pulsar", purpose, extra="pulsar")
        self._settings = settings
        self._known_topic = known_topic
        self._partitions_of = partitions_of
        self.servers = settings.servers
        self.last_error = ""
        self.confirmed = 0
        self._client: Any = None
        self._names: dict[str, list[str]] = {}  # of the partitions of topics
        self._producers: dict[str, Any] = {}  # by the names of partitions
        # Results by tag. A dropped client has another one, where nobody looks.
        self._answers: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._tag = 0
        self._pending: dict[int, tuple[Message, Sending]] = {}
        self._failure: CanalError | None = None
        self._is_single = settings.chunking  # which excludes batches
        self._looked_s = 0.0  # when the reason for silence was looked for

    # --- Producer ---------------------------------------------------------------------

    def open(self) -> None:
        """Ask the brokers for a topic. Raises BrokerUnavailableError."""
        self._drop()
        try:
            self._client = self._made_client()
        except self._pulsar.PulsarException as error:
            raise self._unavailable(error, "") from None
        if self._known_topic:
            try:
                self._ask(self._settings.full_topic(self._known_topic))
            except self._pulsar.PulsarException as error:
                unavailable = self._unavailable(error, self._known_topic)
                self._drop()
                raise unavailable from None
        self.last_error = ""

    def prepare(self, messages: Iterable[Message]) -> None:
        """Find the topics of messages, and connect to their partitions.

        Raises BrokerUnavailableError with the reason, such as a missing topic.
        """
        self.poll(0)
        if self._failure is not None:
            raise self._failure
        if self._client is None:
            self.open()
        for topic, partition, *_ in messages:
            name = self._partition(topic, partition)
            if name not in self._producers:
                self._connect(topic, name)

    def try_send(self, message: Message, sending: Sending) -> bool:
        """Hand a message to the library; false: too many are on their way.

        Raises BrokerUnavailableError.
        """
        if self._failure is not None:
            raise self._failure
        if len(self._pending) >= PENDING_MAX:
            return False
        topic, partition, value = message[:3]
        producer = self._producers.get(self._partition(topic, partition))
        if producer is None:
            raise BrokerUnavailableError(f"topic {topic}: not connected")
        properties = {PARTITION: str(partition)}
        for name, content in headers_of(message) or ():
            properties[name] = content.decode()
        key = key_of(message)
        self._tag = tag = self._tag + 1
        put = self._answers.put
        self._pending[tag] = message, sending
        sending.note(message[:2], size_of(message))
        producer.send_async(
            value,
            lambda result, _: put((tag, result)),
            properties=properties,
            partition_key=None if key is None else key.decode(),
        )
        return True

    def push(self) -> None:
        """Do nothing: messages do not wait long for others."""

    def poll(self, timeout_s: float) -> None:
        """Note what was confirmed; waits for the first one."""
        try:
            answer = self._answers.get(timeout_s > 0, timeout_s)
            while True:
                self._answer(*answer)
                answer = self._answers.get_nowait()
        except queue.Empty:
            pass
        if self._pending:
            self._look()

    def renew(self) -> None:
        """Send again, after a failure, once nothing is on its way."""
        if self._failure is not None:
            self._drop()
        self._failure = None

    def abandon(self, wait_s: float) -> None:
        """Forget what is not confirmed, after a wait for it."""
        self._await_answers(wait_s)
        if self._pending:
            self._drop()
        self.renew()

    def close(self, wait_s: float) -> None:
        """Disconnect, after a wait for what is not confirmed."""
        self._await_answers(wait_s)
        self._drop()

    # --- for `check` ------------------------------------------------------------------

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has; 0: none, or it does not exist.

        Raises BrokerUnavailableError.
        """
        if self._client is None:
            self.open()
        names = self._find(topic)
        return 0 if _number_of(names[0]) is None else len(names)

    # --- inside -----------------------------------------------------------------------

    def _made_client(self) -> Any:
        pulsar, settings = self._pulsar, self._settings
        more: dict[str, Any] = {}
        if settings.token:
            more["authentication"] = pulsar.AuthenticationToken(settings.token)
        if settings.trusted_file is not None:
            more["tls_trust_certs_file_path"] = str(settings.trusted_file)
        if settings.listener:
            more["listener_name"] = settings.listener
        return pulsar.Client(
            settings.url,
            operation_timeout_seconds=CALL_S,
            connection_timeout_ms=CALL_S * 1000,
            tls_validate_hostname=settings.verifies_host,
            stats_interval_in_seconds=0,
            # It logs with mutexes locked, so to wait for Python there could last
            # forever. Errors are those of calls and messages.
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
            **more,
        )

    def _partition(self, topic: str, partition: int) -> str:
        names = self._names.get(topic)
        if names is None:
            names = self._find(topic)
        return names[partition % len(names)]

    def _find(self, topic: str) -> list[str]:
        """Learn the partitions of a topic. Raises BrokerUnavailableError."""
        full = self._settings.full_topic(topic)
        settings = self._settings
        if settings.admin_url and self._partitions_of is not None:
            # It exists, or this fails, which matters only if the topic is missing.
            why = create_topic(settings, full, self._partitions_of(topic))
        else:
            why = ""
        try:
            names = self._ask(full)
        except self._pulsar.PulsarException as error:
            raise self._unavailable(error, topic, why) from None
        # In the order of their numbers, whatever the library's is.
        found = sorted(names or [full], key=lambda each: _number_of(each) or 0)
        self._names[topic] = found
        return found

    def _ask(self, full: str) -> list[str]:
        """Return the partitions of a topic; if there are none, or it is missing, []."""
        return list(self._client.get_topic_partitions(full))

    def _connect(self, topic: str, name: str) -> None:
        pulsar, settings = self._pulsar, self._settings
        try:
            self._producers[name] = self._client.create_producer(
                name,
                send_timeout_millis=0,  # never given up by the library
                compression_type=getattr(
                    pulsar.CompressionType, _COMPRESSIONS[settings.compression]
                ),
                max_pending_messages=PENDING_MAX + 1,
                batching_enabled=not self._is_single,
                batching_max_allowed_size_in_bytes=BATCH_BYTES,
                batching_max_publish_delay_ms=BATCH_MS,
                chunking_enabled=settings.chunking,
            )
        except self._pulsar.PulsarException as error:
            self._names.pop(topic, None)
            raise self._unavailable(error, topic) from None

    def _answer(self, tag: int, result: Any) -> None:
        found = self._pending.pop(tag, None)
        if found is None:
            return
        message, sending = found
        if result == self._pulsar.Result.Ok:
            self.confirmed += 1
            self.last_error = ""
            sending.answered(message, None)
            return
        error = self._failed(message, result.name)
        if not isinstance(error, MessageRefusedError):
            self._failure = self._failure or error
        sending.answered(message, error)

    def _failed(self, message: Message, word: str) -> CanalError:
        """Return what the result of a message means."""
        topic, size = message[0], size_of(message)
        if word != "MessageTooBig":
            return BrokerUnavailableError(self._meaning(word, topic))
        if self._is_single or size >= BATCH_BYTES:  # it was alone
            return MessageRefusedError(topic, size, _TOO_LARGE, subject_of(message))
        self._is_single = True
        return BrokerUnavailableError(
            f"topic {topic} accepts smaller messages than batches are: from now on"
            " messages are sent one by one; raise maxMessageSize in broker.conf"
        )

    def _unavailable(
        self, error: Exception, topic: str, why: str = ""
    ) -> BrokerUnavailableError:
        """Return an error of the library as ours; `why` a topic was not created."""
        text = self._meaning(type(error).__name__, topic)
        return BrokerUnavailableError(f"{text}; {why}" if why else text)

    def _meaning(self, word: str, topic: str) -> str:
        prefix = f"topic {topic}: " if topic else ""
        where = f"Pulsar at {self.servers}"
        if meaning := _MEANINGS.get(word):
            return f"{prefix}{where} {meaning}"
        if word in _SILENT:
            reason = self._reason_of_silence() or _UNANSWERED % word
            return f"{prefix}{where} does not answer: {reason}"
        return f"{prefix}{where} answers {word}"

    def _reason_of_silence(self) -> str:
        """Return why nobody can be connected to; empty: somebody can."""
        reasons = []
        for address in self._settings.addresses:
            try:
                socket.create_connection(address, 1.0).close()
            except OSError as error:
                reasons.append(error.strerror or str(error) or "it is silent")
            else:
                return ""
        return "; ".join(dict.fromkeys(reasons))

    def _look(self) -> None:
        """Find out now and then whether the brokers are away."""
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        if all(each.is_connected() for each in self._producers.values()):
            return
        self.last_error = self._meaning("NotConnected", "")

    def _await_answers(self, wait_s: float) -> None:
        end_s = time.monotonic() + wait_s
        while self._pending and time.monotonic() < end_s:
            self.poll(_POLL_S)

    def _drop(self) -> None:
        """Disconnect, and forget what is not confirmed."""
        client, self._client = self._client, None
        producers, self._producers = self._producers, {}
        self._names.clear()
        self._answers = queue.SimpleQueue()
        pending = list(self._pending.values())
        self._pending.clear()
        error = BrokerUnavailableError("disconnected")
        for message, sending in pending:
            sending.answered(message, error)
        if client is not None:
            # A silent broker is waited for: not here.
            closing = threading.Thread(
                target=_close,
                args=(client, producers),
                name="pulsar close",
                daemon=True,
            )
            closing.start()
            closing.join(_CLOSE_S)


_COMPRESSIONS: Final = {
    "NONE": "NONE", "LZ4": "LZ4", "ZLIB": "ZLib", "ZSTD": "ZSTD", "SNAPPY": "SNAPPY",
}  # fmt: skip


def _number_of(name: str) -> int | None:
    """Return the number of a partition, None: the topic has none."""
    number = name.rpartition("-partition-")[2]
    return int(number) if number.isdecimal() and number != name else None


def _close(client: Any, producers: dict[str, Any]) -> None:
    """Close a client; its producers end after that, when none of its threads runs."""
    with suppress(Exception):
        client.close()
    producers.clear()
