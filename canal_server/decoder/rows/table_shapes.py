"""A table's shape: everything that rendering its rows elsewhere requires, as bytes.

It combines what the binlog and the table history know, not the plan that is made of
it: the reader compiles the plan again, and validates the shape by that.
docs/reference/protocol.md describes the message.
"""

# the functions that declare fields return dataclass fields

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.decoder.rows import table_map as tm
from canal_server.decoder.rows.layout_plan import compile_layout, mismatch
from canal_server.decoder.rows.row_layout import Shape
from canal_server.decoder.rows.table_map import parse_table_map
from canal_server.decoder.text.time_zone import Zone, zone_here
from canal_server.errors import DecodeError, ProtocolError, TableMetaError
from canal_server.model.columns_known import ColumnMeta, TableMeta
from canal_server.protocol.protobuf import (
    boolean,
    decode,
    encode,
    octets,
    repeated_message,
    string,
)

if TYPE_CHECKING:
    from canal_server.decoder.rows.row_layout import TableLayout
    from canal_server.decoder.rows.table_map import TableMap

_ID_BYTES: Final = 6  # before a table map; each event has the id, too
_KEPT: Final = 4096  # shapes; others are sent again
_WITH_ZONE: Final = frozenset({tm.TIMESTAMP, tm.TIMESTAMP2})


@dataclass(frozen=True, slots=True)
class ShapeColumn:
    """What is known of a column in addition to the table map."""

    name: str = string(1)
    mysql_type: str = string(2)
    key: bool = boolean(3)
    charset: str = string(4)


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table map with its columns, as of one binlog position.

    `zone` is the time zone of TIMESTAMPs (`Zone.pack`), if the table has any.
    """

    table_map: bytes = octets(1)
    mariadb: bool = boolean(2)
    columns: tuple[ShapeColumn, ...] = repeated_message(3, ShapeColumn)
    zone: bytes = octets(4)


class Shapes:
    """The shapes of a range's tables, for one decoder.

    Keyed by content, so that each is sent once: a table's id changes often.
    """

    def __init__(self) -> None:
        self._by_content: dict[bytes, Shape] = {}

    def shape_of(
        self, body: bytes, table_map: TableMap, meta: TableMeta, *, mariadb: bool
    ) -> Shape:
        """Return the shape of a table; `body` is that of its table map."""
        data = _packed(body, table_map, meta, mariadb=mariadb)
        found = self._by_content.get(data)
        if found is None:
            if len(self._by_content) >= _KEPT:
                self._by_content.clear()
            found = self._by_content[data] = Shape(data)
        return found


def _packed(
    body: bytes, table_map: TableMap, meta: TableMeta, *, mariadb: bool
) -> bytes:
    columns = tuple(
        ShapeColumn(each.name, each.mysql_type, each.is_key, each.charset or "")
        for each in meta.columns
    )
    has_moments = any(column.type in _WITH_ZONE for column in table_map.columns)
    zone = zone_here().pack() if has_moments else b""
    whole = bytes(_ID_BYTES) + body[_ID_BYTES:]
    return encode(TableShape(whole, mariadb, columns, zone))


def layout_of(data: bytes) -> TableLayout:
    """Return the layout of a table with which its rows are rendered.

    Raises DecodeError for an inconsistent shape.
    """
    try:
        shape = decode(TableShape, data)
        table_map = parse_table_map(shape.table_map, mariadb=shape.mariadb)
        columns = tuple(
            ColumnMeta(each.name, each.mysql_type, each.charset or None, each.key)
            for each in shape.columns
        )
        meta = TableMeta(table_map.schema, table_map.table, columns)
        problem = mismatch(table_map, meta)
        if problem:
            raise DecodeError(problem)
        zone = Zone.unpack(shape.zone) if shape.zone else None
        if zone is None and any(c.type in _WITH_ZONE for c in table_map.columns):
            raise DecodeError(
                f"the time zone of the TIMESTAMPs of table {meta} is missing"
            )
        return compile_layout(table_map, meta, table_ordinal=0, zone=zone)
    except (ProtocolError, TableMetaError) as error:
        raise DecodeError(f"the shape of a table: {error}") from error
