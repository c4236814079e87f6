"""Metrics of streaming queries that read changes, for Prometheus, in Spark's driver.

::

    listener = CanalQueryListener()
    spark.streams.addListener(listener)
    prometheus_client.start_http_server(9108, "127.0.0.1")

Spark gives a Python data source no metrics of its own, but its progress has the offsets
of each batch: where it ended, and how far the server had read by then. What a query
lacks is made of these, without a request to the server.
"""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from canal_server.core.gtid.transaction_count import transactions_between
from canal_server.doors.prometheus.metric_families import Families
from canal_server.doors.prometheus.metrics_text import register
from canal_server.errors import PositionError
from canal_server.spark.options.offsets import offset_from_json, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame

    from canal_server.client.range_client import RangePosition
    from canal_server.doors.prometheus.metric_families import Metric

    Positions = Mapping[str, RangePosition]

OBSERVED: Final = "canal"  # name of the observed metrics
NEWEST: Final = "newest"
QUERIES_MAX: Final = 100  # that are shown; the oldest are forgotten
HEADS_MAX: Final = 1_000  # per destination, that the query has not reached
SECONDS_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BOUNDS: Final = [*map(str, SECONDS_BOUNDS), "+Inf"]


@dataclass(slots=True)
class _Lag:
    """One destination: what the server had read and the query has not."""

    transactions: int | None = None
    heads: deque[tuple[float, int]] = field(default_factory=deque)  # when, and how far

    def note(self, end: RangePosition, head: RangePosition, now_s: float) -> None:
        """Record where a batch ended, and how far the server had read."""
        reached, read = version_of(end), version_of(head)
        while self.heads and self.heads[0][1] <= reached:
            self.heads.popleft()
        if read <= reached:
            self.heads.clear()
            self.transactions = 0
            return
        self.transactions = transactions_between(end.gtids, head.gtids)
        if not self.heads or self.heads[-1][1] < read:
            if len(self.heads) >= HEADS_MAX:
                self.heads.pop()  # the oldest decides
            self.heads.append((now_s, read))

    def caught_up(self) -> None:
        """Record that there is nothing new."""
        self.heads.clear()
        self.transactions = 0

    def seconds(self, now_s: float) -> float:
        """Return how long the server has had what the query lacks."""
        return max(0.0, now_s - self.heads[0][0]) if self.heads else 0.0


@dataclass(slots=True)
class _Query:
    """What is known of a query, over its restarts."""

    is_running: bool = True
    failures: int = 0
    batches: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    batch_numbers: list[int] = field(
        default_factory=lambda: [0] * (len(SECONDS_BOUNDS) + 1)
    )
    batch_s: float = 0.0
    reported_s: float = 0.0
    newest_s: float = 0.0  # commit time of the newest change, if it is observed
    lags: dict[str, _Lag] = field(default_factory=dict)


