"""Ranges read again from the source's binlog, each over its own dump.

A `RangeDump` is one connection to the server that a destination reads: its epoch, its
files, and walks over ranges of them. Leaves out memory, cursors and waiting
(`ranged_reads`).
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.core.blocks import BlockPool
from canal_server.core.table_ids import TableIds
from canal_server.errors import (
    BinlogPurged,
    ClientError,
    InsideTransaction,
    PositionError,
    SourceRefused,
)
from canal_server.filters.column_filters import ColumnFilter
from canal_server.model.positions import (
    EntryPosition,
    Executed,
    binlog_file_number,
)
from canal_server.model.ranges import EpochPosition
from canal_server.mysql.binlogs import current_end
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.mysql.replication import FIRST_EVENT
from canal_server.mysql.server_errors import account_text, error_of_packet
from canal_server.protocol.range_messages import PURGED
from canal_server.protocol.server_session import REFUSED
from canal_server.ranges.epochs import epoch_of
from canal_server.ranges.range_beginning import check_nothing_before
from canal_server.ranges.range_mapping import Mapped, RangeMapper, other_epoch
from canal_server.ranges.range_schemas import RangeSchemas, schemas_at
from canal_server.ranges.recent_records import gtids_in
from canal_server.ranges.selection import RangeWalk
from canal_server.source.archive.source_binlogs import readable_logs, unread_in_archive
from canal_server.source.begin.search import BinlogSearch
from canal_server.source.read.available_positions import SourceFiles
from canal_server.source.read.binlog_reader import Reader
from canal_server.source.read.binlog_scan import Scanner
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.read.gtid_sets import contains, parse
from canal_server.source.read.start_position import StartPosition
from canal_server.source.read.temporary_dump import TemporaryDump
from canal_server.source.read.unknown_columns import UnknownColumnsError
from canal_server.source.read.unreadable_events import unreadable_of
from canal_server.source.schema.source_traits import source_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from canal_server.config.schema import InstanceConfig
    from canal_server.filters.table_filters import TableFilter
    from canal_server.model.ranges import Epoch, RangeLimits
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.replication import DumpStart
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import Span, TableSchemas
    from canal_server.ranges.range_cursors import Subscriptions
    from canal_server.ranges.range_schemas import RangeTables
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.begin.boundary_index import BoundaryIndex
    from canal_server.source.read.gtid_sets import Gtids

_log = logging.getLogger(__name__)

# Of a destination's range readers, after the numbers of its other readers.
FIRST_REPLICA: Final = 16
CUT_ROWS: Final = 5_000  # between two positions at which a range could be cut
_DIGITS_MAX: Final = 18  # of a time or an offset; they fit in 64 bits


def order_of(file: str, offset: int) -> tuple[int, int]:
    """Return a key that sorts positions of one binlog."""
    return binlog_file_number(file), offset


class RangeDump:
    """One server's binlog as it is now; for one thread. A context manager.

    `slot` distinguishes concurrent readers of one destination.
    """

    def __init__(  # noqa: PLR0917  # all parts of one connection
        self,
        config: InstanceConfig,
        access: Access,
        subscriptions: Subscriptions,
        index: BoundaryIndex | None,
        stop: Stop,
        slot: int,
        tables: RangeTables,
    ) -> None:
        self._tables = tables
        self._config = config
        self._access = access
        self._subscriptions = subscriptions
        self._index = index
        self._stop = stop
        self._replica = FIRST_REPLICA + 2 * slot
        self._control = ControlConnection(access, stop)
        self._scanner = Scanner(config, access, stop, replica=self._replica + 1)
        self._files = SourceFiles(())
        self.epoch: Epoch
        # In GTID mode a boundary that was read from, and the set executed there.
        self.executed: tuple[tuple[int, int], str] | None = None
        self._seen: list[Span] = []  # the last spans of the last walk
        self._doubt = ""  # what to report for rows with other columns
        # The end of what the last walk has seen, if that was the binlog's end.
        self.ended: EpochPosition | None = None

    def __enter__(self) -> Self:
        """Connect and query. Raises SourceError, MetaStoreError."""
        self._control.open()
        try:
            self._info = read_server_info(self._control)
            # The account may lack the privilege to list them.
            with contextlib.suppress(SourceRefused):
                self._files = SourceFiles(tuple(readable_logs(self._control)))
        except BaseException:
            self._control.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._control.close()

    def look(self) -> Epoch:
        """Determine the epoch; one thread of a destination at a time."""
        self.epoch = epoch_of(
            self._subscriptions, self._control, self._info, self._files, self._scanner
        )
        return self.epoch

    @property
    def info(self) -> ServerInfo:
        """Return the server's properties."""
        return self._info

    # --- where a cursor starts --------------------------------------------------------

    def position_of(self, start: str) -> EpochPosition:
        """Return the boundary for a new cursor's start. Raises ClientError."""
        kind, _, rest = start.partition(":")
        find = {
            "acked": self._latest,
            "latest": self._latest,
            "earliest": self._earliest,
            "time": self._at_time,
            "file": self._at_position,
            "gtid": self._at_set,
        }.get(kind)
        if find is None or bool(rest) is (kind in ("acked", "latest", "earliest")):
            raise ClientError(
                f"start {start[:200]!r} is not latest, earliest, time:<ms>,"
                " file:<name>:<offset> or gtid:<set>"
            )
        file, offset = find(rest)
        return EpochPosition(self.epoch.number, file, offset)

    def _latest(self, _: str) -> tuple[str, int]:
        end = current_end(self._control, self._info)
        return end.file, end.position

    def _earliest(self, _: str) -> tuple[str, int]:
        if not self._files.files:
            raise ClientError(
                "the account may not list the source's binlog files: name one with"
                " file:<name>:4, or have an administrator run: GRANT REPLICATION CLIENT"
                f" ON *.* TO {account_text(self._access.credentials.user)}"
            )
        return self._files.files[0].name, FIRST_EVENT

    def _at_time(self, text: str) -> tuple[str, int]:
        if not (text.isascii() and text.isdecimal()):
            raise ClientError(f"time {text[:50]!r} is not a number of milliseconds")
        if len(text) > _DIGITS_MAX:
            raise ClientError(
                f"time {text[:50]!r} is too large: milliseconds since 1970 have at most"
                f" {_DIGITS_MAX} digits"
            )
        names = [each.name for each in self._files.files]
        found = self._search().boundary_before(names, int(text))
        if found is not None:
            return found.file, found.offset
        first, offset = self._earliest("")
        check_nothing_before(first, int(text), self._control, self._info, self._scanner)
        return first, offset

    def _at_position(self, text: str) -> tuple[str, int]:
        file, _, offset = text.rpartition(":")
        if not file or not (offset.isascii() and offset.isdecimal()):
            raise ClientError(f"position {text[:200]!r} is not <name>:<offset>")
        if len(offset) > _DIGITS_MAX:
            raise ClientError(
                f"position {text[:200]!r} is out of range: an offset has at most"
                f" {_DIGITS_MAX} digits"
            )
        if self._files.files:
            try:
                self._files.check(file, int(offset), "`earliest`")
            except PositionError as error:
                is_purged = self._files.purged_from(file) is not None
                code = PURGED if is_purged else REFUSED
                raise ClientError(str(error), code=code) from error
        found = self._search().transaction_start(file, max(int(offset), FIRST_EVENT))
        return found.file, found.offset

    def _at_set(self, text: str) -> tuple[str, int]:
        try:
            table_filter = parse(text, self._info)
        except ValueError as error:
            raise ClientError(f"gtid set {text[:200]!r}: {error}") from error
        return self._mapper().position_of_set(table_filter)

    def _ddl_scanner(self) -> DdlScanner:
        return DdlScanner(
            self._config, self._access, self._stop, replica=self._replica + 1
        )

    def _search(self) -> BinlogSearch:
        return BinlogSearch(
            self._scanner,
            mariadb=self._info.is_mariadb,
            source=source_of(self._info),
            index=self._index,
        )

    # --- sets, and positions of older epochs ------------------------------------------

    def with_set(
        self, position: EpochPosition, since: EpochPosition | None = None
    ) -> EpochPosition:
        """Return a position of this binlog with the set executed there, if it has one.

        `since`: an earlier position whose set may be known.
        """
        if position.gtids or not has_sets_at_positions(self._config, self._info):
            return position
        known = None
        if since is not None and since.gtids and _is_in_front(since, position):
            at = since.position
            known = Executed(since.journal, at, at, since.gtids)
        gtids = self._search().executed_at(position.journal, position.position, known)[
            1
        ]
        return replace(position, gtids=str(gtids))

    def seen_set(self, position: EpochPosition) -> EpochPosition:
        """Return a position with its set, if the last walk has read it."""
        if self._config.source.gtid_on:
            where = order_of(position.journal, position.position)
            for span in reversed(self._seen):
                gtids = gtids_in(span, where)
                if gtids:
                    return replace(position, gtids=gtids)
        return position

    def mapped(self, position: EpochPosition) -> Mapped:
        """Return a position as one of this binlog, from which it may be read.

        Raises ClientError, also for one that was purged, and SourceError.
        """
        if position.epoch != self.epoch.number:
            found = self._mapper().start(position)
        else:
            position = self._continued(position)
            found = Mapped(position, position)
        at = found.position
        self._check_exists(at.journal, at.begin or at.position)
        return found

    def range_of(
        self, start: EpochPosition, end: EpochPosition
    ) -> tuple[EpochPosition, EpochPosition]:
        """Return a range as one that ends in this binlog, with the same transactions.

        Its start may still be of an older epoch. Raises as `mapped`.
        """
        if end.epoch != self.epoch.number:
            return self._mapper().range(start, end)
        return start, end

    def _mapper(self) -> RangeMapper:
        return RangeMapper(
            self._control,
            self._info,
            self._subscriptions.epochs(),
            self._files,
            self._search(),
            self._scanner,
            self._ddl_scanner(),
        )

    # --- checks -----------------------------------------------------------------------

    def check(self, *positions: EpochPosition) -> None:
        """Raise ClientError unless positions are of this binlog and not purged."""
        for position in positions:
            check_epoch(position, self.epoch)
            at = self._continued(position)
            self._check_exists(at.journal, at.begin or at.position)

    def _continued(self, position: EpochPosition) -> EpochPosition:
        """Return a position; for one in a purged file, where the binlog continues it.

        That is the start of the oldest remaining file, if the position's GTID set has
        all that was executed before: nothing lay between. Without a set it is unknown,
        as the end of a purged file is not stored. Raises SourceError.
        """
        has_set = bool(position.gtids) and not position.begin and self._info.has_gtids
        if not has_set or self._files.purged_from(position.journal) is None:
            return position
        oldest = self._files.files[0].name
        try:
            executed = parse(position.gtids, self._info)
            before = self._search().head_of(oldest)
        except (ValueError, BinlogPurged):  # purged just now
            return position
        if not contains(executed, before):
            return position
        return replace(position, journal=oldest, position=FIRST_EVENT)

    def _check_exists(self, file: str, offset: int) -> None:
        names = [each.name for each in self._files.files]
        if not self._files.had(file, offset):
            raise ClientError(
                f"{file}:{offset} is not in the source's binlog, which has"
                f" {self._files}"
            )
        if names and file not in names:
            oldest = names[0]
            if why := unread_in_archive(self._control, file):
                raise ClientError(why, code=PURGED)
            raise ClientError(
                f"the source has purged {file} and all before {oldest}: start a new"
                " subscription at `earliest` or later, and load what is missing from"
                " the tables",
                code=PURGED,
            )

    # --- walks ------------------------------------------------------------------------

    def walk(  # all but the first two have defaults
        self,
        table_filter: TableFilter,
        start: EpochPosition,
        end: EpochPosition | None = None,
        *,
        limits: RangeLimits | None = None,
        take: Callable[[RangeWalk], bool] | None = None,
        picks: bool = False,
        relays: bool = False,
        skips: Gtids | None = None,
    ) -> RangeWalk:
        """Walk from `start` to `end`, a limit, the binlog's end or the end by `take`.

        `take` receives each chunk. `relays`: rows are not rendered; unless it `picks`
        what passes the filter, they are only counted. What is in `skips` is left out.
        Raises ClientError for a position that is purged or unusable, else SourceError,
        DecodeError, TableMetaError.
        """
        begin = start.begin or start.position
        self.ended = None
        for last in (False, True):
            table_ids = TableIds()
            walk = RangeWalk(
                table_filter.accepts,
                table_ids,
                order_of(start.journal, start.position),
                None if end is None else order_of(end.journal, end.position),
                begin=order_of(start.journal, begin),
                max_rows=limits.rows if limits else 0,
                max_bytes=limits.bytes if limits else 0,
                cut_rows=CUT_ROWS,
                picks=picks,
            )
            position = StartPosition(
                start.journal, begin, skips, by_gtid=skips is not None
            )
            reader = self._reader(
                table_filter,
                table_ids,
                position,
                start if relays else None,
                counts=not picks,
            )
            try:
                is_cut = self._run(reader, position.dump_start(), walk, take)
            except InsideTransaction:
                # Raised before anything was read: the start was not moved back.
                found = self._search().transaction_start(start.journal, begin)
                if last or found.offset == begin:
                    raise
                begin = found.offset
                continue
            break
        is_whole = not (walk.is_over or walk.pending or is_cut)
        if is_whole and reader.decoder.is_settled:
            at = reader.decoder.file, reader.decoder.position
            self.ended = EpochPosition(self.epoch.number, *at)
        # A transaction left out at the end is not reported.
        if end is not None and not walk.is_over and skips is None:
            self._check_reached(reader, end)
        return walk

    def _run(
        self,
        reader: Reader,
        position: DumpStart,
        walk: RangeWalk,
        take: Callable[[RangeWalk], bool] | None,
    ) -> bool:
        """Walk over what is read; return whether `take` has ended it."""
        is_cut = False
        dump = TemporaryDump(
            self._config, self._access, self._stop, replica=self._replica
        )

        def deliver(spans: list[Span]) -> bool:
            nonlocal is_cut
            self._seen = spans
            can_continue = walk.walk(spans)
            is_cut = take is not None and not take(walk)
            return can_continue and not is_cut

        try:
            dump.run(reader, position, deliver)
        except BinlogPurged as error:
            raise ClientError(str(error), code=PURGED) from error
        except UnknownColumnsError as error:
            if not self._doubt:
                raise
            raise UnknownColumnsError(error.problem, self._doubt) from error
        return is_cut

    def _reader(
        self,
        table_filter: TableFilter,
        table_ids: TableIds,
        position: StartPosition,
        relay_from: EpochPosition | None,
        *,
        counts: bool,
    ) -> Reader:
        config = self._config
        file, offset = position.file, position.position
        asked, address = str(position), str(self._access.address)
        images = self._schemas_at(EntryPosition(file, offset))
        self._doubt = images.doubt if isinstance(images, RangeSchemas) else ""
        reader = Reader(
            BlockPool(),
            table_ids,
            images,
            table_filter=table_filter.accepts,
            columns=ColumnFilter(config.filter.field, config.filter.black_field),
            filters=config.filter,
            events=config.source.events,
            unreadable=unreadable_of(config, self._access),
            gtids=self._executed_at(file, offset, position.gtids),
            error_of_packet=lambda body: error_of_packet(
                body, address=address, position=asked
            ),
            relay_from=(
                order_of(relay_from.journal, relay_from.position)
                if relay_from
                else None
            ),
            counts=counts,
        )
        reader.decoder.refuses_inside = not position.by_gtid
        return reader

    def _executed_at(self, file: str, offset: int, skips: Gtids | None) -> Gtids | None:
        """Return the set executed before a boundary, None outside of GTID mode.

        Includes what is left out after it.
        """
        if not self._config.source.gtid_on:
            return None
        gtids = self._search().executed_at(file, offset)[1]
        if skips is not None:
            return gtids.union(skips)  # type: ignore[arg-type]  # both of one kind
        self.executed = order_of(file, offset), str(gtids)
        return gtids

    def _check_reached(self, reader: Reader, end: EpochPosition) -> None:
        decoder = reader.decoder
        reached = order_of(decoder.file, decoder.position)
        if reached < order_of(end.journal, end.position):
            raise ClientError(
                f"the source's binlog ends at {decoder.file}:{decoder.position},"
                f" before {end}"
            )

    # --- tables -----------------------------------------------------------------------

    def _set_at(self, position: EntryPosition) -> Gtids | None:
        """Return the set executed before a boundary, None where there are none."""
        if not has_sets_at_positions(self._config, self._info):
            return None
        file, offset = position.journal_name or "", position.position or FIRST_EVENT
        return self._search().executed_at(file, offset)[1]

    def images(self, at: EpochPosition | None) -> tuple[TableSchemas, EntryPosition]:
        """Return the table schemas at a position, None: now; and that position."""
        if at is None:
            # After the ends of the files as they were at connect time.
            position = EntryPosition(*self._latest(""))
        else:
            at = self.mapped(at).position
            position = EntryPosition(at.journal, at.begin or at.position)
        return self._schemas_at(position), position

    def _schemas_at(self, position: EntryPosition) -> TableSchemas:
        return schemas_at(
            self._config,
            self._control,
            self._info,
            position,
            self._ddl_scanner(),
            tables=self._tables,
            executed=self._set_at,
        )


def check_epoch(position: EpochPosition, epoch: Epoch) -> None:
    """Raise ClientError unless a position is of an epoch."""
    if position.epoch != epoch.number:
        raise other_epoch(position, epoch, "only a plan translates a range of it")


def _is_in_front(since: EpochPosition, position: EpochPosition) -> bool:
    """Return whether a position is a boundary before another one in the same file."""
    same = (since.epoch, since.journal) == (position.epoch, position.journal)
    return same and not since.begin and since.position <= position.position


def has_sets_at_positions(config: InstanceConfig, info: ServerInfo) -> bool:
    """Return whether positions are given the sets executed there."""
    source = config.source
    return info.has_gtids and (source.gtid_on or source.gtid_sets)
