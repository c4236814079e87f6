"""Text of partial updates, built here byte by byte, whole and broken."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from binary_json import Number, damaged, document, random_value

from canal_server.decoder.text.json_diff import json_diff_text


def difference(kind: int, path: str, value: Any = None) -> bytes:
    """Return one difference; kinds are 0 replace, 1 insert, 2 remove."""
    data = bytes([kind, len(path)]) + path.encode()
    if kind < 2:
        stored = document(value)
        n = len(stored)
        data += (bytes([n]) if n < 251 else struct.pack("<BH", 252, n)) + stored
    return data


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([], ""),
        ([(0, "$.a", Number(5, 2))], "JSON_REPLACE(j, '$.a', 2)"),
        (
            [(0, "$.a", Number(5, 3)), (0, "$.b.c[1]", Number(5, 9))],
            "JSON_REPLACE(j, '$.a', 3, '$.b.c[1]', 9)",
        ),
        ([(2, "$.s")], "JSON_REMOVE(j, '$.s')"),
        (
            [(0, "$[1]", Number(5, 7)), (2, "$[4]")],
            "JSON_REMOVE(JSON_REPLACE(j, '$[1]', 7), '$[4]')",
        ),
        ([(1, "$.n", "new")], "JSON_INSERT(j, '$.n', \"new\")"),
        ([(1, "$[3]", [])], "JSON_ARRAY_INSERT(j, '$[3]', [])"),
        (
            [
                (1, "$.n", None),
                (1, "$[0]", None),
                (1, "$.m", True),
                (2, "$.x"),
                (2, "$.y"),
            ],
            (
                "JSON_REMOVE(JSON_INSERT(JSON_ARRAY_INSERT(JSON_INSERT("
                "j, '$.n', null), '$[0]', null), '$.m', true), '$.x', '$.y')"
            ),
        ),
    ],
)
def test_differences(changes, text):
    """Partial updates read as calls around the column, neighbours of a kind joined."""
    data = b"".join(difference(*change) for change in changes)
    assert json_diff_text(data, "j") == text


def test_long_differences():
    """Paths and values of more than 250 bytes have longer lengths."""
    path, value = "$." + "k" * 300, document("v" * 70_000)
    data = b"\x00\xfc" + struct.pack("<H", len(path)) + path.encode()
    data += b"\xfd" + len(value).to_bytes(3, "little") + value
    assert (
        json_diff_text(data, "列") == f"JSON_REPLACE(列, '{path}', \"{'v' * 70_000}\")"
    )


@pytest.mark.parametrize(
    "data",
    [
        b"\x03\x00",
        b"\x00",
        b"\x00\x05$.a",
        b"\x00\x01$",
        b"\x00\x01$\x00",
        b"\x00\x01$\x02\x04",
        b"\x00\x01$\x02\x04\x07",
        b"\x02\x01$\x02",
        b"\x02\xfb",
        b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)
def test_malformed_differences(data):
    """Differences that end early or have no such kind are errors."""
    with pytest.raises(ValueError, match="malformed"):
        json_diff_text(data, "j")


def test_damaged_differences(rng):
    """Whatever becomes of the bytes, there is text or ValueError."""
    for _ in range(500):
        whole = b"".join(
            difference(rng.randrange(3), f"$.k{i}", random_value(rng, 1))
            for i in range(rng.randint(1, 4))
        )
        try:
            text = json_diff_text(bytes(damaged(rng, bytearray(whole))), "j")
        except ValueError:
            continue
        assert text.startswith("JSON_")
        assert text.endswith(")")
