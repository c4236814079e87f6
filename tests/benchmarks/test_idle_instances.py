"""The measurement of idle instances, on a real server with a few of them."""

from __future__ import annotations

from idle_instances import measure, running, wait_until_all_read, write_settings
from server_process import Memory


def test_a_few(mysql_server, tmp_path):
    """All read their source, and what they cost is measured."""
    conf = tmp_path / "conf"
    assert write_settings(conf, mysql_server, 3) == ["idle1", "idle2", "idle3"]
    with running(conf) as process:
        assert wait_until_all_read(conf, process) > 0
        percent, threads = measure(process.pid, 0.2)
        assert 0 <= percent < 1000
        assert sum(threads.values()) >= 0
        assert Memory.of(process.pid).highest > 10 * 1024 * 1024
