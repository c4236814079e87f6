"""Whom the HTTP port takes a peer for, on a real socket."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, cast

import pytest
from fix_server import PATIENCE_S
from web_operations import NotedServer

from canal_server.protocol.auth import stored_form
from canal_server.runtime.lifecycle import Deadline
from canal_server.users.audit_log import AuditLog
from canal_server.web.access_rules import Login
from canal_server.web.web_server import WebServer

if TYPE_CHECKING:
    from canal_server.web.server_operations import Operations


@pytest.fixture
def audit(tmp_path):
    """Give the path of the audit file."""
    return tmp_path / "audit.jsonl"


@pytest.fixture
def port(audit):
    """Give a port with a log-in."""
    server = WebServer(
        "127.0.0.1",
        0,
        cast("Operations", NotedServer()),
        "1",
        Login("ops", stored_form("secret")),
        audit=AuditLog(audit),
    )
    server.start()
    yield server.port
    server.request_stop()
    assert server.join(Deadline(PATIENCE_S))


def status(port: int, password: str, **headers: str) -> int:
    """Return how a request with a log-in is answered."""
    login = base64.b64encode(f"ops:{password}".encode()).decode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1/destinations",
        headers={"Authorization": f"Basic {login}", **headers},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded"])
def test_a_peer_does_not_choose_its_address(port, audit, name):
    """The address is that of the connection, whatever a peer on this host claims."""
    value = "for=198.51.100.7" if name == "Forwarded" else "198.51.100.7"
    assert status(port, "wrong", **{name: value, "X-Forwarded-Proto": "https"}) == 401
    noted = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [each["event"] for each in noted] == ["login_refused"]
    assert noted[0]["address"].startswith("127.0.0.1:")
