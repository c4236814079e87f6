"""What an operator asks first about a destination, as plain values of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.instance.client_lags import slowest_client
from canal_server.source.pump.pump_status import PumpState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from canal_server.capture.source_pipeline import SourcePipeline
    from canal_server.instance.client_lags import ClientsNow
    from canal_server.instance.source_events import ServedClients
    from canal_server.instance.stages import Stages
    from canal_server.ranges.ranged_reads import RangedReads

UNCERTAIN_MAX: Final = 20  # tables that are named


def status_of(
    stages: Stages, clients: ServedClients, now: ClientsNow, ranges: RangedReads | None
) -> dict[str, object]:
    """Return the status of a destination; `ranges` is None in a group."""
    if ranges is None:
        return _group_status(stages, clients, now)
    return _single_status(stages, clients, now, ranges)


def _single_status(
    stages: Stages, clients: ServedClients, now: ClientsNow, ranges: RangedReads
) -> dict[str, object]:
    """Return the status of a destination that reads one source."""
    (pipeline,) = stages.pipelines.values()
    pump = pipeline.pump.status
    return {
        "destination": clients.positions.destination,
        "state": pump.state.value,
        "source": pump.source,
        "position": pump.position,
        "position_ms": pump.delivered_at_ms or None,
        "error": pump.error,
        **_source_status(pipeline),
        "clients": [each.client_id for each in now.lags],
        "lost_clients": clients.lost.as_json(),
        "late_clients": clients.lagging.status(),
        "waits_for": list(stages.ring.holders()),
        **pump.as_json(),
        "uncertain_tables": _uncertain(stages),
        **_slowest(stages, now),
        "connected": list(now.connected),
        "ranges": ranges.status(),
    }


def _group_status(
    stages: Stages, clients: ServedClients, now: ClientsNow
) -> dict[str, object]:
    """Return the status of a group: of each source, and a summary of all."""
    sources = {
        f"master{number}": _group_source_status(number, pipeline)
        for number, pipeline in stages.pipelines.items()
    }
    pumps = [each.pump.status for each in stages.pipelines.values()]
    sinks = [each.sink.counters for each in stages.pipelines.values()]
    states = [pump.state for pump in pumps]
    others = [state for state in states if state is not PumpState.RUNNING]
    return {
        "destination": clients.positions.destination,
        "state": (others or states)[0].value,
        **{
            word: _in_one_line(sources, word)
            for word in ("source", "position", "error", "reads")
        },
        "sources": list(sources.values()),
        "clients": [each.client_id for each in now.lags],
        "lost_clients": clients.lost.as_json(),
        "waits_for": list(stages.ring.holders()),
        "error_since_ms": min(
            filter(None, (pump.error_since_ms for pump in pumps)), default=None
        ),
        "warnings": [
            f"master{number}: {warning}"
            for number, pipeline in stages.pipelines.items()
            for warning in pipeline.pump.status.warnings
        ],
        "lag": _greatest_lag(stages.pipelines.values()),
        "uncertain_tables": _uncertain(stages),
        **_slowest(stages, now),
        "connected": list(now.connected),
        "transactions": sum(sink.transactions for sink in sinks),
        "rows": sum(sink.rows for sink in sinks),
    }


def _group_source_status(number: int, pipeline: SourcePipeline) -> dict[str, object]:
    pump = pipeline.pump.status
    return {
        "name": f"master{number}",
        "state": pump.state.value,
        "source": pump.source,
        "position": pump.position,
        "error": pump.error,
        **pump.as_json(),
        **_source_status(pipeline),
    }


def _source_status(pipeline: SourcePipeline) -> dict[str, object]:
    """Return which server is read, and what became of it."""
    pump, counters = pipeline.pump, pipeline.sink.counters
    return {
        "reads": str(pump.sources.current),
        "switches": pump.sources.switches,
        "repeated": pump.repeated(),
        "detecting": pipeline.detector.status(),
        "unreadable": pump.unreadable.status(),
        "transactions": counters.transactions,
        "rows": counters.rows,
    }


def _uncertain(stages: Stages) -> dict[str, object] | None:
    """Return the tables whose columns are not certain now, None if there are none."""
    pumps = [each.pump for each in stages.pipelines.values()]
    tables = sorted({t for p in pumps for t in p.schemas.uncertain(p.table_filter)})
    if not tables:
        return None
    names = ", ".join(tables[:UNCERTAIN_MAX])
    if len(tables) > UNCERTAIN_MAX:
        names += f" and {len(tables) - UNCERTAIN_MAX} more"
    return {
        "reason": f"columns are not certain at this position: {names}",
        "count": len(tables),
        "tables": tables[:UNCERTAIN_MAX],
    }


def _slowest(stages: Stages, now: ClientsNow) -> dict[str, object]:
    """Return for whom reading waits, and which client lags most."""
    blocked = stages.ring.blocked()
    return {
        "blocked": blocked and blocked.as_json(),
        "slowest_client": slowest_client(now.lags),
    }


def _greatest_lag(pipelines: Iterable[SourcePipeline]) -> dict[str, object]:
    """Return the lag of the source that lags most."""
    found = [each.pump.status for each in pipelines]
    last = max(
        found, key=lambda each: float("inf") if (lag := each.lag_s()) is None else lag
    )
    return dict(last.as_json()["lag"])  # type: ignore[call-overload, no-any-return]


def _in_one_line(sources: Mapping[str, Mapping[str, object]], word: str) -> str:
    """Return what the status of each source says about something."""
    return "; ".join(
        f"{name}: {found}"
        for name, source in sources.items()
        if (found := source[word])
    )
