"""The line of progress and the file of metrics."""

from __future__ import annotations

import re
import threading
from functools import partial
from types import SimpleNamespace

import pytest
from fix_server import PATIENCE_S
from fix_store import eventually

from canal_server.cli.consume import consume_progress
from canal_server.cli.consume.consume_progress import Progress
from canal_server.client.consume import consumer_counters
from canal_server.client.consume.consumer_counters import (
    ConsumerCounters,
    prometheus_text,
)


@pytest.fixture
def client():
    """Give what a client shows of itself."""
    return SimpleNamespace(destination="shop", client_id=7, lag=1.25)


def test_a_line_at_the_end(client, capsys):
    """It has the changes, their rate, the lag, and failures if there were any."""
    counters = ConsumerCounters()
    with Progress(client, counters, 1000.0, None):
        counters.changes = 12345
        counters.retries = 2
    line = capsys.readouterr().err
    assert re.fullmatch(
        r"canal-server consume: 12,345 changes, [\d,]+/s, lag 1\.2 s, 2 retries\n", line
    )


@pytest.mark.parametrize("every_s", [0.0, 1000.0])
def test_nothing_to_say(client, capsys, every_s):
    """While nothing happens, or with 0, no line is printed."""
    counters = ConsumerCounters()
    with Progress(client, counters, every_s, None):
        if not every_s:
            counters.changes = 1
    assert capsys.readouterr().err == ""


def test_lines_from_time_to_time(client, capsys):
    """A line is printed for what happened since the one before."""
    counters = ConsumerCounters()
    seen = []

    def printed(count: int) -> bool:
        seen.append(capsys.readouterr().err)
        return "".join(seen).count("\n") == count

    with Progress(client, counters, 0.01, None):
        for number in (1, 2, 3):
            counters.changes += 10
            client.lag = None
            eventually(partial(printed, number))
    assert "30 changes" in "".join(seen)
    assert "lag unknown" in "".join(seen)


def test_metrics(client, tmp_path, monkeypatch):
    """The file is there from the start, complete at any time, and up to date."""
    monkeypatch.setattr(consume_progress, "METRICS_EVERY_S", 0.01)
    path = tmp_path / "canal.prom"
    counters = ConsumerCounters()
    with Progress(client, counters, 0.0, path):
        assert 'changes_total{destination="shop",client_id="7"} 0' in path.read_text()
        counters.changes = 5
        eventually(lambda: "} 5\n" in path.read_text())
        counters.dead_letters = 6
    assert "} 6\n" in path.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["canal.prom"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_folder_for_metrics_that_is_missing(client, tmp_path):
    """It is an error at the start."""
    progress = Progress(client, ConsumerCounters(), 0.0, tmp_path / "none/x.prom")
    with pytest.raises(FileNotFoundError), progress:
        raise AssertionError("it does not start")


def test_a_folder_for_metrics_that_disappears(client, tmp_path, monkeypatch, capsys):
    """It is reported once, and consuming goes on."""
    monkeypatch.setattr(consume_progress, "METRICS_EVERY_S", 0.01)
    folder = tmp_path / "folder"
    folder.mkdir()
    attempts = threading.Semaphore(0)
    write = Progress._write_metrics

    def counted(self, path):
        attempts.release()
        write(self, path)

    monkeypatch.setattr(Progress, "_write_metrics", counted)
    with Progress(client, ConsumerCounters(), 0.0, folder / "x.prom"):
        (folder / "x.prom").unlink()
        while True:
            try:
                folder.rmdir()
            except OSError:  # it was written again
                for each in folder.iterdir():
                    each.unlink(missing_ok=True)
            else:
                break
        for _ in range(5):
            assert attempts.acquire(timeout=PATIENCE_S)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("x.prom: No such file or directory")


def test_the_format_of_prometheus():
    """Each metric has a help, a type and a line; labels are escaped."""
    counters = ConsumerCounters(changes=1, messages=2, flushes=3, retries=4)
    text = prometheus_text(counters, {"destination": 'a"b\\c\n'}, 0.5)
    lines = text.splitlines()
    assert lines[:3] == [
        f"# HELP canal_consumer_changes_total {consumer_counters._METRICS[0][1]}",
        "# TYPE canal_consumer_changes_total counter",
        'canal_consumer_changes_total{destination="a\\"b\\\\c\\n"} 1',
    ]
    assert lines[-1] == (
        'canal_consumer_lag_seconds{destination="a\\"b\\\\c\\n"} 0.500'
    )
    assert text.endswith("\n")
    assert "lag" not in prometheus_text(counters, {}, None)
