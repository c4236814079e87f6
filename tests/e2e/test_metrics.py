"""Metrics of a server on a real source, and as a real Prometheus sees them."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from dashboards import FOLDER, check_dashboard
from fix_store import eventually
from prometheus_client.parser import text_string_to_metric_families
from prometheus_server import prometheus, promtool
from server_folders import Unavailable
from server_packages import package_tree

from canal_server.daemon.control import ask

JAVA_DASHBOARD = Path(__file__).parents[1] / "data/java_dashboard.json"
# Of the Java server: name → type and labels (spec: server.md section 11).
CANAL = {
    "canal_instance": ("gauge", {"destination", "mode"}),
    "canal_instance_subscriptions": ("gauge", {"destination"}),
    "canal_instance_traffic_delay": ("gauge", {"destination"}),
    "canal_instance_transactions": ("counter", {"destination"}),
    "canal_instance_store": ("gauge", {"destination", "batchMode", "size"}),
    "canal_instance_store_produce_seq": ("counter", {"destination"}),
    "canal_instance_store_consume_seq": ("counter", {"destination"}),
    "canal_instance_store_produce_mem": ("counter", {"destination"}),
    "canal_instance_store_consume_mem": ("counter", {"destination"}),
    "canal_instance_put_delay": ("gauge", {"destination"}),
    "canal_instance_get_delay": ("gauge", {"destination"}),
    "canal_instance_ack_delay": ("gauge", {"destination"}),
    "canal_instance_put_rows": ("counter", {"destination"}),
    "canal_instance_get_rows": ("counter", {"destination"}),
    "canal_instance_ack_rows": ("counter", {"destination"}),
    "canal_instance_sink_blocking_time": ("counter", {"destination"}),
    "canal_instance_received_binlog_bytes": ("counter", {"destination", "parser"}),
    "canal_instance_parser_mode": ("gauge", {"destination", "parallel"}),
    "canal_instance_client_packets": ("counter", {"destination", "packetType"}),
    "canal_instance_client_bytes": ("counter", {"destination"}),
    "canal_instance_client_empty_batches": ("counter", {"destination"}),
    "canal_instance_client_request_error": ("counter", {"destination", "errorCode"}),
    "canal_instance_client_request_latency": ("histogram", {"destination", "le"}),
}


@pytest.fixture
def pipeline(make_pipeline, source_server, database, monkeypatch):
    """Give a running pipeline with a port for metrics."""
    monkeypatch.setenv("CANAL_METRICS_PULL_PORT", "0")
    pipeline = make_pipeline(source_server, database, {})
    source_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    pipeline.start()
    return pipeline


def port_of(pipeline) -> int:
    """Return the port for metrics."""
    return int(ask(pipeline.conf, "status")["metrics_port"])


def scrape(pipeline, path: str = "/metrics") -> str:
    """Return the text of the metrics."""
    url = f"http://127.0.0.1:{port_of(pipeline)}{path}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(answer.read().decode())


def samples(text: str) -> dict[str, float]:
    """Return the values by name and labels, as they are written."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


def exchange(pipeline, client, rows: int, first: int = 0) -> None:
    """Commit rows one by one, and receive and ack them."""
    for number in range(first, first + rows):
        pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES ({number})")
    seen = 0
    for message in pipeline.messages(client):
        seen += message.rows
        client.ack(message.id)
        if seen == rows:
            break
    client.get(1)  # answered after the acks


