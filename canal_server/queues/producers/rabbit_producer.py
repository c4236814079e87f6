"""Sends messages to RabbitMQ: persistent, confirmed, to queues only, in order."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from canal_server.queues.message_content import subject_of
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
)
from canal_server.queues.producers.rabbit_connection import RabbitConnection
from canal_server.runtime.optional_packages import optional_module

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.errors import CanalError
    from canal_server.queues.producers.queue_producer import Message, Sending
    from canal_server.queues.producers.rabbit_settings import RabbitSettings

OPEN_S: Final = 3.0  # that a call waits for the broker; whoever needs more repeats it
UNSENT_BYTES_MAX: Final = 1024 * 1024  # that wait for the socket
TOPIC_BYTES_MAX: Final = 255  # of a routing key in AMQP
REACHED_MAX: Final = 100_000  # topics that are known to reach a queue
_POLL_S: Final = 0.05
_TOO_LARGE: Final = re.compile(r"message size (\d+) .*max\w* size (\d+)")


class RabbitProducer:
    """A producer of one thread; implements `queue_producer.Producer`.

    A topic is the routing key; partitions have no meaning. After a message that failed,
    nothing more is sent until `renew`, so that the order stays. For the same reason the
    first message of a topic is sent alone: it may reach no queue. Raises CanalError
    when the library is not installed.
    """

    def __init__(self, settings: RabbitSettings, *, purpose: str = "RabbitMQ") -> None:
        optional_module("pika", purpose, extra="rabbitmq")
        self._purpose = purpose
        self._settings = settings
        self.servers = settings.servers
        self.last_error = ""
        self.confirmed = 0
        self._connection: RabbitConnection | None = None
        self._host = 0  # index of the address that is tried next
        self._tag = 0  # of the last message on this connection
        self._pending: dict[int, tuple[Message, Sending]] = {}  # by tag, in order
        self._returned: dict[int, CanalError] = {}  # which are confirmed nevertheless
        self._reached: set[str] = set()  # topics of messages that reached a queue
        self._first: int | None = None  # tag of the first message of a topic
        self._failure: CanalError | None = None
        self._size_max = 0  # of a message, as the broker said; 0: it said nothing
        self._has_refused = False  # a message for that reason

    # --- Producer ---------------------------------------------------------------------

    def open(self) -> None:
        """Connect, and declare what is configured. Raises BrokerUnavailableError."""
        self._drop()
        give_up_at = time.monotonic() + OPEN_S
        addresses = self._settings.addresses
        for _ in addresses:
            connection = RabbitConnection(self._settings, self, purpose=self._purpose)
            try:
                connection.open(*addresses[self._host], give_up_at)
                connection.open_channel(give_up_at)
                declare(connection, self._settings, give_up_at)
                connection.confirm(give_up_at)
            except BrokerUnavailableError as error:
                connection.abort()
                self._host = (self._host + 1) % len(addresses)
                self.last_error = str(error)
                if time.monotonic() > give_up_at:
                    break
            except BaseException:
                connection.abort()
                raise
            else:
                self._connection = connection
                self._tag = 0
                self.last_error = ""
                return
        raise BrokerUnavailableError(self.last_error)

    def prepare(self, messages: Iterable[Message]) -> None:
        """Connect again if the connection was lost. Raises BrokerUnavailableError."""
        self.poll(0)
        if self._failure is not None:
            raise self._failure
        for topic, *_ in messages:
            if topic not in self._reached and len(topic.encode()) > TOPIC_BYTES_MAX:
                raise BrokerUnavailableError(
                    f"topic {topic}: RabbitMQ accepts {TOPIC_BYTES_MAX} bytes in a"
                    " routing key: name the topic of such tables with topic:expression"
                    " in canal.mq.dynamicTopic"
                )
        if self._connection is None or not self._connection.is_open:
            self.open()

    def try_send(self, message: Message, sending: Sending) -> bool:
        """Hand a message over; false: too much waits for the socket, or the broker.

        Raises MessageRefusedError, BrokerUnavailableError.
        """
        topic, _, value = message[:3]
        assert value is not None, "tombstones are refused with the settings"
        if self._failure is not None:
            raise self._failure
        connection = self._connection
        if connection is None or not connection.is_open:
            raise BrokerUnavailableError(self.last_error or "not connected")
        if 0 < self._size_max < len(value):
            self._has_refused = True
            raise MessageRefusedError(
                topic,
                len(value),
                f"is larger than the {self._size_max} bytes that the broker accepts:"
                " raise max_message_size in rabbitmq.conf",
                subject_of(message),
            )
        if self._first is not None or not _has_room(connection):
            return False
        connection.publish(topic, value)
        self._tag += 1
        self._pending[self._tag] = message, sending
        if topic not in self._reached:
            self._first = self._tag
        sending.note(message[:2], len(value))
        return True

    def push(self) -> None:
        """Do nothing: no message waits for others."""

    def poll(self, timeout_s: float) -> None:
        """Note what was confirmed; waits for the first one, or for room."""
        connection = self._connection
        if connection is None:
            return
        left, had_room = len(self._pending), _has_room(connection)
        end_s = time.monotonic() + timeout_s
        connection.run(timeout_s)
        while connection.is_open and len(self._pending) == left:
            if not had_room and _has_room(connection):
                break
            if (left_s := end_s - time.monotonic()) <= 0:
                break
            connection.run(left_s)
        if connection.is_open:
            self.last_error = connection.blocked

    def renew(self) -> None:
        """Send again, after a failure, once nothing is on its way."""
        self._failure = None
        if self._has_refused:  # the limit may be another one when it is sent again
            self._size_max, self._has_refused = 0, False
        if self._connection is not None and not self._connection.is_open:
            self._drop()

    def abandon(self, wait_s: float) -> None:
        """Forget what is not confirmed, after a wait for it."""
        self._await_answers(wait_s)
        if self._pending:
            self._drop()
        self.renew()

    def close(self, wait_s: float) -> None:
        """Disconnect, after a wait for what is not confirmed."""
        self._await_answers(wait_s)
        if self._connection is not None and not self._pending:
            connection, self._connection = self._connection, None
            connection.close()
        self._drop()

    # --- rabbit_connection.Answers ----------------------------------------------------

    def on_confirm(self, tag: int, *, multiple: bool, is_ack: bool) -> None:
        """Take the broker's answer to a message, or to all up to this one."""
        if not multiple:
            self._answer(tag, is_ack=is_ack)
            return
        while self._pending and (first := next(iter(self._pending))) <= tag:
            self._answer(first, is_ack=is_ack)

    def on_return(self, topic: str, body: bytes, why: str) -> None:
        """Take back a message that reached no queue."""
        exchange = self._settings.exchange
        remedy = (
            f"bind a queue to exchange {exchange} with routing key {topic}"
            if exchange
            else f"create queue {topic}, or set rabbitmq.exchange"
        )
        host = self._settings.virtual_host
        error = BrokerUnavailableError(
            f"topic {topic}: no queue takes it in virtual host {host} of RabbitMQ at"
            f" {self.servers} ({why}): {remedy}"
        )
        self._reached.discard(topic)
        self._failure = self._failure or error
        for tag, ((of_topic, _, value, *_), _) in self._pending.items():
            # One that equals it will do as well.
            if of_topic == topic and value == body and tag not in self._returned:
                self._returned[tag] = error
                return

    def on_lost(self, why: str) -> None:
        """Have all that was not confirmed sent again."""
        if found := _TOO_LARGE.search(why):
            self._size_max = int(found[2])
        self.last_error = why
        error = BrokerUnavailableError(why)
        if self._pending:
            self._failure = self._failure or error
        self._fail_pending(error)

    # --- inside -----------------------------------------------------------------------

    def _answer(self, tag: int, *, is_ack: bool) -> None:
        found = self._pending.pop(tag, None)
        if found is None:
            return
        message, sending = found
        topic = message[0]
        error = self._returned.pop(tag, None)
        if tag == self._first:
            self._first = None
        if error is None and not is_ack:
            error = BrokerUnavailableError(
                f"topic {topic}: a queue does not accept the message: it is full"
                " (overflow = reject-publish), or the broker cannot store it"
            )
            self._failure = self._failure or error
        if error is None:
            self.confirmed += 1
            if len(self._reached) >= REACHED_MAX:
                self._reached.clear()
            self._reached.add(topic)
        sending.answered(message, error)

    def _await_answers(self, wait_s: float) -> None:
        end_s = time.monotonic() + wait_s
        while self._pending and time.monotonic() < end_s:
            self.poll(_POLL_S)

    def _drop(self) -> None:
        """Disconnect at once, and forget what is not confirmed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        self._fail_pending(BrokerUnavailableError("disconnected"))

    def _fail_pending(self, error: CanalError) -> None:
        pending = list(self._pending.items())
        self._pending.clear()
        self._first = None
        for tag, (message, sending) in pending:
            sending.answered(message, self._returned.pop(tag, error))
        self._returned.clear()


def declare(
    connection: RabbitConnection, settings: RabbitSettings, give_up_at: float
) -> None:
    """Declare the queue and the exchange, as far as that is configured.

    What exists stays as it is, whatever its type. Raises BrokerUnavailableError.
    """
    if settings.queue:
        _find_or_declare(connection, "queue_declare", give_up_at, queue=settings.queue)
    if settings.declares_exchange:
        _find_or_declare(
            connection,
            "exchange_declare",
            give_up_at,
            exchange=settings.exchange,
            exchange_type=settings.exchange_type,
        )
        connection.call(
            "queue_bind",
            give_up_at,
            queue=settings.queue,
            exchange=settings.exchange,
            routing_key=settings.routing_key,
        )
    elif settings.exchange:
        find_exchange(connection, settings, give_up_at)


def find_exchange(
    connection: RabbitConnection, settings: RabbitSettings, give_up_at: float
) -> None:
    """Raise BrokerUnavailableError when the exchange does not exist."""
    name = settings.exchange
    connection.call("exchange_declare", give_up_at, exchange=name, passive=True)


def _find_or_declare(
    connection: RabbitConnection, method: str, give_up_at: float, **arguments: str
) -> None:
    try:
        connection.call(method, give_up_at, passive=True, **arguments)
    except BrokerUnavailableError:
        # It closed the channel. If that is not why, the declaration says so.
        connection.open_channel(give_up_at)
        connection.call(method, give_up_at, durable=True, **arguments)


def _has_room(connection: RabbitConnection) -> bool:
    return not connection.blocked and connection.unsent_bytes < UNSENT_BYTES_MAX