class CanalQueryListener(StreamingQueryListener):
    """Exports the queries of a session that read from canal; thread-safe.

    Works with `spark.streams.addListener`, also of Spark Connect. Queries without a
    source `canal` are left out.
    """

    def __init__(
        self, registry: Any = None, *, now: Callable[[], float] = time.time
    ) -> None:
        """Register with prometheus_client: its default registry, or another one."""
        self._now = now
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}  # by the labels' value
        self._names: dict[str, str] = {}  # by the id, of those that run
        register(self.collect, registry)

    @staticmethod
    def observed(frame: DataFrame) -> DataFrame:
        """Return a streaming frame whose newest commit time is exported, too."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  # usual; heavy

        # As a number, which is the same in every time zone and through Spark Connect.
        newest = F.max("_commit_timestamp").cast("double").alias(NEWEST)
        return frame.observe(OBSERVED, newest)

    # --- what Spark calls -------------------------------------------------------------

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """Remember the name of a query, which may have run before."""
        with self._lock:
            name = self._names[str(event.id)] = event.name or str(event.id)
            query = self._queries.get(name)
            if query is not None:
                query.is_running = True

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Count a batch."""
        progress = event.progress
        offsets = [
            (_positions(each.endOffset), _positions(each.latestOffset))
            for each in progress.sources
        ]
        if not any(end for end, _ in offsets):
            return  # another source
        now_s = self._now()
        with self._lock:
            query = self._query(str(progress.id), progress.name)
            query.reported_s = now_s
            for ends, heads in offsets:
                for name, end in ends.items():
                    lag = query.lags.setdefault(name, _Lag())
                    lag.note(end, heads.get(name, end), now_s)
            if "addBatch" not in progress.durationMs:
                return  # a trigger without a batch
            query.batches += 1
            query.rows += progress.numInputRows or 0
            query.rows_per_s = _finite(progress.processedRowsPerSecond)
            seconds = progress.batchDuration / 1000
            query.batch_numbers[bisect_left(SECONDS_BOUNDS, seconds)] += 1
            query.batch_s += seconds
            query.newest_s = max(query.newest_s, _newest_s(progress))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Record that a query has nothing to do."""
        with self._lock:
            name = self._names.get(str(event.id), "")
            query = self._queries.get(name)
            if query is None:
                return
            query.reported_s = self._now()
            query.rows_per_s = 0.0
            for lag in query.lags.values():
                lag.caught_up()

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Record that a query has ended, and whether it failed."""
        with self._lock:
            name = self._names.pop(str(event.id), "")
            query = self._queries.get(name)
            if query is not None:
                query.is_running = False
                query.rows_per_s = 0.0
                query.failures += event.exception is not None

    # --- what Prometheus asks for -----------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all queries."""
        families, now_s = Families(), self._now()
        with self._lock:
            for name, query in self._queries.items():
                _add_query(families, name, query)
                _add_lags(families, name, query, now_s)
        yield from families.all()

    def _query(self, id_: str, name: str | None) -> _Query:
        """Return a query that runs. Requires holding the lock."""
        label = self._names.setdefault(id_, name or id_)
        query = self._queries.pop(label, None) or _Query()
        if len(self._queries) >= QUERIES_MAX:
            del self._queries[next(iter(self._queries))]
        self._queries[label] = query  # the newest is the last one
        return query


def _add_query(families: Families, name: str, query: _Query) -> None:
    for suffix, help_, number in (
        ("failures", "Failures that ended the query", query.failures),
        ("rows", "Rows read", query.rows),
    ):
        families.counter(f"canal_spark_{suffix}_total", help_, number, query=name)
    families.histogram(
        "canal_spark_batch_seconds",
        "Time that batches took, reading and writing",
        {"query": name},
        bounds=_BOUNDS,
        numbers=query.batch_numbers,
        sum_=query.batch_s,
    )
    for suffix, help_, value in (
        ("running", "Whether the query runs", float(query.is_running)),
        (
            "rows_per_second",
            "Rows per second of the last batch; 0 while there is none",
            query.rows_per_s,
        ),
        (
            "last_report_timestamp_seconds",
            "When Spark last reported a batch, or that there is nothing to do",
            query.reported_s,
        ),
    ):
        families.gauge(f"canal_spark_{suffix}", help_, value, query=name)
    if query.newest_s:
        families.gauge(
            "canal_spark_newest_change_timestamp_seconds",
            "When the newest change that the query has written was committed; only of"
            " frames made by `CanalQueryListener.observed`",
            query.newest_s,
            query=name,
        )


def _add_lags(families: Families, name: str, query: _Query, now_s: float) -> None:
    for destination, lag in query.lags.items():
        labels = {"query": name, "destination": destination}
        families.gauge(
            "canal_spark_lag_seconds",
            "For how long the server has had changes that the query has not written; 0"
            " if there are none",
            lag.seconds(now_s),
            **labels,
        )
        if lag.transactions is not None:
            families.gauge(
                "canal_spark_lag_transactions",
                "Transactions that the server has read and the query has not, those of"
                " other tables included; missing without GTIDs",
                lag.transactions,
                **labels,
            )


def _positions(text: str | None) -> Positions:
    """Return the positions of an offset; none for that of another source."""
    try:
        found = json.loads(text or "null")
        return offset_from_json(found) if isinstance(found, dict) else {}
    except (ValueError, KeyError, TypeError, PositionError):
        return {}


def _newest_s(progress: Any) -> float:
    """Return the observed commit time; 0 if there is none."""
    row = progress.observedMetrics.get(OBSERVED)
    newest = None if row is None else row.asDict().get(NEWEST)
    return newest if isinstance(newest, float) else 0.0


def _finite(number: float | None) -> float:
    """Return a rate of Spark, which divides by durations that may be 0."""
    return number if number is not None and 0 <= number < float("inf") else 0.0
