"""A thread that writes changes: periodically, at once, and before it ends.

Leaves out what is written, and where.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from canal_server.errors import CanalError, MetaStoreError
from canal_server.messages import position_messages

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 5.0  # half of the time in which the process shuts down
RETRY_S: Final = 1.0  # after a failure, where nothing is written periodically


class Flusher:
    """Calls `flush`, which itself remembers what it could not write.

    With a period of 0, every change is written at once. A failure is logged once,
    until a flush succeeds again.
    """

    def __init__(
        self,
        flush: Callable[[], None],
        *,
        what: str,  # what is written, for the log
        name: str,  # of the thread
        period_s: float,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        self._flush = flush
        self._what = what
        self._period_s = period_s
        self._stop_timeout_s = stop_timeout_s
        self._condition = threading.Condition()  # guards the next two
        self._urgent = False
        self._stopping = False
        self._thread = threading.Thread(
            target=self._flush_until_stopped, name=name, daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def changed(self, *, urgent: bool) -> None:
        """Announce a change, to be written at once or when the period ends."""
        if not urgent and self._period_s:
            return
        with self._condition:
            self._urgent = True
            self._condition.notify()

    def stop(self, silence: str, effect: str = "") -> None:
        """Stop the thread and write what it could not; may be called again.

        Raises MetaStoreError when the thread does not end in time, else what `flush`
        raises: `silence` names the cause, `effect` the consequence.
        """
        with self._condition:
            self._stopping = True
            self._condition.notify()
        if self._thread.ident is not None:
            self._thread.join(self._stop_timeout_s)
            if self._thread.is_alive():
                raise MetaStoreError(
                    f"cannot write the {self._what}: {silence} for"
                    f" {self._stop_timeout_s:g} s{effect}"
                )
        self._flush()

    def _flush_until_stopped(self) -> None:
        failed = False
        while True:
            stopping = self._wait(after_failure=failed)
            try:
                self._flush()
            except Exception as error:  # noqa: BLE001  # the outermost frame
                # Log once, not in every period; `stop` tries again and raises the
                # last failure.
                if not failed and not stopping:
                    position_messages.WRITES_FAIL.log(
                        logger,
                        self._what,
                        error,
                        exc_info=not isinstance(error, CanalError),
                    )
                failed = True
            else:
                if failed:
                    position_messages.WRITES_RESUMED.log(logger, self._what)
                failed = False
            if stopping:
                return

    def _wait(self, *, after_failure: bool) -> bool:
        """Wait until there is something to write; true when stopping."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._stopping or (self._urgent and not after_failure),
                self._period_s or (RETRY_S if after_failure else None),
            )
            # Reset before the content is read: a later change is urgent again.
            self._urgent = False
            return self._stopping
