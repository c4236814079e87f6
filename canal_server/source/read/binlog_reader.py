"""Dump and decode as one engine: bytes of a source in, spans of finished records out.

A `Reader` has no state outside itself, so that several run at once: the pump of an
instance, `canal-server decode`, readers of a range. It leaves out where to start,
reconnecting, and what happens to the records.
"""

from __future__ import annotations

import logging
import re
from itertools import chain
from typing import TYPE_CHECKING, Final

from canal_server.config.schema import EventConfig
from canal_server.decoder.events import engine
from canal_server.decoder.rows.layout_plan import compile_layout, mismatch
from canal_server.decoder.rows.table_map import TableMap, parse_table_map
from canal_server.decoder.rows.table_map_columns import has_names, meta_of
from canal_server.decoder.rows.table_shapes import Shapes
from canal_server.doors.sqltext import Dialect
from canal_server.errors import (
    ConnectionLost,
    DecodeError,
    InsideTransaction,
)
from canal_server.messages import source_messages
from canal_server.model.ddl_statement import DdlStatement, filtered_names_of
from canal_server.model.entry import DDL_TYPES, EventType
from canal_server.model.positions import EntryPosition
from canal_server.mysql.flavour import version_number
from canal_server.protocol.entry_messages import Header, RowChange, encode
from canal_server.source.read import python_events
from canal_server.source.read.compressed_events import compressed_event, payload_of
from canal_server.source.read.file_sets import SETS_OF_GTIDS, FileSets
from canal_server.source.read.unknown_columns import unknown_columns
from canal_server.source.read.unreadable_events import Unreadable, raw_change
from canal_server.tablemeta.sql.statement_classes import examine, table_of_statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canal_server.config.schema import FilterConfig
    from canal_server.core.blocks import BlockPool
    from canal_server.core.table_ids import TableIds
    from canal_server.decoder.rows.row_layout import TableLayout
    from canal_server.filters.column_filters import ColumnFilter
    from canal_server.model.columns_known import TableMeta
    from canal_server.model.ddl_statement import Examined, FilteredNames, Statement
    from canal_server.model.positions import LogIdentity
    from canal_server.ports import ByteSource, Span, TablePredicate, TableSchemas
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.read.gtid_sets import Gtids
    from canal_server.source.read.unreadable_events import Found

    Deliver = Callable[[list[Span]], bool]
    Step = Callable[[], int]
    InTurn = Callable[[Step], int]

_log = logging.getLogger(__name__)

# Event codes that Python reads; the compiled engine knows all others.
_EXECUTE_LOAD_QUERY: Final = 18
_INCIDENT: Final = 26
_ROWS_QUERY: Final = 29
_COMPRESSED: Final = range(165, 172)

_FILE_NAME_BYTES_MAX: Final = 512  # FN_REFLEN of MySQL
_POSITION_MAX: Final = 2**63 - 1  # of files, and of what stores positions

# Clients receive what a statement says to a server of any version.
_EXECUTABLE_COMMENT: Final = re.compile(r"/\*M?!")

_DML: Final = frozenset({EventType.INSERT, EventType.UPDATE, EventType.DELETE})


class StreamEnd(ConnectionLost):  # reported by the server
    """The server ended the stream: it has no more events, or it is shutting down."""


