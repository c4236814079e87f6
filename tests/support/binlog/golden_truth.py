"""Makes tables of delivered rows, to compare them with what SELECT returned."""

from __future__ import annotations

import ctypes
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from canal_server.decoder.rows.layout_plan import base_type
from canal_server.doors.sqltext import Dialect
from canal_server.model.entry import EventType
from canal_server.tablemeta.sql.statement_classes import examine

if TYPE_CHECKING:
    from canal_server.model.columns_known import ColumnMeta
    from canal_server.protocol.entry_messages import Column, Entry

TableName = tuple[str, str]
Row = dict[str, str | None]

_FIXED_BINARY = "binary"
_NUMBERS = {
    "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double",
}  # fmt: skip
_DROPPED_PARTITION = re.compile(r"(truncate|drop|exchange)\s+partition", re.IGNORECASE)


class Tables:
    """Tables as a client would have them that applies every entry."""

    def __init__(self) -> None:
        self.rows: dict[TableName, list[Row]] = {}

    def apply(self, entry: Entry) -> None:
        """Apply one entry of rows or DDL."""
        change = entry.row_change()
        if change.is_ddl:
            self._apply_ddl(change.sql, change.ddl_schema_name)
            return
        name = entry.header.schema_name, entry.header.table_name
        rows = self.rows.setdefault(name, [])
        for data in change.row_datas:
            row = self._find(rows, data.before_columns) if data.before_columns else {}
            if change.event_type == EventType.INSERT:
                rows.append(row)
            if change.event_type == EventType.DELETE:
                rows.remove(row)
            row.update(data.after)

    def _find(self, rows: list[Row], before: tuple[Column, ...]) -> Row:
        """Return the row with these values, or with this key; columns may be new."""
        keys = [column for column in before if column.is_key]
        for columns in filter(None, (before, keys)):
            for row in rows:
                if all(row.get(each.name, each.text) == each.text for each in columns):
                    return row
        raise LookupError(f"no row with {[(c.name, c.text) for c in before][:4]}")

    def _apply_ddl(self, sql: str, schema: str) -> None:
        for change in examine(sql, schema, Dialect()).statements:
            name = (change.schema or "", change.table or "")
            if change.event_type == EventType.RENAME:
                old = (change.old_schema or "", change.old_table or "")
                self.rows[name] = self.rows.pop(old, [])
            elif change.event_type in (EventType.ERASE, EventType.TRUNCATE):
                self.rows.pop(name, None)
            elif change.event_type == EventType.CREATE:
                if not re.search(r"if\s+not\s+exists", sql, re.IGNORECASE):
                    self.rows[name] = []
            elif change.event_type == EventType.ALTER:
                if _DROPPED_PARTITION.search(sql):
                    self.rows[name] = []
            elif re.match(r"drop\s+(database|schema)", sql, re.IGNORECASE):
                for each in [each for each in self.rows if each[0] == change.schema]:
                    del self.rows[each]


def agrees(  # noqa: PLR0911  # a table of types
    column: ColumnMeta, value: str | None, truth: dict[str, str] | None
) -> bool:
    """Return whether a delivered value is the one that SELECT returned."""
    if value is None or truth is None:
        return value is None and truth is None
    kind = base_type(column.mysql_type)
    if "hex" in truth:
        octets = bytes.fromhex(truth["hex"])
        if kind == _FIXED_BINARY:
            octets = octets.rstrip(b"\0")  # the binlog does not carry them
        return value == octets.decode("latin-1")
    if "number" in truth:
        return value == truth["number"]
    right = truth["text"]
    if kind == "float":
        return ctypes.c_float(float(value)).value == ctypes.c_float(float(right)).value
    if kind == "double":
        return float(value) == float(right)
    if kind in _NUMBERS:
        return Decimal(value) == Decimal(right)
    if kind == "json":
        return _plain_json(value) == _plain_json(right)
    return value == right


def _plain_json(text: str) -> object:
    return json.loads(text, parse_int=_number, parse_float=_number, strict=False)


def _number(text: str) -> tuple[str, object]:
    """Return a number apart from bool; MySQL prints doubles its own way."""
    return ("number", float(text) if re.search("[.eE]", text) else int(text))


def disagreements(
    tables: Tables,
    truth: list[dict[str, Any]],
    columns: dict[TableName, dict[str, ColumnMeta]],
    skip: frozenset[str],
) -> list[str]:
    """Say which rows are missing or too many; `skip`: tables not to look at."""
    found = []
    left = {name: list(rows) for name, rows in tables.rows.items()}
    for each in truth:
        name = (each["schema"], each["table"])
        if ".".join(name) in skip:
            left.pop(name, None)
            continue
        types = columns[name]
        for row in left.get(name, ()):
            if all(
                agrees(types[column], row[column], value)
                for column, value in each["row"].items()
                if column in row
            ):
                left[name] = [other for other in left[name] if other is not row]
                break
        else:
            found.append(f"missing in {'.'.join(name)}: {str(each['row'])[:300]}")
    for name, rows in left.items():
        if name[0] != "zz_end" and name in columns and ".".join(name) not in skip:
            found += [f"too many in {'.'.join(name)}: {str(row)[:300]}" for row in rows]
    return found
