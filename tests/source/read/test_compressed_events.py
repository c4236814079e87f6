"""Compressed events inflate up to their announced size, or are refused."""

from __future__ import annotations

import contextlib
import zlib
from typing import TYPE_CHECKING

import binlog_bytes as b
import pytest
import zstandard

from canal_server.errors import DecodeError
from canal_server.source.read.compressed_events import (
    UNCOMPRESSED,
    ZSTD,
    compressed_event,
    payload_of,
)

if TYPE_CHECKING:
    import random

BYTES_MAX = 1 << 30
QUERY_HEAD = b.query_body(b"", b"db")


def inflated_query(body: bytes) -> bytes:
    """Return the plain body of a compressed statement."""
    event = compressed_event(b.QUERY_COMPRESSED, memoryview(body), BYTES_MAX)
    assert event.kind == b.QUERY
    return b"".join(event.pieces())


def inflated_rows(body: bytes, *, second_version: bool, update: bool) -> bytes:
    """Return the plain body of a compressed row event."""
    kind = b.WRITE_ROWS_COMPRESSED + 3 * second_version + update
    event = compressed_event(kind, memoryview(body), BYTES_MAX)
    assert event.kind == (b.WRITE_ROWS if second_version else b.WRITE_ROWS_V1) + update
    return b"".join(event.pieces())


def deflated(data: bytes, *, length: int | None = None, size: int = 1) -> bytes:
    """Return data as MariaDB compresses the tail of an event."""
    length_stated = len(data) if length is None else length
    return (
        bytes((0x80 | size,))
        + length_stated.to_bytes(size, "big")
        + zlib.compress(data)
    )


def test_inflating() -> None:
    """Data is restored, whatever the width of its length."""
    for size, data in ((1, b"x" * 200), (2, b"y" * 40_000), (3, b""), (4, b"z")):
        assert (
            inflated_query(QUERY_HEAD + deflated(data, size=size)) == QUERY_HEAD + data
        )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "unknown compression algorithm"),
        (b"\x91\1x", "unknown compression algorithm"),
        (b"\0\1x", "unknown compression algorithm"),
        (deflated(b"abc", length=2), "inflates to more than 2 bytes"),
        (deflated(b"abc", length=4), "inflates to 3 bytes, expected 4"),
        (deflated(bytes(range(99)))[:-30], "inflates to 74 bytes, expected 99"),
        (deflated(b"abc")[:-1], "is truncated"),
        (b"\x81\3nonsense", "cannot be inflated"),
        (
            deflated(b"a", length=1 << 31, size=4),
            "above canal.instance.event.bytes.max = 1073741824",
        ),
    ],
)
def test_broken_compression(data: bytes, message: str) -> None:
    """Inconsistent compressed data is refused with the reason."""
    with pytest.raises(DecodeError, match=message):
        inflated_query(QUERY_HEAD + data)


def test_inflating_is_bounded() -> None:
    """A few bytes that inflate to very many inflate only up to the announced size."""
    bomb = zlib.compress(bytes(50_000_000))
    with pytest.raises(DecodeError, match="inflates to more than 10 bytes"):
        inflated_query(QUERY_HEAD + b"\x81\x0a" + bomb)


def test_compressed_statements() -> None:
    """What precedes the text is unchanged."""
    plain = b.query_body(b"CREATE TABLE t (a INT)", b"db")
    head = plain[: -len(b"CREATE TABLE t (a INT)")]
    assert inflated_query(head + deflated(b"CREATE TABLE t (a INT)")) == plain


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("update", [False, True])
def test_compressed_rows(version: int, *, update: bool) -> None:
    """What precedes the rows is unchanged, in both versions of row events."""
    rows = b.int_row(*range(20)) * (2 if update else 1)
    images = 2 if update else 1
    head = b.rows_body(20, b"", version=version, images=images)
    found = inflated_rows(
        head + deflated(rows), second_version=version == 2, update=update
    )
    assert found == head + rows


def test_compressed_events_cut_anywhere() -> None:
    """A truncated compressed event is refused."""
    head = b.query_body(b"", b"db")
    whole = head + deflated(b"x" * 50)
    for cut in range(len(whole)):
        with pytest.raises(DecodeError):
            inflated_query(whole[:cut])
    head = b.rows_body(20, b"", images=2)
    whole = head + deflated(b"x" * 50)
    for cut in range(len(whole)):
        with pytest.raises(DecodeError):
            inflated_rows(whole[:cut], second_version=True, update=True)


def test_payloads() -> None:
    """Algorithm, size and data are found among the fields; unknown ones are skipped."""
    body = b.payload_body(b"data", algorithm=255, size=4)
    for each in (body, b"\x09\3abc" + body):
        found = payload_of(memoryview(each))
        assert (found.algorithm, found.size) == (UNCOMPRESSED, 4)
        assert b"".join(found.pieces()) == b"data"
    found = payload_of(memoryview(b"\0data"))
    assert (found.algorithm, found.size, bytes(found.data)) == (ZSTD, None, b"data")


def test_payloads_are_inflated_up_to_their_size() -> None:
    """A payload that inflates to more than its announced size is refused midway."""
    data = zstandard.compress(bytes(10_000_000))
    payload = payload_of(memoryview(b.payload_body(data, algorithm=ZSTD, size=300_000)))
    given: list[int] = []
    with pytest.raises(DecodeError, match="inflates to more than 300000 bytes"):
        given.extend(map(len, payload.pieces()))
    assert sum(given) <= 300_000


def test_payloads_cut_anywhere() -> None:
    """A payload with truncated fields is refused."""
    body = b.payload_body(b"", algorithm=0, size=300)
    for cut in range(len(body)):
        with pytest.raises(DecodeError, match="payload"):
            payload_of(memoryview(body[:cut]))


def test_any_bytes(rng: random.Random) -> None:
    """Any bytes are parsed or refused."""
    functions = (
        inflated_query,
        lambda body: b"".join(payload_of(memoryview(body)).pieces()),
        lambda body: inflated_rows(body, second_version=True, update=True),
    )
    read = 0
    for _ in range(3000):
        body = bytes(
            rng.choice((0, 0, 1, 2, 4, 8, 255, rng.randrange(256)))
            for _ in range(rng.randrange(60))
        )
        for function in functions:
            with contextlib.suppress(DecodeError):
                function(body)
                read += 1
    assert read > 0
