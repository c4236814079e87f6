"""Tables as the mirror has them, made of what the server says of their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fix_source_access import access_of

from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_columns import TableColumns

if TYPE_CHECKING:
    from servers import Server

    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.model.columns_known import TableMeta


def mirror_table(meta: TableMeta, **changes: Any) -> MirrorTable:
    """Return a table with all of its columns."""
    from canal_server.mirror.settings import table_values  # noqa: PLC0415  # pyarrow

    columns = tuple(
        table_values.MirrorColumn(
            c.name, c.mysql_type, c.charset or "", c.is_key, c.name
        )
        for c in meta.columns
    )
    values: dict[str, Any] = {
        "source": table_values.TableName(meta.schema, meta.table),
        "target": f"{meta.schema}/{meta.table}",
        "columns": columns,
        "key": tuple(c.name for c in meta.columns if c.is_key),
    }
    return table_values.MirrorTable(**values | changes)


def table_on(server: Server, schema: str, table: str, **changes: Any) -> MirrorTable:
    """Return a table as it is on a server now."""
    with ControlConnection(access_of(server)) as connection:
        meta = TableColumns(connection).fetch(schema, table)
    assert meta is not None
    return mirror_table(meta, **changes)
