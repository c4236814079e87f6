"""Which clients are connected, and since when the others are not.

Entries are *retained* for a client while a connection serves it and for a while after,
and always for the client that was connected last: thus a single client always retains
entries. Other clients are *evictable*. The time in which no server ran does not count.
Implements `ports.Liveness` except for evicting a client
(`canal_server.catchup.lagging_clients`); thread-safe. Leaves out the storage
(`last_seen`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from canal_server.errors import MetaStoreError
from canal_server.messages import position_messages
from canal_server.position.flusher import Flusher

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from canal_server.runtime.lifecycle import Stop

_log = logging.getLogger(__name__)


class LastSeenStorage(Protocol):
    """Stores for how long clients are disconnected; raises MetaStoreError.

    All methods but `open` are called by one thread at a time.
    """

    def open(self, stop: Stop) -> None:
        """Prepare; may wait until `stop`."""

    def close(self) -> None:
        """Release what `open` acquired; may be called again."""

    def read(self) -> dict[int, float]:
        """Return the seconds for which each client was disconnected when written.

        Clients that were connected, or are unknown, are left out.
        """

    def write(self, away_s: Mapping[int, float]) -> None:
        """Store what `read` returns."""

    @property
    def silence(self) -> str:
        """Return the text of an error for a storage that does not answer."""


class Presence:
    """The clients of one destination; with a negative `retain_s`, all retain always."""

    def __init__(
        self,
        retain_s: float,
        storage: LastSeenStorage | None = None,
        *,
        what: str = "",
        period_s: float = 1.0,
        is_late: Callable[[int], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create it with a storage, None: not stored; `what` names the destination.

        A client that `is_late` is evictable after a restart, even if connected now.
        """
        self._is_late = is_late
        self._retain_s = retain_s
        self._storage = storage if retain_s >= 0 else None
        self._clock = clock
        self._lock = threading.Lock()
        self._here: Counter[int] = Counter()  # connections that serve a client
        self._seen_s: dict[int, float] = {}  # when subscribed clients were seen
        self._kept_s: dict[int, float] = {}  # disconnected for so long when stored
        # The client that was seen last, and whether it was determined since a change.
        self._last: int | None = None
        self._last_is_known = False
        self._is_dirty = self._is_started = False
        self._flusher = Flusher(
            self._flush,
            what=f"times of clients of {what}",
            period_s=period_s,
        )

    def start(self, stop: Stop) -> None:
        """Load what is stored. Raises MetaStoreError."""
        if self._storage is None:
            return
        self._storage.open(stop)
        try:
            self._kept_s = self._storage.read()
        except BaseException:
            self._storage.close()
            raise
        self._flusher.start()
        self._is_started = True

    def stop(self) -> None:
        """Write pending changes.

        A failure is logged and loses no data: clients that are disconnected count as
        seen when the destination starts the next time.
        """
        if self._storage is None or not self._is_started:
            return
        self._is_started = False
        with self._lock:
            self._is_dirty = True
        try:
            self._flusher.stop(self._storage.silence)
        except MetaStoreError as error:
            position_messages.LAST_SEEN_NOT_WRITTEN.log(_log, error)
        finally:
            self._storage.close()

    # --- what happens -----------------------------------------------------------------

    def enter(self, client_id: int) -> None:
        """Note that a client is subscribed; no effect on a client that is known."""
        with self._lock:
            self._last_is_known = False
            if client_id not in self._seen_s:
                away_s = self._kept_s.pop(client_id, 0.0)
                self._seen_s[client_id] = self._clock() - away_s
                self._change()

    def forget(self, client_id: int) -> None:
        """Note that a client is no longer subscribed."""
        with self._lock:
            self._last_is_known = False
            self._seen_s.pop(client_id, None)
            self._change()

    def saw(self, client_id: int) -> None:
        """Count a subscribed client as seen now."""
        with self._lock:
            self._last_is_known = False
            if client_id in self._seen_s:
                self._seen_s[client_id] = self._clock()
                self._change()

    def on_connect(self, client_id: int) -> None:
        """Note that another connection serves a client."""
        with self._lock:
            self._last_is_known = False
            self._here[client_id] += 1
            self._change()

    def on_disconnect(self, client_id: int) -> None:
        """Note that a connection that served a client ended."""
        with self._lock:
            self._last_is_known = False
            self._here[client_id] -= 1
            if self._here[client_id] <= 0:
                del self._here[client_id]
            if client_id in self._seen_s:
                self._seen_s[client_id] = self._clock()
            self._change()

    def look_again(self) -> None:
        """Note that the set of lagging clients changed."""
        self._change()

    def _change(self) -> None:
        self._is_dirty = True
        self._flusher.changed(urgent=False)

    # --- what is asked ----------------------------------------------------------------

    def is_evictable(self, client_id: int) -> bool:
        """Return whether nothing is retained for a client any longer."""
        return self.evictable_in_s((client_id,)) == 0

    def evictable_in_s(self, client_ids: Collection[int]) -> float | None:
        """Return the seconds until all are evictable, 0: they are; None: unknown."""
        if self._retain_s < 0 or not client_ids:
            return None
        with self._lock:
            last = self._last_seen()
            wait_s = 0.0
            for client_id in client_ids:
                seen_s = self._seen_s.get(client_id)
                if seen_s is None or client_id == last or client_id in self._here:
                    return None
                wait_s = max(wait_s, seen_s + self._retain_s - self._clock())
        return wait_s

    def here(self) -> list[int]:
        """Return the clients that a connection serves now."""
        with self._lock:
            return sorted(self._here)

    def away_s(self, client_id: int) -> float | None:
        """Return the time since a client disconnected, None: it is connected."""
        with self._lock:
            if client_id in self._here or client_id not in self._seen_s:
                return None
            return max(0.0, self._clock() - self._seen_s[client_id])

    def _last_seen(self) -> int | None:
        """Return the client that was seen last; None while any is connected."""
        assert self._lock.locked()
        if not self._last_is_known:
            # Cached for speed: the caller asks for each of thousands of clients.
            self._last_is_known = True
            self._last = (
                None
                if any(each in self._here for each in self._seen_s)
                else max(
                    self._seen_s,
                    key=lambda each: (self._seen_s[each], -each),
                    default=None,
                )
            )
        return self._last

    def _flush(self) -> None:
        if self._storage is None:
            return
        with self._lock:
            if not self._is_dirty:
                return
            self._is_dirty = False
            now_s = self._clock()
            away_s = {
                client_id: round(now_s - seen_s, 3)
                for client_id, seen_s in self._seen_s.items()
                if client_id not in self._here
            }
            late = list(filter(self._is_late, self._seen_s))
            # Not as the one that was seen last, for which entries are retained.
            longest_s = max(
                (away_s[each] for each in away_s if each not in late), default=0
            )
            for client_id in late:
                away_s[client_id] = max(
                    away_s.get(client_id, 0), self._retain_s, longest_s + 1
                )
        try:
            self._storage.write(away_s)
        except BaseException:
            with self._lock:
                self._is_dirty = True
            raise
