"""Random rows of a real server as the binlog reports them: entries, and the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arrow_truth import body_of, generic_rows
from fix_random import longer
from fix_source_access import access_of
from random_schema import RandomLoad

from canal_server.arrow.arrow_columns import requested_column
from canal_server.filters.table_filters import TableFilter
from canal_server.mysql.cached_columns import CachedColumns
from canal_server.mysql.control_connection import ControlConnection
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_part import FilePosition, Part

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from servers import Server

    from canal_server.arrow.arrow_columns import RequestedColumn
    from canal_server.model.columns_known import TableMeta
    from canal_server.protocol.entry_messages import Entry


class Reading:
    """The entries of a schema from a position to the binlog's end, and its columns."""

    def __init__(
        self, server: Server, schema: str, start: FilePosition, tables: Iterable[str]
    ) -> None:
        self.entries: list[Entry] = []
        self.tables: dict[str, TableMeta] = {}
        self.columns: dict[str, tuple[RequestedColumn, ...]] = {}
        access = access_of(server)
        images = CachedColumns(ControlConnection(access))
        try:
            Part(
                images=images,
                take=self._take,
                table_filter=TableFilter(rf"{schema}\..*", "").accepts,
                until=FilePosition(*server.binlog_position()),
            ).read_server(access, start, Stop())
            for table in tables:
                meta = images.find(schema, table)
                assert meta is not None
                self.tables[table] = meta
                self.columns[table] = tuple(map(requested_column, meta.columns))
        finally:
            images.close()
        self.body = body_of(self.entries)

    def _take(self, entry: Entry) -> bool:
        self.entries.append(entry)
        return True


def random_load(
    server: Server, schema: str, rng: random.Random, **options: Any
) -> tuple[RandomLoad, Reading]:
    """Write random rows to random tables, and read them from the binlog."""
    start = FilePosition(*server.binlog_position())
    load = RandomLoad(server, schema, rng, **options)
    load.run(tables=4, steps=longer(30))
    return load, Reading(server, schema, start, [table.name for table in load.tables])


def all_rows(batches: Any, body: bytes) -> list[dict[str, Any]]:
    """Return the rows of all batches, which are valid."""
    found = [*batches.feed(body), batches.rest()]
    for batch in found:
        if batch is not None:
            batch.validate(full=True)
    return [row for batch in found if batch is not None for row in generic_rows(batch)]
