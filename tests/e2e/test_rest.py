"""The REST interface of a server that reads a real MySQL or MariaDB."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import urllib.error
import urllib.request

import pytest
from fix_pipeline import DESTINATION
from fix_store import eventually

from canal_server import cli
from canal_server.client.range_client import RangedClient
from canal_server.daemon.control import ask

MAIN = "canal.ip = 127.0.0.1\ncanal.port = 0\ncanal.destinations = example\n"
BASE = "/api/v1"
ONE = f"{BASE}/destinations/{DESTINATION}"


@pytest.fixture
def pipeline(make_pipeline, source_server, database, monkeypatch):
    """Give a running pipeline with a port for HTTP."""
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    source_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    pipeline = make_pipeline(source_server, database, {})
    pipeline.start()
    return pipeline


def request(conf, path, method="GET", login="", body=None):
    """Send a request; returns its status and content."""
    port = ask(conf, "status")["http_port"]
    expected = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    if body is not None:
        expected.add_header("Content-Type", "application/json")
        expected.data = json.dumps(body).encode()
    if login:
        encoded = base64.b64encode(login.encode()).decode()
        expected.add_header("Authorization", f"Basic {encoded}")
    try:
        with urllib.request.urlopen(expected, timeout=30) as answer:
            body = answer.read()
            return answer.status, json.loads(body) if body else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_what_is_shown(pipeline):
    """State, position and clients are those of `status`."""
    for number in range(3):
        pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES ({number})")
    with pipeline.client() as client:
        pipeline.wait_for_status(lambda status: status["state"] == "running")
        assert next(pipeline.messages(client))
        status, found = request(pipeline.conf, ONE)
        assert (status, found["state"], found["ready"]) == (200, "dumping", True)
        assert found["position"] == pipeline.status()["position"]
        (shown,) = found["clients"]
        assert (shown["client_id"], shown["connected"]) == (1001, True)
        assert shown["lag_entries"] > 0
    assert request(pipeline.conf, "/readyz")[0] == 200
    assert request(pipeline.conf, f"{BASE}/status")[1]["instances"]
    status, found = request(pipeline.conf, f"{ONE}/positions")
    assert [each["client"] for each in found["clients"]] == [1001]


def test_stop_and_start(pipeline):
    """A stopped destination serves nobody; started again, it loses nothing."""
    assert request(pipeline.conf, f"{ONE}/stop", "POST")[0] == 202
    pipeline.wait_for_status(lambda status: status["life"] == "stopped")
    assert request(pipeline.conf, ONE)[1]["state"] == "stopped"
    pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES (1)")
    assert request(pipeline.conf, f"{ONE}/start", "POST")[0] == 202
    pipeline.wait_for_status(lambda status: status["running"])
    with pipeline.client() as client:
        assert next(pipeline.messages(client)).entries


def test_unsubscribe(pipeline):
    """A client's subscription is removed; one that does not exist is not found."""
    with pipeline.client():
        pass
    assert request(pipeline.conf, f"{ONE}/clients/1001", "DELETE") == (204, None)
    eventually(lambda: pipeline.status()["clients"] == [])
    status, problem = request(pipeline.conf, f"{ONE}/clients/1001", "DELETE")
    assert status == 404
    assert "client 1001 is not subscribed to example" in problem["detail"]


def test_seek(pipeline):
    """A dry run says what would be repeated; the move does it, and nothing is lost."""
    for number in range(3):
        pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES ({number})")
    with pipeline.client() as client:
        assert ids_of(pipeline, client) == [0, 1, 2]
        client.get(1)  # answered after the acks
    line = pipeline.process.wait_for_log("starts at .*: configured")
    start = re.search(r"starts at (\S+):(\d+): configured", line)
    assert start
    body = {"to": f"{start[1]}:{start[2]}", "clients": [1001], "dry_run": True}
    status, plan = request(pipeline.conf, f"{ONE}/seek", "POST", body=body)
    assert (status, plan["moved"], plan["clients"]) == (200, False, [1001])
    assert "repeated" in plan["lines"][1]
    body["dry_run"] = False
    status, plan = request(pipeline.conf, f"{ONE}/seek", "POST", body=body)
    assert (status, plan["moved"]) == (200, True)
    with pipeline.client() as client:
        assert ids_of(pipeline, client) == [0, 1, 2]


