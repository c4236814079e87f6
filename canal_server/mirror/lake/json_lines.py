"""Writes rows as lines of JSON, and reads them.

Integers and floats are numbers, vectors lists of them, decimals are texts (a reader's
double would not hold them), times are ISO 8601 texts, binary is base64.
"""

from __future__ import annotations

import base64
import json
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS: Final = 10_000  # per block
LINE_MAX: Final = 1 << 30  # bytes of a line

_TEXT: Final = pa.large_string()
_NOTHING: Final = pa.scalar("", _TEXT)
_QUOTE: Final = pa.scalar('"', _TEXT)
_OPEN: Final = pa.scalar("[", _TEXT)
_CLOSE: Final = pa.scalar("]", _TEXT)


def write(table: pa.Table, file: pa.NativeFile) -> None:
    """Write one line for each row."""
    for batch in table.to_batches(max_chunksize=ROWS):
        parts: list[Any] = []
        for number, name in enumerate(batch.schema.names):
            parts += [("," if number else "{") + json.dumps(name) + ":"]
            parts += [_texts(batch.column(number))]
        parts = [pa.scalar(p, _TEXT) if isinstance(p, str) else p for p in parts]
        end = pa.scalar("}\n", _TEXT)
        lines = pc.binary_join_element_wise(*parts, end, _NOTHING)
        file.write("".join(lines.to_pylist()).encode())


def read(file: pa.NativeFile, schema: pa.Schema) -> pa.Table:
    """Return the rows of lines, with those of the columns that occur in them."""
    known = pa.schema([field.with_type(_json_type(field.type)) for field in schema])
    rows = pyarrow.json.read_json(
        file,
        pyarrow.json.ReadOptions(use_threads=False, block_size=LINE_MAX),
        pyarrow.json.ParseOptions(known, unexpected_field_behavior="ignore"),
    )
    columns = {}
    for field in schema:
        column = rows[field.name]
        if pa.types.is_binary(field.type):
            column = _each(column, base64.b64decode, field.type)
        columns[field.name] = column.cast(field.type)
    return pa.table(columns)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _json_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's JSON values."""
    if _is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_list(kind):
        return kind
    return pa.string()


def _texts(column: pa.Array) -> pa.Array:
    """Return a column's values as JSON."""
    kind = column.type
    if pa.types.is_string(kind):
        texts = _each(column, encode_basestring, _TEXT)
    elif pa.types.is_binary(kind):
        texts = _each(column, _base64, _TEXT)
    elif _is_number(kind) or pa.types.is_boolean(kind):
        texts = column.cast(_TEXT)
    elif pa.types.is_list(kind):
        numbers = pc.binary_join(column.cast(pa.list_(pa.string())), ",").cast(_TEXT)
        texts = pc.binary_join_element_wise(_OPEN, numbers, _CLOSE, _NOTHING)
    else:
        plain = column.cast(pa.string()).cast(_TEXT)
        if pa.types.is_timestamp(kind):
            plain = pc.replace_substring(plain, " ", "T")
        texts = pc.binary_join_element_wise(_QUOTE, plain, _QUOTE, _NOTHING)
    return pc.fill_null(texts, pa.scalar("null", _TEXT))


def _base64(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _each(
    column: pa.Array | pa.ChunkedArray, to: Callable[[Any], Any], kind: pa.DataType
) -> pa.Array:
    values = column.to_pylist()
    return pa.array([None if v is None else to(v) for v in values], kind)
