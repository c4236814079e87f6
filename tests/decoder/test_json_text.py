"""Text of binary JSON, built here byte by byte, whole, cut and broken."""

from __future__ import annotations

import base64
import struct
from typing import Any, NamedTuple

import pytest

from canal_server.decoder.json_text import json_diff_text, json_text
from canal_server.decoder.number_text import double_text

NEWDECIMAL, DATE, TIME, DATETIME, TIMESTAMP = 246, 10, 11, 12, 7


class Opaque(NamedTuple):
    """A value of a type that JSON does not have."""

    type: int
    data: bytes


class Number(NamedTuple):
    """A number in a given type: INT16 is 5, …, UINT64 10."""

    type: int
    value: int


NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}


def length(n: int) -> bytes:
    """Return a length of 7 bits a byte."""
    parts = bytearray()
    while n > 127:
        parts.append(n & 127 | 128)
        n >>= 7
    return bytes(parts) + bytes([n])


def encode(value: Any, large: bool = False) -> tuple[int, bytes]:
    """Return type and bytes of a value as MySQL stores it."""
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, Number):
        return value.type, struct.pack(NUMBERS[value.type], value.value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        return 12, length(len(value.encode())) + value.encode()
    if isinstance(value, Opaque):
        return 15, bytes([value.type]) + length(len(value.data)) + value.data
    return encode_container(value, large)


def encode_container(
    value: dict[str, Any] | list[Any], large: bool
) -> tuple[int, bytes]:
    """Return type and bytes of an object or an array."""
    width, pack = (4, "<I") if large else (2, "<H")
    keys = [key.encode() for key in value] if isinstance(value, dict) else []
    values = list(value.values()) if isinstance(value, dict) else value
    head = 2 * width + len(keys) * (width + 2) + len(values) * (width + 1)
    entries, tail = b"", b""
    for key in keys:
        entries += struct.pack(pack, head + len(tail)) + struct.pack("<H", len(key))
        tail += key
    for item in values:
        kind, data = encode(item, large)
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            entries += bytes([kind]) + data.ljust(width, b"\0")
        else:
            entries += bytes([kind]) + struct.pack(pack, head + len(tail))
            tail += data
    size = head + len(tail)
    kind = (0 if isinstance(value, dict) else 2) + large
    return kind, struct.pack(pack, len(values)) + struct.pack(
        pack, size
    ) + entries + tail


def document(value: Any, large: bool = False) -> bytes:
    """Return a whole document."""
    kind, data = encode(value, large)
    return bytes([kind]) + data


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
            data = base64.b64encode(value.data).decode()
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


def random_number(rng) -> Number:
    """Return an integer of any type."""
    number = rng.choice(tuple(NUMBERS))
    bits = 8 * struct.calcsize(NUMBERS[number])
    value = rng.getrandbits(bits)
    return Number(number, value - (1 << (bits - 1)) if number % 2 else value)


def random_value(rng, depth: int) -> Any:
    """Return any value, containers up to a depth."""
    makers = [
        lambda: rng.choice((None, True, False)),
        lambda: random_number(rng),
        lambda: rng.uniform(-1, 1) * 10.0 ** rng.randint(-30, 30),
        lambda: "".join(rng.choices('ab"\\\n\r\t\x00\x1f\x7f\x80\xa0¡é中😀/', k=9)),
        lambda: Opaque(rng.choice((15, 16, 252)), rng.randbytes(rng.randrange(200))),
        lambda: "x" * rng.choice((0, 1, 127, 128, 300)),
    ]
    if depth:
        makers += [
            lambda: [random_value(rng, depth - 1) for _ in range(rng.randrange(6))],
            lambda: {
                f"k{i}" * rng.randrange(4) + f"{i}": random_value(rng, depth - 1)
                for i in range(rng.randrange(6))
            },
        ] * 2
    return rng.choice(makers)()


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
        (Opaque(15, b"abc"), '"base64:type15:YWJj"'),
        (Opaque(16, b"\x05"), '"base64:type16:BQ=="'),
    ],
)
def test_opaque_values(opaque, text):
    """Dates, times, decimals and bytes look as in MySQL, alone and in an array."""
    assert json_text(document(opaque)) == text
    assert json_text(document([opaque, opaque])) == f"[{text}, {text}]"


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
        # Each level: 40 entries that all point to the array behind them.
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


def damaged(rng, data: bytearray) -> bytearray:
    """Return the bytes with up to three of them changed."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return changed


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
