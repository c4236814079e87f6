"""The address that clients get."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from canal_server.config.schema import ServerConfig
from canal_server.errors import ConfigError
from canal_server.ha.address import registered_ip


@pytest.mark.parametrize(
    ("ip", "register_ip", "expected"),
    [
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.2", "10.0.0.2"),
        ("", "10.0.0.2", "10.0.0.2"),
        ("::1", "db.example", "db.example"),
        ("127.0.0.1", "", "127.0.0.1"),
    ],
)
def test_configured(ip, register_ip, expected):
    """The address to register takes precedence, then the one that is listened on."""
    assert registered_ip(ServerConfig(ip=ip, register_ip=register_ip)) == expected


@pytest.mark.parametrize("ip", ["", "0.0.0.0", "::"])
def test_found(ip):
    """A server that listens on all addresses registers one of this host."""
    found = registered_ip(ServerConfig(ip=ip))
    assert ipaddress.ip_address(found).version == 4
    with socket.create_server((found, 0)):
        pass


@pytest.mark.parametrize(
    ("ip", "register_ip", "key"),
    [("::1", "", "canal.ip"), ("", "fe80::1", "canal.register.ip")],
)
def test_ipv6_is_refused(ip, register_ip, key):
    """Clients could not read it; the error has the remedy."""
    with pytest.raises(ConfigError, match=rf"^{key} = .* set canal.register.ip to"):
        registered_ip(ServerConfig(ip=ip, register_ip=register_ip))
