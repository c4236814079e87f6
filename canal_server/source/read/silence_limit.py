"""How long a source may be silent before it counts as dead.

A living one breaks its silence by heartbeats. It may be unable to: while it looks for a
place in a large binlog, or reads one huge event from a slow disk. Who gave it up then
would begin anew for ever, so each silence that came before anything was read doubles
the limit.
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
FIRST_S: Final = 30.0  # of a dump that reads a part of the binlog
# Answers to statements may take longer than heartbeats.
ANSWER_MIN_S: Final = 10.0


class Patience:
    """The limits of one destination's sessions; for the pump's thread."""

    def __init__(self, source: SourceConfig) -> None:
        self._source = source
        self._usual_s = source.silence_s
        self._silence_s = self._answer_s = 0.0
        self.reset()

    def reset(self) -> None:
        """Begin anew: something came of a session, or another server is read."""
        self._silence_s = self._usual_s
        self._answer_s = max(self._usual_s, ANSWER_MIN_S)

    @property
    def answer_s(self) -> float:
        """Return how long the answer to a log-in or a statement may take."""
        return min(self._answer_s, self._source.so_timeout_s)

    def limit(self, access: Access) -> Access:
        """Return how to reach the source with the limit of this session."""
        return replace(access, io_timeout_s=min(access.io_timeout_s, self.answer_s))

    def options(self) -> DumpOptions:
        """Return how the dump of this session behaves."""
        return options_of(self._source, self._silence_s)

    def failed(self, error: Exception) -> None:
        """Take note of the end of a session that brought nothing."""
        if not isinstance(error, ConnectionLost) or error.heard_s is None:
            return
        if error.errno is not None:  # of a statement or log-in, not of a dump
            self._answer_s = min(self._answer_s * 2, SILENCE_MAX_S)
        elif error.heard_s > self._silence_s:
            self._silence_s = self._usual_s  # it lived, and died since
        else:
            most_s = max(SILENCE_MAX_S, self._usual_s)
            self._silence_s = min(self._silence_s * 2, most_s)


def options_of(
    source: SourceConfig, first_s: float = FIRST_S, *, follow: bool = True
) -> DumpOptions:
    """Return how a dump behaves by the settings; `first_s`: its first silence."""
    return DumpOptions(
        heartbeat_s=source.heartbeat_s,
        allowance=max(1.0, source.silence_s / source.heartbeat_s),
        silence_first_s=max(first_s, source.silence_s),
        follow=follow,
    )
