"""When a get answers: the rules, without the threads that wait.

A get answers as soon as more waiting would not improve its answer: when a batch is
full, the pump has no more data for now, nothing more fits in the ring, the first entry
has lingered long enough, or its timeout expired. With a linger of 0 it waits as the
Java server does: for a full batch, a full ring or its timeout.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from canal_server.config.schema import BatchMode
from canal_server.errors import StoreError
from canal_server.store.wakeup import PEER_CLOSED, WakeUp

if TYPE_CHECKING:
    from canal_server.config.schema import StoreConfig
    from canal_server.runtime.lifecycle import Deadline
    from canal_server.store.cursor import Cursor

UNLIMITED = 2**64 - 1


def now_ms() -> int:
    """Return a clock's time in 32 bits; only differences mean something."""
    return time.monotonic_ns() // 1_000_000 & 0xFFFFFFFF


def check_size(client_id: int, batch_size: int) -> None:
    """Raise StoreError when a get asks for no entries."""
    if batch_size < 1:
        raise StoreError(
            f"client {client_id} asked for {batch_size} entries: ask for at least 1"
        )


class Getter(WakeUp):
    """One get that may wait, and the most that it asks for."""

    def __init__(
        self,
        cursor: Cursor,
        limits: tuple[int, int],
        peer_fd: int | None,
        *,
        whole: bool = False,
    ) -> None:
        super().__init__(peer_fd, PEER_CLOSED)
        self.cursor = cursor
        self.count_max, self.bytes_max = limits
        self.whole = whole
        self.lingers = False  # entries arrived and it knows until when to wait


class WaitingRules:
    """Decides how long gets wait. Used under the store's lock."""

    def __init__(self, config: StoreConfig) -> None:
        self._by_count = config.batch_mode == BatchMode.ITEMSIZE
        self._memunit = config.memunit
        self._linger_ms = config.linger_ms
        self.idle = False  # the pump had no more data after its last put
        self.full = False  # a put waits for room

    def limits(self, batch_size: int) -> tuple[int, int]:
        """Return the limits of a batch of this size, in entries and bytes."""
        if self._by_count:
            return batch_size, UNLIMITED
        return UNLIMITED, min(batch_size * self._memunit, UNLIMITED)

    def is_answerable(self, getter: Getter) -> bool:
        """Return whether more waiting would not improve the answer, or not soon."""
        cursor = getter.cursor
        if not cursor.available:
            return False
        if self.full or (self.idle and self._linger_ms):
            return True
        if self._by_count:
            return cursor.available >= getter.count_max
        return cursor.available_bytes >= getter.bytes_max

    def is_news(self, getter: Getter) -> bool:
        """Return whether a sleeping get must answer or begin its linger."""
        return self.is_answerable(getter) or (
            self._linger_ms > 0 and getter.cursor.available > 0 and not getter.lingers
        )

    def wait_s(self, getter: Getter, deadline: Deadline) -> float | None:
        """Return how long the get may still wait, 0: answer now, None: no limit."""
        cursor = getter.cursor
        remaining_s = deadline.remaining_s()
        if remaining_s == 0 or self.is_answerable(getter):
            return 0
        getter.lingers = self._linger_ms > 0 and cursor.available > 0
        if not getter.lingers:
            return remaining_s
        lingered_ms = (now_ms() - cursor.oldest_put_ms()) & 0xFFFFFFFF
        linger_s = max(0, self._linger_ms - lingered_ms) / 1000
        return linger_s if remaining_s is None else min(linger_s, remaining_s)