def ids_of(pipeline, client):
    """Receive and ack three rows; returns their ids."""
    ids = []
    for message in pipeline.messages(client):
        ids += [change.after["a"] for change in message.changes() if change.after]
        client.ack(message.id)
        if len(ids) >= 3:
            return ids
    raise AssertionError("nobody ends the messages")


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"to": "yesterday"}, 422, "is not a position"),
        ({}, 422, "to is missing"),
        ({"to": "oldest", "client": 1}, 422, "unknown fields: client"),
        ({"to": "oldest", "clients": ["a"]}, 422, "expected a list of client ids"),
        ({"to": "oldest", "clients": [77]}, 409, "77"),
        ({"to": "oldest", "dry_run": 1}, 422, "dry_run: expected true or false"),
        ([], 422, "expected a JSON object"),
        (None, 415, "Content-Type: application/json"),
    ],
)
def test_a_wrong_seek(pipeline, body, status, text):
    """What cannot be done is named, and moves nobody."""
    with pipeline.client():
        pass
    found, problem = request(pipeline.conf, f"{ONE}/seek", "POST", body=body)
    assert found == status, problem
    assert text in problem["detail"]


def test_history_of_a_table(pipeline):
    """Each statement that changed a table is there, with what it changed."""
    table = f"{pipeline.schema}.t"
    pipeline.wait_for_status(lambda status: status["state"] == "running")
    pipeline.source.execute(f"ALTER TABLE {table} ADD COLUMN b VARCHAR(10)")
    path = f"{ONE}/tables/{table}/history"

    def added():
        changes = request(pipeline.conf, path)[1].get("changes", [])
        return any("ADD COLUMN b" in each.get("sql", "") for each in changes)

    eventually(added)
    last = request(pipeline.conf, path)[1]["changes"][-1]
    assert any("b" in line and "varchar(10)" in line for line in last["lines"])
    assert table in request(pipeline.conf, f"{ONE}/tables")[1]["tables"]
    status, problem = request(pipeline.conf, f"{ONE}/tables/no.table/history")
    assert status == 404
    assert "unknown table no.table" in problem["detail"]


def test_a_table_as_it_was(pipeline):
    """It is shown before and after a change, and compared with the source."""
    table = f"{pipeline.schema}.t"
    pipeline.wait_for_status(lambda status: status["state"] == "running")
    before = "{}:{}".format(*pipeline.source.binlog_position())
    pipeline.source.execute(f"ALTER TABLE {table} ADD COLUMN b VARCHAR(10)")

    def columns(query=""):
        found = request(pipeline.conf, f"{ONE}/tables/{table}{query}")[1]
        return [each["name"] for each in found["columns"]]

    eventually(lambda: columns() == ["a", "b"])
    assert columns(f"?at={before}") == ["a"]
    status, found = request(pipeline.conf, f"{ONE}/schema?table={table}")
    assert (status, found["count"], found["next"]) == (200, 1, None)
    assert "`b` varchar(10)" in found["tables"][0]["sql"]
    path, body = f"{ONE}/schema/verify", {"tables": [f"{pipeline.schema}.*"]}
    status, found = request(pipeline.conf, path, "POST", body=body)
    assert (status, found["equal"], found["compared"]) == (200, True, 1)
    pipeline.source.execute("SET sql_log_bin = 0", f"ALTER TABLE {table} DROP COLUMN b")
    status, found = request(pipeline.conf, path, "POST", body=body)
    assert (status, found["equal"]) == (200, False)
    assert found["differing"][0]["lines"] == ["- b varchar(10)"]
    status, problem = request(pipeline.conf, path, "POST", body={"tables": ["no.such"]})
    assert status == 404
    assert "unknown table no.such" in problem["detail"]


def test_an_export_is_imported(pipeline):
    """What is sent over HTTP starts the history of another server."""
    pipeline.wait_for_status(lambda status: status["state"] == "running")
    status, found = request(pipeline.conf, f"{ONE}/schema/export")
    assert (status, found["format"]) == (200, "canal-server table history")
    file = pipeline.conf / "tables.json"
    file.write_text(json.dumps(found))
    pipeline.stop()
    conf = ("--conf", str(pipeline.conf))
    assert cli.main(["schema", "import", *conf, str(file)]) == 0
    assert cli.main(["schema", "show", *conf]) == 0


