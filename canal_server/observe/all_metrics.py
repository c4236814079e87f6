"""All metrics of a server, for its port for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.doors.prometheus.metric_families import info
from canal_server.doors.prometheus.metrics_text import MetricsText
from canal_server.observe.java_metrics import FILES, MANAGER, java_metrics
from canal_server.observe.server_metrics import server_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from canal_server.doors.prometheus.metric_families import Metric
    from canal_server.observe.readings import Reading


def metrics_text(
    read: Callable[[], Sequence[Reading]], version: str, *, is_managed: bool = False
) -> MetricsText:
    """Return the metrics as text; `is_managed`: canal-admin hands out the settings."""
    mode = MANAGER if is_managed else FILES

    def collect() -> Iterator[Metric]:
        readings = read()
        yield info("canal_server_info", "This server", version=version)
        yield from java_metrics(readings, mode)
        yield from server_metrics(readings)

    return MetricsText(collect)
