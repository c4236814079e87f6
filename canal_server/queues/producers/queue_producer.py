"""What a producer of messages does, whatever the broker, and its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from canal_server.errors import CanalError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.runtime.lifecycle import Stop

    Headers = list[tuple[str, bytes]]
    # Topic, partition and value; of messages with one row also key and headers. Without
    # a value, it is a tombstone.
    PlainMessage = tuple[str, int, bytes]
    KeyedMessage = tuple[str, int, bytes | None, bytes | None, Headers | None]
    Message = PlainMessage | KeyedMessage
    Partition = tuple[str, int]  # a topic and one of its partitions


KEYED: Final = 5  # fields of a KeyedMessage


class Subject(NamedTuple):
    """What a message is about.

    `shown` is its table and position, for everybody who learns of the error; `key` is
    that of its row, for those who may read rows.
    """

    shown: str = ""
    key: str = ""


NO_SUBJECT: Final = Subject()


class BrokerUnavailableError(CanalError):
    """The broker cannot take messages now: send them again later."""

    def __init__(self, text: str, key: str = "") -> None:
        """Set what happened; `key` is that of the row that it happened to."""
        super().__init__(text)
        self.key = key


class OutcomeUnknownError(CanalError):
    """Whether a transaction was committed is known when the producer is opened."""


class SchemaRefusedError(CanalError):
    """The registry refuses a schema: until somebody acts, messages cannot be made."""


class MessageRefusedError(CanalError):
    """The broker refuses a message for good: to send it again does not help."""

    def __init__(
        self, topic: str, size: int, reason: str, about: Subject = NO_SUBJECT
    ) -> None:
        """Set what was refused; `about`: the table and row that it is about."""
        shown = f" ({about.shown})" if about.shown else ""
        super().__init__(f"topic {topic}: a message of {size} bytes{shown} {reason}")
        self.topic = topic
        self.size = size
        self.reason = reason
        self.key = about.key


def for_log(error: CanalError) -> str:
    """Return an error with the key of its row.

    That is for the log: `str` of the error is also in the status, which users see who
    may not read rows.
    """
    key = ""
    if isinstance(error, (BrokerUnavailableError, MessageRefusedError)):
        key = error.key
    return f"{error}; the row has the key {key}" if key else str(error)


def size_of(message: Message) -> int:
    """Return how many bytes a message has: those of its value and its key."""
    size = 0 if message[2] is None else len(message[2])
    key = key_of(message)
    return size if key is None else size + len(key)


def key_of(message: Message) -> bytes | None:
    """Return the key of a message, None: it has none."""
    return message[3] if len(message) == KEYED else None


def headers_of(message: Message) -> Headers | None:
    """Return the headers of a message, None: it has none."""
    return message[4] if len(message) == KEYED else None


class Sending:
    """Messages that are on their way, those of a batch for example.

    `failure` is the first error; it may come before the others are answered. Messages
    that are refused for good are in `refused` instead, perhaps without their headers.
    `notes` says of each message in whose place a note was sent why, for the log.
    """

    __slots__ = (
        "failure", "is_complete", "is_keyed", "notes", "partitions", "pending",
        "refused", "sent_bytes", "stopped",
    )  # fmt: skip

    def __init__(self) -> None:
        self.is_complete = False  # whether all were handed to the producer
        self.is_keyed = False  # whether the messages are of KeyedMessage
        self.pending = 0  # messages that the broker has not answered
        self.sent_bytes = 0
        # Messages and bytes that were handed over, without those that failed.
        self.partitions: dict[Partition, list[int]] = {}
        # Partitions with a failed message: how many were confirmed there after it.
        self.stopped: dict[Partition, int] = {}
        self.failure: CanalError | None = None
        self.refused: list[tuple[Message, MessageRefusedError]] = []
        self.notes: list[str] = []

    @property
    def is_confirmed(self) -> bool:
        """Return whether the broker has all messages."""
        missing = self.pending or self.failure or self.refused
        return self.is_complete and not missing

    def answered(self, message: Message, error: CanalError | None) -> None:
        """Note the broker's answer to a message."""
        if error is None:
            self.confirmed(message[:2])
            return
        self.pending -= 1
        self.stop(message[:2])
        counts = self.partitions[message[:2]]
        counts[0] -= 1
        counts[1] -= size_of(message)
        if isinstance(error, MessageRefusedError):
            self.refused.append((message, error))
        elif self.failure is None:
            self.failure = error

    def confirmed(self, partition: Partition) -> None:
        """Note that the broker has a message."""
        self.pending -= 1
        if partition in self.stopped:
            self.stopped[partition] += 1

    def stop(self, partition: Partition) -> None:
        """Note that a message of a partition failed, or was left out."""
        self.stopped.setdefault(partition, 0)

    def note(self, partition: Partition, size: int) -> None:
        """Count a message that was handed to the producer."""
        self.pending += 1
        self.sent_bytes += size
        counts = self.partitions.get(partition)
        if counts is None:
            counts = self.partitions[partition] = [0, 0]
        counts[0] += 1
        counts[1] += size

    def confirmed_first(self) -> dict[Partition, int]:
        """Return how many messages of partitions were confirmed before any failed.

        Only when no message is pending, and of brokers that answer in order.
        """
        return {
            partition: messages - self.stopped.get(partition, 0)
            for partition, (messages, _) in self.partitions.items()
        }


