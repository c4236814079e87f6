"""Tests of what the benchmarks say about their figures."""

from __future__ import annotations

import pytest
from decode_only import DecodeRun
from latency import Latency, Quantiles
from limit import LimitRun
from results import LoadResult, ServerRun, table, verdicts
from server_process import Memory


def limit_run(rows: int, seconds: float) -> LimitRun:
    """Return a run of the upper bound."""
    return LimitRun(rows, 1, seconds, 1000, seconds)


def server_run(seconds: float, memory: int = 10**8) -> ServerRun:
    """Return a run of the server."""
    return ServerRun(
        seconds, 0.01, 1000, 1, Memory(memory // 2, memory), first_byte_s=0.5
    )


def reached(loads, latencies=None) -> dict[str, bool]:
    """Return whether each target was reached, by its name."""
    return {
        verdict.what: verdict.reached for verdict in verdicts(loads, latencies or {})
    }


def test_median_counts() -> None:
    """One slow and one fast run do not change the rate of the middle one."""
    result = LoadResult("inserts", "inserts", 1000)
    result.ours = [server_run(seconds) for seconds in (1.0, 50.0, 0.001)]
    assert result.rate("ours") == 1000


@pytest.mark.parametrize(("seconds", "expected"), [(2.0, True), (2.01, False)])
def test_share(seconds, expected) -> None:
    """Half of the limit is enough for inserts, a little less is not."""
    result = LoadResult("inserts", "inserts", 1000)
    result.limit = [limit_run(1000, 1.0)]
    result.ours = [server_run(seconds)]
    result.decode = [DecodeRun(1000, 1.99, 5000)]
    assert reached([result])["inserts"] is expected
    assert reached([result])["inserts, decoding alone"]


def test_memory_of_the_worst_run() -> None:
    """One run above the limit is a miss, whatever the others hold."""
    result = LoadResult("big", "big", 1000)
    result.ours = [server_run(1.0), server_run(1.0, memory=151 * 10**6)]
    assert not reached([result])["big, resident memory at its highest"]


def test_latency_needs_both() -> None:
    """A good median does not make up for a bad 99th percentile."""
    good, bad = Quantiles(1.0, 9.0, 30.0), Quantiles(1.0, 11.0, 30.0)
    found = reached(
        [],
        {"a": Latency(5, from_send=good, from_commit=good), "b": Latency(5, bad, good)},
    )
    assert found == {"commit to delivery, a": True, "commit to delivery, b": False}


def test_nothing_measured() -> None:
    """What was not measured is shown as such and judged by nobody."""
    result = LoadResult("inserts", "inserts", 1000)
    assert verdicts([result], {}) == []
    assert table([result]).splitlines()[-1] == "| 1,000 by inserts" + " | -" * 7 + " |"
