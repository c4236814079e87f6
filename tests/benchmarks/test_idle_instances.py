"""The measurement of idle instances, on a real server with a few of them."""

from __future__ import annotations

from idle_instances import report, run


def test_a_few(mysql_server, capsys, monkeypatch):
    """All read their source, and what each costs beyond the first is measured."""
    for port in ("CANAL_METRICS_PULL_PORT", "CANAL_HTTP_PORT"):
        monkeypatch.setenv(port, "0")
    first, found = (run([mysql_server], count, 0.2) for count in (1, 3))
    assert found.started_s > 0
    assert 0 <= found.percent < 1000
    assert sum(found.threads.values()) >= 0
    assert first.memory.now > 10 * 1024 * 1024
    assert found.tasks - first.tasks <= 2 * 2  # threads of the two others
    assert found.files > first.files
    report(first, found)
    printed = capsys.readouterr().out
    assert "for each beyond the first" in printed
    assert printed.startswith("3 instances read after ")
