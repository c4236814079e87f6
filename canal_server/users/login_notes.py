"""Notes log-ins of ports at which each request logs in: once, and not each time.

HTTP has no sessions. What an auditor asks is who used a port, from where and when.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from canal_server.users.audit_log import AuditLog

IDLE_S: Final = 900.0  # without a request, after which the next one is a new log-in
AGAIN_S: Final = 86_400.0  # after which a log-in that continues is noted again
_NEVER: Final = (-math.inf, -math.inf)
KEPT_MAX: Final = 1000  # that are remembered; others are noted again


class LoginNotes:
    """The log-ins at one port, by user, host and how they logged in; thread-safe."""

    def __init__(self, audit: AuditLog, service: str) -> None:
        """Create without log-ins; `service` is what the audit calls the port."""
        self._audit = audit
        self._service = service
        self._lock = threading.Lock()
        # When each was noted, and seen last; of the monotonic clock. The last one is
        # the one that was seen last.
        self._known: OrderedDict[tuple[str, str, str], tuple[float, float]] = (
            OrderedDict()
        )

    def note(self, user: str, host: str, port: int, how: str) -> None:
        """Note that a request has logged in, unless that is known."""
        if not self._audit.is_on:
            return
        now_s = time.monotonic()
        key = user, host, how
        with self._lock:
            noted_s, seen_s = self._known.pop(key, _NEVER)
            is_new = now_s - seen_s >= IDLE_S or now_s - noted_s >= AGAIN_S
            self._known[key] = now_s if is_new else noted_s, now_s
            if len(self._known) > KEPT_MAX:
                self._known.popitem(last=False)
        if is_new:
            self._audit.note(
                "login", user, f"{host}:{port}", how=how, service=self._service
            )
