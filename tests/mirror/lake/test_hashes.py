"""Hashes of rows: equal rows have equal ones wherever they lie, others do not."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from fix_random import longer

from canal_server.mirror.lake.hashes import OTHER_SEED, row_hashes

NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
VALUES = [
    ("int8", [0, 1, -1, 127, -128]),
    ("int16", [0, 1, -1, 2**15 - 1]),
    ("int32", [0, 1, -1, 2**31 - 1, -(2**31)]),
    ("int64", [0, 1, -1, 2**63 - 1, -(2**63)]),
    ("float", [0.0, -0.0, 1.5, float("inf"), float("nan")]),
    ("double", [0.0, -0.0, 1.5, -1.5, float("nan"), NAN]),
    ("date32", [0, 1, -1, 20_000]),
    ("timestamp[us]", [0, 1, -1, 10**15]),
    ("string", ["", "a", "A", "a ", "é", "\0", "\0\0", "12345678", "12345678\0"]),
    ("binary", [b"", b"\0", b"\0\0", b"abcdefgh", b"abcdefghabcdefgh"]),
]
DECIMALS = [Decimal(text) for text in ("0.00", "0.01", "-0.01", "99999999999999.99")]


def hashes_of(*columns: pa.Array, **seed: int) -> Any:
    """Return the hashes as numbers."""
    return list(row_hashes(columns, len(columns[0]), **seed).to_pylist())


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[kind for kind, _ in VALUES])
def test_values(kind: str, values: list[object]) -> None:
    """Values that differ in a bit differ, NULL is like none, and none is like NULL."""
    column = pa.array([*values, None], kind)
    assert len(set(hashes_of(column))) == len(values) + 1
    assert hashes_of(column) == hashes_of(column)
    assert not set(hashes_of(column)) & set(hashes_of(column, seed=OTHER_SEED))


def test_decimals() -> None:
    """All sixteen bytes of a decimal count."""
    column = pa.array([*DECIMALS, None], pa.decimal128(38, 2))
    assert len(set(hashes_of(column))) == len(DECIMALS) + 1


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[kind for kind, _ in VALUES])
def test_wherever_they_lie(kind: str, values: list[object], rng) -> None:
    """A slice of a column, at any offset, has the hashes of its values."""
    many = rng.choices([*values, None], k=200)
    column = pa.array(many, kind)
    expected = hashes_of(column)
    for _ in range(longer(20)):
        begin = rng.randrange(200)
        rows = rng.randrange(200 - begin)
        assert hashes_of(column.slice(begin, rows)) == expected[begin : begin + rows]
    again = pa.array(many[::-1], kind)
    assert hashes_of(again) == expected[::-1]


def test_columns_are_distinguished() -> None:
    """Values, NULLs and ends of texts in another column give another hash."""
    rows: list[tuple[str | None, str | None]]
    rows = [("ab", "c"), ("a", "bc"), ("", "abc"), ("abc", ""), (None, "abc")]
    rows += [("abc", None), (None, None), (None, ""), ("", None)]
    left, right = (pa.array(side, pa.string()) for side in zip(*rows, strict=True))
    assert len(set(hashes_of(left, right))) == len(rows)


def test_what_lies_below_null_does_not_count() -> None:
    """Two NULLs are equal, whatever their buffers hold."""
    bits = pa.py_buffer(b"\x02")
    first, second = (
        pa.Array.from_buffers(
            pa.int32(), 2, [bits, pa.py_buffer(struct.pack("<ii", below, 7))]
        )
        for below in (1, 2)
    )
    assert hashes_of(first) == hashes_of(second)


def test_many_numbers() -> None:
    """A key of one number never collides."""
    assert len(set(hashes_of(pa.array(range(100_000), pa.int64())))) == 100_000


@pytest.mark.parametrize("kind", ["bool", "large_string", "list<item: int32>"])
def test_no_such_column(kind: str) -> None:
    """A type that no mirrored column has is refused by its name."""
    types = {"bool": pa.bool_(), "large_string": pa.large_string()}
    column = pa.nulls(3, types.get(kind, pa.list_(pa.int32())))
    with pytest.raises(TypeError, match="cannot hash a column"):
        row_hashes([column], 3)


def test_damaged_buffers() -> None:
    """Offsets outside of the buffer are refused, not read."""
    offsets = pa.py_buffer(struct.pack("<iii", 0, 9, 4))
    column = pa.Array.from_buffers(
        pa.string(), 2, [None, offsets, pa.py_buffer(b"abcd")]
    )
    with pytest.raises(ValueError, match="is outside its buffer"):
        row_hashes([column], 2)
