"""The page of a mirror's metrics and those of queries, from what the code exposes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from canal_server.client.range_client import RangePosition
from canal_server.mirror.lake.lake_table import Size
from canal_server.mirror.report.mirror_counts import CopyCounts, Counts
from canal_server.mirror.report.mirror_metrics import (
    OUTCOMES,
    STATES,
    MirrorReading,
    mirror_metrics,
)
from canal_server.mirror.report.process_memory import KINDS
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.state import Phase, TablesNow, TableState
from canal_server.mirror.state.verify_results import VerifyResult
from canal_server.spark.options.offsets import offset_to_json
from canal_server.spark.query_listener import CanalQueryListener
from reference.markdown import notice, table
from reference.metrics_page import metrics_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.doors.prometheus.metric_families import Metric

PAGE = Path("docs/reference/mirror-metrics.md")
TEMPLATE = Path(__file__).parent / "templates/mirror-metrics.md"
SOURCES = (
    "canal_server/mirror/report, canal_server/spark/query_listener.py and "
    "tools/reference/templates"
)


def pages() -> dict[Path, str]:
    """Return the page by its path."""
    text = TEMPLATE.read_text()
    for slot, found in (
        ("mirror", metrics_table(mirror_metrics(_reading()))),
        ("states", _words("state", STATES)),
        ("outcomes", _words("outcome", OUTCOMES)),
        ("processes", _words("process", KINDS)),
        ("spark", metrics_table(_of_query())),
    ):
        text = text.replace(f"{{{{{slot}}}}}", found)
    return {PAGE: notice(SOURCES) + text}


def _words(name: str, meanings: dict[str, str]) -> str:
    rows = [(f"`{word}`", meaning) for word, meaning in meanings.items()]
    return table((name, "meaning"), rows).strip()


def _reading() -> MirrorReading:
    """Return a mirror that shows every metric."""
    name = TableName("shop", "orders")
    state = TableState(name, "shop/orders", Phase.COPYING)
    counts = Counts(
        batches=1,
        delay_ms=0,
        newest_ms=1,
        copies={name: CopyCounts(0, 0, 1, 0)},
        messages=Counter({("warning", "mirror-table-stopped", str(name)): 1}),
    )
    return MirrorReading(
        mirror="shop",
        destination="example",
        version="1",
        counts=counts,
        tables=TablesNow({name: state}),
        sizes={name: Size(1, 1, 1, 1, 1)},
        verified={name: VerifyResult(name, "equal", 1)},
        lacking=0,
        memory=dict.fromkeys(KINDS, 0),
    )


def _of_query() -> Iterable[Metric]:
    """Return the metrics of a query that shows all of them."""
    listener = CanalQueryListener(CollectorRegistry())
    positions = {"example": RangePosition(1, "b.000001", 4)}
    offset = json.dumps(offset_to_json(positions))
    progress = SimpleNamespace(
        id="1",
        name="orders",
        sources=[SimpleNamespace(endOffset=offset, latestOffset=offset)],
        durationMs={"addBatch": 1},
        batchDuration=1,
        numInputRows=1,
        processedRowsPerSecond=1.0,
        observedMetrics={"canal": SimpleNamespace(asDict=lambda: {"newest": 1.0})},
    )
    listener.onQueryProgress(SimpleNamespace(progress=progress))
    return listener.collect()
