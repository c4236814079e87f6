"""Tests of what the benchmarks say about clients."""

from __future__ import annotations

import pytest
from client_programs import ClientRun
from client_results import ClientResult, client_table, client_verdicts
from latency import Latency, Quantiles
from server_process import Memory

MB = 10**6


def result(name: str = "inserts", **rates: float) -> ClientResult:
    """Return a result with a run a client, of so many rows a second."""
    found = ClientResult(name, name)
    for who, rate in rates.items():
        run = ClientRun(1000, 1000 / rate, Memory(MB, 50 * MB), 0.002)
        found.add(who.replace("_", "-"), run)
    return found


def reached(*results: ClientResult) -> dict[str, bool]:
    """Return whether each target was reached, by its name and measure."""
    return {
        f"{verdict.what}: {verdict.target}": verdict.reached
        for verdict in client_verdicts(results, {})
    }


@pytest.mark.parametrize(
    ("name", "rate", "expected"),
    [("inserts", 350, True), ("inserts", 349, False), ("single", 175, True)],
)
def test_times_of_another_client(name, rate, expected) -> None:
    """Inserts are to be ten times as fast as the library, small transactions five."""
    found = reached(result(name, typed=rate, mysql_replication=35))
    (verdict,) = [each for key, each in found.items() if "mysql-replication" in key]
    assert verdict is expected


def test_java_counts_for_inserts_only() -> None:
    """Twice the Java client is the target of one load."""
    found = reached(result("inserts", typed=250, java=134))
    assert found == {
        "client, inserts, typed changes: 2 times Java client, texts": False,
        "client, inserts, memory beside a message: 100 MB": True,
    }
    found = reached(result("single", typed=250, java=134))
    assert list(found) == ["client, single, memory beside a message: 100 MB"]


def test_absolute_rates() -> None:
    """Counting and Arrow have targets of their own."""
    found = reached(result("inserts", count=1e6, arrow=7.9e5))
    assert found["client, inserts, counting rows: 1,000,000 rows/s"]
    assert not found["client, inserts, Arrow: 800,000 rows/s"]


@pytest.mark.parametrize(("rate", "expected"), [(80, True), (79, False)])
def test_asyncio(rate, expected) -> None:
    """The client of asyncio may lose a fifth, on every load."""
    found = reached(result("single", typed=100, asyncio=rate))
    assert found["client, single, typed changes, asyncio: 0.8 times typed changes"] is (
        expected
    )


def test_memory_beside_a_message() -> None:
    """The largest message is not counted, whichever run met it."""
    found = result("inserts")
    found.add("typed", ClientRun(1, 1, Memory(0, 130 * MB)))
    key = "client, inserts, memory beside a message: 100 MB"
    assert not reached(found)[key]
    found.add("count", ClientRun(1, 1, message_bytes=31 * MB))
    assert reached(found)[key]


def test_median_counts() -> None:
    """One slow and one fast run change nothing."""
    found = ClientResult("inserts", "inserts")
    for seconds in (1.0, 50.0, 0.001):
        found.add("typed", ClientRun(1000, seconds, cpu_seconds=seconds))
    assert found.rate("typed") == 1000
    assert found.cpu_us("typed") == 1000
    assert found.rate("text") is None


def test_latency() -> None:
    """The median from commit to handler counts."""
    slow, fast = Quantiles(3.1, 9, 10), Quantiles(2.9, 90, 100)
    latencies = {"a": Latency(10, slow, fast), "b": Latency(10, fast, slow)}
    assert [each.reached for each in client_verdicts([], latencies)] == [False, True]


def test_table() -> None:
    """Each client has a line; a dash or a reason is where nothing was measured."""
    first, second = result(typed=350_000, java=1), result("single", typed=2e5)
    second.missing["arrow"] = "pyarrow is not installed"
    text = client_table([first, second])
    assert "| typed changes | 350.0 | 2.00 | 200.0 | 2.00 | 50 MB |" in text
    assert "| Arrow | - | - | - | - | - |" in text
    assert "Not measured: Arrow (pyarrow is not installed)" in text
