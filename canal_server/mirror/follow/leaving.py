"""Why a table leaves the stream of changes, and where.

Each class says what has to be done with it; the message says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.client.range_client import RangePosition
from canal_server.errors import CanalError
from canal_server.mirror.ddl.table_statements import read_statement
from canal_server.mirror.state.state import Origin
from canal_server.model.versions import EXACT_OFFSETS, position_of_version

if TYPE_CHECKING:
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.spark.packed.packed_rows import Packed


class CopyNeededError(CanalError):
    """A change cannot be followed; a new copy of the table includes it."""


class TableStoppedError(CanalError):
    """A change cannot be followed, and a person must decide."""


class TableReplacedError(CopyNeededError):
    """Another table got its name: if the lake has that table, it has the rows."""

    def __init__(self, text: str, origin: Origin | None) -> None:
        """Set the message, and the table that has the name now, unless unknown."""
        super().__init__(text)
        self.origin = origin


class TableDroppedError(CanalError):
    """The table was dropped or renamed in the source."""

    def __init__(self, text: str, seq: int = 0) -> None:
        """Set the message, and the number of the statement, if the stream had it.

        All changes before it are applied then.
        """
        super().__init__(text)
        self.seq = seq


def origin_of(item: Packed) -> Origin | None:
    """Return which table has the name of a statement's table after it, if another."""
    schema = item.table.schema
    # Both dialects have the same statements for that.
    effect = read_statement(
        item.sql, item.table, schema=schema, exists=False, mariadb=False
    )
    if effect.origin in (None, item.table):
        return None
    return origin_at(item, effect.origin)


def origin_at(item: Packed, source: TableName) -> Origin | None:
    """Return which table got another's name by a statement, and where that was.

    None if the position after the statement is not known exactly.
    """
    end = end_of(item)
    return None if end is None else Origin(source, item.seq, end)


def end_of(item: Packed) -> RangePosition | None:
    """Return the position after a statement; None if it is not known exactly."""
    end = position_of_version(item.version)
    if not item.version or end.offset >= EXACT_OFFSETS:
        return None
    return RangePosition(end.epoch, item.journal, end.offset)
