"""Forms of values in the lake: geometries, vectors and 64 bits."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from canal_server.errors import DecodeError
from canal_server.mirror.lake.hashes import row_hashes
from canal_server.mirror.lake.value_forms import FLOATS, LakePart, converted, parts_of
from canal_server.mirror.settings.table_values import (
    ARRAY,
    UNSIGNED,
    WKB,
    MirrorColumn,
)

POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")  # POINT(1 2)


def geometry(srid: int) -> bytes:
    """Return a point as MySQL stores it."""
    return struct.pack("<I", srid) + POINT


def vector(*numbers: float) -> bytes:
    """Return a vector as MySQL stores it."""
    return struct.pack(f"<{len(numbers)}f", *numbers)


VALUES: dict[str, tuple[pa.DataType, list[Any], tuple[list[Any], ...]]] = {
    WKB: (
        pa.binary(),
        [geometry(0), None, geometry(4326), geometry(2**32 - 1), b"", b"\0" * 8],
        (
            [POINT, None, POINT, POINT, None, None],
            [0, None, 4326, 2**32 - 1, None, None],
        ),
    ),
    ARRAY: (
        pa.binary(),
        [vector(1.5, -2.0), None, b"", vector(0.1), vector(*range(9))],
        ([[1.5, -2.0], None, [], [0.10000000149011612], [float(n) for n in range(9)]],),
    ),
    UNSIGNED: (
        pa.int64(),
        [0, None, 2**63 - 1, -1, -(2**63)],
        ([Decimal(0), None, Decimal(2**63 - 1), Decimal(2**64 - 1), Decimal(2**63)],),
    ),
}
TYPES = {
    WKB: (pa.binary(), pa.int64()),
    ARRAY: (FLOATS,),
    UNSIGNED: (pa.decimal128(20, 0),),
}


@pytest.mark.parametrize("form", VALUES)
def test_all_values_of_a_form(form: str):
    """They are converted in arrays, in parts of arrays, and in several chunks."""
    kind, values, expected = VALUES[form]
    whole = pa.array(values, kind)
    found = converted(whole, form)
    assert tuple(each.type for each in found) == TYPES[form]
    assert tuple(each.to_pylist() for each in found) == expected
    for start in range(len(values) + 1):
        for end in range(start, len(values) + 1):
            part = converted(whole.slice(start, end - start), form)
            assert [each.to_pylist() for each in part] == [
                each[start:end] for each in expected
            ]
            for each in part:
                each.validate(full=True)
    chunks = pa.chunked_array([whole.slice(1), whole.slice(0, 0), whole.slice(0, 2)])
    found = converted(chunks, form)
    assert [each.to_pylist() for each in found] == [
        each[1:] + each[:2] for each in expected
    ]


@pytest.mark.parametrize("form", VALUES)
def test_no_rows(form: str):
    """Of no rows there are columns, too."""
    kind = VALUES[form][0]
    for empty in (pa.array([], kind), pa.chunked_array([], kind)):
        found = converted(empty, form)
        assert tuple(each.type for each in found) == TYPES[form]
        assert [len(each) for each in found] == [0] * len(found)


def test_a_vector_of_half_a_number():
    """Bytes that are not whole numbers are an error, not other numbers."""
    with pytest.raises(DecodeError, match="not a list of 32-bit numbers"):
        converted(pa.array([vector(1.0), b"abc"]), ARRAY)


def test_columns_of_the_lake():
    """A geometry has two, with the types that the lake's schema gets."""
    for form, mysql_type, names in (
        (WKB, "point", ["x", "x_srid"]),
        (ARRAY, "vector(3)", ["x"]),
        (UNSIGNED, "bit(64)", ["x"]),
    ):
        parts = parts_of(MirrorColumn("c", mysql_type, "", False, "x", None, form))
        assert [each.name for each in parts] == names
    assert parts_of(MirrorColumn("c", "point", "", False, "x")) == (
        LakePart("x", "point", ""),
    )
    assert [each.requested.spark_type for each in parts] == ["DECIMAL(20,0)"]


def test_hashes_of_vectors():
    """Equal vectors have equal hashes, in any part of an array; others differ."""
    values = [[1.0, 2.0], None, [], [1.0], [2.0], [1.0, 2.0], [-0.0], [0.0]]
    whole = pa.array(values, FLOATS)
    hashes = row_hashes([whole], len(whole)).to_pylist()
    assert hashes[0] == hashes[5]
    assert len(set(hashes)) == len(values) - 1
    for start in range(len(values)):
        part = whole.slice(start)
        assert row_hashes([part], len(part)).to_pylist() == hashes[start:]
    taken = whole.take(pa.array([5, 4, 1]))
    assert row_hashes([taken], 3).to_pylist() == [hashes[0], hashes[4], hashes[1]]
    with pytest.raises(TypeError, match="with NULL in it"):
        row_hashes([pa.array([[None]], FLOATS)], 1)
