"""What an operator sees of a cluster whose ZooKeeper does not answer."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

import pytest
from fix_cluster import SESSION_S
from fix_store import eventually

from canal_server import cli
from canal_server.daemon.control import ask


def answer_of(server, path):
    """Return status and content of an answer of the HTTP port."""
    port = ask(server.conf, "status")["http_port"]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metric_of(server):
    """Return the state that the metrics show."""
    port = ask(server.conf, "status")["metrics_port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    (line,) = (
        each
        for each in lines
        if each.startswith("canal_instance_state{") and each.endswith(" 1.0")
    )
    return line.partition('state="')[2].partition('"')[0]


@pytest.mark.parametrize("way", ["frozen", "killed"])
def test_nobody_can_run_it(way, make_cluster, own_zookeeper, monkeypatch, capsys):
    """Every server shows the error, is not ready and raises the alarm; then it ends.

    A short interruption, after which the session still lives, shows nothing.
    """
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    monkeypatch.setenv("CANAL_METRICS_PULL_PORT", "0")
    monkeypatch.setenv("CANAL_ALARM_AFTER_SECONDS", "1")
    cluster = make_cluster(SESSION_S)
    one, two = cluster.servers
    eventually(lambda: two.status()["runs_on"] == cluster.address(one))

    own_zookeeper.pause()
    until_s = time.monotonic() + SESSION_S / 4
    while time.monotonic() < until_s:
        assert not any(server.status().get("error") for server in cluster.servers)
    own_zookeeper.resume()
    assert one.status()["running"]
    assert answer_of(two, "/readyz")[0] == 200

    if way == "frozen":
        own_zookeeper.pause()
    else:
        own_zookeeper.kill()
    for server in cluster.servers:
        server.wait_for_status(lambda status: status.get("error"))
        status = server.status()
        assert "no answer from ZooKeeper at 127.0.0.1:" in status["error"]
        assert status["error_since_ms"] <= time.time() * 1000
        assert (status["running"], status["life"]) == (False, "competing")
        assert status["runs_on"] is None
        assert metric_of(server) == "no_lease"
        code, content = answer_of(server, "/readyz")
        assert (code, "no_lease" in content) == (503, True)
        _, content = answer_of(server, "/api/v1/destinations/example")
        assert '"state":"no_lease","ready":false' in content
        assert '"anchor":"zookeeperunavailable"' in content
        assert cli.main(["status", "--check", "--conf", str(server.conf)]) == 5
        assert "no answer from ZooKeeper" in capsys.readouterr().out
        server.process.wait_for_log("alarm: destination example: failed: .*ZooKeeper")

    if way == "frozen":
        own_zookeeper.resume()
    else:
        own_zookeeper.restart()
    for server in cluster.servers:
        server.wait_for_status(lambda status: not status.get("error"))
        server.process.wait_for_log("alarm resolved: destination example: failed")
    eventually(
        lambda: (
            sorted(each.status()["running"] for each in cluster.servers)
            == [False, True]
        )
    )
