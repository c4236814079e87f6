"""Metrics as text, with those of the process; and in a registry of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from canal_server.doors.prometheus.sample_lines import SampleLines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.core import Metric

    Shows = Callable[[str], bool]  # whether a destination is among them


class _Collector(Collector):
    """Makes all metrics when they are asked for."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._collect()


class MetricsText:
    """Metrics as text, with those of this process."""

    def __init__(
        self,
        collect: Callable[[], Iterable[Metric]],
        limited: Callable[[Shows], Iterable[Metric]] | None = None,
    ) -> None:
        """`collect` makes the metrics when they are asked for.

        `limited` makes those of the destinations that a function accepts.
        """
        self._limited = limited
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(collect))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def text(self, shows: Shows | None = None) -> bytes:
        """Return the metrics in Prometheus' text format 0.0.4.

        With `shows`, those of the destinations that it accepts, and not of the process.
        """
        if shows is None:
            return _text_of(self._registry.collect())
        assert self._limited is not None, "metrics of destinations can be limited"
        return _text_of(self._limited(shows))


def register(collect: Callable[[], Iterable[Metric]], registry: Any = None) -> None:
    """Add metrics to a registry of a program; None: the default one of the library."""
    (REGISTRY if registry is None else registry).register(_Collector(collect))


def _text_of(metrics: Iterable[Metric]) -> bytes:
    """Return the text of metrics; each sample of a thousand destinations is a line.

    Not by the library, which takes several times as long, and appends `_total` to the
    name of each counter in its HELP and TYPE lines; the counters of the Java server
    have no such suffix.
    """
    lines = SampleLines()
    for metric in metrics:
        name = metric.name
        if metric.type == "counter" and metric.samples:
            name = metric.samples[0].name
        help_ = metric.documentation.replace("\\", "\\\\").replace("\n", "\\n")
        lines.add(f"# HELP {name} {help_}\n# TYPE {name} {metric.type}\n")
        lines.add_samples(metric.samples)
    return lines.text()
