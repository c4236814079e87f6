"""The worker with transactions, a broker in memory, and a source for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from transactions_in_memory import LIMITS, WHO, Broker, Source, encode

from canal_server.delivery import queue_worker, transaction_worker
from canal_server.delivery.transaction_worker import RoomInRing, TransactionWorker
from canal_server.runtime.lifecycle import Deadline
from canal_server.server.local_client import LocalClient
from canal_server.server.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fix_server import FakeInstances

    from canal_server.delivery.queue_worker import WorkerLimits
    from canal_server.queues.message_form import Encode

ROOM = RoomInRing(100_000, 20)
DEADLINE_S = 60.0


@pytest.fixture
def quick_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for little."""
    for name in ("ABSENT_S", "IDLE_FETCH_S", "POLL_S"):
        monkeypatch.setattr(queue_worker, name, 0.005)
    monkeypatch.setattr(queue_worker, "RETRY_MAX_S", 0.51)
    monkeypatch.setattr(transaction_worker, "OPEN_RETRY_S", 0.005)


@pytest.fixture
def broker() -> Broker:
    """Give a broker that works."""
    return Broker()


@pytest.fixture
def source(instances: FakeInstances, broker: Broker) -> Source:
    """Give a source whose destination runs."""
    found = Source(instances, broker)
    found.restart()
    return found


@pytest.fixture
def make(
    instances: FakeInstances,
    source: Source,
    broker: Broker,
    quick_transactions: None,
) -> Iterator[Callable[..., TransactionWorker]]:
    """Give a function that starts a worker, which is stopped after the test."""
    made: list[TransactionWorker] = []

    def start(
        limits: WorkerLimits = LIMITS, encoder: Encode = encode
    ) -> TransactionWorker:
        worker = TransactionWorker(
            LocalClient(Service(instances), instances, WHO),
            "a broker",
            lambda: broker,
            encoder,
            limits,
            room=ROOM,
            restart=source.restart,
        )
        made.append(worker)
        worker.start()
        return worker

    yield start
    for each in made:
        each.request_stop()
        assert each.join(Deadline(DEADLINE_S))
