"""Workers of a delivery, and a broker for them that fails as a test says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_server import DESTINATION, FakeInstance, FakeInstances

from canal_server.delivery import queue_worker
from canal_server.delivery.queue_worker import QueueWorker, WorkerLimits
from canal_server.model.identity import ClientIdentity
from canal_server.protocol.entry_messages import Entry
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    Sending,
    size_of,
)
from canal_server.runtime.lifecycle import Deadline
from canal_server.server.local_client import LocalClient
from canal_server.server.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from canal_server.queues.message_form import Encode
    from canal_server.queues.producers.queue_producer import Message

WHO = ClientIdentity(DESTINATION, 1001)
TOPIC = "shop"
LIMITS = WorkerLimits(4, 100, "")
DEADLINE_S = 30.0


class FailingBroker:
    """A broker and the producer for it: keeps messages, confirms some at each poll.

    `fails(topic, value)` returns what becomes of a message: an error, or None.
    """

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.kept: list[tuple[str, bytes]] = []
        self.fails: Callable[[str, bytes], Exception | None] = lambda *_: None
        self.missing: set[str] = set()  # topics
        self.per_poll = 1000  # messages that a poll confirms
        self.waiting: list[tuple[Message, Sending]] = []
        self.last_error = ""
        self.confirmed = 0
        self.abandoned = 0

    def open(self) -> None:
        """Do nothing."""

    def prepare(self, messages: Iterable[Message]) -> None:
        """Refuse missing topics."""
        for topic, *_ in messages:
            if topic in self.missing:
                raise BrokerUnavailableError(f"topic {topic} does not exist")

    def try_send(self, message: Message, sending: Sending) -> bool:
        """Keep a message if there is room."""
        if len(self.waiting) >= self.room:
            return False
        sending.note(message[:2], size_of(message))
        self.waiting.append((message, sending))
        return True

    def push(self) -> None:
        """Do nothing: nothing waits for more."""

    def poll(self, timeout_s: float) -> None:
        """Answer the first messages."""
        del timeout_s
        for _ in range(min(self.per_poll, len(self.waiting))):
            message, sending = self.waiting.pop(0)
            topic, _, value = message[:3]
            assert value is not None
            error = self.fails(topic, value)
            if error is None:
                self.kept.append((topic, value))
                self.confirmed += 1
            sending.answered(message, error)  # type: ignore[arg-type]

    def renew(self) -> None:
        """Do nothing: it fails for a while only."""

    def abandon(self, wait_s: float) -> None:
        """Forget what waits."""
        del wait_s
        self.abandoned += len(self.waiting)
        self.waiting.clear()

    def close(self, wait_s: float) -> None:
        """Forget what waits."""
        self.abandon(wait_s)

    def numbers(self, topic: str = TOPIC) -> list[int]:
        """Return the numbers of the entries that arrived."""
        return [int(value) for name, value in self.kept if name == topic]


def encode(batch_id: int, body: bytes, now_ms: int) -> list[Message]:
    """Return a message for each entry, with its number."""
    del batch_id, now_ms
    return [
        (TOPIC, 0, str(decode(Entry, each).header.logfile_offset).encode())
        for each in decode(Messages, body).messages
    ]


def encode_to(topics: int) -> Encode:
    """Return what deals entries to so many topics in turn."""

    def deal(batch_id: int, body: bytes, now_ms: int) -> list[Message]:
        values = [each[2] or b"" for each in encode(batch_id, body, now_ms)]
        return [(f"{TOPIC}{int(each) % topics}", 0, each) for each in values]

    return deal


@pytest.fixture
def quick_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for little."""
    for name in ("ABSENT_S", "IDLE_FETCH_S", "POLL_S"):
        monkeypatch.setattr(queue_worker, name, 0.005)
    monkeypatch.setattr(queue_worker, "RETRY_MAX_S", 0.51)


@pytest.fixture
def start_worker(
    instances: FakeInstances, quick_worker: None
) -> Iterator[Callable[..., QueueWorker]]:
    """Give a function that starts a worker, which is stopped after the test."""
    made: list[QueueWorker] = []

    def start(
        broker: FailingBroker, limits: WorkerLimits = LIMITS, encoder: Encode = encode
    ) -> QueueWorker:
        client = LocalClient(Service(instances), instances, WHO)
        what = f"canal-json, topic {TOPIC}"
        worker = QueueWorker(
            client, "a broker", lambda: broker, encoder, limits, what=what
        )
        made.append(worker)
        worker.start()
        return worker

    yield start
    for each in made:
        each.request_stop()
        assert each.join(Deadline(DEADLINE_S))


def acked(instance: FakeInstance) -> int:
    """Return how many entries were acked."""
    return instance.store.cursors[WHO.client_id].acked


def move_cursor(instance: FakeInstance, to: int) -> None:
    """Move the cursor of the delivery to an entry, as an operator does."""
    with instance.moving:
        instance.meta.clear_batches(WHO)
        with instance.store.lock:
            cursor = instance.store.cursors[WHO.client_id]
            cursor.got = cursor.acked = to
