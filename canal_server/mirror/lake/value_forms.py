"""The lake's forms of values that engines cannot use in the stream's form.

A rule's `types` ask for them. Values are converted by columns, without their rows.
Leaves out which column has which form (`selected_tables`), and masks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.arrow.arrow_columns import RequestedColumn, requested_column
from canal_server.errors import DecodeError
from canal_server.mirror.settings.table_values import ARRAY, UNSIGNED, WKB
from canal_server.model.columns_known import ColumnMeta

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.mirror.settings.table_values import MirrorColumn

FLOATS: Final = pa.list_(pa.field("element", pa.float32()))
_FLOAT_BYTES: Final = 4
# A value of GEOMETRY: SRID (uint32, little-endian), then WKB, which starts with its
# byte order and type. "Internal Geometry Storage Format" in MySQL's manual.
_SRID_BYTES: Final = 4
_GEOMETRY_BYTES_MIN: Final = _SRID_BYTES + 5
# Of a value of Arrow. Without an end, `binary_slice` may fail (pyarrow 26).
_BYTES_MAX: Final = 2**31 - 1
# MySQL types whose types in the lake have all values.
_SRID_TYPE: Final = "int unsigned"
_BIT64_TYPE: Final = "bigint unsigned"


class LakePart(NamedTuple):
    """A column of the lake, which has values of a column of the source."""

    name: str
    mysql_type: str
    charset: str
    form: str = ""

    @property
    def requested(self) -> RequestedColumn:
        """Return the column's type. Raises DecodeError for unknown types."""
        return requested(self.name, self.mysql_type, self.charset, self.form)


def parts_of(column: MirrorColumn) -> tuple[LakePart, ...]:
    """Return the lake's columns for a column that has no mask."""
    name, mysql_type, charset = column.target, column.mysql_type, column.charset
    if column.form == WKB:
        _, srid = column.targets
        return (
            LakePart(name, mysql_type, charset),
            LakePart(srid, _SRID_TYPE, ""),
        )
    if column.form == UNSIGNED:
        return (LakePart(name, _BIT64_TYPE, ""),)
    return (LakePart(name, mysql_type, charset, column.form),)


def requested(name: str, mysql_type: str, charset: str, form: str) -> RequestedColumn:
    """Return a column of the lake. Raises DecodeError for unknown types."""
    if form == ARRAY:
        return RequestedColumn(name, "floats")
    return requested_column(ColumnMeta(name, mysql_type, charset or None))


def converted(values: Any, form: str) -> tuple[Any, ...]:
    """Return the values of each of the lake's columns, for those of the stream.

    Raises DecodeError for a value that MySQL cannot have.
    """
    if not form:
        return (values,)
    if isinstance(values, pa.ChunkedArray):
        # Without a chunk, the types are those of an empty one.
        chunks = values.chunks or [pa.array([], values.type)]
        parts = zip(*(_FORMS[form](chunk) for chunk in chunks), strict=True)
        return tuple(pa.chunked_array(list(each)) for each in parts)
    return _FORMS[form](values)


def _wkb_and_srid(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return geometries as WKB, and their SRIDs.

    What is too short for a geometry is NULL: MariaDB accepts such values in some modes.
    """
    is_geometry = pc.greater_equal(pc.binary_length(values), _GEOMETRY_BYTES_MIN)
    values = pc.if_else(is_geometry, values, pa.scalar(None, pa.binary()))
    heads = pc.binary_slice(values, 0, _SRID_BYTES)
    # Without NULL, they are the numbers, one after the other.
    heads = pc.fill_null(heads, pa.scalar(b"\0" * _SRID_BYTES, pa.binary()))
    *_, numbers = heads.cast(pa.binary(_SRID_BYTES)).buffers()
    srids = pa.Array.from_buffers(pa.uint32(), len(heads), [None, numbers])
    srids = pc.if_else(values.is_valid(), srids.cast(pa.int64()), None)
    return pc.binary_slice(values, _SRID_BYTES, _BYTES_MAX), srids


def _floats(values: pa.Array) -> tuple[pa.Array]:
    """Return vectors as lists of the numbers that their bytes are."""
    lengths = pc.fill_null(pc.binary_length(values), 0)
    rest = pc.bit_wise_and(lengths, _FLOAT_BYTES - 1)
    if pc.any(pc.not_equal(rest, 0)).as_py():
        raise DecodeError("a value of a vector is not a list of 32-bit numbers")
    _, offsets, data = values.buffers()
    ends = pa.Array.from_buffers(
        pa.int32(), len(values) + 1, [None, offsets], 0, values.offset
    )
    if not len(values):
        return (pa.array([], FLOATS),)
    first, last = ends[0].as_py(), ends[-1].as_py()
    numbers = (last - first) // _FLOAT_BYTES
    data = pa.py_buffer(b"") if data is None else data.slice(first, last - first)
    elements = pa.Array.from_buffers(pa.float32(), numbers, [None, data])
    starts = pc.divide(pc.subtract(ends, first), _FLOAT_BYTES).cast(pa.int32())
    mask = values.is_null()
    return (pa.ListArray.from_arrays(starts, elements, type=FLOATS, mask=mask),)


def _unsigned(values: pa.Array) -> tuple[pa.Array]:
    """Return 64 bits, which the stream has as signed numbers, as unsigned ones."""
    return (values.view(pa.uint64()).cast(pa.decimal128(20, 0)),)


_FORMS: Final[dict[str, Callable[[pa.Array], tuple[pa.Array, ...]]]] = {
    WKB: _wkb_and_srid,
    ARRAY: _floats,
    UNSIGNED: _unsigned,
}
