"""MySQL's binary JSON, made byte by byte for tests."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple


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


def damaged(rng, data: bytearray) -> bytearray:
    """Return the bytes with up to three of them changed."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return changed
