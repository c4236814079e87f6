"""Messages as bytes: canonical form, presence, unknown fields, malformed input."""

# ruff: noqa: RUF009  # the functions that declare fields return dataclass fields

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import pytest

from canal_server.errors import ProtocolError
from canal_server.protocol import protobuf as pb


class Colour(IntEnum):
    """An enumeration."""

    RED = 1


@dataclass(frozen=True, slots=True)
class Inner:
    """A message within."""

    text: str = pb.string(1)


@dataclass(frozen=True, slots=True)
class Sample:
    """A field of each kind."""

    late: int = pb.int64(20)  # declared first, written last
    number: int = pb.int32(1)
    flag: bool | None = pb.boolean(2, explicit=True)
    colour: Colour | int = pb.enum(3, Colour)
    data: bytes = pb.octets(4)
    inner: Inner = pb.message(5, Inner)
    many: tuple[Inner, ...] = pb.repeated_message(6, Inner)
    blobs: tuple[bytes, ...] = pb.repeated_octets(7)


FULL = Sample(
    late=-1,
    number=-(2**31),
    flag=True,
    colour=Colour.RED,
    data=b"\0\xff",
    inner=Inner("ä"),
    many=(Inner("a"), Inner(), Inner("b" * 200)),
    blobs=(b"", b"1"),
)


def test_round_trip():
    """What was encoded decodes to an equal value."""
    assert pb.decode(Sample, pb.encode(FULL)) == FULL


def test_defaults_are_left_out():
    """A message of defaults needs no bytes, and no bytes decode to all defaults."""
    assert pb.encode(Sample()) == b""
    assert pb.decode(Sample, b"") == Sample()


def test_presence():
    """An explicit field is written when it is false, and None only when absent."""
    assert pb.encode(Sample(flag=False)) == b"\x10\x00"
    assert pb.decode(Sample, b"\x10\x00").flag is False
    assert pb.decode(Sample, b"").flag is None


def test_ascending_order():
    """Fields are written by number, whatever the order of their declaration."""
    assert pb.encode(Sample(late=1, number=2)) == b"\x08\x02\xa0\x01\x01"


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (127, "7f"), (128, "8001"), (-1, "ffffffffffffffffff01")],
)
def test_varint(value, data):
    """Numbers use seven bits per byte, negative ones all of 64 bits."""
    assert pb.varint(value) == bytes.fromhex(data)


def test_varint_refuses_more_than_64_bits():
    """A number that no field can hold is an error."""
    with pytest.raises(ValueError, match="64 bits"):
        pb.varint(1 << 64)


def test_int32_takes_the_low_bits():
    """A 32-bit field of a longer number keeps its low bits, as protobuf does."""
    assert pb.decode(Sample, b"\x08" + pb.varint(2**32 + 5)).number == 5


def test_unknown_enum_number_is_kept():
    """An unknown enumeration value stays a number."""
    assert pb.decode(Sample, b"\x18\x63").colour == 99


def test_unknown_fields_are_skipped():
    """Unknown fields of each wire type, and known ones of another, are skipped."""
    unknown = bytes.fromhex("f80605f90601020304050607 08fa060161fd0601020304")
    assert pb.decode(Sample, unknown + b"\x08\x07\x0a\x01x") == Sample(number=7)


def test_last_one_wins():
    """A field that stands twice has its last value."""
    assert pb.decode(Sample, b"\x08\x01\x08\x02").number == 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x08", "truncated number"),
        (b"\x08\x80", "truncated number"),
        (b"\x22\x05ab", "field 4 has 5 bytes, but 2 are left"),
        (b"\x08" + b"\xff" * 11, "longer than 10 bytes"),
        (b"\x0b", "wire type 3"),
        (b"\xf9\x06\x01", "field 111 is truncated"),
        (b"\x00\x01", "number 0"),
        (b"\x02\x00", "number 0"),
        (b"\x2a\x03\x0a\x01\xff", "invalid start byte"),
        (b"\x2a\x01\x0a", "truncated number"),
    ],
)
def test_malformed(data, reason):
    """Bytes that are not a message raise an error with its name and the reason."""
    with pytest.raises(ProtocolError, match=f"^malformed Sample: .*{reason}"):
        pb.decode(Sample, data)


def test_any_bytes_decode_or_raise(rng):
    """Damaged messages decode to something or raise ProtocolError, nothing else."""
    good = pb.encode(FULL)
    refused = 0
    for _ in range(3000):
        data = bytearray(good[: rng.randrange(1, len(good) + 1)])
        data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            pb.decode(Sample, bytes(data))
        except ProtocolError:
            refused += 1
    assert 0 < refused < 3000