def test_names_and_values(pipeline):
    """Names, types, labels and values are those of the Java server."""
    with pipeline.client() as client:
        exchange(pipeline, client, 5)
        with pytest.raises(Exception, match="is not exist"):
            (client.ack(77), client.get(1))
    # A request is counted after its answer.
    eventually(lambda: "client_request_error{" in scrape(pipeline))
    text = scrape(pipeline)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    labels: dict[str, set[str]] = {}
    for name in samples(text):
        base = re.sub(r"_(bucket|count|sum)$", "", name.partition("{")[0])
        labels.setdefault(base, set()).update(re.findall(r'(\w+)="', name))
    for name, (kind, names) in CANAL.items():
        assert (name, kinds.get(name), labels.get(name)) == (name, kind, names)
    found = samples(text)
    one = '{destination="example"}'
    assert found[f"canal_instance_transactions{one}"] >= 5
    assert found[f"canal_instance_put_rows{one}"] == 5
    assert found[f"canal_instance_ack_rows{one}"] == 5
    assert found[f"canal_instance_subscriptions{one}"] == 1
    assert found[f"canal_instance_client_bytes{one}"] > 500
    packet = 'canal_instance_client_packets{destination="example",packetType="%s"}'
    assert found[packet % "SUBSCRIPTION"] == 1
    assert found[packet % "GET"] >= 1
    assert found[packet % "CLIENTACK"] >= 1
    bounds = re.findall(r'request_latency_bucket.*le="([^"]+)"', text)
    assert bounds == ["2.5", "10.0", "25.0", "100.0", "+Inf"]
    error = 'canal_instance_client_request_error{destination="example",errorCode="400"}'
    assert found[error] == 1
    produced = found[f"canal_instance_store_produce_seq{one}"]
    assert produced == found[f"canal_instance_store_consume_seq{one}"]
    received = 'canal_instance_received_binlog_bytes{destination="example",parser="0"}'
    assert found[received] > 5 * 100
    assert list(text_string_to_metric_families(text))


def test_states_and_clients(pipeline):
    """States, lags and clients are shown, also of a destination that cannot read."""
    with pipeline.client() as client:
        exchange(pipeline, client, 2)
        eventually(
            lambda: (
                samples(scrape(pipeline))[
                    'canal_instance_state{destination="example",state="dumping"}'
                ]
                == 1
            )
        )
        pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES (100)")
        message = next(pipeline.messages(client))
        found = samples(scrape(pipeline))
        mine = '{client="1001",destination="example"}'
        assert found[f"canal_client_connected{mine}"] == 1
        assert found[f"canal_client_lag_entries{mine}"] > 0
        assert 0 < found[f"canal_client_lag_seconds{mine}"] < 600
        client.rollback()
        client.get()
        assert samples(scrape(pipeline))[f"canal_client_rollbacks_total{mine}"] >= 1
        assert message
    found = samples(scrape(pipeline))
    states = [name for name in found if name.startswith("canal_instance_state")]
    assert sum(found[name] for name in states) == 1
    version = next(name for name in found if name.startswith("canal_server_info"))
    assert re.search(r'version="\d', version)
    assert found["process_open_fds"] > 5


def test_requests_that_are_no_scrapes(pipeline):
    """Any path is answered, as the Java server does; other methods are refused."""
    assert "canal_instance_state" in scrape(pipeline, "/")
    url = f"http://127.0.0.1:{port_of(pipeline)}/metrics"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(url, b"x", method="POST"))
    assert caught.value.code == 405
    caught.value.close()


def test_ipv6(pipeline, make_pipeline, source_server, database, monkeypatch):
    """The port may have an IPv6 address."""
    monkeypatch.setenv("CANAL_METRICS_IP", "::1")
    other = make_pipeline(source_server, database, {})
    other.start()
    port = ask(other.conf, "status")["metrics_port"]
    with urllib.request.urlopen(f"http://[::1]:{port}/", timeout=30) as answer:
        assert b"canal_server_info" in answer.read()


def test_port_in_use(pipeline, make_pipeline, source_server, database, monkeypatch):
    """A port that is in use is a warning; the server runs without metrics."""
    monkeypatch.setenv("CANAL_METRICS_PULL_PORT", str(port_of(pipeline)))
    other = make_pipeline(source_server, database, {})
    other.start()
    line = other.process.wait_for_log("metrics-port-unavailable")
    assert f"127.0.0.1:{port_of(pipeline)}" in line
    assert ask(other.conf, "status")["metrics_port"] is None


