"""What was measured of clients, and what it is to be measured against, as text.

Leaves out the measuring. Rates are row changes per second.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from results import MB, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from client_programs import ClientRun
    from latency import Latency

# Who is measured, by the names of the runs.
TITLES = {
    "typed": "typed changes",
    "text": "changes as texts",
    "keys": "keys only",
    "count": "counting rows",
    "arrow": "Arrow",
    "asyncio": "typed changes, asyncio",
    "mysql-replication": "mysql-replication, typed",
    "canal-python": "canal-python, texts",
    "java": "Java client, texts",
}

MYSQL_REPLICATION_TIMES = {"inserts": 10, "single": 5}
JAVA_TIMES = 2
COUNT_ROWS_MIN = 1e6
ARROW_ROWS_MIN = 8e5
ASYNC_SHARE = 0.8
MEMORY_BYTES_MAX = 100 * MB
MEDIAN_MS_MAX = 3.0


@dataclass(slots=True)
class ClientResult:
    """All runs on one load by the name of who ran, and why others did not."""

    name: str
    title: str
    runs: dict[str, list[ClientRun]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, who: str, run: ClientRun) -> None:
        """Add a run."""
        self.runs.setdefault(who, []).append(run)

    def rate(self, who: str) -> float | None:
        """Return the median rate; None without runs."""
        return self._median(who, lambda run: run.rows / run.seconds)

    def cpu_us(self, who: str) -> float | None:
        """Return the median time of the client's processor for a row."""
        return self._median(
            who, lambda run: run.cpu_seconds and run.cpu_seconds / run.rows * 1e6
        )

    def memory_bytes(self, who: str) -> int | None:
        """Return the most memory of any run."""
        held = [run.memory.highest for run in self.runs.get(who, ()) if run.memory]
        return max(held, default=None)

    def message_bytes(self) -> int:
        """Return the size of the largest message."""
        runs = [run for each in self.runs.values() for run in each]
        return max((run.message_bytes or 0 for run in runs), default=0)

    def _median(
        self, who: str, value: Callable[[ClientRun], float | None]
    ) -> float | None:
        known = [v for run in self.runs.get(who, ()) if (v := value(run)) is not None]
        return statistics.median(known) if known else None


def client_verdicts(
    results: Sequence[ClientResult], latencies: Mapping[str, Latency]
) -> list[Verdict]:
    """Compare what was measured with the targets; nothing for what was not."""
    found: list[Verdict] = []
    for result in results:
        found += _rate_verdicts(result)
        memory = result.memory_bytes("typed")
        if memory is not None:
            beside = memory - result.message_bytes()
            found.append(
                Verdict(
                    f"client, {result.title}, memory beside a message",
                    f"{MEMORY_BYTES_MAX / MB:.0f} MB",
                    f"{beside / MB:.0f} MB",
                    beside < MEMORY_BYTES_MAX,
                )
            )
    for client, latency in latencies.items():
        times = latency.from_send
        found.append(
            Verdict(
                f"commit to handler, {client}",
                f"median {MEDIAN_MS_MAX:g} ms",
                f"median {times.median:.2f} ms, 99 % {times.p99:.2f} ms",
                times.median < MEDIAN_MS_MAX,
            )
        )
    return found


def _rate_verdicts(result: ClientResult) -> Iterable[Verdict]:
    typed = result.rate("typed")
    times = MYSQL_REPLICATION_TIMES.get(result.name)
    rates = {who: result.rate(who) for who in TITLES}
    if times:
        yield from _ratio(result, "typed", "mysql-replication", times)
    if result.name == "inserts":
        yield from _ratio(result, "typed", "java", JAVA_TIMES)
        for who, least in (("count", COUNT_ROWS_MIN), ("arrow", ARROW_ROWS_MIN)):
            rate = rates[who]
            if rate is not None:
                yield Verdict(
                    f"client, {result.title}, {TITLES[who]}",
                    f"{least:,.0f} rows/s",
                    f"{rate:,.0f} rows/s",
                    rate >= least,
                )
    if typed:
        yield from _ratio(result, "asyncio", "typed", ASYNC_SHARE)


def _ratio(
    result: ClientResult, who: str, other: str, least: float
) -> Iterable[Verdict]:
    rate, base = result.rate(who), result.rate(other)
    if rate and base:
        yield Verdict(
            f"client, {result.title}, {TITLES[who]}",
            f"{least:g} times {TITLES[other]}",
            f"{rate / base:.1f} times",
            rate / base >= least,
        )


def client_table(results: Sequence[ClientResult]) -> str:
    """Return the figures as a Markdown table, and why some are missing."""
    columns = [
        column
        for each in results
        for column in (f"{each.title}, k rows/s", "client's CPU, µs a row")
    ]
    lines = [
        "| one client process | " + " | ".join([*columns, "peak memory"]) + " |",
        "|---" + "|---:" * (len(columns) + 1) + "|",
    ]
    for who, title in TITLES.items():
        cells = [title]
        for result in results:
            rate, cpu = result.rate(who), result.cpu_us(who)
            cells.append("-" if rate is None else f"{rate / 1000:,.1f}")
            cells.append("-" if cpu is None else f"{cpu:.2f}")
        held = [m for each in results if (m := each.memory_bytes(who)) is not None]
        cells.append(f"{max(held) / MB:.0f} MB" if held else "-")
        lines.append("| " + " | ".join(cells) + " |")
    missing = {who: why for each in results for who, why in each.missing.items()}
    lines += [f"\nNot measured: {TITLES[who]} ({why})" for who, why in missing.items()]
    return "\n".join(lines)
