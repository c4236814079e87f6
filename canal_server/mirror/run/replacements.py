"""Tables that get the rows of another one by RENAME, as online schema changes do it.

::

    RENAME TABLE t TO _t_del, _t_gho TO t

    _t_gho: ... rows of the stream ──┤ ended by the statement
    t:      ... rows of the stream ──┤ waits ──► publishes the files of _t_gho, follows

The lake has all rows of the other table up to the statement, so nothing is read from
the database. Leaves out how a table's contents are made equal to files (`lake`).
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final

from canal_server.mirror.copy.copying import Copied
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.lake.lake_table import RowTable
from canal_server.mirror.lake.partition_values import folder_of
from canal_server.mirror.settings.selected_tables import mirror_table, signature
from canal_server.mirror.settings.table_values import LOGS
from canal_server.mirror.state.lake_tables import (
    NOWHERE,
    UnusableTableError,
    move_table,
    open_table,
)
from canal_server.mirror.state.state import Phase
from canal_server.spark.options.offsets import version_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from canal_server.mirror.settings.mirror_settings import MirrorSettings, TableRule
    from canal_server.mirror.settings.table_values import (
        CopiedFile,
        MirrorTable,
        TableName,
    )
    from canal_server.mirror.state.state import Origin, States, TableState
    from canal_server.runtime.lifecycle import Stop

RENAME_S: Final = 5.0  # after which a renamed table is expected not to return
LINKED_AT_ONCE: Final = 8  # files of another table

_GOING_ON: Final = (Phase.CATCHING_UP, Phase.FOLLOWING)
_WAITING: Final = (Phase.WAITING, Phase.COPYING)


def is_possible(
    settings: MirrorSettings,
    name: TableName,
    origin: Origin,
    states: Mapping[TableName, TableState],
) -> bool:
    """Check whether the lake has, or will have, the rows that a table got.

    Both tables have to be mirrored in the same way. The other one may still have to get
    a third one's rows, as of an earlier statement.
    """
    other = states.get(origin.source)
    return (
        other is not None
        and (
            other.phase in _GOING_ON
            or _gets_rows_before(other, origin)
            or _has_ended(other, origin)
        )
        and _are_alike(settings.rule_of(name), settings.rule_of(origin.source))
    )


def is_blocked(
    state: TableState, states: Mapping[TableName, TableState], reached: int
) -> bool:
    """Check whether a table has to wait for others before its rows are exchanged.

    The other table may still have to be followed up to the statement, or a third one
    may have to get this table's rows before, as of this statement or an earlier one.
    `reached` is the number of the stream's stored position.
    """
    origin = state.origin
    if origin is not None:
        other = states.get(origin.source)
        if other is not None and (
            _gets_rows_before(other, origin) or _will_meet(other, origin.seq, reached)
        ):
            return True
    return any(
        not _waits_for(state, each.source, states)
        for each in recipients(state.source, states)
        if not _gets_rows_before(state, each.origin)
    )


def recipients(
    name: TableName, states: Mapping[TableName, TableState]
) -> Iterator[TableState]:
    """Yield the tables that still have to get a table's rows."""
    for each in states.values():
        origin = each.origin if each.phase in _WAITING else None
        if origin is not None and origin.source == name:
            yield each


def _gets_rows_before(other: TableState, origin: Origin | None) -> bool:
    """Check whether a table still has to get the rows of an earlier statement.

    It is followed from there up to the later one then.
    """
    return (
        other.phase in _WAITING
        and other.origin is not None
        and origin is not None
        and other.origin.seq < origin.seq
    )


def _will_meet(other: TableState, seq: int, reached: int) -> bool:
    """Check whether a table will still be followed up to a statement."""
    if other.phase not in _GOING_ON or other.copied_at > seq:
        return False
    if other.phase is Phase.CATCHING_UP:
        assert other.position is not None  # as it was copied
        reached = version_of(other.position)
    return reached <= seq


