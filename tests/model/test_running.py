"""The content of the node `running`."""

from __future__ import annotations

import pytest

from canal_server.model.running import Running, decode

RECORDED = b'{"active":true,"address":"127.0.0.1:21111"}'  # of the Java server


def test_as_the_original():
    """It is written byte by byte as the Java server does, and read."""
    assert Running("127.0.0.1:21111").encode() == RECORDED
    assert decode(RECORDED) == Running("127.0.0.1:21111")
    given_up = Running("127.0.0.1:21111", active=False)
    assert decode(given_up.encode()) == given_up


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"active":true,"address":"a:1","cid":1,"x":{}}', Running("a:1")),
        (b'{"address":"a:1"}', Running("a:1")),
        (b'{"active":null,"address":"a:1"}', Running("a:1")),
        (b' { "address" : "a:1", "active" : false } ', Running("a:1", active=False)),
        (None, None),
        (b"", None),
        (b"null", None),
        (b"{}", None),
        (b"[1]", None),
        (b"[" * 200_000, None),
        (b'"a:1"', None),
        (b"\xff", None),
    ],
)
def test_what_others_write(data, expected):
    """Unknown fields are ignored; content without an address names no server."""
    assert decode(data) == expected
