"""Ports for HTTP that anybody may use who reaches them."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal_server.config.open_ports import (
    metrics_address,
    metrics_are_open,
    page_is_open,
)
from canal_server.config.schema import ServerConfig

USERS = Path("users.yml")
OTHERS = ["0.0.0.0", "::", "192.0.2.1", "db.example"]


@pytest.mark.parametrize("ip", [*OTHERS, ""])
@pytest.mark.parametrize(
    ("more", "is_open"),
    [
        ({}, True),
        ({"user": "a", "passwd": "b"}, True),  # of clients
        ({"http_user": "a", "http_passwd": "b"}, False),
        ({"users_file": USERS}, False),
        ({"anonymous": True}, False),
        ({"http_port": -1}, False),
    ],
)
def test_the_page(ip, more, is_open):
    """It is open beyond the loopback interface without a login of its own."""
    assert page_is_open(ServerConfig(http_ip=ip, **more)) is is_open
    assert not page_is_open(ServerConfig(http_ip="127.0.0.1", **more))


@pytest.mark.parametrize("ip", OTHERS)
@pytest.mark.parametrize("key", ["metrics_ip", "ip"])
@pytest.mark.parametrize(
    ("more", "is_open"),
    [
        ({}, True),
        ({"user": "a", "passwd": "b"}, True),
        ({"http_user": "a", "http_passwd": "b"}, True),
        ({"users_file": USERS}, False),
        ({"anonymous": True}, False),
        ({"metrics_port": -1}, False),
    ],
)
def test_metrics(ip, key, more, is_open):
    """They are open there without users, also where they follow `canal.ip`."""
    server = ServerConfig(**{key: ip}, **more)
    assert metrics_address(server) == ip
    assert metrics_are_open(server) is is_open
    assert not metrics_are_open(ServerConfig(ip=ip, metrics_ip="localhost", **more))


def test_a_folder_of_the_java_server():
    """An empty `canal.ip` opens neither of them to others."""
    server = ServerConfig(ip="")
    assert not page_is_open(server)
    assert not metrics_are_open(server)
