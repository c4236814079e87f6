"""Which clients are here, and since when the others are away.

A client *pins* entries while a connection serves it and for a while after, and always
when it is the one that was seen last: so a single client pins for ever. Else it
*floats*. The time in which no server ran does not count. Implements `ports.Liveness`
but for what becomes of a client (`canal_server.catchup.lagging_clients`); thread-safe.
Leaves out where it is kept (`last_seen`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from canal_server.errors import MetaStoreError
from canal_server.position.flusher import Flusher

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from canal_server.runtime.lifecycle import Stop

_log = logging.getLogger(__name__)


class LastSeenStorage(Protocol):
    """Where it is kept for how long clients are away; raises MetaStoreError.

    All but `open` are called by one thread at a time.
    """

    def open(self, stop: Stop) -> None:
        """Get ready; may wait until `stop`."""

    def close(self) -> None:
        """Let go of it; may be called again."""

    def read(self) -> dict[int, float]:
        """Return by client id for how many seconds it was away when that was written.

        A client that was here, or is not known, is left out.
        """

    def write(self, away_s: Mapping[int, float]) -> None:
        """Keep what `read` returns."""

    @property
    def silence(self) -> str:
        """Return how to say that the place does not answer."""


class Presence:
    """The clients of one destination; `retain_s` is negative where all pin for ever."""

    def __init__(
        self,
        retain_s: float,
        place: LastSeenStorage | None = None,
        *,
        what: str = "",
        period_s: float = 1.0,
        is_late: Callable[[int], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the place to keep it, None: nowhere; `what` names whose clients.

        One that `is_late` floats after a restart, also when it is here now.
        """
        self._is_late = is_late
        self._retain_s = retain_s
        self._place = place if retain_s >= 0 else None
        self._clock = clock
        self._lock = threading.Lock()
        self._here: Counter[int] = Counter()  # connections that serve a client
        self._seen_s: dict[int, float] = {}  # of subscribed ones, when they were
        self._kept_s: dict[int, float] = {}  # away, as it was written
        # The client that was seen last, and whether that was found since a change.
        self._last: int | None = None
        self._last_is_known = False
        self._is_dirty = self._is_started = False
        self._flusher = Flusher(
            self._flush,
            what=f"times of clients of {what}",
            name=f"{what} seen flush",
            period_s=period_s,
        )

    def start(self, stop: Stop) -> None:
        """Load what is kept. Raises MetaStoreError."""
        if self._place is None:
            return
        self._place.open(stop)
        try:
            self._kept_s = self._place.read()
        except BaseException:
            self._place.close()
            raise
        self._flusher.start()
        self._is_started = True

    def stop(self) -> None:
        """Write what is not written yet.

        Where that fails it is told, and nothing is lost by it: clients that are away
        count as seen when the destination starts the next time.
        """
        if self._place is None or not self._is_started:
            return
        self._is_started = False
        with self._lock:
            self._is_dirty = True
        try:
            self._flusher.stop(self._place.silence)
        except MetaStoreError as error:
            _log.warning("%s; clients that are away count as seen", error)
        finally:
            self._place.close()

    # --- what happens -----------------------------------------------------------------

    def enter(self, client_id: int) -> None:
        """Take note that a client is subscribed; one that is known stays as it is."""
        with self._lock:
            self._last_is_known = False
            if client_id not in self._seen_s:
                away_s = self._kept_s.pop(client_id, 0.0)
                self._seen_s[client_id] = self._clock() - away_s
                self._is_dirty = True

    def forget(self, client_id: int) -> None:
        """Take note that a client is no longer subscribed."""
        with self._lock:
            self._last_is_known = False
            self._seen_s.pop(client_id, None)
            self._is_dirty = True

    def saw(self, client_id: int) -> None:
        """Take note that a subscribed client counts as seen now."""
        with self._lock:
            self._last_is_known = False
            if client_id in self._seen_s:
                self._seen_s[client_id] = self._clock()
                self._is_dirty = True

    def on_connect(self, client_id: int) -> None:
        """Note that one more connection serves a client."""
        with self._lock:
            self._last_is_known = False
            self._here[client_id] += 1
            self._is_dirty = True

    def on_disconnect(self, client_id: int) -> None:
        """Note that a connection that served a client ended."""
        with self._lock:
            self._last_is_known = False
            self._here[client_id] -= 1
            if self._here[client_id] <= 0:
                del self._here[client_id]
            if client_id in self._seen_s:
                self._seen_s[client_id] = self._clock()
            self._is_dirty = True

    def look_again(self) -> None:
        """Take note that another client is late, or one is not any more."""
        self._is_dirty = True  # without the lock: the next write comes behind it

    # --- what is asked ----------------------------------------------------------------

    def is_evictable(self, client_id: int) -> bool:
        """Tell whether a client was away for so long that nothing waits for it."""
        return self.evictable_in_s((client_id,)) == 0

    def evictable_in_s(self, client_ids: Collection[int]) -> float | None:
        """Return when all of these float, 0: they do; None: not foreseeable."""
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
        """Return for how long a subscribed client is away, None: it is here."""
        with self._lock:
            if client_id in self._here or client_id not in self._seen_s:
                return None
            return max(0.0, self._clock() - self._seen_s[client_id])

    def _last_seen(self) -> int | None:
        """Return the client that was seen last; None while any is here."""
        assert self._lock.locked()
        if not self._last_is_known:
            # Faster: it is asked for each of thousands of clients in turn.
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
        if self._place is None:
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
            # Not as the one that was seen last: that one would pin.
            longest_s = max(
                (away_s[each] for each in away_s if each not in late), default=0
            )
            for client_id in late:
                away_s[client_id] = max(
                    away_s.get(client_id, 0), self._retain_s, longest_s + 1
                )
        try:
            self._place.write(away_s)
        except BaseException:
            with self._lock:
                self._is_dirty = True
            raise
