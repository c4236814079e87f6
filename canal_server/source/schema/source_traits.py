"""The properties of a server that the table history stores, and collation names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.decoder.text.charset_names import charset_of_collation
from canal_server.mysql.server_answers import reads_answers
from canal_server.tablemeta.history.ddl_records import made_record
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.storage.history_storage import SourceTraits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.tablemeta.storage.history_storage import DdlRecord


def source_of(info: ServerInfo) -> str:
    """Return the identifier of a server's binlog."""
    return info.server_uuid or str(info.server_id)


@reads_answers("its collation")
def traits_of(control: ControlConnection, info: ServerInfo) -> SourceTraits:
    """Query the server settings that decide how its statements are parsed."""
    major, minor, patch = info.version
    rows = control.query("SELECT @@global.collation_server")
    return SourceTraits(
        info.is_mariadb,
        major * 10000 + minor * 100 + patch,
        info.lower_case_table_names,
        str(rows[0][0]),
    )


def records_of(
    events: Iterable[DdlStatement],
    collations: Mapping[int, str],
    *,
    contained: bool = False,
) -> list[DdlRecord]:
    """Return the form in which statements are stored; `collations` are the server's."""
    return [record_of(event, collations, contained=contained) for event in events]


def record_of(
    statement: DdlStatement, collations: Mapping[int, str], *, contained: bool = False
) -> DdlRecord:
    """Return the form in which one statement is stored."""
    return made_record(
        statement.position,
        statement.schema,
        statement.ddl,
        with_names(statement.extra, collations),
        contained=contained,
        examined=statement.examined,
    )


def with_names(extra: str, collations: Mapping[int, str]) -> str:
    """Replace the collation ids of a statement's context by names."""

    def named(logged: str | None) -> str | None:
        if logged is None or not logged.isdigit():
            return logged
        charset = charset_of_collation(int(logged))
        return collations.get(int(logged), charset and f"{charset}_general_ci")

    context = Context.from_json(extra)
    return replace(
        context,
        collation_connection=named(context.collation_connection),
        collation_server=named(context.collation_server),
        collation_database=named(context.collation_database),
        collation_utf8mb4=named(context.collation_utf8mb4),
    ).to_json()
