"""Delay and throughput of a mirror over time, as a picture and as text.

Drawn from the history that the mirror writes into the lake. Leaves out how pictures are
drawn (`picture`).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.report.picture import (
    Panel,
    Series,
    picture,
    text_plot,
    unit_of,
)
from canal_server.mirror.state.run_history import read_history

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.state.run_history import Batch

SLICES: Final = 240  # of the time axis of a picture
LINES: Final = 40  # of a text plot
LONGEST, MEDIAN, RATE = "#9ab", "#c30", "#383"  # colours


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of time: delays and rows of the batches that ended in it."""

    begin_s: float
    length_s: float
    delays_ms: tuple[float, ...]
    rows: int

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.length_s


@dataclass(frozen=True, slots=True)
class Plot:
    """The batches of a period, and their plots."""

    batches: tuple[Batch, ...]

    @property
    def begin_ms(self) -> int:
        """When the first batch began."""
        return min(
            (each.at_ms - round(each.seconds * 1000) for each in self.batches),
            default=0,
        )

    @property
    def seconds(self) -> float:
        """The length of the period."""
        last = max((each.at_ms for each in self.batches), default=0)
        return max(1.0, (last - self.begin_ms) / 1000)

    def slices(self, most: int) -> list[Slice]:
        """Return at most `count` slices of time in which a batch ended."""
        length = max(1.0, self.seconds / most)
        found: dict[int, list[Batch]] = defaultdict(list)
        for batch in self.batches:
            second = (batch.at_ms - self.begin_ms) / 1000
            found[min(int(second / length), most - 1)].append(batch)
        return [
            Slice(
                number * length,
                length,
                tuple(float(each.delay_ms) for each in some if each.delay_ms >= 0),
                sum(each.rows for each in some),
            )
            for number, some in sorted(found.items())
        ]

    def text(self) -> str:
        """Return lines for a terminal."""
        delays = [each.delay_ms for each in self.batches if each.delay_ms >= 0]
        if not delays:
            return "the history has no batch with changes"
        begin = datetime.fromtimestamp(self.begin_ms / 1000, UTC)
        rows = [
            (
                each.begin_s,
                statistics.median(each.delays_ms),
                f"at most {max(each.delays_ms):,.0f}; {each.rate:,.0f} rows/s",
            )
            for each in self.slices(LINES)
            if each.delays_ms
        ]
        unit_s, unit = unit_of(self.seconds)
        total = sum(each.rows for each in self.batches)
        title = f"delay from commit to the lake, since {begin:%F %T} UTC:"
        every = (
            f"{len(self.batches):,} batches, {total:,} rows in "
            f"{self.seconds / unit_s:.1f} {unit}: median "
            f"{statistics.median(delays):,.0f} ms, 95 % within "
            f"{_quantile(delays, 0.95):,.0f} ms, at most {max(delays):,.0f} ms"
        )
        return "\n".join([title, text_plot(rows, "ms"), "", every])

    def picture(self) -> str:
        """Return an SVG."""
        slices = self.slices(SLICES)
        length = slices[0].length_s if slices else 1.0
        some = [each for each in slices if each.delays_ms]
        highest = [
            (each.begin_s + each.length_s / 2, max(each.delays_ms)) for each in some
        ]
        medians = [
            (each.begin_s + each.length_s / 2, statistics.median(each.delays_ms))
            for each in some
        ]
        delay = Panel(
            "from commit in the database to the lake",
            " ms",
            [Series("longest", LONGEST, highest), Series("median", MEDIAN, medians)],
        )
        rates = [(each.begin_s, each.rate) for each in slices]
        speed = Panel(
            "rows per second", "", [Series("written", RATE, rates, bar_s=length)]
        )
        return picture([delay, speed], self.seconds)


def plot(settings: MirrorSettings, hours: float = 0.0) -> Plot:
    """Read the history of the last hours; 0: all of it. Raises LakeError."""
    folder = open_folder(settings.lake, settings.folder)
    return Plot(tuple(_latest(read_history(folder), hours)))


def _latest(batches: Iterable[Batch], hours: float) -> list[Batch]:
    every = list(batches)
    if not hours or not every:
        return every
    since_ms = max(each.at_ms for each in every) - hours * 3_600_000
    return [each for each in every if each.at_ms >= since_ms]


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
