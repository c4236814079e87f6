"""Metrics with their samples, filled by name, in the form of prometheus_client."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client.core import (
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
        family = self._found.get(name)
        if family is None:
            family = HistogramMetricFamily(name, help_, labels=list(labels))
            self._found[name] = family
        assert isinstance(family, HistogramMetricFamily), "a name has one type"
        totals = map(float, accumulate(numbers))
        buckets = list(zip(bounds, totals, strict=True))
        family.add_metric(list(labels.values()), buckets, sum_value=sum_)

    def all(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield from self._found.values()


def info(name: str, help_: str, **labels: str) -> Metric:
    """Return a gauge that is 1 and whose labels are the information."""
    family = GaugeMetricFamily(name, help_, labels=list(labels))
    family.add_metric(list(labels.values()), 1)
    return family
