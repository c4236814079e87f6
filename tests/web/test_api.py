"""The REST interface: answers, refusals, and that its description is true."""

from __future__ import annotations

import socket
import threading

import pytest
from fix_store import eventually
from jsonschema import validate  # type: ignore[import-untyped]
from openapi_spec_validator import validate as validate_document
from starlette.testclient import TestClient
from web_operations import NotedServer

from canal_server.errors import UnknownDestination
from canal_server.web import api
from canal_server.web.access_rules import AccessRules
from canal_server.web.throughput import Throughput
from canal_server.web.web_server import application

BASE = "/api/v1"


@pytest.fixture
def server():
    """Give a server."""
    return NotedServer()


@pytest.fixture
def http(server):
    """Give a client of its HTTP port."""
    rules = AccessRules("127.0.0.1", None)
    app = application(server, Throughput(server.received), rules, "1.2.3")
    return TestClient(app, "http://127.0.0.1:11113", raise_server_exceptions=False)


def problem_of(answer) -> str:
    """Return what is wrong by an answer, which has the form of RFC 9457."""
    assert answer.headers["content-type"] == "application/problem+json"
    content = answer.json()
    assert content["status"] == answer.status_code
    assert content["title"]
    return str(content["detail"])


def test_health(http, server):
    """A process is alive; it is ready if what should run here does."""
    server.lives = {"one": "idle", "two": "stopped", "three": "competing"}
    assert http.get("/healthz").status_code == 200
    answer = http.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")
    # It retries; it ended with an internal error.
    for life in ("paused", "ended"):
        server.lives["four"] = life
        answer = http.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["destinations"]["four"] == "failed"


def test_a_delivery_that_has_stopped(server, http):
    """The server is ready nevertheless; the answer, and the destination's, say it."""
    server.deliveries["one"] = {"queue": "kafka at k:9092", "state": "stopped"}
    answer = http.get("/readyz")
    assert (answer.status_code, answer.json()["delivery"]) == (200, {"one": "stopped"})
    one = http.get(f"{BASE}/destinations/one").json()
    assert one["delivery"]["state"] == "stopped"


def test_destinations(http):
    """The list has all of them, and whether actions are allowed."""
    found = http.get(f"{BASE}/destinations").json()
    assert (found["version"], found["allows_actions"]) == ("1.2.3", True)
    assert found["host"] == socket.gethostname()
    names = [each["destination"] for each in found["destinations"]]
    assert names == ["one", "two"]
    assert found["destinations"][1]["state"] == "idle"


@pytest.mark.parametrize(
    ("method", "path", "status", "asked"),
    [
        ("POST", "one/stop", 202, ("stop", "one")),
        ("POST", "one/start", 202, ("start", "one")),
        ("DELETE", "one/clients/1001", 204, ("unsubscribe", "one", 1001)),
        ("DELETE", "one/subscriptions/lake.1", 204, ("remove", "one", "lake.1")),
    ],
)
def test_actions(http, server, method, path, status, asked):  # noqa: PLR0917  # a table
    """Actions are passed on."""
    answer = http.request(method, f"{BASE}/destinations/{path}")
    assert answer.status_code == status
    assert server.asked == [asked]


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/destinations/none", 404, "can't find destination:none"),
        ("GET", "/destinations/none/positions", 404, "can't find destination:none"),
        ("POST", "/destinations/none/stop", 404, "can't find destination:none"),
        ("DELETE", "/destinations/one/clients/7", 404, "client 7 is not subscribed"),
        ("DELETE", "/destinations/one/clients/x", 404, ""),
        ("GET", "/destinations/one/stop", 405, ""),
        ("GET", "/nothing", 404, ""),
    ],
)
def test_refusals(http, server, method, path, status, text):  # noqa: PLR0917  # a table
    """Each refusal is a problem with its reason; nothing was done."""
    answer = http.request(method, f"{BASE}{path}")
    assert answer.status_code == status
    assert text in problem_of(answer)
    assert server.asked == []


def seek(http, **body):
    """Ask for a move of clients."""
    return http.post(f"{BASE}/destinations/one/seek", json={"to": "latest", **body})


