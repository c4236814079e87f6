"""A consumer's client and handler, of which a test sees what happened when."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from canal_server.client.consume import DeadLetters
from canal_server.client.consume import consumer as consumer_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.client import Message
    from canal_server.client.client_options import AckPolicy


@pytest.fixture
def short_delays(monkeypatch):
    """Make delays as in the product, but shorter."""
    monkeypatch.setattr(consumer_module, "_FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(consumer_module, "_DELAY_MAX_S", 0.002)


@pytest.fixture
def letters(tmp_path):
    """Give a file for dead letters."""
    made = DeadLetters(tmp_path / "dead.jsonl")
    yield made
    made.close()


def written(tmp_path):
    """Return the dead letters."""
    text = (tmp_path / "dead.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


class NotedClient:
    """Yields messages as a client does, and notes what is acked between them."""

    ack_policy: AckPolicy = "manual"

    def __init__(self, *messages) -> None:
        self.waiting = list(messages)
        self.events: list[object] = []
        self.is_stopped = False

    def messages(self, *, timeout_s: float | None, empty: bool) -> Iterator[Message]:
        """Yield the messages, until it is stopped."""
        for message in self.waiting:
            if self.is_stopped:
                return
            yield message

    def ack(self, message_id: int | None) -> None:
        """Take note."""
        self.events.append(f"ack {message_id}")

    def stop(self) -> None:
        """End the iteration."""
        self.is_stopped = True


class NotedTarget:
    """A handler with a transaction: what is flushed is durable, the rest can be lost.

    `fails` is called with each id before it is handled, `fails_to_flush` with the ids
    that a flush would make durable.
    """

    def __init__(self, fails=lambda number: None, flush=lambda ids: None) -> None:
        self.fails: Callable[[int], object] = fails
        self.fails_to_flush: Callable[[list[int]], object] = flush
        self.flush_changes = 0  # no limit
        self.flush_s = 0.0
        self.pending: list[int] = []
        self.durable: list[int] = []
        self.flushes: list[list[int]] = []
        self.calls: list[str] = []

    def open(self):
        """Take note."""
        self.calls.append("open")

    def handle(self, change):
        """Handle an insert."""
        self.fails(change.after["id"])
        self.pending.append(change.after["id"])

    def flush(self):
        """Make it durable."""
        self.fails_to_flush(self.pending)
        self.durable += self.pending
        self.flushes.append(self.pending)
        self.pending = []

    def rollback(self):
        """Forget it."""
        self.calls.append("rollback")
        self.pending = []

    def close(self):
        """Take note."""
        self.calls.append("close")


def fail_on(bad, error=ValueError):
    """Return a function that raises an error for some ids."""

    def check(number):
        if number in bad:
            raise error(f"no {number}")

    return check


def fail_times(times, error):
    """Return a function that raises an error so many times."""
    left = [times]

    def check(_):
        if left[0]:
            left[0] -= 1
            raise error

    return check
