"""Warns of certificates before they expire: a stage of the process."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from canal_server.messages import server_messages
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.observe.certificate_expiry import Certificate
    from canal_server.runtime.lifecycle import Deadline

log = logging.getLogger(__name__)

LOOK_S: Final = 60.0
SECOND_LOOK_S: Final = 5.0  # when most sources have been connected to
DAY_S: Final = 86_400.0


class ExpiryWarnings:
    """Which certificates were warned about today; without a thread."""

    def __init__(
        self, warning_days: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._warning_s = warning_days * DAY_S
        self._clock = clock
        self._warned_s: dict[tuple[str, str, float], float] = {}

    def look(self, certificates: Sequence[Certificate]) -> None:
        """Warn of those that expire soon or have expired, each once a day."""
        now_s = self._clock()
        warned: dict[tuple[str, str, float], float] = {}
        for each in certificates:
            left_s = each.expires_at_s - now_s
            if left_s > 0 and left_s >= self._warning_s:
                continue
            # A certificate that replaces it is another one.
            key = (each.destination, each.name, each.expires_at_s)
            last_s = self._warned_s.get(key)
            if last_s is None or now_s - last_s >= DAY_S:
                ends = datetime.fromtimestamp(each.expires_at_s, UTC)
                server_messages.TLS_CERTIFICATE_EXPIRES.log(
                    log,
                    each.about,
                    "expires" if left_s > 0 else "expired",
                    f"{ends:%Y-%m-%d %H:%M} UTC",
                )
                last_s = now_s
            warned[key] = last_s
        self._warned_s = warned


class CertificateWatch:
    """The stage: looks at the certificates every minute."""

    def __init__(
        self, look_up: Callable[[], Sequence[Certificate]], warning_days: int
    ) -> None:
        self._look_up = look_up
        self._warnings = ExpiryWarnings(warning_days)
        self._found: Sequence[Certificate] = ()
        self._stop = Stop()
        self._thread = threading.Thread(
            target=self._run, name="certificates", daemon=True
        )

    def found(self) -> Sequence[Certificate]:
        """Return what the last look found; from any thread."""
        return self._found

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def request_stop(self) -> None:
        """Ask to stop; returns at once."""
        self._stop.request()

    def join(self, deadline: Deadline) -> bool:
        """Return at once: the thread ends with the process, also within a command."""
        del deadline
        return True

    def _run(self) -> None:
        # At the start, sources have not shown anything yet.
        waits_s = itertools.chain((0.0, SECOND_LOOK_S), itertools.repeat(LOOK_S))
        while not self._stop.wait(next(waits_s)):
            try:
                self._found = self._look_up()
                self._warnings.look(self._found)
            except Exception:  # noqa: BLE001  # the outermost frame of this thread
                server_messages.CERTIFICATE_WATCH_FAILED.log(log, exc_info=True)
