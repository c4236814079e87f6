"""Text of binary JSON, built here byte by byte, whole, cut and broken."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from binary_json import Number, Opaque, damaged, document, random_value

from canal_server.decoder.text.json_text import json_text
from canal_server.decoder.text.number_text import double_text

NEWDECIMAL, DATE, TIME, DATETIME, TIMESTAMP = 246, 10, 11, 12, 7


def quoted(text: str) -> str:
    """Return a JSON string as canal escapes it."""
    named = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(
        named.get(c)
        or (f"\\u{ord(c):04x}" if c < " " or "\x7f" <= c <= "\xa0" else c)
        for c in text
    ) + '"'  # fmt: skip


def expected(value: Any) -> str:
    """Return the text that the value is to have."""
    match value:
        case None | True | False:
            text = {None: "null", True: "true", False: "false"}[value]
        case Number():
            text = str(value.value)
        case Opaque():
            data = "\\n".join(
                base64.b64encode(value.data[i : i + 57]).decode()
                for i in range(0, len(value.data), 57)
            )
            text = f'"base64:type{value.type}:{data}"'
        case float():
            text = double_text(value)
        case str():
            text = quoted(value)
        case dict():
            parts = (f"{quoted(key)}: {expected(item)}" for key, item in value.items())
            text = "{" + ", ".join(parts) + "}"
        case _:
            text = "[" + ", ".join(map(expected, value)) + "]"
    return text


def temporal(sign: int, days: int, clock: int, micros: int) -> bytes:
    """Return a packed temporal value; `clock`: 5 and more bits, 6 bits, 6 bits."""
    return struct.pack("<q", sign * ((days << 17 | clock) << 24 | micros))


def clock(hours: int, minutes: int, seconds: int) -> int:
    """Return the packed time of day."""
    return hours << 12 | minutes << 6 | seconds


DAY = (2024 * 13 + 2) << 5 | 29


@pytest.mark.parametrize("large", [False, True])
def test_random_documents(large, rng):
    """Any document has the text of its values, in the small and the large format."""
    for _ in range(1500):
        value = random_value(rng, 4)
        assert json_text(document(value, large)) == expected(value)


@pytest.mark.parametrize(
    ("opaque", "text"),
    [
        (Opaque(DATE, temporal(1, DAY, 0, 0)), '"2024-02-29"'),
        (
            Opaque(DATETIME, temporal(1, DAY, clock(12, 34, 56), 123456)),
            '"2024-02-29 12:34:56.123456"',
        ),
        (
            Opaque(TIMESTAMP, temporal(1, DAY, clock(0, 0, 1), 500000)),
            '"2024-02-29 00:00:01.500000"',
        ),
        (Opaque(DATETIME, bytes(8)), '"0000-00-00 00:00:00.000000"'),
        (Opaque(TIME, bytes(8)), '"00:00:00.000000"'),
        (Opaque(TIME, temporal(1, 0, clock(100, 0, 0), 0)), '"100:00:00.000000"'),
        (Opaque(TIME, temporal(-1, 0, clock(838, 59, 59), 0)), '"-838:59:59.000000"'),
        (Opaque(NEWDECIMAL, b"\x0a\x02\x80\x00\x00\x01\x32"), "1.50"),
        (Opaque(NEWDECIMAL, b"\x05\x02\x80\x00\x00"), "0.0"),
        (Opaque(NEWDECIMAL, b"\x48\x00" + b"\x80" + bytes(30) + b"\x07"), "7"),
        (Opaque(15, b"abc"), '"base64:type15:YWJj"'),
        (Opaque(16, b"\x05"), '"base64:type16:BQ=="'),
    ],
)
def test_opaque_values(opaque, text):
    """Dates, times, decimals and bytes look as in MySQL, alone and in an array."""
    assert json_text(document(opaque)) == text
    assert json_text(document([opaque, opaque])) == f"[{text}, {text}]"


def test_binary_values_come_in_lines():
    """Base64 has a line break after each 76 characters but the last, as in MySQL."""
    for n in (56, 57, 58, 114, 115, 1000):
        opaque = Opaque(252, bytes(range(256)) * 4)
        opaque = opaque._replace(data=opaque.data[:n])
        text = json_text(document(opaque))
        assert text == expected(opaque)
        assert text.count("\\n") == (n - 1) // 57


def test_strings_that_are_no_utf8():
    """Bytes that no server writes become U+FFFD."""
    assert json_text(b"\x0c\x04a\xffb\xc2") == '"a\ufffdb\ufffd"'


def test_empty_value_is_null():
    """A document of no bytes, as rows have that got the column later, is null."""
    assert json_text(b"") == "null"


def test_depth_is_limited():
    """A hundred levels are fine, as in MySQL; one more is malformed."""
    value: Any = []
    for _ in range(99):
        value = [value]
    assert json_text(document(value)) == "[" * 100 + "]" * 100
    with pytest.raises(ValueError, match="malformed"):
        json_text(document([value]))


def test_repetition_is_limited():
    """Arrays whose entries all point to the same array do not multiply the work."""
    levels = 60
    value = b""
    for level in range(levels):
        # Each level: 40 entries that all point to the array after them.
        head = 4 + 40 * 3
        size = head + len(value) if level else 4
        if level:
            entry = b"\x02" + struct.pack("<H", head)
            value = struct.pack("<HH", 40, size) + entry * 40 + value
        else:
            value = struct.pack("<HH", 0, size)
    with pytest.raises(ValueError, match="malformed"):
        json_text(b"\x02" + value)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0d",
        b"\x0e\x00",
        b"\x04\x03",
        b"\x05\x00",
        b"\x0b" + bytes(7),
        b"\x0c",
        b"\x0c\x05abcd",
        b"\x0c\xff\xff\xff\xff\xff\x00",
        b"\x0f",
        b"\x0f\xf6\x01\x0a",
        b"\x0f\xf6\x02\x42\x00",
        b"\x0f\x0c\x07" + bytes(7),
        b"\x00\x01\x00\x04\x00",
        b"\x02\x00\x00\x05\x00",
        b"\x02\xff\xff\x04\x00",
        b"\x03\x00\x00\x00\x00\x08\x00\x00",
        b"\x02\x01\x00\x07\x00\x0c\x08\x00",
        b"\x00\x01\x00\x0b\x00\x0b\x00\x01\x00\x04\x00\x00",
    ],
)
def test_malformed(data):
    """Values that end early, point outside or have no such type are errors."""
    with pytest.raises(ValueError, match="malformed"):
        json_text(data)


def test_cut_and_damaged_documents(rng):
    """Whatever becomes of the bytes, there is text or ValueError, and an end to it."""
    for _ in range(300):
        data = bytearray(document(random_value(rng, 4), rng.random() < 0.5))
        cut = rng.randrange(len(data) + 1)
        for broken in (data[:cut], damaged(rng, data)):
            try:
                text = json_text(bytes(broken))
            except ValueError:
                continue
            assert len(text) <= 64 * len(broken) + 1000
