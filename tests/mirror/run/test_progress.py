"""What a person sees of a mirror: bars on a terminal, lines of the log elsewhere."""

from __future__ import annotations

import io
import logging
import re

import pytest

pytest.importorskip("pyspark", reason="the extra `mirror` is not installed")

from canal_server.mirror.copy.copying import CopyProgress
from canal_server.mirror.follow.micro_batches import BatchReport
from canal_server.mirror.run.progress import (
    BARS_MAX,
    LOG_EVERY_S,
    STREAM_LOG_EVERY_S,
    AsideHandler,
    Progress,
    duration,
)
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.state import Phase

ORDERS = TableName("shop", "orders")


class Screen:
    """A progress with a clock that the test moves, on a terminal or not."""

    def __init__(self, *, is_terminal: bool, width: int = 120) -> None:
        self.now = 100.0
        self.output = io.StringIO()
        self.progress = Progress(
            self.output,
            is_terminal=is_terminal,
            now=lambda: self.now,
            wall=lambda: 1_000.0,
            width=lambda: width,
        )

    def draw(self) -> list[str]:
        """Return the lines that drawing leaves on the terminal."""
        self.progress.draw()
        return self.lines()

    def lines(self) -> list[str]:
        """Return what a terminal shows of all that was written."""
        lines: list[str] = []
        for text in re.split(r"(\x1b\[\d+F\x1b\[J)", self.output.getvalue()):
            up = re.fullmatch(r"\x1b\[(\d+)F\x1b\[J", text)
            if up:
                del lines[len(lines) - int(up[1]) :]
            else:
                lines += text.splitlines()
        return lines


@pytest.fixture
def screen() -> Screen:
    """Give a terminal."""
    return Screen(is_terminal=True)


def test_a_bar_of_each_copy(screen: Screen) -> None:
    """A bar has share, rows, rate and time left; it goes when the copy is done."""
    screen.progress.copying(ORDERS, CopyProgress(20, 0, 0, 0))
    screen.now += 10
    screen.progress.copying(ORDERS, CopyProgress(20, 5, 2_000, 9))
    bar, stream = screen.draw()
    assert bar == (
        "shop.orders [#####...............]  25% 2,000 rows, 5 of 20 chunks, "
        "200 rows/s, 30 s left"
    )
    assert stream == "stream: no batch yet"

    screen.progress.copied(ORDERS)
    assert screen.draw() == ["stream: no batch yet"]
    screen.progress.close()
    assert screen.lines() == []


def test_a_copy_that_is_continued(screen: Screen) -> None:
    """Chunks of an earlier run do not count for the rate."""
    screen.progress.copying(ORDERS, CopyProgress(10, 6, 6_000, 0))
    assert "left" not in screen.draw()[0]
    screen.now += 2
    screen.progress.copying(ORDERS, CopyProgress(10, 8, 8_000, 0))
    assert "80% 8,000 rows, 8 of 10 chunks, 1,000 rows/s, 2 s left" in screen.draw()[0]


def test_a_copy_of_one_chunk(screen: Screen) -> None:
    """Without a key, progress is shown in rows, out of the estimate."""
    for rows in (0, 500):
        screen.progress.copying(ORDERS, CopyProgress(1, 0, rows, 0), 2_000)
        screen.now += 5
    assert screen.draw()[0] == (
        "shop.orders [#####...............]  25% 500 of about 2,000 rows, 0 of 1 "
        "chunks, 50 rows/s, 30 s left"
    )
    screen.progress.copying(ORDERS, CopyProgress(1, 0, 2_500, 0), 2_000)
    assert " 99% 2,500 of about 2,000 rows" in screen.draw()[0]
    screen.progress.copying(ORDERS, CopyProgress(1, 1, 2_600, 9), 2_000)
    assert "100% 2,600 rows, 1 of 1 chunks" in screen.draw()[0]


def test_the_line_of_the_stream(screen: Screen) -> None:
    """It has tables by phase, delay, recent rate, and the last batch."""
    screen.progress.phases({Phase.FOLLOWING: 3, Phase.STOPPED: 1})
    report = BatchReport(1, None, rows=600, seconds=0.25, newest_ms=998_500)
    screen.progress.batch(report)
    screen.now += 3
    (line,) = screen.draw()
    assert line == (
        "tables: 3 following, 1 stopped | stream: delay 1.5 s, 20 rows/s, last batch "
        "600 rows in 0.25 s, 3 s ago"
    )
    screen.now += 60
    assert "delay 1.5 s, 0 rows/s" in screen.draw()[0]
    screen.progress.batch(BatchReport(2, None))  # nothing changed: as before
    assert "delay 1.5 s" in screen.draw()[0]


def test_a_stream_that_rests(screen: Screen) -> None:
    """The delay of the last batch says nothing when nothing has come since."""
    report = BatchReport(1, None, rows=600, seconds=0.25, newest_ms=998_500)
    screen.progress.batch(report)
    screen.progress.caught_up(is_so=True)
    assert screen.draw()[0].startswith("stream: caught up, 20 rows/s, last batch 600")
    screen.progress.caught_up(is_so=False)
    assert screen.draw()[0].startswith("stream: delay 1.5 s, 20 rows/s")


def test_what_does_not_fit(screen: Screen) -> None:
    """Lines end at the terminal's edge, and so many bars are drawn at most."""
    narrow = Screen(is_terminal=True, width=50)
    for number in range(BARS_MAX + 2):
        name = TableName("shop", f"a_table_with_a_long_name_{number}")
        narrow.progress.copying(name, CopyProgress(1, 0, 0, 0))
    lines = narrow.draw()
    assert len(lines) == BARS_MAX + 2
    assert max(map(len, lines)) == 49
    assert lines[-2] == "… and 2 more"
    assert lines[0].startswith("…op.a_table_with_a_long_name_0 [....")


def test_the_log_stays_above(screen: Screen) -> None:
    """A line of the log is written above the bars, which are drawn again below."""
    handler = AsideHandler(screen.progress, screen.output)
    record = logging.LogRecord("x", logging.INFO, "", 0, "a line", (), None)
    handler.emit(record)  # nothing is drawn yet
    screen.progress.copying(ORDERS, CopyProgress(1, 0, 0, 0))
    screen.draw()
    handler.emit(record)
    above, again, bar, stream = screen.lines()
    assert above == again == "a line"
    assert bar.startswith("shop.orders [")
    assert stream.startswith("stream:")


def test_without_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    """Lines of the log come now and then, and nothing is drawn."""
    caplog.set_level(logging.INFO)
    screen = Screen(is_terminal=False)
    screen.progress.copying(ORDERS, CopyProgress(4, 0, 0, 0))
    assert screen.draw() == []
    assert not caplog.messages
    screen.now += LOG_EVERY_S
    screen.progress.copying(ORDERS, CopyProgress(4, 3, 300, 0))
    screen.draw()
    screen.draw()
    assert caplog.messages == [
        "shop.orders: copying, 300 rows, 3 of 4 chunks, 20 rows/s, 5 s left"
    ]
    screen.progress.copied(ORDERS)
    screen.progress.batch(BatchReport(1, None, rows=30, seconds=1.0))
    screen.now += STREAM_LOG_EVERY_S
    screen.draw()
    assert caplog.messages[1:] == [
        "stream: no change yet, 0 rows/s, last batch 30 rows in 1.00 s, 60 s ago"
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_durations(seconds: float, text: str) -> None:
    """A duration is shown in one unit."""
    assert duration(seconds) == text
