"""Metrics as text, with those of the process; and in a registry of a program."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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
            return b"".join(_lines(generate_latest(self._registry)))
        assert self._limited is not None, "metrics of destinations can be limited"
        registry = CollectorRegistry()
        registry.register(_Collector(partial(self._limited, shows)))
        return b"".join(_lines(generate_latest(registry)))


def register(collect: Callable[[], Iterable[Metric]], registry: Any = None) -> None:
    """Add metrics to a registry of a program; None: the default one of the library."""
    (REGISTRY if registry is None else registry).register(_Collector(collect))


def _lines(text: bytes) -> Iterator[bytes]:
    """Yield the lines, with the names of counters as their samples have them.

    The library appends `_total` to the name of each counter in its HELP and TYPE lines;
    the counters of the Java server have no such suffix.
    """
    pending: list[bytes] = []
    for line in text.splitlines(keepends=True):
        if line.startswith(b"#"):
            pending.append(line)
            continue
        sample = line.partition(b"{")[0].partition(b" ")[0]
        for each in pending:
            words = each.split(b" ", 3)
            if words[2] == sample + b"_total":
                words[2] = sample
            yield b" ".join(words)
        pending = []
        yield line
    yield from pending
