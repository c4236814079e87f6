"""Tails over real HTTP, of destinations that do not run; others are in tests/e2e."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import TYPE_CHECKING, cast

import pytest
from event_stream import EventStream
from fix_server import PATIENCE_S
from fix_store import eventually

from canal_server.errors import UnknownDestination
from canal_server.observe.readings import Reading
from canal_server.runtime.lifecycle import Deadline
from canal_server.server.request_counts import RequestCounts
from canal_server.users.audit_log import AuditLog
from canal_server.web import live_tail
from canal_server.web.web_server import WebServer

if TYPE_CHECKING:
    from canal_server.web.server_operations import Operations

TAIL = "/api/v1/destinations/one/tail"


class Server:
    """A server with a destination that runs nowhere, until it is removed."""

    def __init__(self) -> None:
        self.life: str | None = "stopped"

    def readings(self):
        """Return what is shown."""
        return [self.reading("one")]

    def received(self):
        """Return nothing: it does not run."""
        return {}

    def reading(self, destination):
        """Return what is shown of it."""
        if self.life is None or destination != "one":
            raise UnknownDestination(f"can't find destination:{destination}")
        status = {"destination": destination, "life": self.life}
        return Reading(destination, status, RequestCounts(), None)

    def tap(self, destination, expression, on_news):
        """Return none."""
        self.reading(destination)


@pytest.fixture
def server():
    """Give a server."""
    return Server()


@pytest.fixture
def web(server, tmp_path):
    """Give its HTTP port."""
    audit = AuditLog(tmp_path / "audit.jsonl")
    operations = cast("Operations", server)
    made = WebServer("127.0.0.1", 0, operations, "1.2.3", audit=audit)
    made.start()
    yield made
    made.request_stop()
    assert made.join(Deadline(PATIENCE_S))


def test_states_follow_the_destination(web, server):
    """Each state is sent once; a tail of a removed destination ends."""
    with EventStream(web.port, TAIL) as tail:
        assert tail.until("state").data["state"] == "stopped"
        for life, state in (("idle", "idle"), ("paused", "failed")):
            server.life = life
            assert tail.until("state").data["state"] == state
        server.life = None
        assert tail.until("state").data["reason"] == (
            "the destination was removed from the settings"
        )
        assert tail.next() is None
    with EventStream(web.port, TAIL) as tail:
        assert tail.problem()["status"] == 404


def test_keep_alive(web, monkeypatch):
    """While nothing changes, comments keep the connection in use."""
    monkeypatch.setattr(live_tail, "_KEEP_ALIVE_S", 0.0)
    with EventStream(web.port, TAIL) as tail:
        tail.until("state")
        assert tail.next() == tail.next() == ("", None)


def test_the_end_of_the_server(web):
    """It is the last event; the answer is complete."""
    with EventStream(web.port, TAIL) as tail:
        tail.next()
        web.request_stop()
        assert tail.until_state("stopping")["reason"] == "the server is shutting down"
        assert tail.next() is None


def test_the_audit(web, tmp_path):
    """It has the beginning and the end of a tail, and not of one that is refused."""
    with EventStream(web.port, TAIL) as tail:
        tail.next()
    with EventStream(web.port, TAIL.replace("one", "two")) as tail:
        assert tail.problem()["status"] == 404

    def events():
        lines = (tmp_path / "audit.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    eventually(lambda: len(events()) == 2)
    started, ended = events()
    common = {"user": None, "destination": "one"}
    assert started.items() >= (common | {"event": "tail"}).items()
    assert ended.items() >= (common | {"event": "tail_end", "rows": 0}).items()
    assert started["address"] == ended["address"]
    assert started["filter"] == ended["filter"]


def test_head(web):
    """A request of the header alone ends, and opens no tail."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=PATIENCE_S)
    with closing(connection):
        for _ in range(live_tail.TAILS_MAX + 1):
            connection.request("HEAD", TAIL)
            answer = connection.getresponse()
            assert answer.read() == b""
            assert answer.status == 200
            assert answer.headers.get_content_type() == "text/event-stream"
