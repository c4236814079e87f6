"""Texts that say where a server is."""

from __future__ import annotations

import pytest

from canal_server.client.connection.server_addresses import (
    Address,
    parse_addresses,
    zookeeper_servers,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("db1", [("db1", 7)]),
        ("10.0.0.1:11111", [("10.0.0.1", 11111)]),
        ("a:1, b ,c:3", [("a", 1), ("b", 7), ("c", 3)]),
        ("[::1]:5", [("::1", 5)]),
        ("[::1]", [("::1", 7)]),
        ("2001:db8::1", [("2001:db8::1", 7)]),
        ("fe80::1%eth0", [("fe80::1%eth0", 7)]),
    ],
)
def test_addresses(text, expected):
    """Names, IPv4, IPv6 and lists are read, with a default for the port."""
    assert [(a.host, a.port) for a in parse_addresses(text, 7)] == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "host = ''"),
        ("a,,b", "host = ''"),
        ("a:", "host = 'a:'"),
        ("a:x", "host = 'a:x'"),
        ("a:99999", "port = 99999: expected 1 to 65535"),
        ("a:0", "port = 0"),
        ("[::1", "expected a name or address"),
        ("[::1]5", "expected a name or address"),
        ("http://a", "expected a name or address"),
        ("a:1:2", "host = 'a:1:2'"),
        ("a b", "expected a name or address"),
        ("a:1,a:1", "an address occurs twice"),
    ],
)
def test_invalid(text, problem):
    """What is no address is named, with the forms that are."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # matched below
        parse_addresses(text, 7)
    assert problem in str(caught.value)


def test_zookeeper():
    """`zk://` names ZooKeeper's servers, with a chroot; others are addresses."""
    assert zookeeper_servers("zk://a:1,b:2/prod/") == "a:1,b:2/prod"
    assert zookeeper_servers("ZK://a:1") == "a:1"
    assert zookeeper_servers("a:1") is None
    with pytest.raises(ValueError, match="expected zk://"):
        zookeeper_servers("zk://a:1,,b:2")


def test_text_of_an_address():
    """An address is written so that it can be read again."""
    for address in (Address("db1", 5), Address("::1", 5)):
        assert parse_addresses(str(address), 7) == (address,)