def test_ranged_subscriptions(pipeline):
    """They are listed and removed, unless a query reads them; stored ones as well."""
    path = f"{ONE}/subscriptions"
    with RangedClient("127.0.0.1", pipeline.server_port) as client:
        for name in ("lake", "old", "idle"):
            client.subscribe(DESTINATION, name, rf"{pipeline.schema}\..*")
        at = client.subscribe(DESTINATION, "lake", rf"{pipeline.schema}\..*").cursor
        pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES (1)")
        client.head(DESTINATION, "lake", at, wait_ms=30_000, query="q1")
        found = request(pipeline.conf, path)[1]["subscriptions"]
        queries = {each["name"]: each["query"] for each in found}
        assert queries == {"idle": None, "lake": "q1", "old": None}
        assert request(pipeline.conf, f"{path}/old", "DELETE") == (204, None)
        status, problem = request(pipeline.conf, f"{path}/lake", "DELETE")
        assert (status, "is read by query q1" in problem["detail"]) == (409, True)
        status, problem = request(pipeline.conf, f"{path}/old", "DELETE")
        assert (status, "it has: idle, lake" in problem["detail"]) == (404, True)
    request(pipeline.conf, f"{ONE}/stop", "POST")
    pipeline.wait_for_status(lambda status: status["life"] == "stopped")
    found = request(pipeline.conf, path)[1]
    assert (found["running"], found["runs_on"]) == (False, None)
    assert {each["name"] for each in found["subscriptions"]} == {"idle", "lake"}
    assert request(pipeline.conf, f"{path}/idle", "DELETE") == (204, None)
    conf = ("--conf", str(pipeline.conf))
    assert cli.main(["subscriptions", "remove", *conf, "--destination", DESTINATION,
                     "lake"]) == 0  # fmt: skip
    assert request(pipeline.conf, path)[1]["subscriptions"] == []
    request(pipeline.conf, f"{ONE}/start", "POST")
    pipeline.wait_for_status(lambda status: status["running"])
    assert request(pipeline.conf, path)[1]["subscriptions"] == []


def test_stored_positions(pipeline):
    """Those of a stopped destination are shown, too."""
    with pipeline.client() as client:
        pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES (1)")
        client.ack(next(pipeline.messages(client)).id)
        client.get(1)  # answered after the ack
    (running,) = request(pipeline.conf, f"{ONE}/positions")[1]["clients"]
    request(pipeline.conf, f"{ONE}/stop", "POST")
    pipeline.wait_for_status(lambda status: status["life"] == "stopped")
    found = request(pipeline.conf, f"{ONE}/positions")[1]
    assert found["running"] is False
    (stored,) = found["clients"]
    for each in (stored, running):  # without GTIDs: absent in one, empty in the other
        if not each["cursor"]["postion"].get("gtid"):
            each["cursor"]["postion"].pop("gtid", None)
    assert stored["cursor"] == running["cursor"]


def test_log_levels(pipeline):
    """With debug, batches and acks of one destination are in the log, by number."""
    path = f"{BASE}/log-levels"
    body = {"level": "debug", "destination": DESTINATION}
    status, found = request(pipeline.conf, path, "PUT", body=body)
    assert (status, found["destinations"]) == (200, {DESTINATION: "debug"})
    pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES (1)")
    with pipeline.client() as client:
        message = next(pipeline.messages(client))
        client.ack(message.id)
        client.get(1)  # answered after the ack
    pipeline.process.wait_for_log(rf"client 1001 of example: batch {message.id} of ")
    pipeline.process.wait_for_log(f"client 1001 of example acked batch {message.id}")
    default = {"level": None, "destination": DESTINATION}
    assert request(pipeline.conf, path, "PUT", body=default)[1]["destinations"] == {}
    for wrong in ({"level": "loud"}, {"level": None}, {"level": "info", "x": 1}):
        assert request(pipeline.conf, path, "PUT", body=wrong)[0] == 422
    wrong = {"level": "info", "destination": "none"}
    assert request(pipeline.conf, path, "PUT", body=wrong)[0] == 404


def test_login(pipeline, monkeypatch):
    """With a login in the settings, nothing but health checks goes without it."""
    pipeline.stop()
    password = hashlib.sha1(hashlib.sha1(b"secret").digest()).hexdigest()
    monkeypatch.setenv("CANAL_HTTP_USER", "ops")
    monkeypatch.setenv("CANAL_HTTP_PASSWD", password)
    pipeline.start()
    assert request(pipeline.conf, ONE)[0] == 401
    assert request(pipeline.conf, ONE, login="ops:wrong")[0] == 401
    assert request(pipeline.conf, ONE, login="ops:secret")[0] == 200
    assert request(pipeline.conf, "/healthz")[0] == 200


def test_a_port_in_use(make_conf, start_server):
    """The server runs without the page, and the log says which port it is."""
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        conf = make_conf(MAIN)
        server = start_server(conf, CANAL_HTTP_PORT=str(port))
        server.read_until(f"127.0.0.1:{port}: Address already in use")
        server.read_until("canal-server 0")
    assert ask(conf, "status")["http_port"] is None
