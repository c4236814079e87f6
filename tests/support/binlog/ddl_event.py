"""Statements as a reader passes them on."""

from __future__ import annotations

from canal_server.doors.sqltext import Dialect
from canal_server.model.ddl_statement import DdlStatement
from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.sql.statement_classes import examine

HERE = EntryPosition("binlog.000001", 4)


def statement_of(sql: str, schema: str = "", at: EntryPosition = HERE) -> DdlStatement:
    """Return a statement of a session without any settings."""
    return DdlStatement(at, schema, sql, "{}", examine(sql, schema, Dialect()))
