"""Tables as the mirror has them, made of what the server says of their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fix_source_access import access_of

from canal_server.mysql.columns import TableColumns
from canal_server.mysql.connection import ControlConnection

if TYPE_CHECKING:
    from servers import Server

    from canal_server.mirror.model import MirrorTable
    from canal_server.model.table import TableMeta


def mirror_table(meta: TableMeta, **changes: Any) -> MirrorTable:
    """Return a table with all of its columns."""
    from canal_server.mirror import model  # noqa: PLC0415  # pyarrow is an extra

    columns = tuple(
        model.MirrorColumn(c.name, c.mysql_type, c.charset or "", c.is_key, c.name)
        for c in meta.columns
    )
    values: dict[str, Any] = {
        "source": model.TableName(meta.schema, meta.table),
        "target": f"{meta.schema}/{meta.table}",
        "columns": columns,
        "key": tuple(c.name for c in meta.columns if c.is_key),
    }
    return model.MirrorTable(**values | changes)


def table_on(server: Server, schema: str, table: str, **changes: Any) -> MirrorTable:
    """Return a table as it is on a server now."""
    with ControlConnection(access_of(server)) as connection:
        meta = TableColumns(connection).fetch(schema, table)
    assert meta is not None
    return mirror_table(meta, **changes)
