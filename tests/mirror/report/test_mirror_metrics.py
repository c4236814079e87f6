"""The metrics of a mirror as values: which there are, and which are left out."""

from __future__ import annotations

from canal_server.doors.prometheus.metrics_text import MetricsText
from canal_server.mirror.lake.lake_table import Size
from canal_server.mirror.report.mirror_counts import Counts, TableCounts
from canal_server.mirror.report.mirror_metrics import (
    OUTCOMES,
    STATES,
    MirrorReading,
    mirror_metrics,
)
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.state import Phase, TablesNow, TableState
from canal_server.mirror.state.verify_results import VerifyResult
from canal_server.mirror.verify.verify_report import DIFFERENT, EQUAL, FAILED

A, B, C = (TableName("shop", name) for name in "abc")


def values(reading: MirrorReading) -> dict[str, float]:
    """Return the values by name and labels, as they are written."""
    return {
        f"{each.name}{sorted(each.labels.items())}": each.value
        for family in mirror_metrics(reading)
        for each in family.samples
    }


def reading(**fields) -> MirrorReading:
    """Return a mirror that shows these things."""
    fields = {"counts": Counts()} | fields
    return MirrorReading(mirror="m", destination="example", version="1", **fields)


def tables(**phases: Phase) -> dict[TableName, TableState]:
    """Return states of tables."""
    names = {name: TableName("shop", name) for name in phases}
    return {
        names[name]: TableState(names[name], f"shop/{name}", phase)
        for name, phase in phases.items()
    }


def of(table: TableName, **labels: str) -> str:
    """Return the labels of a table's metric."""
    return str(sorted(({"mirror": "m", "table": str(table)} | labels).items()))


def test_every_phase_is_a_state() -> None:
    """The states are the phases, and the outcomes those of `verify` that compare."""
    assert list(STATES) == [phase.value.replace("-", "_") for phase in Phase]
    outcomes = [each.replace(" ", "_") for each in (EQUAL, DIFFERENT, FAILED)]
    assert list(OUTCOMES) == outcomes


def test_a_mirror_that_has_begun() -> None:
    """What is unknown is missing, and what did not happen is 0."""
    found = values(reading())
    names = {name.partition("[")[0] for name in found}
    assert not names & {
        "canal_mirror_lag_seconds",
        "canal_mirror_lag_transactions",
        "canal_mirror_delay_seconds",
        "canal_mirror_last_batch_timestamp_seconds",
    }
    assert found["canal_mirror_stream_restarts_total[('mirror', 'm')]"] == 0
    assert found["canal_mirror_failing_seconds[('mirror', 'm')]"] == 0


def test_states_and_copies() -> None:
    """Each table has one state; what is worked on is running, other copies pend."""
    states = tables(a=Phase.COPYING, b=Phase.WAITING, c=Phase.CATCHING_UP)
    now = TablesNow(states, frozenset({A}))
    found = values(reading(tables=now))
    assert found[f"canal_mirror_table_state{of(A, state='copying')}"] == 1
    assert found[f"canal_mirror_table_state{of(C, state='catching_up')}"] == 1
    assert sum(found[f"canal_mirror_table_state{of(B, state=s)}"] for s in STATES) == 1
    copies = "canal_mirror_copies[('mirror', 'm'), ('state', '{}')]"
    assert found[copies.format("running")] == 1
    assert found[copies.format("pending")] == 2


def test_lake_and_verify() -> None:
    """The newer of what was counted and what was looked up is shown."""
    states = tables(a=Phase.FOLLOWING, b=Phase.FOLLOWING)
    counts = Counts(tables={A: TableCounts(newest_ms=2_000, written_ms=3_000)})
    found = values(
        reading(
            counts=counts,
            tables=TablesNow(states),
            sizes={A: Size(4, 99, 7, 5_000, 1_000), B: Size(2, 50)},
            verified={A: VerifyResult(A, FAILED, 9_000)},
        )
    )
    newest = "canal_mirror_table_newest_change_timestamp_seconds"
    assert found[f"{newest}{of(A)}"] == 2
    assert found[f"canal_mirror_table_last_commit_timestamp_seconds{of(A)}"] == 5
    assert f"{newest}{of(B)}" not in found
    assert found[f"canal_mirror_table_version{of(A)}"] == 7
    assert f"canal_mirror_table_version{of(B)}" not in found
    assert found[f"canal_mirror_table_files{of(B)}"] == 2
    verified = "canal_mirror_table_verified"
    assert found[f"{verified}{of(A, outcome='not_compared')}"] == 1
    assert found[f"{verified}{of(A, outcome='equal')}"] == 0
    assert found[f"{verified}_timestamp_seconds{of(A)}"] == 9


def test_caught_up() -> None:
    """A mirror whose last poll brought nothing lags in no way."""
    counts = Counts(newest_ms=1_000)
    lag = "canal_mirror_lag_{}[('mirror', 'm')]"
    found = values(reading(counts=counts, lacking=5))
    assert found[lag.format("seconds")] > 1_000
    assert found[lag.format("transactions")] == 5
    found = values(reading(counts=counts, lacking=5, is_caught_up=True))
    assert found[lag.format("seconds")] == found[lag.format("transactions")] == 0


def test_names_with_quotes() -> None:
    """Names of tables are escaped, and counters have the usual names."""
    name = TableName("shop", 'a"\\b\n')
    states = {name: TableState(name, "x", Phase.FOLLOWING)}
    text = MetricsText(lambda: mirror_metrics(reading(tables=TablesNow(states)))).text()
    assert rb'table="shop.a\"\\b\n"' in text
    assert b"# TYPE canal_mirror_table_stream_rows_total counter" in text
