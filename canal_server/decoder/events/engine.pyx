# cython: language_level=3
"""The engine: turns binlog bytes into finished records without Python in between.

`Decoder.decode` runs without the GIL until it needs something: more input, the layout
of a table, a decision about a statement. The event at which it halts stays current
until it is answered (`install_table`, `emit`, `skip`, …); then decode() continues.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from canal_server.core.blocks cimport BlockPool
from canal_server.core.blocks cimport KIND_BEGIN, KIND_END, KIND_OTHER
from canal_server.core.wire cimport Input, need, take_le
from canal_server.decoder.text.charset_text cimport valid_utf8
from canal_server.decoder.rows.event_constants cimport *
from canal_server.decoder.events.gtid_tracker cimport FollowedSet
from canal_server.decoder.rows.row_layout cimport TableLayout
from canal_server.decoder.events.markers cimport (
    MARKER_BYTES_MAX, XA_STATEMENT_BYTES_MAX, put_begin_value, put_end_value,
    put_xa_value,
)
from canal_server.decoder.events.row_entries cimport RowEntries
from canal_server.decoder.events.transaction_statements cimport (
    ST_BEGIN, ST_COMMIT, ST_NOTHING, ST_OTHER, ST_ROLLBACK, ST_XA_COMMIT, ST_XA_END,
    ST_XA_START, begins_rows, statement_kind,
)
from canal_server.decoder.events.event_stream cimport BETWEEN, INSIDE
from canal_server.decoder.rows.layouts_by_id cimport TABLES_BYTES_MAX, TABLES_MAX, TableSlot
from canal_server.decoder.events.entry_writer cimport Envelope

from canal_server.decoder.events.gtid_headers import gtid_text, is_unfinished_alter
from canal_server.errors import DecodeError

HALT_NEED_INPUT = NEED_INPUT
HALT_PAUSE = PAUSE
HALT_TABLE = TABLE
HALT_QUERY = QUERY
HALT_ROTATE = ROTATE
HALT_EVENT = EVENT
HALT_PAYLOAD = PAYLOAD
HALT_SOURCE_ERROR = SOURCE_ERROR
HALT_SOURCE_END = SOURCE_END
HALT_NO_TABLE_MAP = NO_TABLE_MAP
HALT_LIMIT = LIMIT
HALT_LOST_ROWS = LOST_ROWS

cdef enum:
    IGNORABLE_FLAG = 0x80
    PAUSE_BYTES = 512 * 1024  # bytes written between two returns to Python
    GTID_BYTES_KEPT = 256     # the parts read of a GTID's event are below this
    FILES_KEPT = 16           # files whose start was seen


cdef class Decoder(RowEntries):
    """Decodes one stream of events.

    `pool`: where records go. `packets`: framing. `checksum`: whether events before
    the first format description have one. `gtids`: the executed set to start from
    (GtidSet or MariaGtidSet) in GTID mode, else None. `skip_inserts`, … `skip_rows`:
    kinds of row events to skip; `skip_unknown`: skip unknown events as well.
    `counts`: entries of rows have a row count and no content. `refuses_inside`:
    halts with HALT_NO_TABLE_MAP, too, at a table map whose transaction began before
    the stream did.
    """

    cdef readonly FollowedSet followed        # outside GTID mode
    cdef readonly uint64_t gtid_offset        # start of its event, 0: in no known file
    cdef readonly dict began_s                # by file: its start time, newest last
    cdef uint8_t gtid_type                    # event of the transaction's GTID, 0: none
    cdef uint32_t gtid_server                 # and the fields before its body
    cdef uint32_t gtid_n
    cdef uint8_t[GTID_BYTES_KEPT] gtid_body
    cdef readonly str server_version
    cdef readonly uint64_t server_starts      # files that the server created at its start
    cdef readonly uint64_t heartbeats
    cdef readonly uint64_t unknown_events     # skipped
    cdef bint skip_unknown

    def __init__(self, BlockPool pool, *, bint packets=True, bint checksum=True,
                 gtids=None, bint skip_inserts=False, bint skip_updates=False,
                 bint skip_deletes=False, bint skip_rows=False,
                 bint skip_unknown=False, source=None,
                 uint64_t event_bytes_max=1 << 30):
        RowEntries.__init__(self, pool, source=source, packets=packets,
                            checksum=checksum, event_bytes_max=event_bytes_max)
        self.gtids.set_gtids(gtids)
        self.followed = FollowedSet()
        self.skip_inserts = skip_inserts
        self.skip_updates = skip_updates
        self.skip_deletes = skip_deletes
        self.skip_rows = skip_rows
        self.skip_unknown = skip_unknown
        self.server_version = ""
        self.began_s = {}

    # --- the caller's side ------------------------------------------------------------

    def start(self, str file, uint64_t position):
        """Set where the stream begins; a ROTATE event at its head does so as well."""
        self.file = file
        self.position = position
        self.gtid_offset = 0
        self.writer.set_file(file)

    def decode(self):
        """Decode until something is needed; returns a HALT_ code.

        Raises DecodeError (with file and position) for an unreadable event; the records
        before it can still be fetched.
        """
        cdef int halt
        self.slot = NULL
        with nogil:
            halt = self.run()
        if halt == NO_MEMORY:
            raise MemoryError(f"no memory for the event at {self.where()}")
        if halt == BROKEN:
            reason = self.reason_text()
            if self.slot != NULL:
                table = self.tables.meta_of(self.slot)
                reason = f"row {self.row} of table {table}: {reason}"
            raise DecodeError(f"event type {self.event.type}: {reason}",
                              file=self.file, position=self.event.offset)
        return halt

    def set_gtids(self, gtids):
        """Set the executed set (GtidSet, MariaGtidSet; None: no GTID mode)."""
        self.gtids.set_gtids(gtids)

    @property
    def transaction_gtid(self):
        """The GTID of the transaction that began last, in and outside GTID mode.

        "" if it has none: an anonymous transaction, or before the first one.
        """
        cdef bytes body = self.gtid_body[:self.gtid_n]
        return gtid_text(self.gtid_type, self.gtid_server, body)

    @property
    def is_between(self):
        """Whether the transaction of the last GTID has ended, or no GTID was read.

        So it is true after a statement outside a transaction, which may leave no
        record.
        """
        return not self.in_group and (
            self.gtid_offset == 0 or self.event.offset != self.gtid_offset)

    @property
    def is_unfinished_alter(self):
        """Whether the last transaction is the first part of an ALTER, or a failed one.

        MariaDB logs an ALTER at its start and its end (binlog_alter_two_phase).
        """
        cdef bytes body = self.gtid_body[:self.gtid_n]
        return is_unfinished_alter(self.gtid_type, body)

    def take(self):
        """Return the spans of the records finished since the last call."""
        return self.writer.take()

    def emit(self, bytes store_value, *, uint8_t event_type, bytes names,
             uint32_t table_ordinal=0, bint begins=False):
        """Answer: deliver a ROWDATA entry with this storeValue for the event.

        `names`: header fields 8 and 9, serialized. `begins`: the statement begins a
        transaction, and its rows follow (CREATE TABLE … SELECT).
        """
        cdef Envelope e
        if begins:
            self.in_group = True
            self.standing = INSIDE
        self.envelope(&e)
        e.kind = KIND_OTHER
        e.entry_type = 2
        e.event_type = event_type
        e.table_ordinal = table_ordinal
        e.names.p = names
        e.names.n = <uint32_t>len(names)
        if self.writer.put_entry(&e, store_value, len(store_value)) != 0:
            if self.writer.too_large:
                raise DecodeError(
                    f"an entry of {self.writer.too_large} bytes, above the limit of "
                    f"{self.writer.entry_bytes_max}",
                    file=self.file, position=self.event.offset)
            raise MemoryError(f"no memory for the entry of the event at {self.where()}")
        self.answered = True

    def install_table(self, TableLayout layout):
        """Answer a TABLE halt: use a layout for the table map's rows, or skip them."""
        if self.event.type != EV_TABLE_MAP or self.event.body_n < 6:
            raise ValueError(f"no table map is requested at {self.where()}")
        if self.tables.is_full():
            raise DecodeError(f"more than {TABLES_MAX} tables in one statement",
                              file=self.file, position=self.event.offset)
        if self.tables.bytes + self.event.body_n > TABLES_BYTES_MAX:
            raise DecodeError(
                f"table maps of {self.tables.bytes + self.event.body_n} bytes in one "
                f"statement, above the limit of {TABLES_BYTES_MAX}",
                file=self.file, position=self.event.offset)
        self.tables.install(self.event.body, self.event.body_n, layout)
        self.answered = True

    @property
    def failed_table(self):
        """Return the TableMeta of rows that could not be read; None if it is unknown."""
        cdef TableSlot* slot = self.slot
        if slot == NULL and is_row_event(self.event.type) and self.event.body_n >= 6:
            # Damaged before the rows, or in their table id.
            slot = self.tables.slot_of(read48(self.event.body))
            if not slot.used or slot.layout == NULL:
                return None
        return self.tables.meta_of(slot) if slot != NULL else None

    def pass_over(self):
        """Answer: the current event cannot be read and is skipped.

        Later events keep their meaning: rows of a skipped table map are skipped, too
        (HALT_LOST_ROWS), and transactions keep their begin and end.
        """
        cdef int halt = RUNNING
        cdef uint8_t kind = self.event.type
        cdef uint64_t thread_id = 0
        cdef const uint8_t* sql
        cdef size_t sql_n
        self.in_rows = False
        self.slot = NULL
        if kind == EV_TABLE_MAP:
            self.enter_statement()
            self.tables.lose(self.event.body, self.event.body_n)
        elif kind == EV_XID or (kind == EV_TRANSACTION_PAYLOAD and self.in_group):
            halt = self.put_end(0)
        elif kind == EV_TRANSACTION_PAYLOAD:
            self.standing = BETWEEN
        elif (EV_GTID <= kind <= EV_ANONYMOUS_GTID or kind == EV_GTID_TAGGED
                or kind == EV_MARIA_GTID):
            self.gtids.clear()
            self.keep_gtid()
            self.gtid_n = 0
            self.in_group = kind == EV_MARIA_GTID
            self.grouped = True
            self.standing = INSIDE
        elif kind == EV_QUERY:
            # A wrong checksum does not show which byte is wrong.
            if self.find_statement(&thread_id, &sql, &sql_n):
                if statement_kind(sql, sql_n) == ST_BEGIN:
                    halt = self.put_begin(thread_id)
                elif statement_kind(sql, sql_n) == ST_COMMIT:
                    halt = self.put_end(0)
            self.begin_lost = not self.in_group
        if halt != RUNNING:
            raise MemoryError(f"no memory for the event at {self.where()}")
        self.answered = True

    def forget_tables(self):
        """Make every table map request its layout again, after DDL or a new filter."""
        self.tables.forget()

    # --- events -----------------------------------------------------------------------

    cdef int run(self) noexcept nogil:
        """Decode events until an event or the feed requires a halt."""
        cdef int halt
        while True:
            if self.writer.pending_bytes >= PAUSE_BYTES:
                return PAUSE
            if self.in_rows:
                halt = self.next_piece()
            else:
                halt = self.next()
                if halt == RUNNING:
                    halt = self.dispatch()
            if halt != RUNNING:
                return halt
            if not self.in_rows:
                self.answered = True

    cdef int dispatch(self) noexcept nogil:
        """Decode the current event; RUNNING when it is finished."""
        cdef Event* e = &self.event
        cdef uint8_t kind = e.type
        cdef int halt = RUNNING
        if self.in_payload and (
                kind == EV_FORMAT_DESCRIPTION or kind == EV_ROTATE
                or kind == EV_TRANSACTION_PAYLOAD
                or EV_QUERY_COMPRESSED <= kind <= EV_ROWS_COMPRESSED_LAST):
            return self.fail("inside a compressed event, which cannot contain it", 0)
        if kind == EV_TABLE_MAP:
            halt = self.table_map()
        elif is_row_event(kind):
            halt = self.row_event()
        elif kind == EV_QUERY:
            halt = self.query()
        elif kind == EV_XID:
            halt = self.xid()
        elif EV_GTID <= kind <= EV_ANONYMOUS_GTID or kind == EV_GTID_TAGGED:
            halt = self.gtid()
        elif kind == EV_MARIA_GTID:
            halt = self.maria_gtid()
        elif kind == EV_HEARTBEAT or kind == EV_HEARTBEAT_V2:
            self.heartbeats += 1
            self.note_heartbeat()
            return RUNNING
        elif kind == EV_ROTATE:
            return ROTATE
        elif kind == EV_TRANSACTION_PAYLOAD:
            return PAYLOAD
        elif kind == EV_FORMAT_DESCRIPTION:
            self.note_version()
            if self.placed:  # that of a new file: no transaction spans two files
                self.standing = BETWEEN
        elif kind == EV_XA_PREPARE:
            self.standing = BETWEEN
        elif kind == EV_MARIA_GTID_LIST or kind == EV_PREVIOUS_GTIDS:
            halt = EVENT
        elif (kind == EV_INTVAR or kind == EV_RAND or kind == EV_USER_VAR
                or kind == EV_ROWS_QUERY or kind == EV_ANNOTATE_ROWS
                or kind == EV_INCIDENT or kind == EV_EXECUTE_LOAD_QUERY):
            if kind != EV_INCIDENT:
                self.enter_statement()
            halt = EVENT
        elif EV_QUERY_COMPRESSED <= kind <= EV_ROWS_COMPRESSED_LAST:
            halt = EVENT
        elif kind == EV_START_ENCRYPTION and not self.packets:
            return self.fail("an encrypted binlog file: read it through its server", 0)
        elif kind == 20 or kind == 21 or kind == 22:
            return self.fail("row events from before MySQL 5.1.16 are not supported", 0)
        elif kind == EV_PARTIAL_ROW_DATA:
            return self.fail("a fragment of rows, which is not supported. The source "
                             "writes none while binlog_row_event_fragment_threshold is "
                             "above the size of its largest rows", 0)
        elif kind > EV_GTID_TAGGED and not (EV_ANNOTATE_ROWS <= kind <= 164):
            if e.flags & IGNORABLE_FLAG == 0:
                if not self.skip_unknown:
                    return self.fail("unknown; it may carry rows. "
                                     "canal.instance.filter.unknown.events = true "
                                     "skips such events", 0)
                self.unknown_events += 1
        return halt

    cdef void note_version(self) noexcept with gil:
        cdef bytes body = self.event.body[:56]
        self.server_version = body[2:52].split(b"\0")[0].decode("utf-8", "replace")
        # Only the first file after a server's start has a creation time.
        self.server_starts += body[52:56] > b"\0\0\0\0"
        self.began_s[self.file] = self.event.time
        if len(self.began_s) > FILES_KEPT:
            del self.began_s[next(iter(self.began_s))]

    cdef int query(self) noexcept nogil:
        """QUERY: 4 thread id, 4 seconds, 1 length of schema, 2 error code, 2 length
        of status variables, those, schema, 0, statement."""
        cdef uint64_t thread_id
        cdef const uint8_t* sql
        cdef size_t sql_n
        cdef int kind
        if not self.find_statement(&thread_id, &sql, &sql_n):
            return self.fail("a statement of %d bytes ends early", self.event.body_n)
        kind = statement_kind(sql, sql_n)
        if kind == ST_BEGIN:
            return self.put_begin(thread_id)
        if kind == ST_COMMIT:
            return self.put_end(0)
        if kind == ST_ROLLBACK:
            if self.in_group:
                # Its rows are in the binlog: without an end they would belong to the
                # next transaction.
                return self.put_end(0)
            self.standing = BETWEEN
            return RUNNING
        if kind == ST_NOTHING:
            return RUNNING
        if kind == ST_OTHER:
            if (self.standing == INSIDE and not self.in_group
                    and not begins_rows(sql, sql_n)):
                self.standing = BETWEEN  # it is outside a transaction
            return QUERY
        return self.xa(kind, sql, sql_n, thread_id)

    cdef inline bint find_statement(self, uint64_t* thread_id, const uint8_t** sql,
                                    size_t* n) noexcept nogil:
        """Find the text of a QUERY; false when it ends early."""
        cdef Input source
        cdef uint64_t schema_n, status_n
        source.p = self.event.body
        source.end = source.p + self.event.body_n
        source.short = False
        thread_id[0] = take_le(&source, 4)
        need(&source, 4)
        schema_n = take_le(&source, 1)
        need(&source, 2)
        status_n = take_le(&source, 2)
        need(&source, status_n + schema_n + 1)
        sql[0] = source.p
        n[0] = source.end - source.p
        return not source.short

    cdef int put_begin(self, uint64_t thread_id) noexcept nogil:
        cdef uint8_t[16] store
        self.begin_lost = False
        self.in_group = True
        self.grouped = True
        self.standing = INSIDE
        return self.put_marker(KIND_BEGIN, 1, 0, store, put_begin_value(store, thread_id))

    cdef int put_end(self, uint64_t xid) noexcept nogil:
        cdef uint8_t[32] store
        self.tables.end_rows()
        self.in_group = False
        self.standing = BETWEEN
        return self.put_marker(KIND_END, 3, 0, store, put_end_value(store, xid))

    cdef int xid(self) noexcept nogil:
        if self.event.body_n < 8:
            return self.fail("a body of %d bytes", self.event.body_n)
        return self.put_end(read64(self.event.body))

    cdef int xa(self, int kind, const uint8_t* sql, size_t n,
                uint64_t thread_id) noexcept nogil:
        cdef uint8_t[MARKER_BYTES_MAX] store
        cdef uint8_t* end
        if n > XA_STATEMENT_BYTES_MAX:
            return self.fail("an XA statement of %d bytes", n)
        if valid_utf8(sql, n) != n:  # servers write them in ASCII
            return self.fail("an XA statement of %d bytes that is not text", n)
        end = put_xa_value(store, kind, sql, n, thread_id)
        self.in_group = kind == ST_XA_START
        self.grouped |= self.in_group
        # After XA END it is prepared, or committed in one phase.
        self.standing = (INSIDE if kind == ST_XA_START or kind == ST_XA_END
                         else BETWEEN)
        if kind == ST_XA_START:
            return self.put_marker(KIND_BEGIN, 1, 0, store, end)
        if kind == ST_XA_END:
            return self.put_marker(KIND_END, 3, 0, store, end)
        return self.put_marker(KIND_OTHER, 2, 13 if kind == ST_XA_COMMIT else 14, store,
                               end)

    cdef int put_marker(self, uint8_t kind, uint8_t entry_type, uint8_t event_type,
                        const uint8_t* store, const uint8_t* end) noexcept nogil:
        """Write an entry without a table around a finished storeValue."""
        cdef Envelope e
        self.envelope(&e)
        e.kind = kind
        e.entry_type = entry_type
        e.event_type = event_type
        return (RUNNING if self.writer.put_entry(&e, store, end - store) == 0
                else NO_MEMORY)

    cdef int gtid(self) noexcept nogil:
        """Begin a transaction: its GTID is added to the set, if there is a set.

        The previous group may have had no end event, as after ROLLBACK. Anonymous
        transactions do not enter the set.
        """
        cdef int status = 0
        self.gtids.clear()
        self.keep_gtid()
        self.begin_lost = False
        self.in_group = False
        self.grouped = True
        self.standing = INSIDE
        if self.followed.active:
            status = self.followed.enter(&self.event)
        elif self.event.type == EV_GTID:
            status = self.gtids.enter(&self.event)
        elif self.event.type == EV_GTID_TAGGED:
            status = self.gtids.enter_tagged(&self.event)
        if status == -1:
            return self.fail("an inconsistent GTID of %d bytes",
                             self.event.body_n)
        return RUNNING if status == 0 else NO_MEMORY

    cdef int maria_gtid(self) noexcept nogil:
        """GTID of MariaDB: 8 sequence, 4 domain, 1 flags (1: single statement), …"""
        if self.event.body_n < 13:
            return self.fail("a body of %d bytes", self.event.body_n)
        self.gtids.clear()
        self.keep_gtid()
        # It also serves as BEGIN, unless a single statement follows.
        self.in_group = self.event.body[12] & 1 == 0
        self.grouped = True
        self.standing = INSIDE
        if self.followed.active:
            return (RUNNING if self.followed.enter_maria(&self.event) == 0
                    else NO_MEMORY)
        return RUNNING if self.gtids.enter_maria(&self.event) == 0 else NO_MEMORY

    cdef void keep_gtid(self) noexcept nogil:
        """Store the event, whose GTID Python may request as text."""
        self.gtid_type = self.event.type
        self.gtid_server = self.event.server_id
        self.gtid_offset = self.event.offset
        self.gtid_n = <uint32_t>min(self.event.body_n, <size_t>GTID_BYTES_KEPT)
        memcpy(self.gtid_body, self.event.body, self.gtid_n)
