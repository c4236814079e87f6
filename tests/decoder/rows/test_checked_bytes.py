"""Reading that never goes past the end."""

from __future__ import annotations

import pytest

from canal_server.decoder.rows.checked_bytes import CheckedBytes
from canal_server.errors import DecodeError


def test_reading() -> None:
    """Bytes, numbers, packed numbers and texts are read from the front."""
    source = CheckedBytes(b"ab\x01\x02\x05\xfc\x00\x01\xc3\xa9rest", "x")
    assert source.take(2) == b"ab"
    assert source.number(2) == 0x0201
    assert source.packed() == 5
    assert source.packed() == 256
    assert source.text(2) == "é"
    assert source
    assert source.rest() == b"rest"
    assert not source


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\xfa", 250),
        (b"\xfc\xfb\0", 251),
        (b"\xfd\0\0\1", 1 << 16),
        (b"\xfe" + (1 << 60).to_bytes(8, "little"), 1 << 60),
        (b"\xfb", 0),
    ],
)
def test_packed(data: bytes, value: int) -> None:
    """Length-encoded integers of every size are read; NULL is 0."""
    source = CheckedBytes(data, "x")
    assert source.packed() == value
    assert not source


def test_the_end() -> None:
    """Missing bytes are an error that names what ended."""
    source = CheckedBytes(b"abc", "a thing")
    source.take(1)
    with pytest.raises(
        DecodeError, match="a thing ends early: 3 bytes needed at 1 of 3"
    ):
        source.take(3)
    for data in (b"", b"\xfc\1", b"\xfe1234567"):
        with pytest.raises(DecodeError):
            CheckedBytes(data, "x").packed()
