"""Texts become values."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal_server.config import values
from canal_server.config.schema import Action, BatchMode, HostPort, NamedEvent, SslMode

size = values.power_of_two(1024)
number = values.integer(-1, 10, "seconds")
formats = values.names("ROW", "MIXED")


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (values.boolean, "true", True),
        (values.boolean, "ON", True),
        (values.boolean, "Yes", True),
        (values.boolean, "1", True),
        (values.boolean, "off", False),
        (values.boolean, "no", False),
        (values.boolean, "0", False),
        (values.opposite, "true", False),
        (number, "-1", -1),
        (number, "010", 10),
        (values.seconds(1, 9), "5", 5.0),
        (size, "2", 2),
        (size, "1024", 1024),
        (values.address, "127.0.0.1:3306", HostPort("127.0.0.1", 3306)),
        (values.address, "db.example.org", HostPort("db.example.org", 3306)),
        (values.address, "[::1]:3307", HostPort("::1", 3307)),
        (values.address, "[::1]", HostPort("::1", 3306)),
        (values.address, "my_db-1.example", HostPort("my_db-1.example", 3306)),
        (values.host, "0.0.0.0", "0.0.0.0"),
        (values.host, "::1", "::1"),
        (values.host, "my_host-1.example", "my_host-1.example"),
        (formats, "ROW, mixed,", ("ROW", "MIXED")),
        (values.batch_mode, "itemsize", BatchMode.ITEMSIZE),
        (values.ssl_mode, "verify_ca", SslMode.VERIFY_CA),
        (values.charset, "UTF-8", "utf-8"),
        (values.charset, "utf8mb4", "utf-8"),
        (values.charset, "GBK", "gbk"),
        (values.charset, "windows-31j", "cp932"),
        (values.folder, "../conf", Path("../conf")),
        (values.password_hash, "*" + "AB" * 20, "ab" * 20),
        (
            values.web_url,
            "https://a.example:8443/x?y=z",
            "https://a.example:8443/x?y=z",
        ),
        (values.command, "/bin/page 'the team'", "/bin/page 'the team'"),
        (
            values.named_events,
            "binlog.000003:4711=skip, mysql-bin.000004:99=raw",
            (
                NamedEvent("binlog.000003", 4711, Action.SKIP),
                NamedEvent("mysql-bin.000004", 99, Action.RAW),
            ),
        ),
    ],
)
def test_usable(read, text, value):
    """A usable text becomes this value."""
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "wrong"),
    [
        (values.boolean, "maybe", "write true or false"),
        (number, "11", "write -1 to 10 seconds"),
        (number, "1_0", "not a whole number of seconds"),
        (number, "٣", "not a whole number"),
        (number, "9" * 5000, "not a whole number"),
        (size, "1000", "write 512 or 1024"),
        (size, "1025", "out of range"),
        (size, "1", "out of range"),
        (values.address, "a:b:c", "write host:port"),
        (values.address, "a:1,b:2", "contains several servers"),
        (values.address, "a,b", "contains several servers"),
        (values.address, "a:1;b:2", "contains several servers"),
        (values.address, "[::1]:1,[::2]:1", "contains several servers"),
        (values.address, "jdbc:mysql://a:1", "write host:port"),
        (values.address, "u@a:1", "write host:port"),
        (values.address, "::1:3306", r"write host:port, or \[::1\]:port"),
        (values.address, "a:", "write host:port"),
        (values.address, ":3306", "write host:port"),
        (values.address, "a:-1", "write host:port"),
        (values.address, "a:65536", "port out of range"),
        (values.host, "10.0.0.1,10.0.0.2", "one name or IP"),
        (values.host, "10.0.0.1:11111", "one name or IP"),
        (values.host, "a b", "one name or IP"),
        (values.address, "a:0", "port out of range"),
        (values.address, "a:99999999999", "port out of range"),
        (values.address, "[x]:1", "not an IPv6 address"),
        (formats, "ROWS", "choose from ROW, MIXED"),
        (values.batch_mode, "x", "MEMSIZE or ITEMSIZE"),
        (values.ssl_mode, "on", "VERIFY_IDENTITY"),
        (values.charset, "rot13", "unknown character set"),
        (values.charset, "zip", "unknown character set"),
        (values.charset, "klingon", "unknown character set"),
        (values.folder, "a\0b", "NUL character"),
        (values.password_hash, "canal", "40 hexadecimal digits"),
        (values.named_events, "binlog.000003:4711", "'binlog.000003:4711' is not"),
        (values.named_events, "binlog.000003:x=skip", "write file:position=skip"),
        (values.named_events, "binlog.000003:4=drop", "=skip or =raw"),
        (values.named_events, "4711=skip", "is not an event"),
        (values.named_events, "b.1:4=skip,", "'' is not an event"),
        (values.named_events, "b.1:4=skip,b.1:4=raw", "b.1:4 is given twice"),
    ],
)
def test_unusable(read, text, wrong):
    """An unusable text is refused with a remedy."""
    with pytest.raises(ValueError, match=wrong):
        read(text)


@pytest.mark.parametrize("text", ["db:1", "[::1]:3306"])
def test_addresses_round_trip(text):
    """The text of an address reads back as the same address."""
    assert str(values.address(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("z", "z"),
        ("z1:2181, [::1]:2182", "z1:2181,[::1]:2182"),
        ("a:1,b:2/x/y", "a:1,b:2/x/y"),
        ("a:1 , b:2 ; c:3", "a:1,b:2,c:3"),
        ("a/x;b/x", "a,b/x"),
        ("a/", "a"),
    ],
)
def test_zookeeper_servers(text, expected):
    """Lists of servers become one list, with the path that all of them have."""
    assert values.zookeeper_servers(text) == expected


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a b", "write host:2181,host:2181"),
        ("a:x", "not a list of servers"),
        ("a,,b", "not a list of servers"),
        ("a;", "not a list of servers"),
        ("http://a", "not a list of servers"),
        ("a//x", "not a node path"),
        ("a/x/", "not a node path"),
        ("a/x;b/y", "different paths"),
        ("a/x;b", "different paths"),
    ],
)
def test_unusable_zookeeper_servers(text, wrong):
    """What kazoo would choke on is refused with a remedy."""
    with pytest.raises(ValueError, match=wrong):
        values.zookeeper_servers(text)
