"""The statements of a history as records, and their positions in the binlog.

A record stands at the first byte of its event. Until the next event there is room for
answers of the server that are valid from there on. Leaves out storing them (`storage`)
and following them (`replay`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.sql.statement_classes import examine
from canal_server.tablemeta.storage.history_storage import DdlRecord

if TYPE_CHECKING:
    from canal_server.model.ddl_statement import Examined
    from canal_server.model.positions import EntryPosition

# An event has at least 19 bytes. After the first byte of a statement there is therefore
# room for answers of the server that are valid from there on.
_ROOM: Final = 18
ANSWERS_MAX: Final = _ROOM - 1


def made_record(
    position: EntryPosition,
    schema: str,
    ddl: str,
    extra: str = "",
    *,
    contained: bool = False,
    examined: Examined | None = None,
) -> DdlRecord:
    """Return the stored form of a statement; `extra` is its Context as JSON.

    `examined` is what its text says, if that is known already.
    """
    context = Context.from_json(extra)
    statements = (examined or examine(ddl, schema, context.dialect)).statements
    first = statements[0] if statements else None
    return DdlRecord(
        position,
        schema,
        ddl,
        context,
        contained,
        first.event_type.name if first else "",
        (first.schema or "") if first else "",
        (first.table or "") if first else "",
    )


def position_after(position: EntryPosition) -> EntryPosition:
    """Return a position after the start of a statement and before the next event."""
    return replace(position, position=(position.position or 0) + _ROOM)


def position_before(end: EntryPosition) -> EntryPosition:
    """Return the start of the statement of which `position_after` returned `end`."""
    return replace(end, position=(end.position or 0) - _ROOM)


def answer_positions(
    standing: EntryPosition, position: EntryPosition
) -> list[EntryPosition]:
    """Return where answers of the server may stand, after the last statement.

    `standing` is the position of the schemas, and `position` that of the rows for which
    the server was asked.
    """
    file, end = standing.journal_name, standing.position or 0
    return [
        replace(position, journal_name=file, position=offset, gtid=None)
        for offset in range(max(end - ANSWERS_MAX, 1), end)
    ]


def first_answer_position(standing: EntryPosition) -> EntryPosition:
    """Return the first position at which an answer may stand."""
    return replace(standing, position=max((standing.position or 0) - ANSWERS_MAX, 0))


def set_after(
    before: EntryPosition | None, position: EntryPosition, *, mariadb: bool
) -> str | None:
    """Return the set that was executed after a statement, None if unknown."""
    if before is None or before.gtid is None or not position.gtid:
        return None
    texts = before.gtid, position.gtid
    try:
        if mariadb:
            maria, its = map(MariaGtidSet.parse, texts)
            return str(maria.union(its))
        mysql, own = map(GtidSet.parse, texts)
        return str(mysql.union(own))
    except ValueError:
        return None  # of a history that another program wrote
