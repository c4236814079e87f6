"""What was measured, what it is to be measured against, and both as text.

Leaves out the measuring. Rates are row changes per second.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from decode_only import DecodeRun
    from latency import Latency
    from limit import LimitRun
    from replication_library import LibraryRun
    from server_process import Memory

MB = 1e6

# Share of the limit that a load shall reach, by its name.
SHARES = {"inserts": 1 / 2, "updates": 1 / 2, "single": 1 / 3}
MEMORY_BYTES_MAX = 150 * MB
MEDIAN_MS_MAX = 2.0
P99_MS_MAX = 10.0
FIRST_BYTE_S_MAX = 1.5

COLUMNS = (
    "limit",
    "canal-server",
    "of the limit",
    "decoding alone",
    "mysql-replication",
    "Java",
    "memory: at the end, highest",
)


@dataclass(frozen=True, slots=True)
class ServerRun:
    """One drained load of canal-server or the original.

    `seconds` from the first byte to the last ack; `waited_s` from the client's first
    request to the first byte; `first_byte_s` from the start of the process to it, None
    where the process was not started for the run.
    """

    seconds: float
    waited_s: float
    bytes: int
    batches: int
    memory: Memory
    first_byte_s: float | None = None


@dataclass(slots=True)
class LoadResult:
    """All runs of one load; a list is empty where nothing was measured."""

    name: str
    title: str
    rows: int
    limit: list[LimitRun] = field(default_factory=list)
    ours: list[ServerRun] = field(default_factory=list)
    decode: list[DecodeRun] = field(default_factory=list)
    library: list[LibraryRun] = field(default_factory=list)
    java: list[ServerRun] = field(default_factory=list)

    def rate(self, what: str) -> float | None:
        """Return the median rate of the runs in the field `what`."""
        runs = getattr(self, what)
        return _median(getattr(run, "rows", self.rows) / run.seconds for run in runs)

    @property
    def share(self) -> float | None:
        """Return our rate as a share of the limit."""
        ours, limit = self.rate("ours"), self.rate("limit")
        return ours / limit if ours and limit else None

    @property
    def memory_highest(self) -> int | None:
        """Return the most memory that canal-server held in any run."""
        return max((run.memory.highest for run in self.ours), default=None)

    @property
    def memory_at_end(self) -> int | None:
        """Return the most memory that canal-server held at the end of a run."""
        return max((run.memory.now for run in self.ours), default=None)

    @property
    def first_byte_s(self) -> float | None:
        """Return the median time from the start of the process to its first byte."""
        return _median(run.first_byte_s for run in self.ours if run.first_byte_s)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target, what was measured, and whether that is good enough."""

    what: str
    target: str
    measured: str
    reached: bool

    def __str__(self) -> str:
        mark = "PASS" if self.reached else "miss"
        return f"{mark}  {self.what}: {self.measured} (target: {self.target})"


def verdicts(
    loads: Sequence[LoadResult], latencies: dict[str, Latency]
) -> list[Verdict]:
    """Compare what was measured with the targets; nothing for what was not."""
    found = []
    for load in loads:
        found += _load_verdicts(load)
    first_byte_s = _median(load.first_byte_s for load in loads if load.first_byte_s)
    if first_byte_s:
        found.append(
            Verdict(
                "start to first byte",
                f"{FIRST_BYTE_S_MAX:g} s",
                f"{first_byte_s:.2f} s",
                first_byte_s < FIRST_BYTE_S_MAX,
            )
        )
    for client, latency in latencies.items():
        times = latency.from_send
        found.append(
            Verdict(
                f"commit to delivery, {client}",
                f"median {MEDIAN_MS_MAX:g} ms, 99 % {P99_MS_MAX:g} ms",
                f"median {times.median:.2f} ms, 99 % {times.p99:.2f} ms, "
                f"all {times.highest:.1f} ms",
                times.median < MEDIAN_MS_MAX and times.p99 < P99_MS_MAX,
            )
        )
    return found


def _load_verdicts(load: LoadResult) -> list[Verdict]:
    found = []
    required = SHARES.get(load.name)
    if required and load.share is not None:
        found.append(
            Verdict(
                load.title,
                f"{required:.2f} of the limit",
                f"{load.share:.2f}",
                load.share >= required,
            )
        )
        limit, decode = load.rate("limit"), load.rate("decode")
        if limit and decode:
            found.append(
                Verdict(
                    f"{load.title}, decoding alone",
                    f"above {required:.2f} of the limit",
                    f"{decode / limit:.2f}",
                    decode / limit > required,
                )
            )
    if load.memory_highest is not None:
        found.append(
            Verdict(
                f"{load.title}, resident memory at its highest",
                f"{MEMORY_BYTES_MAX / MB:.0f} MB",
                f"{load.memory_highest / MB:.0f} MB",
                load.memory_highest < MEMORY_BYTES_MAX,
            )
        )
    return found


def table(loads: Sequence[LoadResult]) -> str:
    """Return the rates as a Markdown table, in thousand row changes per second."""
    lines = [
        "| k rows/s | " + " | ".join(COLUMNS) + " |",
        "|---" + "|---:" * len(COLUMNS) + "|",
    ]
    for load in loads:
        cells = [
            f"{load.rows:,} by {load.title}",
            _thousands(load.rate("limit")),
            _thousands(load.rate("ours")),
            "-" if load.share is None else f"{load.share:.2f}",
            _thousands(load.rate("decode")),
            _thousands(load.rate("library")),
            _java(load),
            _memory(load),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _java(load: LoadResult) -> str:
    rate = load.rate("java")
    if rate is None:
        return "-"
    held = max(run.memory.now for run in load.java)
    return f"{_thousands(rate)} ({held / MB:.0f} MB)"


def _memory(load: LoadResult) -> str:
    if load.memory_at_end is None or load.memory_highest is None:
        return "-"
    return f"{load.memory_at_end / MB:.0f}, {load.memory_highest / MB:.0f} MB"


def _thousands(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate / 1000:,.0f}" if rate >= 1e5 else f"{rate / 1000:.1f}"


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
