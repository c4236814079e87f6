"""How much the delivery takes from the ring at a time."""

from __future__ import annotations

from typing import Any

import pytest

from canal_server.config.schema import BatchMode, MessageLayout, StoreConfig
from canal_server.delivery.queue_delivery import BATCH_BYTES, batch_size_of
from canal_server.queues.message_form import MessageForm

KIB = 1024
WANTED = 50


def size(store: StoreConfig, **form: Any) -> int:
    """Return the size where 50 is wanted; canal-json unless `form` says otherwise."""
    given = {"flat": True, "raw": True, "drops_markers": False, **form}
    return batch_size_of(store, MessageForm(**given), WANTED)


def test_messages_of_events() -> None:
    """They are the same whatever is in a batch, so that it is larger than wanted."""
    assert size(StoreConfig()) == BATCH_BYTES // KIB
    assert size(StoreConfig(memunit=256)) == BATCH_BYTES // 256
    many = batch_size_of(StoreConfig(), MessageForm(True, True, False), 4000)
    assert many == 4000


def test_a_small_ring() -> None:
    """A batch leaves room for others."""
    assert size(StoreConfig(buffer_size=1024)) == 256
    assert size(StoreConfig(buffer_size=64)) == WANTED


@pytest.mark.parametrize(
    "form",
    [
        {"flat": False},
        {"has_keys": True},
        {"has_headers": True},
        {"layout": MessageLayout.MAXWELL},
        {"layout": MessageLayout.DEBEZIUM},
    ],
)
def test_other_messages(form: dict[str, Any]) -> None:
    """Whose size or contents depend on the batch: it is what is wanted."""
    assert size(StoreConfig(), **form) == WANTED


def test_batches_by_number() -> None:
    """Entries may have any size, so that the number is what is wanted."""
    assert size(StoreConfig(batch_mode=BatchMode.ITEMSIZE)) == WANTED
