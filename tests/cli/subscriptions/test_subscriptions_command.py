"""`canal-server subscriptions`: of a running and a stopped server, and in a cluster."""

from __future__ import annotations

import json
import re

import pytest
from fix_conf import ACCOUNT
from fix_pipeline import DESTINATION

from canal_server import cli
from canal_server.client.range_client import RangedClient
from canal_server.model.ranges import EpochPosition, Subscription
from canal_server.model.running import Running
from canal_server.model.znodes import lease_path, running_path
from canal_server.ranges.range_cursors import (
    FILE_NAME,
    SubscriptionFile,
    SubscriptionNodes,
    Subscriptions,
)
from canal_server.runtime.accounts import own_account
from canal_server.runtime.lifecycle import Stop

NOWHERE = f"canal.instance.master.address = 127.0.0.1:1\n{ACCOUNT}"
AT = EpochPosition(0, "binlog.000001", 4711)


def run(capsys, *arguments):
    """Run the command; returns its status, and what it printed."""
    status = cli.main(["subscriptions", *map(str, arguments)])
    output = capsys.readouterr()
    return status, output.out + output.err


def keep(position, *names):
    """Store subscriptions, acked at a known time."""
    found = Subscriptions(position, clock=lambda: 1_763_719_200.0)
    found.start(Stop())
    found.begin_epoch("s", "binlog.000001", 100)
    for name in names:
        found.put(Subscription(name, r"shop\\..*", AT))
    found.ack(names[0], EpochPosition(0, "binlog.000001", 5000))
    found.stop()


@pytest.fixture
def conf(make_conf):
    """Give a conf folder with two destinations, the first of which has some."""
    conf = make_conf("canal.destinations = one,two", one=NOWHERE, two=NOWHERE)
    keep(SubscriptionFile(conf / "one" / FILE_NAME), "lake", "old.one")
    return conf


def test_what_is_stored(conf, capsys):
    """Without server and source: names, positions and times, but no lag."""
    status, output = run(capsys, "list", "--conf", conf)
    assert status == 0
    assert "destination one: not running; as stored" in output
    assert "lag is unknown: cannot connect" in output
    assert "lake at binlog.000001:5000\n    last acked 2025-11-21T1" in output
    assert "old.one at binlog.000001:4711\n    nothing acked yet; filter shop" in output
    assert output.endswith(
        "destination two: not running; as stored\n  no subscriptions\n"
    )
    status, output = run(capsys, "list", "--conf", conf, "--json")
    one, two = json.loads(output)["destinations"]
    assert [each["name"] for each in one["subscriptions"]] == ["lake", "old.one"]
    assert one["subscriptions"][1]["acked"] is None
    assert two["subscriptions"] == []


def test_removing_what_is_stored(conf, capsys):
    """The named ones, each once; an unknown name is reported with the others."""
    named = ("--conf", conf, "--destination", "one")
    assert run(capsys, "remove", *named, "lake", "lake")[0] == 0
    status, output = run(capsys, "remove", *named, "lake")
    assert status == 1
    assert "no subscription lake; it has: old.one" in output
    assert run(capsys, "remove", "--conf", conf, "old.one")[0] == 2
    assert "lake" not in run(capsys, "list", *named)[1]
    two = ("--conf", conf, "--destination", "two")
    assert "has no subscription x; it has: none" in run(capsys, "remove", *two, "x")[1]


def test_the_audit(conf, capsys):
    """A removal while no server runs is noted, and refused if it cannot be."""
    named = ("--conf", conf, "--destination", "one")
    (conf / "canal.properties").write_text(
        "canal.destinations = one,two\ncanal.audit.file = a.jsonl\n"
    )
    assert run(capsys, "remove", *named, "lake")[0] == 0
    noted = json.loads((conf / "a.jsonl").read_text())
    del noted["time"]
    assert noted == {
        "event": "range_unsubscribe",
        "user": None,
        "address": "command",
        "account": own_account(),
        "destination": "one",
        "subscription": "lake",
    }
    (conf / "a.jsonl").unlink()
    (conf / "a.jsonl").mkdir()
    status, output = run(capsys, "remove", *named, "old.one")
    assert status == 2
    assert "canal.audit.file" in output
    assert "old.one" in run(capsys, "list", *named)[1]


def test_in_zookeeper(make_conf, zookeeper, zookeeper_root, capsys):
    """While a server elsewhere runs the destination they are shown, and its own."""
    fence = lease_path("example", zookeeper.session)
    zookeeper.create(fence, ephemeral=True)
    keep(SubscriptionNodes(zookeeper, "example"), "lake", "old")
    other = "10.0.0.2:11111"
    zookeeper.create(running_path("example"), Running(other).encode(), ephemeral=True)
    conf = make_conf(
        f"canal.destinations = example\ncanal.zkServers = {zookeeper_root}\n"
        "canal.instance.global.spring.xml = default-instance.xml\n",
        example=NOWHERE,
    )
    status, output = run(capsys, "list", "--conf", conf)
    assert status == 0
    assert f"run by {other}; as stored" in output
    assert "lake at binlog.000001:5000" in output
    status, output = run(capsys, "remove", "--conf", conf, "old")
    assert status == 1
    assert f"run by {other}" in output
    zookeeper.delete(running_path("example"))
    zookeeper.delete(fence)
    assert run(capsys, "remove", "--conf", conf, "old")[0] == 0
    assert "old" not in run(capsys, "list", "--conf", conf)[1]
    assert zookeeper.read(running_path("example")) is None


@pytest.mark.slow
def test_of_a_running_server(make_pipeline, mysql_server, database, capsys):
    """The lag, and who reads them; a subscription in use is not removed."""
    pipeline = make_pipeline(mysql_server, database)
    pipeline.start()
    conf = ("--conf", pipeline.conf)
    expected = rf"{database}\..*"
    mysql_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    with RangedClient("127.0.0.1", pipeline.server_port) as client:
        at = client.subscribe(DESTINATION, "lake", expected).cursor
        client.subscribe(DESTINATION, "old", expected)
        mysql_server.execute(f"INSERT INTO {database}.t VALUES (1), (2)")
        ends = client.head(DESTINATION, "lake", at, wait_ms=30_000, query="q1")
        client.ack(DESTINATION, "lake", ends.end)
        status, output = run(capsys, "list", *conf, "--json")
        assert status == 0
        (found,) = json.loads(output)["destinations"]
        lake, old = found["subscriptions"]
        assert (lake["query"], old["query"]) == ("q1", None)
        assert (lake["behind"]["transactions"], lake["behind"]["bytes"]) == (0, 0)
        assert old["behind"]["transactions"] == 1
        assert lake["acked"]
        assert not old["acked"]
        output = run(capsys, "list", *conf)[1]
        assert f"{found['source']['address']} (mysql 9" in output
        assert "read by query q1" in output
        assert ": 1 transaction" in output
        status, output = run(capsys, "remove", *conf, "lake")
        assert status == 1
        assert "read by query q1" in output
        assert cli.main(["status", *map(str, conf)]) == 0
        output = capsys.readouterr().out
        assert f"subscription lake at {ends.end.journal}:{ends.end.position}" in output
        assert re.search(r"read by a query, acked \d+ s ago", output)
        assert run(capsys, "remove", *conf, "old")[0] == 0
        status, output = run(capsys, "remove", *conf, "old")
        assert status == 1
        assert "has no subscription old; it has: lake" in output
    pipeline.stop()
    assert "lake at" in run(capsys, "list", *conf)[1]
    assert run(capsys, "remove", *conf, "lake")[0] == 0