class Producer(Protocol):
    """Sends messages in order; for one thread. Confirmations come in `poll`."""

    @property
    def last_error(self) -> str:
        """Return the last error of a connection; empty: none since it worked."""

    @property
    def confirmed(self) -> int:
        """Return how many messages were confirmed so far."""

    def open(self) -> None:
        """Connect. Raises BrokerUnavailableError."""

    def prepare(self, messages: Iterable[Message]) -> None:
        """Make sure that messages can be sent, before any of them is.

        Raises BrokerUnavailableError with the reason, such as a missing topic.
        """

    def try_send(self, message: Message, sending: Sending) -> bool:
        """Hand over a message; false: there is no room now, so poll first.

        Raises MessageRefusedError, BrokerUnavailableError.
        """

    def push(self) -> None:
        """Send what waits for more to be sent with it: nothing follows soon."""

    def poll(self, timeout_s: float) -> None:
        """Note what was confirmed; waits if nothing was."""

    def renew(self) -> None:
        """Recover from a failure, once nothing is on its way."""

    def abandon(self, wait_s: float) -> None:
        """Forget what is not confirmed, once the broker has answered, or after a time.

        Nothing of it is sent later.
        """

    def close(self, wait_s: float) -> None:
        """Disconnect, after a wait for what is not confirmed."""


class TransactionalProducer(Producer, Protocol):
    """A producer whose messages are visible by whole transactions, with a position."""

    def position(self, stop: Stop | None = None) -> bytes | None:
        """Return the position of the last transaction, None: there was none.

        Call it after `open`, when nothing of an earlier producer is undecided. Raises
        BrokerUnavailableError, also when a stop is requested meanwhile.
        """

    def begin(self) -> None:
        """Begin a transaction, unless one is open. Raises BrokerUnavailableError."""

    def send_position(self, value: bytes) -> None:
        """Add the position to the transaction. Raises BrokerUnavailableError."""

    def try_commit(self, timeout_s: float) -> bool:
        """Commit the transaction; false: not known yet, so call it again.

        Raises BrokerUnavailableError when nothing of it will be visible, and
        OutcomeUnknownError when only the next `open` can find that out.
        """

    def abort(self, wait_s: float = ..., stop: Stop | None = None) -> bool:
        """Abort the transaction; false: the producer must be opened again.

        `wait_s`: for the brokers, unless a stop is requested meanwhile.
        """
