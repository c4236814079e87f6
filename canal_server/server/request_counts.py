"""Counts the requests of clients, by destination; canal's profiler of requests.

Written by the threads of connections, once for each request, read by any.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from canal_server.protocol import server_session
from canal_server.server.request_texts import identity_of

if TYPE_CHECKING:
    from collections.abc import Mapping

LATENCY_BOUNDS_MS: Final = (2.5, 10.0, 25.0, 100.0)
_PACKET_TYPES: Final[Mapping[type, str]] = {
    server_session.Subscribe: "SUBSCRIPTION",
    server_session.Unsubscribe: "UNSUBSCRIPTION",
    server_session.Fetch: "GET",
    server_session.Acknowledge: "CLIENTACK",
    server_session.Rollback: "CLIENTROLLBACK",
}


@dataclass(slots=True)
class RequestCounts:
    """The requests to one destination since the server started.

    `latencies` has the number of requests in each bucket, the last one is for all above
    the bounds; a request lasts until its answer is sent.
    """

    packets: Counter[str] = field(default_factory=Counter)  # by the protocol's names
    sent_bytes: int = 0
    empty_batches: int = 0
    errors: Counter[int] = field(default_factory=Counter)  # by code
    latencies: list[int] = field(
        default_factory=lambda: [0] * (len(LATENCY_BOUNDS_MS) + 1)
    )
    latency_ms: float = 0.0  # of all
    rollbacks: Counter[int] = field(default_factory=Counter)  # by client id


class RequestCounters:
    """The counts of all destinations."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, RequestCounts] = {}

    def note(
        self,
        request: server_session.Request,
        *,
        sent_bytes: int,
        is_empty: bool,
        error_code: int,
        took_ms: float,
    ) -> None:
        """Note a request to a destination and its answer; `error_code` 0: none.

        Of log-ins that subscribe, only refused ones are counted, and only as errors.
        """
        kind = _PACKET_TYPES.get(type(request))
        identity = identity_of(request)
        if identity is None:
            return
        if kind is None:
            if error_code:
                with self._lock:
                    counts = self._counts_of(identity.destination)
                    counts.errors[error_code] += 1
            return
        bucket = bisect_left(LATENCY_BOUNDS_MS, took_ms)
        with self._lock:
            counts = self._counts_of(identity.destination)
            if is_empty:
                counts.empty_batches += 1
            else:
                counts.packets[kind] += 1
            counts.sent_bytes += sent_bytes
            if error_code:
                counts.errors[error_code] += 1
            if isinstance(request, server_session.Rollback):
                counts.rollbacks[identity.client_id] += 1
            counts.latencies[bucket] += 1
            counts.latency_ms += took_ms

    def _counts_of(self, destination: str) -> RequestCounts:
        assert self._lock.locked()
        counts = self._counts.get(destination)
        if counts is None:
            counts = self._counts[destination] = RequestCounts()
        return counts

    def of(self, destination: str) -> RequestCounts:
        """Return a copy of the counts of a destination."""
        with self._lock:
            found = self._counts.get(destination)
            if found is None:
                return RequestCounts()
            return RequestCounts(
                Counter(found.packets),
                found.sent_bytes,
                found.empty_batches,
                Counter(found.errors),
                list(found.latencies),
                found.latency_ms,
                Counter(found.rollbacks),
            )
