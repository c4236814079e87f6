"""Where a client finds its server: addresses, or the ZooKeeper of a cluster.

db1                             port: that of the client
10.0.0.1:11111,10.0.0.2         several, tried in this order
[2001:db8::1]:11111             IPv6
zk://zk1:2181,zk2:2181/prod     the server that runs the destination
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Final

ZOOKEEPER_SCHEME: Final = "zk://"
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """One server."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def zookeeper_servers(text: str) -> str | None:
    """Return the servers of ZooKeeper, with chroot, that `zk://…` names; else None.

    Raises ValueError if it names none.
    """
    if not text.lower().startswith(ZOOKEEPER_SCHEME):
        return None
    servers = text[len(ZOOKEEPER_SCHEME) :].rstrip("/")
    hosts = servers.partition("/")[0].split(",")
    if not all(hosts):
        raise ValueError(
            f"host = {text!r}: expected zk://host:port[,host:port…][/path]"
        )
    return servers


def parse_addresses(text: str, port: int) -> tuple[Address, ...]:
    """Return the addresses in a text; raises ValueError."""
    found = tuple(parse_address(each.strip(), port) for each in text.split(","))
    if len(set(found)) < len(found):
        raise ValueError(f"host = {text!r}: an address occurs twice")
    return found


def parse_address(text: str, port: int) -> Address:
    """Return the address in a text such as `host`, `host:port`, `[::1]:port`.

    `port` is for a text without one. Raises ValueError.
    """
    host, given = text, ""
    if text.startswith("["):
        host, bracket, given = text[1:].partition("]")
        if not bracket or given[:1] not in {"", ":"}:
            raise _invalid(text)
        given = given[1:]
    elif text.count(":") == 1:
        host, _, given = text.partition(":")
        if not given:
            raise _invalid(text)
    if not host or any(mark in host for mark in "/[] \t"):
        raise _invalid(text)
    if ":" in host and not _is_ipv6(host):
        raise _invalid(text)
    if given:
        if not (given.isascii() and given.isdigit()) or len(given) > len("65535"):
            raise _invalid(text)
        port = int(given)
    if not 0 < port <= _PORT_MAX:
        raise ValueError(f"port = {port}: expected 1 to {_PORT_MAX}")
    return Address(host, port)


def _is_ipv6(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, host.partition("%")[0])  # without its zone
    except OSError:
        return False
    return True


def _invalid(text: str) -> ValueError:
    return ValueError(
        f"host = {text!r}: expected a name or address such as db1, 10.0.0.1:11111,"
        " [::1]:11111, several of them separated by commas, or zk://host:2181"
    )