def _waits_for(
    state: TableState, name: TableName, states: Mapping[TableName, TableState]
) -> bool:
    """Check whether a table waits for another one's rows, perhaps by way of others."""
    seen: set[TableName] = set()
    current: TableState | None = state
    while current is not None and current.origin is not None:
        source = current.origin.source
        if source == name:
            return True
        if source in seen or current.phase not in _WAITING:
            return False
        seen.add(source)
        current = states.get(source)
    return False


def rows_of_other(
    settings: MirrorSettings, store: States, state: TableState, table: MirrorTable
) -> Copied | None:
    """Return the other table's rows as files of a copy of this table.

    None if the lake does not have exactly the rows from the moment of the statement.
    Raises LakeError.
    """
    origin = state.origin
    assert origin is not None  # the caller has checked it
    other = _usable(settings, store, state.source, origin)
    if other is None:
        return None
    source = mirror_table(origin.source, other.columns, settings, other.target)
    lake = open_table(settings, source)
    schema = lake.arrow_schema()
    if not isinstance(lake, RowTable) or schema is None:
        return None
    order = open_table(settings, table).file_schema(schema).names
    if table.is_keyless and order != schema.names:
        return None  # its rows have hashes in another order of the columns
    try:
        found = lake.files()
    except UnusableTableError:
        return None  # another writer's files, or damaged ones
    # Afterwards: nobody has replaced the table since.
    if lake.applied(other.copy_id) == NOWHERE:
        return None
    folders = [open_folder(settings.lake, each.target) for each in (source, table)]

    def linked(number: int, file: CopiedFile) -> CopiedFile:
        unique = uuid.uuid4().hex[:12]
        name = f"copy-{state.copy_id}-{number:06}-0-{unique}.zstd.parquet"
        path = folder_of(file.partition) + name
        folders[1].link(folders[0], file.path, path)
        return replace(file, path=path)

    # Each waits for the disk or the object store.
    with ThreadPoolExecutor(LINKED_AT_ONCE, "canal-lake-link") as pool:
        files = [*pool.map(linked, count(), found)]
    rows = sum(file.rows for file in files)
    return Copied(files, origin.position, schema, rows)


def renamed_table(
    settings: MirrorSettings,
    store: States,
    state: TableState,
    table: MirrorTable,
    stop: Stop,
) -> TableState | None:
    """Make the other table's contents this table's; returns the other's state.

    The table keeps its identity under the new name. Returns None, and moves nothing,
    if that is not possible, or if this table exists in the lake. A repetition finds
    that it is done. Raises LakeError, and ConnectionLost when a stop is requested.
    """
    origin = state.origin
    assert origin is not None  # the caller has checked it
    other = _usable(settings, store, state.source, origin)
    if other is None or settings.is_shadow(origin.source):
        return None
    source = mirror_table(origin.source, other.columns, settings, other.target)
    is_moved = move_table(settings, source, table, other.copy_id, stop)
    return other if is_moved else None


def _usable(
    settings: MirrorSettings, store: States, name: TableName, origin: Origin
) -> TableState | None:
    """Return the state of the other table, if its rows can be those of this one."""
    other = store.read(origin.source)
    if (
        other is None
        or not _has_ended(other, origin)
        or other.plan != signature(origin.source, settings)
        or not _are_alike(settings.rule_of(name), settings.rule_of(origin.source))
    ):
        return None
    return other


def _has_ended(other: TableState, origin: Origin) -> bool:
    """Check whether a table was followed up to the statement, and not changed since."""
    return other.phase in (Phase.DROPPED, Phase.WAITING) and other.ended == origin.seq


def _are_alike(one: TableRule | None, other: TableRule | None) -> bool:
    """Check whether rules give rows the same form, in tables and not in logs."""
    if one is None or other is None or one.form in LOGS:
        return False
    return one == replace(
        other,
        match=one.match,
        exclude=one.exclude,
        to=one.to,
        drift=one.drift,
        dropped_columns=one.dropped_columns,
        foreign_keys=one.foreign_keys,
        migration_tables=one.migration_tables,
        location=one.location,
    )
