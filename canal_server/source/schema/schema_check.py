"""Compares the table history with the server's current tables.

The history ends at a position. The statements after it are read and applied to a copy,
so that any remaining difference is not a matter of time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import TableMetaError
from canal_server.mysql.collations import collation_names
from canal_server.mysql.control_connection import ControlConnection, aborted_by
from canal_server.mysql.flavour import read_server_info
from canal_server.mysql.schema_dump import DumpedTables, SchemaReader
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.schema.base_dump import BaseDumper
from canal_server.source.schema.source_traits import records_of, source_of, traits_of
from canal_server.tablemeta.history.history_moments import moment_at
from canal_server.tablemeta.history.replay import Replay
from canal_server.tablemeta.model.charset_widths import charset_of
from canal_server.tablemeta.model.table_schema import ROW_END
from canal_server.tablemeta.tables.table_diff import CHANGED, Difference, differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.positions import EntryPosition
    from canal_server.mysql.source_settings import Access
    from canal_server.source.schema.base_dump import BaseDump
    from canal_server.tablemeta.history.opened_history import History
    from canal_server.tablemeta.model.operations import Name
    from canal_server.tablemeta.model.table_schema import Table
    from canal_server.tablemeta.storage.history_storage import BinlogSegment
    from canal_server.tablemeta.tables.memory_tables import MemoryTableMeta
    from canal_server.tablemeta.tables.schemas import FrozenTables


# mysqldump leaves them out, and the binlog never has rows of them.
_NEVER_DUMPED: Final = frozenset(
    (("mysql", "innodb_index_stats"), ("mysql", "innodb_table_stats"))
)


@dataclass(frozen=True, slots=True)
class HistoryEnd:
    """The tables at the end of a segment, and the event from which to continue there.

    `event` is where an event begins at that end, or right before it.
    """

    segment: BinlogSegment
    image: FrozenTables
    event: EntryPosition


@dataclass(frozen=True, slots=True)
class Differing:
    """A table that differs from the history, or a schema: its table is "".

    `found` leads from the history to the server. `is_uncertain`: the history itself
    marks the table as uncertain.
    """

    name: Name
    found: tuple[Difference, ...]
    is_uncertain: bool = False


@dataclass(frozen=True, slots=True)
class Verified:
    """How the history and a server agree, as of a position in its binlog.

    `later` are the positions of the statements after the history's end. `unread` names
    the tables that the server did not return, and why.
    """

    position: EntryPosition
    later: tuple[EntryPosition, ...]
    compared: int
    differing: tuple[Differing, ...]
    unread: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        """Return whether nothing differs.

        An account without privileges sees no tables, which proves nothing.
        """
        return not self.differing and not (self.unread and not self.compared)

    def as_json(self, segment: BinlogSegment) -> dict[str, Any]:
        """Return it as JSON values; `segment` is the one that was compared."""
        return {
            "history_end": str(segment.last),
            "server_end": str(self.position),
            "compared": self.compared,
            "later_statements": [str(each) for each in self.later],
            "not_compared": list(self.unread),
            "differing": [
                {
                    "schema": each.name[0],
                    "table": each.name[1],
                    "uncertain": each.is_uncertain,
                    "differences": [difference.as_json() for difference in each.found],
                    "lines": [str(difference) for difference in each.found],
                }
                for each in self.differing
            ],
        }


def end_of(history: History) -> HistoryEnd:
    """Return the end of a history. Raises TableMetaError."""
    moment = moment_at(history, None)
    event = history.tsdb.end_event(moment.segment)
    return HistoryEnd(moment.segment, moment.image, event)


def verify(
    config: InstanceConfig,
    access: Access,
    end: HistoryEnd,
    choose: Callable[[Iterable[Name]], Iterable[Name]],
    stop: Stop | None = None,
) -> Verified:
    """Compare a history's end with the server, for the tables that `choose` selects.

    Raises SourceError, also when the later statements are purged or `stop` is requested
    meanwhile, and TableMetaError for another server's history.
    """
    segment, stop = end.segment, stop or Stop()
    with ControlConnection(access, stop) as control, aborted_by(stop, control):
        info = read_server_info(control)
        # A history of the Java server has only the number, and no traits.
        if segment.source not in (source_of(info), str(info.server_id)):
            raise TableMetaError(
                f"the table history of destination {config.destination} is of server"
                f" {segment.source}, but {access.address} is {source_of(info)};"
                " canal-server continues it there once it reads that server"
            )
        scanner = DdlScanner(config, access, stop)
        dump = BaseDumper(control, info, scanner).take()
        if dump.position.order() < segment.last.order():
            raise TableMetaError(
                f"the binlog of {access.address} ends at {dump.position}, before the"
                f" end of the table history at {segment.last}: the binlog was reset"
            )
        events = [
            each
            for each in scanner.between(end.event, dump.position)
            if each.position.order() >= segment.last.order()
        ]
        traits = segment.traits if segment.traits.version else traits_of(control, info)
        known = Replay(traits, ())
        known.model.restore(end.image)
        for record in records_of(events, collation_names(control)):
            known.apply(record)
        on_server = Replay(traits, dump.schemas)
        names = list(choose({*_names(known.model), *_names(on_server.model)}))
        shown = set(_names(on_server.model))
        dump = _with_hidden(
            dump, control, (each for each in names if each not in shown)
        )
    return _compared(
        known.model,
        on_server.model,
        names,
        dump,
        tuple(each.position for each in events),
    )


def _with_hidden(
    dump: BaseDump, control: ControlConnection, names: Iterable[Name]
) -> BaseDump:
    """Add the tables that the account must not see to the unread ones.

    They are missing from the server's list of tables, like dropped ones, but a query by
    name is refused.
    """
    asked = DumpedTables()
    SchemaReader(control).read_into(asked, (each for each in names if each[1]))
    hidden = tuple(
        f"table {schema}.{table}: {problem}"
        for (schema, table), problem in asked.problems.items()
    )
    return replace(
        dump,
        problems=dump.problems + hidden,
        unread=dump.unread | asked.problems.keys(),
    )


def _compared(
    known: MemoryTableMeta,
    on_server: MemoryTableMeta,
    names: Iterable[Name],
    dump: BaseDump,
    later: tuple[EntryPosition, ...],
) -> Verified:
    history_image, server_image = known.freeze(), on_server.freeze()
    compared = 0
    differing = []
    names = list(names)
    for schema in sorted({schema for schema, _ in names}):
        found = _schema_differences(history_image, server_image, schema)
        if found:
            differing.append(Differing((schema, ""), found))
    for name in names:
        if name in dump.unread or not _is_recordable(known, name):
            continue
        compared += 1
        found = _table_differences(history_image, server_image, name)
        if found:
            is_uncertain = known.is_uncertain(*name)
            differing.append(Differing(name, found, is_uncertain))
    return Verified(dump.position, later, compared, tuple(differing), dump.problems)


def _schema_differences(
    known: FrozenTables, on_server: FrozenTables, schema: str
) -> tuple[Difference, ...]:
    """Compare what new tables of a schema inherit.

    A schema that is missing counts by its tables.
    """
    collations = known.collation(schema), on_server.collation(schema)
    before, after = (charset_of(each) if each else None for each in collations)
    if before == after or not before or not after:
        return ()
    return (Difference(CHANGED, "default charset", before=before, after=after),)


def _table_differences(
    known: FrozenTables, on_server: FrozenTables, name: Name
) -> tuple[Difference, ...]:
    texts = known.text(*name), on_server.text(*name)
    # Identical text is an identical table; parsing is not needed.
    if texts[0] is not None and texts[0] == texts[1]:
        return ()
    tables = known.find(*name), on_server.find(*name)
    for text, table, where in zip(texts, tables, ("history", "server"), strict=True):
        if text is not None and table is None:
            return (Difference(CHANGED, f"definition that cannot be parsed ({where})"),)
    return tuple(differences(_comparable(tables[0]), _comparable(tables[1])))


def _is_recordable(known: MemoryTableMeta, name: Name) -> bool:
    """Return whether a history can contain a table at all."""
    return name not in _NEVER_DUMPED or known.find(*name) is not None


def _names(model: MemoryTableMeta) -> list[Name]:
    return [
        (schema, table) for schema in model.schemas() for table in model.tables(schema)
    ]


def _comparable(table: Table | None) -> Table | None:
    """Return a table reduced to what statements and SHOW CREATE TABLE both state.

    The server may replace engines, add keys for foreign keys, and show the primary key
    of a versioned table with the end of its rows.
    """
    if table is None:
        return None
    ends = {each.key for each in table.columns if ROW_END in each.flags}
    return replace(
        table,
        engine="",
        primary=tuple(each for each in table.primary if each.lower() not in ends),
        keys=tuple(key for key in table.keys if key.kind == "UNIQUE"),
    )
