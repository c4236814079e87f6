"""The part of the REST interface about tables: parameters, bodies, limits, audit."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request

import pytest
from fix_server import PATIENCE_S
from starlette.testclient import TestClient
from web_operations import NotedServer

from canal_server.model.positions import EntryPosition
from canal_server.runtime.lifecycle import Deadline
from canal_server.users.audit_log import AuditLog
from canal_server.web import schema_api
from canal_server.web.access_rules import AccessRules
from canal_server.web.throughput import Throughput
from canal_server.web.web_server import WebServer, application

ONE = "/api/v1/destinations/one"


@pytest.fixture
def server():
    """Give a server."""
    return NotedServer()


@pytest.fixture
def http(server, tmp_path):
    """Give a client of its HTTP port, which writes an audit."""
    rules = AccessRules("127.0.0.1", None)
    audit = AuditLog(tmp_path / "audit.jsonl")
    throughput = Throughput(server.received)
    app = application(server, throughput, rules, "1", audit=audit)
    return TestClient(app, "http://127.0.0.1:11113", raise_server_exceptions=False)


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/tables/s.t", {"at": None, "source": None}),
        (
            "/tables/s.t?at=binlog.000003:4711&source=master1",
            {"at": EntryPosition("binlog.000003", 4711), "source": "master1"},
        ),
        ("/tables/s.t?at=2025-11-21T10:00:00Z", {"at": 1763719200000, "source": None}),
        (
            "/schema?table=a.b&table=c.*&all=true&offset=7&limit=9",
            {
                "at": None,
                "source": None,
                "tables": ["a.b", "c.*"],
                "all_": True,
                "offset": 7,
                "limit": 9,
            },
        ),
    ],
)
def test_parameters(http, path, asked):
    """They are passed on as what they mean."""
    answer = http.get(f"{ONE}{path}")
    assert answer.status_code == 200
    assert answer.json()["asked"] == repr(asked)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/tables?at=x", "unknown parameters: at"),
        ("/tables/s.t?at=yesterday", "at: expected a position such as"),
        ("/tables/s.t?at=2025-11-21T10:00:00", "at: 2025-11-21T10:00:00: a time zone"),
        ("/tables/s.t/history?since=binlog.000003:4", "since: binlog.000003:4: exp"),
        ("/schema?all=yes", "all: expected true or false"),
        ("/schema?format=xml", "format: expected json or sql"),
        ("/schema?limit=0", "limit: expected a number from 1 to 1000"),
        ("/schema?limit=1001", "limit: expected a number from 1 to 1000"),
        (f"/schema?offset={'9' * 5000}", "offset: expected a number"),
        ("/schema/export?table=x", "unknown parameters: table"),
    ],
)
def test_wrong_parameters(http, path, text):
    """Each is named, with what is expected."""
    answer = http.get(f"{ONE}{path}")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert text in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"table": "x"}, "unknown fields: table"),
        ({"tables": "x"}, "tables: expected a list of strings"),
        ({"tables": [1]}, "tables: expected a list of strings"),
        ({"source": 1}, "source: expected a string"),
    ],
)
def test_wrong_bodies(http, server, body, text):
    """Nothing is compared then."""
    answer = http.post(f"{ONE}/schema/verify", json=body)
    assert answer.status_code == 422
    assert text in answer.json()["detail"]
    assert server.asked == []


def test_the_audit(http, tmp_path):
    """It has who took all tables away, and who asked the source."""
    assert http.get(f"{ONE}/schema/export").status_code == 200
    body = {"tables": ["s.t"], "source": "master1"}
    assert http.post(f"{ONE}/schema/verify", json=body).json() == {"equal": True}
    assert http.get(f"{ONE}/schema").status_code == 200
    assert http.delete(f"{ONE}/subscriptions/lake").status_code == 204
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    noted = [json.loads(each) for each in lines]
    assert [(each["event"], each["destination"]) for each in noted] == [
        ("schema_export", "one"),
        ("schema_verify", "one"),
        ("range_unsubscribe", "one"),
    ]
    assert noted[-1]["subscription"] == "lake"


def test_files_are_not_pages(http):
    """No browser takes the text of a table for a page of this site."""
    for path in ("/schema?format=sql", "/schema/export"):
        headers = http.get(f"{ONE}{path}").headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "html" not in headers["content-type"]


@pytest.fixture
def port(server, monkeypatch):
    """Give a real port of it, where a comparison may take half a second."""
    monkeypatch.setattr(schema_api, "VERIFY_S", 0.5)
    web = WebServer("127.0.0.1", 0, server, "1")
    web.start()
    yield web.port
    web.request_stop()
    assert web.join(Deadline(PATIENCE_S))


def request(port, path, body=None):
    """Send a request; returns its status and content."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if body is not None:
        asked.add_header("Content-Type", "application/json")
        asked.data = json.dumps(body).encode()
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_source_that_does_not_answer(port, server):
    """Others are answered meanwhile; after the limit, so is who asked."""
    asked, stopped = threading.Event(), threading.Event()

    def hang(destination, *, tables, source, stop):
        asked.set()
        if stop.wait(PATIENCE_S):
            stopped.set()

    server.verify = hang
    found = []
    verifying = threading.Thread(
        target=lambda: found.append(request(port, f"{ONE}/schema/verify", {}))
    )
    verifying.start()
    assert asked.wait(PATIENCE_S)
    assert request(port, ONE)[0] == 200
    assert request(port, f"{ONE}/schema")[0] == 200
    verifying.join()
    status, problem = found[0]
    assert status == 504
    assert "comparison with the source did not end within 0.5 s" in problem["detail"]
    assert stopped.wait(PATIENCE_S)


def test_the_end_of_the_server(server):
    """It does not wait for a source, and asks the comparison to stop."""
    asked, stopped = threading.Event(), threading.Event()

    def hang(destination, *, tables, source, stop):
        asked.set()
        if stop.wait(PATIENCE_S):
            stopped.set()

    server.verify = hang
    web = WebServer("127.0.0.1", 0, server, "1")
    web.start()

    def verify():
        with contextlib.suppress(OSError, ValueError):  # the connection ends
            request(web.port, f"{ONE}/schema/verify", {})

    verifying = threading.Thread(target=verify)
    verifying.start()
    assert asked.wait(PATIENCE_S)
    web.request_stop()
    assert web.join(Deadline(PATIENCE_S))
    assert stopped.wait(PATIENCE_S)
    verifying.join()
