"""Table schemas for readers of a range, next to the pump and its live schemas.

With a table history they are those at the start of the range, and follow its statements
as reading passes them; nothing is written. Without a history they are the server's
current ones, as the pump has them.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.errors import ClientError, TableMetaError, TableMetaStoreError
from canal_server.messages import ranged_read_messages
from canal_server.model.positions import EntryPosition
from canal_server.mysql.cached_columns import CachedColumns
from canal_server.mysql.collations import collation_names
from canal_server.protocol.range_messages import NOT_HERE, PURGED
from canal_server.source.read.start_position import StartPosition
from canal_server.source.read.unknown_columns import FROM_NOW_ON, LEAVE_OUT
from canal_server.source.schema.schema_transfer import NotCarried, SchemaTransfer
from canal_server.source.schema.source_traits import record_of, records_of, source_of
from canal_server.tablemeta.history.ddl_records import position_after
from canal_server.tablemeta.history.tsdb import TableMetaTsdb
from canal_server.tablemeta.storage.open_storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.columns_known import TableMeta
    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.ports import TableSchemas
    from canal_server.ranges.range_unread import UnreadStatements
    from canal_server.source.read.ddl_scan import DdlScanner
    from canal_server.source.read.gtid_sets import Gtids
    from canal_server.tablemeta.history.replay import Replay
    from canal_server.tablemeta.history.replay_cache import KeptReplays
    from canal_server.tablemeta.storage.history_storage import BinlogSegment, DdlRecord
    from canal_server.tablemeta.tables.schemas import FrozenTables

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RangeTables:
    """What one destination knows about its tables; for many threads."""

    kept: KeptReplays
    unread: UnreadStatements
    # The boundary up to which the pump has read; None: unknown.
    reached: Callable[[], EntryPosition | None]


class RangeSchemas:
    """The port `TableSchemas` on the schemas at a position; for one reader.

    `records` are the statements, and the server's answers, from there on as far as they
    are known. The server is queried only where the binlog contradicts the schema.
    """

    def __init__(
        self,
        replayed: Replay,
        records: Iterable[DdlRecord],
        control: ControlConnection,
        complete_to: EntryPosition,
        doubt: str = "",
    ) -> None:
        """Store the schemas; before `complete_to` the statements are complete.

        `doubt`: why tables may have had other columns there, and the remedy.
        """
        self.complete_to = complete_to
        self.doubt = doubt
        self._image = replayed
        self._records = deque(records)
        self._today = CachedColumns(control)
        self._control = control
        self._collations: dict[int, str] | None = None

    def find(
        self, schema: str, table: str, position: EntryPosition
    ) -> TableMeta | None:
        """Return the columns where the range is being read."""
        while self._records and self._records[0].is_answer:
            if self._records[0].position.order() > position.order():
                break
            self._image.apply(self._records.popleft())
        found = self._image.find(schema, table)
        return None if found is None else found.meta

    def snapshot_at(self, position: EntryPosition) -> SchemaSnapshot:
        """Return the schemas at the start position, for later look-ups."""
        return SchemaSnapshot(position, self.complete_to, self._image, self._records)

    def refresh(
        self, schema: str, table: str, position: EntryPosition
    ) -> TableMeta | None:
        """Return what the server has now: it is used as long as it fits."""
        return self._today.refresh(schema, table, position)

    def apply(self, statement: DdlStatement) -> None:
        """Apply a statement, as it was stored when the pump passed it, if it did."""
        position = statement.position
        event_end = position_after(position).order()
        is_known = False
        while self._records and self._records[0].position.order() < event_end:
            record = self._records.popleft()
            is_known |= record.position.order() == position.order()
            self._image.apply(record)
        if is_known:
            return
        if self._collations is None:
            self._collations = collation_names(self._control)
        self._image.apply(record_of(statement, self._collations))

    def passed(self, position: EntryPosition) -> None:
        """Keep no history."""


class SchemaSnapshot:
    """All tables at one position, without a server; for one thread at a time."""

    def __init__(
        self,
        position: EntryPosition,
        complete_to: EntryPosition,
        replayed: Replay,
        records: Iterable[DdlRecord],
    ) -> None:
        """Store the schemas at a position, and the statements from there on.

        Before `complete_to` they are complete.
        """
        self.position = position
        self._complete_to = complete_to
        self._image = replayed.copy()
        self._records = deque(records)
        # What the server answered there applies to the rows from there on.
        while self._records and self._records[0].is_answer:
            if self._records[0].position.order() > position.order():
                break
            self._image.apply(self._records.popleft())

    def covers(self, position: EntryPosition) -> bool:
        """Return whether `at` can reach a position."""
        return self.position.order() <= position.order() <= self._complete_to.order()

    def at(self, position: EntryPosition) -> SchemaSnapshot:
        """Return the schemas at a position that this one covers."""
        image, records = self._image.copy(), deque(self._records)
        while records and records[0].position.order() < position.order():
            image.apply(records.popleft())
        return SchemaSnapshot(position, self._complete_to, image, records)

    def find(self, schema: str, table: str) -> TableMeta | None:
        """Return a table; None when it does not exist."""
        found = self._image.find(schema, table)
        return None if found is None else found.meta


def schemas_at(
    config: InstanceConfig,
    control: ControlConnection,
    info: ServerInfo,
    position: EntryPosition,
    scanner: DdlScanner,
    *,
    tables: RangeTables,
    executed: Callable[[EntryPosition], Gtids | None],
) -> TableSchemas:
    """Return the schemas for reading from a boundary on; `tables`: what is known.

    `executed` returns the GTID set of a boundary, if it has one. Raises ClientError
    when the history does not cover the position, or has no data of the server yet, and
    SourceError or TableMetaStoreError when the server or the history cannot be queried
    now.
    """
    if not config.table_meta.enable:
        return CachedColumns(control)
    history = TableMetaTsdb(open_storage(config, read_only=True))
    try:
        history.init(config.destination)
        reached = tables.reached()  # first: what was read by then is in the history
        segments = history.segments()
        segment = _segment_for(segments, info, position)
        complete_to = segment.last
        known: FrozenTables | NotCarried | None = None
        if segment is segments[-1] and reached is not None:
            complete_to = max(reached, complete_to, key=EntryPosition.order)
        if position.order() >= segment.first.order():
            found = _replay_at(history, segment, position, tables, (control, scanner))
        else:
            _log.info(
                "destination %s: a range starts at %s, before the table history:"
                " scanning the statements from there to %s",
                config.destination,
                position,
                segment.first,
            )
            names = collation_names(control)
            others = segments[: segments.index(segment)]
            gap = records_of(
                scanner.between(position, segment.first), names, contained=True
            )
            known = _schemas_of_others(
                SchemaTransfer(history, info, scanner, names),
                [each for each in others if _is_of_other(each, info)],
                lambda: executed(position),
            )
            if isinstance(known, NotCarried):
                ranged_read_messages.RANGE_SCHEMAS_UNKNOWN.log(
                    _log, config.destination, position, known
                )
            found = history.replay_before(
                segment, gap, None if isinstance(known, NotCarried) else known
            )
    except TableMetaStoreError:
        raise  # nothing is lost: the answer is there when the history is
    except TableMetaError as error:
        raise ClientError(
            f"the columns of tables at {position} are not known: {error}", code=PURGED
        ) from error
    finally:
        history.close()
    doubt = ""
    if known is None or isinstance(known, NotCarried):
        doubt = _doubt(position, segment, found[1], known)
    return RangeSchemas(*found, control, complete_to, doubt)


def _replay_at(
    history: TableMetaTsdb,
    segment: BinlogSegment,
    position: EntryPosition,
    tables: RangeTables,
    server: tuple[ControlConnection, DdlScanner],
) -> tuple[Replay, list[DdlRecord]]:
    """Return the schemas at a position that the history covers, or the pump not yet."""
    reached = tables.reached()  # first: what was read by then is in the history
    replayed, records = history.replay_at(position, segment, tables.kept)
    order = position.order()
    rest = [each for each in records if each.position.order() >= order]
    if reached is None or reached.order() < segment.last.order():
        reached = segment.last
    if order <= reached.order():
        return replayed, rest
    if reached is segment.last:
        reached = history.end_event(segment)
    reason = {each.position.order() for each in records}
    events = tables.unread.between(segment.id, reached, position, server[1].between)
    new = [each for each in events if each.position.order() not in reason]
    if new:
        for record in records_of(new, collation_names(server[0])):
            replayed.apply(record)
    return replayed, rest


def _is_of_other(segment: BinlogSegment, info: ServerInfo) -> bool:
    names = (source_of(info), str(info.server_id))
    return segment.source not in names and segment.traits.mariadb == info.is_mariadb


def _schemas_of_others(
    known: SchemaTransfer,
    segments: list[BinlogSegment],
    executed_at_position: Callable[[], Gtids | None],
) -> FrozenTables | NotCarried | None:
    """Return the tables after a GTID set as they were on the previous servers.

    Or why the newest of these cannot provide them; None where there were none.
    """
    if not segments:
        return None
    executed = executed_at_position()
    if executed is None:
        return NotCarried("the GTID set at the position is unknown")
    position = StartPosition("", 0, executed, by_gtid=True)
    refused: NotCarried | None = None
    for segment in reversed(segments):
        image = known.image(segment, position, list)
        if not isinstance(image, NotCarried):
            return image
        refused = refused or NotCarried(
            f"the history of server {segment.source} cannot be carried over: {image}"
        )
    return refused


def _doubt(
    position: EntryPosition,
    segment: BinlogSegment,
    records: Iterable[DdlRecord],
    why: NotCarried | None,
) -> str:
    """Return the doubt to report where rows contradict later schemas, "" if none."""
    contained = [each.position for each in records if each.contained]
    if not contained or contained[-1].order() < position.order():
        return ""
    reason = f" ({why})" if why else ""
    return (
        f"What tables were at {position} is not known: the table history of server"
        f" {segment.source} starts after the statement at {contained[-1]}{reason}."
        f" Start a new subscription there, with file:{contained[-1]}, and load what"
        f" was changed before from the tables; or {LEAVE_OUT}; {FROM_NOW_ON}"
    )


def _segment_for(
    segments: list[BinlogSegment], info: ServerInfo, position: EntryPosition
) -> BinlogSegment:
    """Return this server's segment that covers a position, or the first after it.

    The newest one knows what was added since its last write. Raises ClientError.
    """
    known = (source_of(info), str(info.server_id))
    found = [each for each in segments if each.source in known]
    if not found:
        raise ClientError(
            f"the table history has no data of server {known[0]} yet; try again",
            code=NOT_HERE,
        )
    newest = found[-1]
    # Segments of a binlog that was reset since have positions without meaning now.
    found = [
        each
        for each in found
        if each.traits.file != newest.traits.file
        or each.traits.file_began_ms == newest.traits.file_began_ms
    ]
    for segment in reversed(found):
        last = None if segment is newest else segment.last.order()
        if segment.first.order() <= position.order() and (
            last is None or position.order() <= last
        ):
            return segment
    return min(
        (each for each in found if each.first.order() > position.order()),
        key=lambda each: each.first.order(),
    )
