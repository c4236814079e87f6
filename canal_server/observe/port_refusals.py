"""The log of connections that the ports for HTTP refuse or close for others."""

from __future__ import annotations

import logging

from canal_server.messages import daemon_messages
from canal_server.runtime.refusal_log import Refusals

log = logging.getLogger(__name__)


def http_refusals() -> Refusals:
    """Return the refusals of one port."""
    return Refusals(_log_first, _log_more)


def _log_first(what: str, level: int) -> None:
    daemon_messages.HTTP_CONNECTION_REFUSED.log(log, what, level=level)


def _log_more(n: int, host: str, period_s: float, last: str, level: int) -> None:
    daemon_messages.HTTP_REFUSALS_REPEATED.log(
        log, n, host, period_s, last, level=level
    )