def test_real_prometheus(pipeline, tmp_path):
    """A real Prometheus scrapes it, with the types; promtool finds no error."""
    try:
        package_tree("prometheus", "prometheus")
    except Unavailable as error:
        pytest.skip(str(error))
    with pipeline.client() as client, prometheus(tmp_path, port_of(pipeline)) as server:
        exchange(pipeline, client, 3)
        (found,) = server.wait_for("canal_instance_put_rows == 3")
        assert found["metric"]["destination"] == "example"
        assert server.query("up{job='canal'} == 1")
        kinds = server.metadata()
        assert {name: kinds.get(name) for name in CANAL if name in kinds} == {
            name: kind for name, (kind, _) in CANAL.items() if name in kinds
        }
        assert server.wait_for(
            "histogram_quantile(0.5, canal_instance_client_request_latency_bucket)"
        )
    assert "error" not in promtool(
        "check", "metrics", text=scrape(pipeline).encode()
    ).lower().replace("request_error", "")


DELIVERY = [
    f"Delivery: {each}" for each in ("messages", "blocked or stopped", "not confirmed")
]


def test_dashboard(pipeline, tmp_path):
    """Prometheus answers each query of the dashboard, for the server that is chosen."""
    try:
        package_tree("prometheus", "prometheus")
    except Unavailable as error:
        pytest.skip(str(error))
    with pipeline.client() as client:
        exchange(pipeline, client, 3)
        with pytest.raises(Exception, match="is not exist"):
            (client.ack(77), client.get(1))
    with pipeline.client() as client, prometheus(tmp_path, port_of(pipeline)) as server:
        server.wait_for("canal_instance_client_request_latency_count > 0")
        client.get(1)  # a latency that only later scrapes have
        file = FOLDER / "canal-server.json"
        # There is no ZooKeeper here, and no message queue.
        check_dashboard(server, file, optional=["Leases", *DELIVERY])


@pytest.mark.parametrize("sources", [1, 2])
def test_dashboard_of_the_java_server(  # noqa: PLR0917  # fixtures
    make_pipeline,
    make_group,
    mysql_server,
    mariadb_server,
    database,
    monkeypatch,
    tmp_path,
    sources,
):
    """Its published dashboard has a number for each query, with what legends name.

    Only the wait of a parallel parser, which is not here, has none; and of sources,
    those of a group and the single one exclude each other.
    """
    try:
        package_tree("prometheus", "prometheus")
    except Unavailable as error:
        pytest.skip(str(error))
    monkeypatch.setenv("CANAL_METRICS_PULL_PORT", "0")
    mysql_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    pipeline = (
        make_pipeline(mysql_server, database)
        if sources == 1
        else make_group(database, [mysql_server, mariadb_server]).pipeline
    )
    pipeline.start()
    numbers = ("0",) if sources == 1 else ("1", "2")
    with pipeline.client() as client, prometheus(tmp_path, port_of(pipeline)) as server:
        exchange(pipeline, client, 3)
        server.wait_for("canal_instance_client_request_latency_count > 0")
        exchange(pipeline, client, 3, first=3)  # rates are of what later scrapes have
        offered = server.wait_for("group by (destination) (canal_instance)")
        assert [each["metric"] for each in offered] == [{"destination": "example"}]
        shown = 0
        for query in json.loads(JAVA_DASHBOARD.read_text()):
            expression = query["expression"].replace("$destination", "example")
            parser = re.search('parser="(.)"', expression)
            is_here = parser is None or parser[1] in numbers
            if "publish_blocking_time" in expression or not is_here:
                assert server.query(expression) == []
                continue
            shown += 1
            # No number compares with NaN, which a panel would not draw.
            for each in server.wait_for(f"({expression}) >= -Inf"):
                assert set(query["labels"]) <= each["metric"].keys(), query
        assert shown == 22 + sources
