"""All metrics of a server, and its port for Prometheus."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from canal_server.doors.prometheus.metric_families import info
from canal_server.doors.prometheus.metrics_server import (
    LIMITS,
    SCRAPES_MAX,
    MetricsServer,
)
from canal_server.doors.prometheus.metrics_text import MetricsText
from canal_server.messages import daemon_messages
from canal_server.observe.certificate_expiry import (
    SOURCE,
    certificate_metrics,
    shown_by_sources,
)
from canal_server.observe.java_metrics import FILES, MANAGER, java_metrics
from canal_server.observe.lease_metrics import lease_metrics
from canal_server.observe.metrics_login import MetricsLogin
from canal_server.observe.port_refusals import http_refusals
from canal_server.observe.server_metrics import server_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from canal_server.doors.prometheus.metric_families import Metric
    from canal_server.observe.certificate_expiry import Certificate
    from canal_server.observe.readings import Reading
    from canal_server.runtime.admission import Limits
    from canal_server.tls.server_tls import ServerTls
    from canal_server.users.audit_log import AuditLog
    from canal_server.users.user_directory import UserDirectory

__all__ = ["SCRAPES_MAX", "metrics_server", "metrics_text"]

log = logging.getLogger(__name__)


def metrics_text(
    read: Callable[[], Sequence[Reading]],
    version: str,
    *,
    is_managed: bool = False,
    certificates: Callable[[], Sequence[Certificate]] = tuple,
) -> MetricsText:
    """Return the metrics as text; `is_managed`: canal-admin hands out the settings.

    `certificates` returns those that were looked up last; sources' are of `read`.
    """
    mode = MANAGER if is_managed else FILES

    def collect(shows: Callable[[str], bool] | None = None) -> Iterator[Metric]:
        readings = read()
        own = [each for each in certificates() if each.role != SOURCE]
        if shows is not None:
            readings = [each for each in readings if shows(each.destination)]
            own = [each for each in own if each.destination and shows(each.destination)]
        yield info("canal_server_info", "This server", version=version)
        yield from java_metrics(readings, mode)
        yield from server_metrics(readings)
        yield from lease_metrics(readings)
        found = own + shown_by_sources(readings)  # those of now
        yield from certificate_metrics(found, time.time())

    return MetricsText(collect, limited=collect)


def metrics_server(
    ip: str,
    port: int,
    text: MetricsText,
    tls: ServerTls | None = None,
    users: UserDirectory | None = None,
    *,
    audit: AuditLog | None = None,
    limits: Limits = LIMITS,
) -> MetricsServer:
    """Return the port at an address, which was not started.

    `users`: those that may read metrics if they have the right; None: everybody may.
    """
    return MetricsServer(
        ip,
        port,
        text,
        tls,
        on_unavailable=_log_unavailable,
        on_failure=_log_failure,
        refusals=http_refusals(),
        limits=limits,
        status_of=None if users is None else MetricsLogin(users, audit=audit).status,
    )


def _log_unavailable(address: str, reason: str) -> None:
    daemon_messages.METRICS_PORT_UNAVAILABLE.log(log, address, reason)


def _log_failure() -> None:
    daemon_messages.METRICS_FAILED.log(log, exc_info=True)
