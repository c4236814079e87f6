"""Reads TABLE_MAP events: names, types and the optional metadata.

Leaves out what follows for the row loop (`layout_plan`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from canal_server.decoder.rows.checked_bytes import CheckedBytes
from canal_server.errors import DecodeError

# Column types of the binlog (MySQL's field_types.h, MariaDB's compressed types).
TINY: Final = 1
SHORT: Final = 2
LONG: Final = 3
FLOAT: Final = 4
DOUBLE: Final = 5
TIMESTAMP: Final = 7
LONGLONG: Final = 8
INT24: Final = 9
DATE: Final = 10
TIME: Final = 11
DATETIME: Final = 12
YEAR: Final = 13
VARCHAR: Final = 15
BIT: Final = 16
TIMESTAMP2: Final = 17
DATETIME2: Final = 18
TIME2: Final = 19
TYPED_ARRAY: Final = 20
BLOB_COMPRESSED: Final = 140
VARCHAR_COMPRESSED: Final = 141
VECTOR: Final = 242
JSON: Final = 245
NEWDECIMAL: Final = 246
ENUM: Final = 247
SET: Final = 248
TINY_BLOB: Final = 249
MEDIUM_BLOB: Final = 250
LONG_BLOB: Final = 251
BLOB: Final = 252
VAR_STRING: Final = 253
STRING: Final = 254
GEOMETRY: Final = 255

# The types with a bit in the signedness bitmap. Whether YEAR, which is always unsigned,
# has one depends on the release: not in MySQL 8.0.15, but in 8.0.29, and in MariaDB.
NUMERIC: Final = frozenset(
    {TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24, NEWDECIMAL}
)
_YEARS_UNSIGNED_UNTIL: Final = 80015
_YEARS_SIGNED_SINCE: Final = 80029
BLOBS: Final = frozenset({TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB})
_WHAT: Final = "table map"
COLUMNS_MAX: Final = 4096  # of a table, in MySQL as in MariaDB
_FRACTION_DIGITS_MAX: Final = 6
_BIT_BYTES_MAX: Final = 8
_DECIMAL_DIGITS_MAX: Final = 65
_LENGTH_BYTES_MAX: Final = 4
_SET_BYTES_MAX: Final = 8  # a SET of 64 labels
_METADATA_BYTES: Final = {
    FLOAT: 1, DOUBLE: 1, TIMESTAMP2: 1, DATETIME2: 1, TIME2: 1,
    TINY_BLOB: 1, MEDIUM_BLOB: 1, LONG_BLOB: 1, BLOB: 1, BLOB_COMPRESSED: 1,
    GEOMETRY: 1, JSON: 1, VECTOR: 1,
    VARCHAR: 2, VAR_STRING: 2, VARCHAR_COMPRESSED: 2, NEWDECIMAL: 2, BIT: 2,
    STRING: 2, ENUM: 2, SET: 2,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """One column as the table map describes it.

    `type` is the real type: ENUM and SET are distinguished from STRING. `metadata` has
    the raw metadata bytes. What the optional metadata does not contain is None.
    `is_sign_known`: whether `unsigned` is more than a guess.
    """

    type: int
    metadata: bytes
    unsigned: bool | None = None
    collation: int | None = None
    name: str | None = None
    is_key: bool | None = None
    is_sign_known: bool = True

    @property
    def string_bytes(self) -> int:
        """Return the maximum size of a STRING value."""
        first, second = self.metadata
        return second | ((first & 0x30) ^ 0x30) << 4


@dataclass(frozen=True, slots=True)
class TableMap:
    """The table of the row events that follow."""

    table_id: int
    schema: str
    table: str
    columns: tuple[MappedColumn, ...]

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


def parse_table_map(
    body: bytes, *, mariadb: bool = False, version: int = 0
) -> TableMap:
    """Read the body of a TABLE_MAP event (without header and checksum).

    `mariadb`: its lists of character sets include geometries. `version` is 80401 for
    MySQL 8.4.1, 0: unknown. Raises DecodeError for inconsistent contents.
    """
    source = CheckedBytes(body, _WHAT)
    table_id = source.number(6)
    source.take(2)  # flags
    schema = source.text(source.number(1))
    source.take(1)
    table = source.text(source.number(1))
    source.take(1)
    width = source.packed()
    if width > COLUMNS_MAX:
        raise DecodeError(
            f"a table map of {width} columns for {schema}.{table}, above the limit of "
            f"{COLUMNS_MAX}"
        )
    types = source.take(width)
    metadata = CheckedBytes(source.take(source.packed()), _WHAT)
    source.take((width + 7) // 8)  # which columns may be NULL
    columns = [_column(kind, metadata) for kind in types]
    optional = _optional(source)
    unsigned, unsure = _signedness(
        columns, optional.get(1), years=_has_years(mariadb=mariadb, version=version)
    )
    columns = _with_optional(columns, optional, mariadb)
    return TableMap(
        table_id,
        schema,
        table,
        tuple(
            replace(column, unsigned=unsigned[i], is_sign_known=i not in unsure)
            if i in unsigned
            else column
            for i, column in enumerate(columns)
        ),
    )


def _column(kind: int, metadata: CheckedBytes) -> MappedColumn:
    if kind == TYPED_ARRAY:
        raise DecodeError("a typed array as a separate column")
    raw = metadata.take(_METADATA_BYTES.get(kind, 0))
    if kind == STRING and raw[0] in (ENUM, SET):
        kind = raw[0]
    if not _is_possible(kind, raw):
        raise DecodeError(f"a column of type {kind} with the metadata {raw.hex()}")
    return MappedColumn(kind, raw)


def _is_possible(kind: int, metadata: bytes) -> bool:
    """Check whether a type can have such metadata; the row loop relies on it."""
    if kind in (TIMESTAMP2, DATETIME2, TIME2):
        return metadata[0] <= _FRACTION_DIGITS_MAX
    if kind == BIT:
        return 0 < metadata[1] + (metadata[0] > 0) <= _BIT_BYTES_MAX
    if kind in (ENUM, SET):
        return 0 < metadata[1] <= _SET_BYTES_MAX
    if kind == NEWDECIMAL:
        return metadata[0] <= _DECIMAL_DIGITS_MAX and metadata[1] <= metadata[0]
    if kind in BLOBS or kind in (BLOB_COMPRESSED, GEOMETRY, JSON, VECTOR):
        return 0 < metadata[0] <= _LENGTH_BYTES_MAX
    return True


def _optional(source: CheckedBytes) -> dict[int, bytes]:
    fields: dict[int, bytes] = {}
    while source:
        kind = source.number(1)
        fields[kind] = source.take(source.packed())
    return fields


def _with_optional(
    columns: list[MappedColumn], fields: dict[int, bytes], mariadb: bool
) -> list[MappedColumn]:
    text = [
        i
        for i, column in enumerate(columns)
        if is_text(column.type) or (mariadb and column.type == GEOMETRY)
    ]
    members = [i for i, c in enumerate(columns) if c.type in (ENUM, SET)]
    collations = _collations(text, fields.get(2), fields.get(3))
    collations |= _collations(members, fields.get(10), fields.get(11))
    names = _names(fields.get(4), len(columns))
    keys = _keys(fields.get(8), fields.get(9), len(columns))
    return [
        MappedColumn(
            column.type,
            column.metadata,
            None,
            collations.get(i),
            names[i] if i < len(names) else None,
            (i in keys) if keys is not None else None,
        )
        for i, column in enumerate(columns)
    ]


def is_text(kind: int) -> bool:
    """Check whether the charset lists of the metadata include a type."""
    return (
        kind
        in (VARCHAR, VAR_STRING, STRING, BLOB_COMPRESSED, VARCHAR_COMPRESSED, VECTOR)
        or kind in BLOBS
    )


def _has_years(*, mariadb: bool, version: int) -> bool | None:
    """Return whether YEAR has a bit in the signedness bitmap; None: unknown."""
    if mariadb or version >= _YEARS_SIGNED_SINCE:
        return True
    return False if 0 < version <= _YEARS_UNSIGNED_UNTIL else None


def _signedness(
    columns: list[MappedColumn], bits: bytes | None, *, years: bool | None
) -> tuple[dict[int, bool], set[int]]:
    """Return which columns are unsigned, and of which that is not certain.

    `years`: whether YEAR has a bit; None: what the bits allow, or both.
    """
    if bits is None:
        return {}, set()
    with_years = _signs(columns, bits, NUMERIC | {YEAR})
    without = _signs(columns, bits, NUMERIC)
    if years is None and all(column.type != YEAR for column in columns):
        years = True
    if years is None:
        # YEAR is unsigned, and the last byte is filled with zeros.
        signs_of_years = (
            with_years.get(i, False) for i, c in enumerate(columns) if c.type == YEAR
        )
        may_have = all(signs_of_years) and _fits(bits, len(with_years))
        if may_have != _fits(bits, len(without)):
            years = may_have
    if years is not None:
        return (with_years if years else without), set()
    unsure = {i for i, sign in without.items() if sign != with_years.get(i)}
    return with_years, unsure


def _signs(
    columns: list[MappedColumn], bits: bytes, kinds: frozenset[int]
) -> dict[int, bool]:
    """Return the bits of the columns whose types are counted."""
    numeric = [i for i, column in enumerate(columns) if column.type in kinds]
    return {
        column: bool(bits[n >> 3] & 0x80 >> (n & 7))
        for n, column in enumerate(numeric)
        if n >> 3 < len(bits)
    }


def _fits(bits: bytes, count: int) -> bool:
    """Return whether a bitmap can be of so many bits."""
    spare = len(bits) * 8 - count
    return 0 <= spare < 8 and not int.from_bytes(bits) & (1 << spare) - 1  # noqa: PLR2004


def _collations(
    columns: list[int], default: bytes | None, each: bytes | None
) -> dict[int, int]:
    if each is not None:
        source = CheckedBytes(each, _WHAT)
        return {column: source.packed() for column in columns if source}
    if default is None:
        return {}
    source = CheckedBytes(default, _WHAT)
    common = source.packed()
    found = dict.fromkeys(columns, common)
    while source:
        n = source.packed()
        collation = source.packed()
        if n < len(columns):
            found[columns[n]] = collation
    return found


def _names(data: bytes | None, width: int) -> list[str]:
    names: list[str] = []
    source = CheckedBytes(data or b"", _WHAT)
    while source:
        if len(names) == width:
            raise DecodeError(f"a table map with more names than its {width} columns")
        names.append(source.text(source.packed()))
    return names


def _keys(simple: bytes | None, prefixed: bytes | None, width: int) -> set[int] | None:
    if simple is None and prefixed is None:
        return None
    keys = set()
    source = CheckedBytes((prefixed if simple is None else simple) or b"", _WHAT)
    while source:
        column = source.packed()
        if column >= width:
            raise DecodeError(
                f"a table map with column {column} in its key, of {width} columns"
            )
        keys.add(column)
        if simple is None:
            source.packed()  # the prefix's length
    return keys
