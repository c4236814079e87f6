"""Hashes of rows, equal for equal rows of the source, the stream and the lake.

Leaves out which rows and columns; the columns of both sides must have the same types
(`canal_server.arrow.arrow_batches.typed_schema`).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.arrow.row_hashes import add_bytes, add_fixed

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED: Final = 0x243F6A8885A308D3
OTHER_SEED: Final = 0x13198A2E03707344  # a second hash of the same values


def row_hashes(
    columns: Sequence[pa.Array], rows: int, seed: int = SEED
) -> pa.Int64Array:
    """Return a hash of each row over its columns, in order.

    Raises TypeError for a column type that MySQL does not have.
    """
    hashes = array("Q", [seed]) * rows
    for column in columns:
        assert len(column) == rows
        _add(hashes, column)
    return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(hashes)])


def _add(hashes: array[int], column: pa.Array) -> None:
    kind = column.type
    if pa.types.is_list(kind) and pa.types.is_float32(kind.value_type):
        column = _as_binary(column)
        kind = column.type
    validity, *parts = (
        None if buffer is None else memoryview(buffer).cast("B")
        for buffer in column.buffers()
    )
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets, values = parts
        add_bytes(hashes, validity, offsets, values, column.offset)
        return
    numbers = pa.types.is_primitive(kind) and not pa.types.is_boolean(kind)
    if not numbers and not pa.types.is_decimal128(kind):
        raise TypeError(f"cannot hash a column of type {kind}")
    (values,) = parts
    add_fixed(hashes, validity, values, kind.bit_width // 8, column.offset)


def _as_binary(lists: pa.Array) -> pa.Array:
    """Return vectors as the bytes of their numbers, as MySQL has them."""
    numbers = lists.values
    if numbers.null_count:
        raise TypeError(f"cannot hash a column of type {lists.type} with NULL in it")
    width = numbers.type.bit_width // 8
    validity, ends, *_ = lists.buffers()
    values = numbers.buffers()[1] or pa.py_buffer(b"")
    # The offsets of the whole array, of which `lists` may be a part.
    end = lists.offset + len(lists)
    offsets = pa.Array.from_buffers(pa.int32(), end + 1, [None, ends])
    in_bytes = pc.multiply(pc.add(offsets, numbers.offset), width).cast(pa.int32())
    return pa.Array.from_buffers(
        pa.binary(),
        len(lists),
        [validity, in_bytes.buffers()[1], values],
        offset=lists.offset,
    )
