"""Rates of destinations over the last hour."""

from __future__ import annotations

from canal_server.instance.instance_metrics import Received
from canal_server.web.throughput import SAMPLE_S, SAMPLES, Throughput


class Server:
    """Destinations with counters, and a clock."""

    def __init__(self) -> None:
        self.rows: dict[str, int | None] = {}
        self.now = 1000.0

    def received(self):
        """Return what a server would: of what runs."""
        return {
            name: Received(rows, rows * 100, 0.5)
            for name, rows in self.rows.items()
            if rows is not None
        }

    def sample(self, throughput, **rows) -> None:
        """Take a sample with these counters, ten seconds after the last one."""
        self.rows, self.now = rows, self.now + SAMPLE_S
        throughput.sample()


def make():
    """Return a server and the rates of it."""
    server = Server()
    return server, Throughput(server.received, lambda: server.now)


def test_rates():
    """A rate is the difference of two samples by their time."""
    server, throughput = make()
    for rows in (0, 100, 100, 1100):
        server.sample(throughput, a=rows)
    assert [each.rows_per_s for each in throughput.of("a")] == [10.0, 0.0, 100.0]
    assert throughput.of("a")[2].bytes_per_s == 10_000.0
    assert throughput.of("a")[0].time_s == 1010.0


def test_a_restart():
    """Counters that begin again give no negative rate."""
    server, throughput = make()
    for rows in (0, 100, 20, 40):
        server.sample(throughput, a=rows)
    assert [each.rows_per_s for each in throughput.of("a")] == [10.0, 2.0]


def test_a_clock_that_is_set_back():
    """Two samples of which the later one has an earlier time give no rate."""
    server, throughput = make()
    server.sample(throughput, a=0)
    server.now -= 3600
    server.sample(throughput, a=100)
    server.sample(throughput, a=200)
    assert [each.rows_per_s for each in throughput.of("a")] == [10.0]


def test_what_does_not_run_is_forgotten():
    """A destination that stopped or was removed has no rates."""
    server, throughput = make()
    server.sample(throughput, a=0, b=0)
    server.sample(throughput, a=10, b=None)
    assert throughput.of("b") == throughput.of("unknown") == []


def test_an_hour():
    """Older samples are forgotten."""
    server, throughput = make()
    for number in range(SAMPLES + 20):
        server.sample(throughput, a=number)
    assert len(throughput.of("a")) == SAMPLES - 1