def test_seek(http, server):
    """A plan is carried out, unless only that is asked for."""
    assert seek(http, dry_run=True).json()["moved"] is False
    assert server.asked == [("plan", "one", None)]
    assert seek(http, clients=[7]).json()["moved"] is True
    assert server.asked[1:] == [("plan", "one", (7,)), ("move", "one")]


def test_a_seek_that_takes_long(http, server, monkeypatch):
    """It is answered within a limit, and delays no other answer.

    A plan that is late is not carried out: nobody waits for it.
    """
    goes_on = threading.Event()
    server.before_plan = goes_on.wait
    monkeypatch.setattr(api, "SEEK_S", 0.2)
    rules = AccessRules("127.0.0.1", None)
    app = application(server, Throughput(server.received), rules, "1.2.3")
    with TestClient(app, "http://127.0.0.1:11113") as slow:
        answer = seek(slow)
        assert answer.status_code == 504
        assert "moving clients did not end within 0.2 s" in problem_of(answer)
        assert slow.get(f"{BASE}/destinations").status_code == 200
        goes_on.set()
        eventually(lambda: ("plan", "one", None) in server.asked)
        assert seek(slow, dry_run=True).status_code == 200
    assert ("move", "one") not in server.asked


def test_text_without_utf8(http, server):
    """JSON may have half a surrogate pair; the refusal that quotes it is sent."""
    server.set_log_level = refuse_level
    answer = http.put(
        f"{BASE}/log-levels",
        content=b'{"level": "info", "destination": "\\ud800"}',
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 404
    assert problem_of(answer) == "can't find destination:\\ud800"


def refuse_level(_, destination):
    """Know no destination."""
    raise UnknownDestination(f"can't find destination:{destination}")


def test_a_fault(http, server, caplog):
    """An error of ours is logged, and its text is not shown."""
    server.fails = RuntimeError("a secret of the code")
    answer = http.get(f"{BASE}/status")
    assert answer.status_code == 500
    assert "secret" not in problem_of(answer)
    assert "cannot answer the HTTP request /api/v1/status" in caplog.text
    assert "a secret of the code" in caplog.text


def test_other_hosts_are_refused(http):
    """The rules are asked before an endpoint is; health checks are always answered."""
    headers = {"host": "attacker.example"}
    assert http.get(f"{BASE}/status", headers=headers).status_code == 421
    assert http.get("/", headers=headers).status_code == 421
    assert http.get("/healthz", headers=headers).status_code == 200


def test_description(http):
    """The description is valid, has every route, and answers are as it says."""
    document = http.get(f"{BASE}/openapi.json").json()
    validate_document(document)
    described = {
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
    }
    assert described == set(routes_of(http.app.routes))
    for path in ("/healthz", "/readyz", f"{BASE}/destinations", f"{BASE}/clusters"):
        answer = http.get(path)
        content = document["paths"][path]["get"]["responses"]["200"]["content"]
        schema = content["application/json"]["schema"]
        validate(answer.json(), {**schema, "components": document["components"]})
    one = http.get(f"{BASE}/destinations/one").json()
    schema = document["components"]["schemas"]["Destination"]
    validate(one, {**schema, "components": document["components"]})


def routes_of(routes, base=""):
    """Yield the method and the path of each route of the interface."""
    for route in routes:
        path = base + route.path.replace(":int", "")
        if hasattr(route, "routes"):
            yield from routes_of(route.routes, path)
        elif path.startswith("/api") or path in {"/healthz", "/readyz"}:
            for method in route.methods - {"HEAD"}:
                yield method, path


def test_the_page(http):
    """The page and its files are answered with their types."""
    for path, kind in (
        ("/", "html"),
        ("/page.css", "css"),
        ("/page.js", "javascript"),
        ("/clients.js", "javascript"),
        ("/cluster.js", "javascript"),
        ("/elements.js", "javascript"),
        ("/messages.html", "html"),
        ("/tail.js", "javascript"),
    ):
        answer = http.get(path)
        assert answer.status_code == 200
        assert kind in answer.headers["content-type"]
        assert answer.headers["x-content-type-options"] == "nosniff"
