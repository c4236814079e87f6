"""Metrics with their samples, filled by name, in the form of prometheus_client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["TOTAL", "Families", "Metric", "info"]

TOTAL: Final = "_total"
# Not by Sample's own call: a thousand destinations have sixty thousand samples.
_new: Final = tuple.__new__


class Families:
    """Metrics that are being filled, by name; made when a sample is added."""

    def __init__(self) -> None:
        self._found: dict[str, Metric] = {}

    def gauge(self, name: str, help_: str, value: float, **labels: str) -> None:
        """Add a sample of a gauge."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = Metric(name, help_, "gauge")
        found.samples.append(_new(Sample, (name, labels, value, None, None, None)))

    def states(
        self, name: str, help_: str, now: str, states: Iterable[str], **labels: str
    ) -> None:
        """Add a sample of a gauge for each state: 1 for that of now, else 0."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = Metric(name, help_, "gauge")
        found.samples += [
            _new(
                Sample,
                (
                    name,
                    {**labels, "state": state},
                    1.0 if state == now else 0.0,
                    None,
                    None,
                    None,
                ),
            )
            for state in states
        ]

    def counter(self, name: str, help_: str, value: float, **labels: str) -> None:
        """Add a sample of a counter, whose name may end with `_total`."""
        family = name.removesuffix(TOTAL)
        found = self._found.get(family)
        if found is None:
            found = self._found[family] = Metric(family, help_, "counter")
        found.samples.append(_new(Sample, (name, labels, value, None, None, None)))

    def histogram(
        self,
        name: str,
        help_: str,
        labels: Mapping[str, str],
        *,
        bounds: Sequence[str],
        numbers: Sequence[int],
        sum_: float,
    ) -> None:
        """Add the samples of a histogram: how many values are in each bucket.

        `bounds` has the upper bounds as they are written; `+Inf` is the last one.
        """
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = Metric(name, help_, "histogram")
        bucket, total, samples = f"{name}_bucket", 0, found.samples
        for bound, number in zip(bounds, numbers, strict=True):
            total += number
            values = (bucket, {**labels, "le": bound}, float(total), None, None, None)
            samples.append(_new(Sample, values))
        for suffix, value in (("_count", float(total)), ("_sum", sum_)):
            values = (f"{name}{suffix}", dict(labels), value, None, None, None)
            samples.append(_new(Sample, values))

    def all(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield from self._found.values()


def info(name: str, help_: str, **labels: str) -> Metric:
    """Return a gauge that is 1 and whose labels are the information."""
    family = GaugeMetricFamily(name, help_, labels=list(labels))
    family.add_metric(list(labels.values()), 1)
    return family
