"""Metrics of a Java server and of ours, both on one source and one load.

The published dashboard of the Java server works with ours if names, types and labels
are the same. Values that must agree, agree.
"""

from __future__ import annotations

import re
import urllib.request

import pytest
from fix_java_server import JavaServer, with_java_server

from canal_server.daemon.control import ask
from canal_server.errors import ClientError

pytestmark = with_java_server

TRANSACTIONS, ROWS = 12, 5  # of each
# Metrics, and labels of theirs, that grow alike on the same load. Others depend on
# time, on how many batches it took, or on heartbeats.
GROW_ALIKE = (
    ("canal_instance_subscriptions", ""),
    ("canal_instance_transactions", ""),
    ("canal_instance_put_rows", ""),
    ("canal_instance_get_rows", ""),
    ("canal_instance_ack_rows", ""),
    ("canal_instance_store_produce_seq", ""),
    ("canal_instance_store_consume_seq", ""),
    ("canal_instance_client_packets", "SUBSCRIPTION"),
    ("canal_instance_client_packets", "CLIENTROLLBACK"),
    ("canal_instance_client_packets", "CLIENTACK"),
    ("canal_instance_client_empty_batches", ""),
    ("canal_instance_client_request_error", "('errorCode', '400')"),
)
# Bytes: ours writes no empty fields into entries, and counts the headers of packets.
ABOUT_ALIKE = {
    "canal_instance_store_produce_mem": (0.85, 1.0),
    "canal_instance_store_consume_mem": (0.85, 1.0),
    "canal_instance_client_bytes": (0.85, 1.0),
    "canal_instance_received_binlog_bytes": (1.0, 1.15),
}
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


def receive(server, rows: int):
    """Receive and ack so many rows as a client; return the id of the last batch."""
    with server.client() as client:
        seen = 0
        for message in server.messages(client, batch_size=1000):
            seen += message.rows
            client.ack(message.id)
            if seen == rows:
                return message.id
    raise AssertionError(f"{seen} rows of {rows}")


def fail(server, batch_id: int) -> None:
    """Ack a batch that never was."""
    with server.client() as client, pytest.raises(ClientError):
        (client.ack(batch_id), client.get(1))


def total(values: dict[str, float], name: str, label: str = "") -> float:
    """Return the sum over a metric's labels, of those with a text in them."""
    return sum(
        value
        for key, value in values.items()
        if key.startswith(f"{name}[") and label in key
    )


def test_same_metrics(servers, mysql_server, database):
    """Names, types and labels are equal, and so are the values that must be.

    Both receive a row before the load, as they begin at different positions: the Java
    server reads the file with its first position from its beginning.
    """
    java, ours = servers
    ours.start()
    insert = f"INSERT INTO {database}.t (b) VALUES "
    mysql_server.execute(f"{insert} ('first')")
    before = {}
    for server in (java, ours):
        receive(server, 1)
        before[server] = scraped(server)[2]
    for _ in range(TRANSACTIONS):
        mysql_server.execute(insert + ", ".join("('x')" for _ in range(ROWS)))
    for server in (java, ours):
        fail(server, receive(server, TRANSACTIONS * ROWS) + 100)
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

    # The Java server counts a failed ack under the client's address as destination.
    def grown(name: str, label: str = "") -> tuple[float, float]:
        theirs, mine = (
            total(now, name, label) - total(before[server], name, label)
            for server, now in ((java, their_values), (ours, found))
        )
        return theirs, mine

    for name, label in GROW_ALIKE:
        theirs, mine = grown(name, label)
        assert (name, label, mine) == (name, label, theirs)
    for name, (least, most) in ABOUT_ALIKE.items():
        theirs, mine = grown(name)
        assert least <= mine / theirs <= most, (name, theirs, mine)
    for key in sorted(their_values):
        print(f"{key}: Java {their_values[key]:g}, ours {found.get(key)}")