class Reader:
    """Decodes one source. For one thread, except `change_table_filter`."""

    def __init__(
        self,
        pool: BlockPool,
        table_ids: TableIds,
        images: TableSchemas,
        *,
        table_filter: TablePredicate,
        columns: ColumnFilter,
        filters: FilterConfig,
        events: EventConfig = EventConfig(),  # noqa: B008  # a frozen value
        packets: bool = True,
        gtids: Gtids | None = None,
        error_of_packet: Callable[[bytes], Exception] | None = None,
        until: int | None = None,
        source: LogIdentity | None = None,
        relay_from: tuple[int, int] | None = None,
        counts: bool = False,
        unreadable: Unreadable | None = None,
        in_turn: InTurn | None = None,
    ) -> None:
        """Store how to read; `until`: an offset of the first file to end at.

        `source` is the server that the records' positions name. `relay_from`: rows are
        not rendered, unless some of their columns are filtered out; the consumer
        receives the records after this file number and offset. `counts`: rows are only
        counted, and their entries have no content. `unreadable`: events that may be
        skipped; without it every unreadable event is an error without advice. `in_turn`
        calls what decodes, and may wait before.
        """
        self.decoder = engine.Decoder(
            pool,
            packets=packets,
            gtids=gtids,
            skip_inserts=filters.dml_insert,
            skip_updates=filters.dml_update,
            skip_deletes=filters.dml_delete,
            skip_rows=filters.rows,
            skip_unknown=filters.unknown_events,
            source=source,
            event_bytes_max=events.bytes_max,
        )
        self._event_bytes_max = events.bytes_max
        self.decoder.counts = counts
        if until is not None:
            self.decoder.set_limit(until)
        self._unreadable = unreadable or Unreadable()
        # Whether a value can be read shows only when it is rendered.
        plain = not columns and not events.unreadable
        self._relays = relay_from is not None and plain
        if relay_from is not None and self._relays:
            self.decoder.relay(*relay_from)
        self._shapes = Shapes()
        self.sets = FileSets(self.decoder, gtids)
        self._server_starts = 0  # reported to statements so far
        self._table_ids = table_ids
        self._epoch = table_ids.epoch  # of the table ids in the table schemas
        self._images = images
        self._table_filter = table_filter
        self._filter_changed = False
        self._columns = columns
        self._filters = filters
        self._error_of_packet = error_of_packet
        decode: Step = self.decoder.decode
        self._run_decoder: Step = (lambda: in_turn(decode)) if in_turn else decode
        self._deliver: Deliver = lambda _spans: True
        self._stop: Stop | None = None

    def start(self, file: str, position: int) -> None:
        """Set the position of the source's first byte."""
        self.decoder.start(file, position)
        self._unreadable.begin(file, position)

    def change_table_filter(self, table_filter: TablePredicate) -> None:
        """Read other tables from the next chunk of bytes on; from any thread."""
        self._table_filter = table_filter
        self._filter_changed = True

    def run(
        self,
        source: ByteSource,
        deliver: Deliver,
        idle: Callable[[], None],
        stop: Stop,
        rest: Callable[[], None] | None = None,
    ) -> bool:
        """Read until the source ends, a stop is requested, or `deliver` returns false.

        `deliver` gets the spans of each chunk; `idle` is called whenever the source has
        nothing to read, and then `rest`, which may wait for more, unless a part of a
        packet is at hand. Returns whether the source ended. Raises what the source
        raises, DecodeError and TableMetaError; everything decoded before the error has
        been delivered by then.
        """
        feed = self.decoder.feed
        self._deliver = deliver
        self._stop = stop
        while not stop.requested():
            with feed.space(min(self.decoder.missing, 1 << 24)) as space:
                count = source.try_receive_into(space)
                if count is None:
                    idle()
                    if rest is not None and not feed.waiting:
                        rest()
                    count = source.receive_into(space, None)
            if count is None:
                return False
            if count == 0:
                return True
            feed.filled(count)
            if self._filter_changed:
                self._filter_changed = False
                self.decoder.forget_tables()
            try:
                if not self._decode():
                    return False
            except DecodeError as error:
                self._unreadable.advise(error, self.decoder)
                raise
        return False

    def _decode(self) -> bool:
        """Decode and deliver everything buffered; false when delivery was refused."""
        decoder = self.decoder
        while True:
            if self._epoch != self._table_ids.epoch:
                # Another pump's reader received the first id of the new epoch.
                self._epoch = self._table_ids.epoch
                decoder.forget_tables()
            accepted = True
            try:
                try:
                    halt = self._run_decoder()
                finally:
                    # What precedes a broken event is good.
                    spans = decoder.take()
                    accepted = not spans or self._deliver(spans)
                if not accepted or halt == engine.HALT_LIMIT:
                    return False
                if self._unreadable.waits:
                    self._unreadable.reached(decoder.file, decoder.position)
                if halt == engine.HALT_NEED_INPUT:
                    return True
                if halt != engine.HALT_PAUSE:
                    self._answer(halt)
            except DecodeError as error:
                if not self._pass_over(error):
                    raise
                if not accepted:
                    return False

    def _answer(self, halt: int) -> None:
        try:
            self._dispatch(halt)
        except DecodeError as error:
            if error.file:
                raise
            raise self._broken(str(error)) from error

    def _dispatch(self, halt: int) -> None:
        # No table of bound methods: with that cycle a reader's memory would wait for
        # the garbage collector, which does not know how much it is.
        match halt:
            case engine.HALT_TABLE:
                self._on_table()
            case engine.HALT_QUERY:
                self._on_query()
            case engine.HALT_ROTATE:
                self._on_rotate()
            case engine.HALT_EVENT:
                self._on_event()
            case engine.HALT_PAYLOAD:
                self._on_payload()
            case engine.HALT_SOURCE_ERROR:
                self._on_source_error()
            case engine.HALT_SOURCE_END:
                self._on_source_end()
            case engine.HALT_NO_TABLE_MAP:
                self._on_no_table_map()
            case engine.HALT_LOST_ROWS:
                self._on_lost_rows()
            case _:
                raise AssertionError(f"halt {halt}")

    def _pass_over(self, error: DecodeError) -> bool:
        """Skip the current event, which cannot be read; false when it must not be."""
        if (found := self._unreadable.pass_over(self.decoder, error)) is None:
            return False
        self._emit_raw(found, str(error))
        self.decoder.pass_over()
        return True

    def _emit_raw(self, found: Found, error: str) -> None:
        change = raw_change(found, self.decoder, error)
        if change is None:
            return
        table = self.decoder.failed_table
        if table is None:
            self._emit(change, EventType.QUERY)
            return
        names = (table.schema, table.table)
        table_ordinal = self._number_of((names,))
        self._emit(change, EventType.QUERY, *names, table_ordinal)

    def _on_lost_rows(self) -> None:
        """Skip rows whose table map could not be read."""
        found = self._unreadable.depends()
        if found is not None:
            self._emit_raw(found, "its table map cannot be read")
        self.decoder.skip()

    # --- what the engine asks for -------------------------------------------------

    def _on_rotate(self) -> None:
        body = self.decoder.body
        if len(body) <= 8:  # noqa: PLR2004  # only the position
            raise self._broken("ROTATE event without a file name")
        if len(body) > 8 + _FILE_NAME_BYTES_MAX:
            raise self._broken(
                f"ROTATE event with a file name of {len(body) - 8} bytes, limit "
                f"{_FILE_NAME_BYTES_MAX}"
            )
        position = int.from_bytes(body[:8], "little")
        if position > _POSITION_MAX:
            raise self._broken(
                f"ROTATE event to position {position}, limit {_POSITION_MAX}"
            )
        file = body[8:].decode("utf-8", "replace")
        if file != self.decoder.file:
            _log.debug("reading %s", file)
        self.decoder.skip()
        self.decoder.start(file, position)

    def _on_table(self) -> None:
        table_map = parse_table_map(
            self.decoder.body,
            mariadb=self._from_mariadb,
            version=version_number(self.decoder.server_version),
        )
        names: FilteredNames = ((table_map.schema, table_map.table),)
        if not self._table_filter(names):
            self.decoder.install_table(None)
            return
        self.decoder.install_table(self._image(table_map, names))

    def _image(self, table_map: TableMap, names: FilteredNames) -> TableLayout | None:
        """Return the schema of a table to deliver, None when its rows are left out."""
        schema, table = table_map.schema, table_map.table
        position = self._position()
        meta = self._images.find(schema, table, position)
        difference = None if meta is None else mismatch(table_map, meta)
        if meta is None or difference:
            # The cached columns may be older than the event: ask the server again.
            known = difference
            meta = self._images.refresh(schema, table, position)
            if meta is not None:
                difference = mismatch(table_map, meta)
            elif known:
                difference = f"{known}; the table does not exist on the server now"
        if meta is not None and not difference:
            return self._compiled(table_map, meta, names)
        reason = difference or f"the server has no table {table_map}"
        if has_names(table_map):
            # FULL metadata: all that rows need except ENUM labels and display widths.
            _log.info(
                "using the columns of the binlog's own metadata for %s at %s: %s",
                table_map,
                self._at(),
                reason,
            )
            return self._compiled(table_map, meta_of(table_map), names)
        if self._filters.table_error:
            source_messages.ROWS_LEFT_OUT.log(_log, table_map, self._at(), reason)
            return None
        raise unknown_columns(reason, self._at(), has_columns=meta is not None)

    def _compiled(
        self, table_map: TableMap, meta: TableMeta, names: FilteredNames
    ) -> TableLayout:
        emitted = None
        if self._columns:
            # Filters use the delivered names: the names at the time of the event where
            # the binlog has them.
            pairs = zip(table_map.columns, meta.columns, strict=True)
            emitted = self._columns.emitted(
                table_map.schema,
                table_map.table,
                tuple(mapped.name or column.name for mapped, column in pairs),
            )
        return compile_layout(
            table_map,
            meta,
            table_ordinal=self._number_of(names),
            emitted=emitted,
            shape=self._shapes.shape_of(
                self.decoder.body, table_map, meta, mariadb=self._from_mariadb
            )
            if self._relays
            else None,
        )

    def _number_of(self, names: FilteredNames) -> int:
        """Return the table id; after the ids restart, every table asks again."""
        number = self._table_ids.ordinal_of(names)
        if self._epoch != self._table_ids.epoch:
            self._epoch = self._table_ids.epoch
            self.decoder.forget_tables()
        return number

    def _on_query(self, *, load: bool = False) -> None:
        if self.decoder.is_unfinished_alter:
            # The rows that follow still have the old columns.
            self.decoder.skip()
            return
        statement = python_events.parse_query(self.decoder.body, load=load)
        examined = examine(statement.sql, statement.schema, self._dialect(statement))
        results = examined.statements
        is_dml = bool(results) and results[0].event_type in _DML
        if examined.stale:
            self._apply_ddl(statement, examined)
        kept = any(self._passes(result) for result in results)
        if not kept or self._filters.query_ddl:
            self.decoder.skip()
            return
        self._emit_statement(statement, results, is_dml=is_dml)

    def _dialect(self, statement: python_events.Query) -> Dialect:
        """Return how the server parsed a statement's text."""
        return Dialect(
            statement.ansi_quotes,
            statement.no_backslash_escapes,
            self._from_mariadb,
        )

    @property
    def _from_mariadb(self) -> bool:
        return "maria" in self.decoder.server_version.lower()

    def _position(self) -> EntryPosition:
        """Return where the current event begins."""
        decoder = self.decoder
        return EntryPosition(
            decoder.file,
            decoder.event_offset,
            decoder.event_time * 1000,
            decoder.event_server_id,
            decoder.transaction_gtid or None,
        )

    def _apply_ddl(self, statement: python_events.Query, examined: Examined) -> None:
        """Apply a statement that may change tables to the table schemas."""
        starts = self.decoder.server_starts
        context = python_events.context_of(
            statement,
            self.decoder.server_version,
            restarted=starts != self._server_starts,
        )
        self._server_starts = starts
        dialect = context.dialect
        if dialect.brackets or _EXECUTABLE_COMMENT.search(statement.sql):
            # The server's version and mode decide what it says.
            examined = examine(statement.sql, statement.schema, dialect)
        self._images.apply(
            DdlStatement(
                self._position(),
                statement.schema,
                statement.sql,
                context.to_json(),
                examined,
            )
        )
        self.decoder.forget_tables()

    def _passes(self, result: Statement) -> bool:
        if result.event_type in _DML:
            return not self._filters.query_dml
        if result.event_type not in DDL_TYPES:
            return not self._filters.query_dcl
        return self._table_filter(filtered_names_of([result]))

    def _emit_statement(
        self, statement: python_events.Query, results: list[Statement], *, is_dml: bool
    ) -> None:
        first = results[0]
        change = RowChange(
            event_type=first.event_type,
            is_ddl=not is_dml,
            sql=statement.sql,
            ddl_schema_name=statement.schema,
        )
        self._emit(
            change,
            first.event_type,
            first.schema or "",
            first.table or "",
            self._number_of(filtered_names_of(results)),
            begins=statement.sql.rstrip().upper().endswith("START TRANSACTION"),
        )

    def _emit(
        self,
        change: RowChange,
        event_type: int,
        schema: str = "",
        table: str = "",
        table_ordinal: int = 0,
        *,
        begins: bool = False,
    ) -> None:
        self.decoder.emit(
            encode(change),
            event_type=event_type,
            names=encode(Header(schema_name=schema, table_name=table)),
            table_ordinal=table_ordinal,
            begins=begins,
        )

    def _emit_query_log(self, sql: str, table: str = "") -> None:
        if self._filters.query_dml:
            self.decoder.skip()
            return
        change = RowChange(event_type=EventType.QUERY, sql=sql)
        self._emit(change, EventType.QUERY, table=table)

    def _on_event(self) -> None:
        decoder = self.decoder
        kind = decoder.event_type
        if kind in python_events.LOGGED:
            self._emit_query_log(python_events.LOGGED[kind](decoder.body))
        elif kind == _ROWS_QUERY:
            # Its first byte is a length field that has overflowed.
            sql = python_events.decode_sql(decoder.body[1:], None)
            self._emit_query_log(sql, table_of_statement(sql) or "")
        elif kind == _EXECUTE_LOAD_QUERY:
            self._on_query(load=True)
        elif kind in _COMPRESSED:
            self._feed_plain(kind)
        else:
            if kind in SETS_OF_GTIDS:
                self._enter_gtids(kind)
            elif kind == _INCIDENT:
                source_messages.BINLOG_EVENTS_MISSING.log(
                    _log, self._at(), decoder.body[:2].hex()
                )
            decoder.skip()

    def _enter_gtids(self, kind: int) -> None:
        """Read the set at the start of a file."""
        try:
            self.sets.enter_file(kind)
        except ValueError as error:
            raise self._broken(str(error)) from error

    def _feed_plain(self, kind: int) -> None:
        """Decode the plain event instead of the one that MariaDB compressed."""
        decoder = self.decoder
        event = compressed_event(kind, memoryview(decoder.body), self._event_bytes_max)
        header = event.header(decoder.event_time, decoder.event_server_id)
        self._feed_payload(chain((header,), event.pieces()))

    def _on_payload(self) -> None:
        """Feed the events of a compressed transaction, piece by piece."""
        decoder = self.decoder
        self._feed_payload(payload_of(memoryview(decoder.body)).pieces())

    def _feed_payload(self, pieces: Iterable[memoryview | bytes]) -> None:
        """Decode events instead of the current one."""
        decoder = self.decoder
        decoder.begin_payload()
        try:
            for piece in pieces:
                if self._stop is not None and self._stop.requested():
                    raise ConnectionLost("stopped inside a compressed transaction")
                self._feed_inner(piece)
            decoder.finish_payload()
        except DecodeError:
            # The end of an inner event is unknown, or the event must not be skipped.
            decoder.abandon_payload()
            raise

    def _feed_inner(self, piece: memoryview | bytes) -> None:
        inner = self.decoder.inner
        with inner.space(len(piece)) as space:
            space[: len(piece)] = piece
        inner.filled(len(piece))
        if not self._decode():
            raise ConnectionLost("stopped inside a compressed transaction")

    def _on_source_error(self) -> None:
        body = self.decoder.body
        if self._error_of_packet is None:
            raise self._broken(f"error packet from the server: {body[:200]!r}")
        # The marker byte is part of the packet.
        raise self._error_of_packet(b"\xff" + body)

    def _on_source_end(self) -> None:
        raise StreamEnd(
            f"the server ended the stream after {self.decoder.file}:"
            f"{self.decoder.position}"
        )

    def _on_no_table_map(self) -> None:
        raise InsideTransaction(
            "rows of a transaction that began before the start position, which lies "
            "inside a statement or between two statements of one transaction",
            file=self.decoder.file,
            position=self.decoder.event_offset,
        )

    def _broken(self, message: str) -> DecodeError:
        return DecodeError(
            f"event type {self.decoder.event_type}: {message}",
            file=self.decoder.file,
            position=self.decoder.event_offset,
        )

    def _at(self) -> str:
        return f"{self.decoder.file}:{self.decoder.event_offset}"
