"""Metrics of a Java server and of ours, both on one source and one load.

The published dashboard of the Java server works with ours if names, types and labels
are the same. Values that must agree, agree.
"""

from __future__ import annotations

import re
import urllib.request

import pytest
from fix_java_server import JavaServer, with_java_server
from fix_pipeline import DESTINATION

from canal_server.daemon.control import ask
from canal_server.errors import ClientError

pytestmark = with_java_server

TRANSACTIONS, ROWS = 12, 5  # of each
# Others depend on time, on how many batches it took, or on entries of heartbeats.
SAME_VALUES = (
    "canal_instance_subscriptions",
    "canal_instance_transactions",
    "canal_instance_put_rows",
    "canal_instance_get_rows",
    "canal_instance_ack_rows",
)
# Only with a parallel parser, which a compiled one needs not be.
NOT_OURS = {"canal_instance_publish_blocking_time"}


@pytest.fixture
def servers(  # noqa: PLR0917  # all that the two need
    java_server_home,
    zookeeper_root,
    make_pipeline,
    mysql_server,
    database,
    tmp_path,
    monkeypatch,
):
    """Give both servers on one MySQL, each with cursors of its own."""
    mysql_server.execute(
        f"CREATE TABLE {database}.t (a INT PRIMARY KEY AUTO_INCREMENT, b VARCHAR(20))"
    )
    java = JavaServer(
        java_server_home, zookeeper_root, mysql_server, database, tmp_path / "java"
    )
    ours = make_pipeline(mysql_server, database, {})
    try:
        java.start()
        monkeypatch.setenv("CANAL_METRICS_PULL_PORT", "0")  # Java reads it, too
        yield java, ours
    finally:
        java.close()


def port_of(server) -> int:
    """Return the port for metrics."""
    if isinstance(server, JavaServer):
        text = (server.conf / "canal.properties").read_text("latin-1")
        return int(
            re.findall(r"^canal\.metrics\.pull\.port *= *(\d+)", text, re.MULTILINE)[-1]
        )
    return int(ask(server.conf, "status")["metrics_port"])


def scraped(server) -> tuple[dict[str, str], dict[str, set[str]], dict[str, float]]:
    """Return the types, the names of the labels, and the values of canal's metrics."""
    url = f"http://127.0.0.1:{port_of(server)}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    kinds = dict(re.findall(r"^# TYPE (canal_instance\S*) (\S+)$", text, re.MULTILINE))
    labels: dict[str, set[str]] = {}
    values: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("canal_instance"):
            continue
        key, _, value = line.rpartition(" ")
        name, _, rest = key.partition("{")
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        pairs = re.findall(r'(\w+)="([^"]*)"', rest)
        labels.setdefault(base, set()).update(label for label, _ in pairs)
        values[f"{name}{sorted(pairs)}"] = float(value)
    return kinds, labels, values


def work(server) -> None:
    """Receive and ack all changes as a client, and make one error."""
    with server.client() as client:
        seen = 0
        for message in server.messages(client, batch_size=1000):
            seen += message.rows
            client.ack(message.id)
            if seen == TRANSACTIONS * ROWS:
                break
        with pytest.raises(ClientError):
            (client.ack(message.id + 100), client.get(1))


def test_same_metrics(servers, mysql_server, database):
    """Names, types and labels are equal, and so are the values that must be."""
    java, ours = servers
    ours.start()
    for server in (java, ours):
        with server.client():  # subscribed before the load
            pass
    for _ in range(TRANSACTIONS):
        values = ", ".join("('x')" for _ in range(ROWS))
        mysql_server.execute(f"INSERT INTO {database}.t (b) VALUES {values}")
    for server in (java, ours):
        work(server)
    their_kinds, their_labels, their_values = scraped(java)
    kinds, labels, found = scraped(ours)
    assert len(their_kinds) > 20
    for name, kind in their_kinds.items():
        if name not in NOT_OURS:
            assert (name, kinds.get(name), labels.get(name)) == (
                name,
                kind,
                their_labels.get(name),
            )
    for name in SAME_VALUES:
        key = f"{name}[('destination', '{DESTINATION}')]"
        assert (name, found[key]) == (name, their_values[key])
    # The Java server counts a failed ack under the client's address as destination.
    for name, label in (
        ("canal_instance_client_packets", "('packetType', 'SUBSCRIPTION')"),
        ("canal_instance_client_request_error", "('errorCode', '400')"),
    ):
        ours_, theirs = (
            sum(value for key, value in values.items() if name in key and label in key)
            for values in (found, their_values)
        )
        assert (name, ours_) == (name, theirs)
    for key in sorted(their_values):
        print(f"{key}: Java {their_values[key]:g}, ours {found.get(key)}")
