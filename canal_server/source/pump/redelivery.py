"""What is delivered again when reading continues by time on another server.

Offsets are not valid there, so reading begins some time before the last position. Which
of these rows were delivered before is not known, but they can be counted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.messages import source_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.model.positions import LogPosition
    from canal_server.ports import Span
    from canal_server.source.read.start_position import StartPosition

_log = logging.getLogger(__name__)


class Redelivery:
    """Counts what is not younger than the last position; for the pump's thread.

    No more than that is delivered again: times are whole seconds, and in the last
    second some may be new. Times do not only grow: a group commit writes transactions
    in another order than their commits began, and one that waited for a lock is older
    than those before it. So counting continues until one is `margin_ms` younger.
    """

    def __init__(self, destination: str, until_ms: int, margin_ms: int) -> None:
        self.transactions = 0
        self.rows = 0
        self.ended = False
        self._destination = destination
        self._until_s = until_ms // 1000
        self._end_s = (until_ms + margin_ms) // 1000
        self._open_rows = 0  # of a transaction that has not ended

    def counts(self) -> dict[str, int]:
        """Return what was redelivered so far, for `status`."""
        return {"transactions": self.transactions, "rows": self.rows}

    def take(self, spans: Sequence[Span]) -> None:
        """Count what was delivered, until something is young enough."""
        if self.ended:
            return
        for block, first, stop in spans:
            transactions, rows, self._open_rows, youngest_s = block.count_until(
                first, stop, self._until_s, self._open_rows
            )
            self.transactions += transactions
            self.rows += rows
            self.ended = self.ended or youngest_s > self._end_s
        if self.ended:
            source_messages.REDELIVERY_COUNTED.log(
                _log, self._destination, self.transactions, self.rows
            )


def redelivery_of(
    destination: str, position: StartPosition, stored: LogPosition | None
) -> Redelivery | None:
    """Return what counts the redelivery of a session, None when there is none.

    There is one when it begins by time before a stored position; the margin is as long
    as the time between both.
    """
    until_ms = stored.position.timestamp if stored is not None else None
    if not position.timestamp_ms or not until_ms or until_ms < position.timestamp_ms:
        return None
    source_messages.REDELIVERY_STARTED.log(
        _log, destination, (until_ms - position.timestamp_ms) / 1000, stored
    )
    return Redelivery(destination, until_ms, until_ms - position.timestamp_ms)
