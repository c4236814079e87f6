"""How long a source may be silent before its connection counts as dead.

A live source sends heartbeats. It may be unable to do so while it seeks a position in a
large binlog, or reads one huge event from a slow disk. A client that disconnects then
would restart for ever, so each silence before the first event doubles the limit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConnectionLost
from canal_server.mysql.dump_connection import DumpOptions

if TYPE_CHECKING:
    from canal_server.config.schema import SourceConfig
    from canal_server.mysql.source_settings import Access

SILENCE_MAX_S: Final = 120.0
FIRST_S: Final = 30.0  # for a dump that reads a part of the binlog
# Replies to statements may take longer than heartbeats.
ANSWER_MIN_S: Final = 10.0


class Patience:
    """The limits of one destination's sessions; for the pump's thread."""

    def __init__(self, source: SourceConfig) -> None:
        self._source = source
        self._usual_s = source.silence_s
        self._silence_s = self._answer_s = 0.0
        self.reset()

    def reset(self) -> None:
        """Reset the limits: a session received data, or another server is read."""
        self._silence_s = self._usual_s
        self._answer_s = max(self._usual_s, ANSWER_MIN_S)

    @property
    def answer_s(self) -> float:
        """Return how long the reply to a login or a statement may take."""
        return min(self._answer_s, self._source.so_timeout_s)

    def limit(self, access: Access) -> Access:
        """Return the source's access with the time limit of this session."""
        return replace(access, io_timeout_s=min(access.io_timeout_s, self.answer_s))

    def options(self) -> DumpOptions:
        """Return the options of this session's dump."""
        return options_of(self._source, self._silence_s)

    def failed(self, error: Exception) -> None:
        """Record the end of a session that received nothing."""
        if not isinstance(error, ConnectionLost) or error.heard_s is None:
            return
        if error.errno is not None:  # from a statement or login, not from a dump
            self._answer_s = min(self._answer_s * 2, SILENCE_MAX_S)
        elif error.heard_s > self._silence_s:
            self._silence_s = self._usual_s  # it was alive and died later
        else:
            most_s = max(SILENCE_MAX_S, self._usual_s)
            self._silence_s = min(self._silence_s * 2, most_s)


def options_of(
    source: SourceConfig, first_s: float = FIRST_S, *, follow: bool = True
) -> DumpOptions:
    """Return the dump options of the settings; `first_s`: the first silence limit."""
    return DumpOptions(
        heartbeat_s=source.heartbeat_s,
        allowance=max(1.0, source.silence_s / source.heartbeat_s),
        silence_first_s=max(first_s, source.silence_s),
        follow=follow,
    )
