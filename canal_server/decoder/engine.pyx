# cython: language_level=3
"""The engine: binlog bytes become finished records, without Python on the way.

`Decoder.decode` runs without the GIL until it needs something: more input, the image
of a table, an answer about a statement. The event at which it halts stays current
until it is answered (`install_table`, `emit`, `skip`, …); then decode() goes on.

    stream   framing "packets": MySQL packets, 3 bytes length, 1 sequence, payload;
             first payload byte 0: an event follows, 0xff: error, 0xfe: end
             framing "events": events end to end, as in a binlog file behind its magic
    event    4 time, 1 type, 4 server id, 4 length, 4 log position of the event's
             end, 2 flags, body, 4 checksum (if the file has checksums)
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memmove

from canal_server.core.blocks cimport BlockPool
from canal_server.core.blocks cimport KIND_BEGIN, KIND_END, KIND_OTHER, KIND_ROWS
from canal_server.core.crc32 cimport crc32
from canal_server.core.gtid cimport GtidSet
from canal_server.core.maria_gtid cimport MariaGtidSet
from canal_server.core.wire cimport Input, ensure, need, put_bytes, put_varint
from canal_server.core.wire cimport take_be, take_le, take_packed, varint_size
from canal_server.decoder.feed cimport Feed
from canal_server.decoder.image cimport Image, OP_JSON, Piece, TableImage
from canal_server.decoder.number_text cimport put_i64, put_u64
from canal_server.decoder.rows cimport (
    ROLE_AFTER, ROLE_BEFORE, ROLE_INSERT, ROW_MEMORY, ROW_OK, ROW_SHORT,
    RowContext, encode_image, free_context, init_context,
)
from canal_server.decoder.writer cimport Envelope, RecordWriter
from canal_server.decoder.statements cimport (
    ST_BEGIN, ST_COMMIT, ST_NOTHING, ST_OTHER, ST_XA_COMMIT, ST_XA_END,
    ST_XA_ROLLBACK, ST_XA_START, statement_kind,
)
from canal_server.decoder.tagged cimport TaggedGtid, read_tagged

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

cdef enum:
    HEADER_BYTES = 19
    CHECKSUM_BYTES = 4
    PACKET_MAX = 0xFFFFFF
    IGNORABLE_FLAG = 0x80
    IN_USE_FLAG = 1
    TABLE_SLOTS = 4096       # a power of two
    TABLES_KEPT = 2048       # with more, a transaction's end empties the cache
    TABLES_MAX = 4000        # with more, a table map does
    ENTRY_BYTES_MAX = 0x7FFFFFFF - 64
    PAUSE_BYTES = 512 * 1024  # written between two returns to Python

cdef uint32_t VERSION_AT = 2 + 50 + 4  # of the format description's post-header list


cdef class Decoder:
    """Decodes one stream of events.

    `pool`: where records go. `packets`: framing. `checksum`: whether events before
    the first format description carry one. `gtids`: the executed set to go on from
    (GtidSet or MariaGtidSet) in GTID mode, else None. `skip_inserts`, … `skip_rows`:
    kinds of row events that are left out.
    """

    cdef readonly Feed feed
    cdef readonly Feed inner          # events of a compressed transaction
    cdef RecordWriter writer
    cdef RowContext rows
    cdef TableSlot* tables
    cdef dict images                  # slot -> TableImage, which keeps them alive
    cdef uint32_t table_n
    cdef GtidSet mysql_gtids
    cdef MariaGtidSet maria_gtids
    cdef bint packets
    cdef bint checksum
    cdef bint in_payload
    cdef bint answered                # the current event is done with
    cdef bint placed                  # the current event tells where it ends
    cdef Event event                  # the current one
    cdef Event outer                  # the payload event while in its inner events
    cdef size_t event_bytes           # that it takes in its feed, framing included
    cdef size_t outer_bytes
    cdef uint32_t ordinal
    cdef uint64_t limit               # where to end in the file, offset
    cdef bint in_group                # behind a transaction's begin, before its end
    cdef const char* reason
    cdef int64_t reason_value
    cdef readonly str file
    cdef readonly str server_version
    cdef readonly uint64_t position   # end of the last event decoded
    cdef readonly uint64_t bytes_in
    cdef readonly uint64_t events
    cdef readonly uint64_t heartbeats
    cdef readonly uint32_t last_event_time
    cdef bint skip_inserts, skip_updates, skip_deletes, skip_rows, skip_unknown
    cdef readonly uint64_t unknown_events     # that were left out
    cdef TableSlot* slot                      # of the row event that failed
    cdef uint32_t row                         # and which of its rows, from 1
    cdef uint8_t[128] gtid_text       # the transaction's own gtid
    cdef uint8_t[320] gtid_props
    cdef uint32_t gtid_props_n
    cdef uint8_t* gtid_field
    cdef uint32_t gtid_field_n
    cdef uint32_t gtid_capacity

    def __init__(self, BlockPool pool, *, bint packets=True, bint checksum=True,
                 gtids=None, bint skip_inserts=False, bint skip_updates=False,
                 bint skip_deletes=False, bint skip_rows=False,
                 bint skip_unknown=False):
        init_context(&self.rows)
        self.tables = <TableSlot*>calloc(TABLE_SLOTS, sizeof(TableSlot))
        if self.tables == NULL:
            raise MemoryError("no memory for a decoder's tables")
        self.images = {}
        self.feed = Feed()
        self.inner = Feed()
        self.writer = RecordWriter(pool)
        self.packets = packets
        self.checksum = checksum
        self.skip_inserts = skip_inserts
        self.skip_updates = skip_updates
        self.skip_deletes = skip_deletes
        self.skip_rows = skip_rows
        self.skip_unknown = skip_unknown
        self.limit = <uint64_t>-1
        self.file = ""
        self.server_version = ""
        self.set_gtids(gtids)

    def __dealloc__(self):
        self.free_tables()
        free(self.tables)
        free(self.gtid_field)
        free_context(&self.rows)

    # --- the caller's side ------------------------------------------------------------

    def start(self, str file, uint64_t position):
        """Say where the stream begins; a ROTATE event at its head says it as well."""
        self.file = file
        self.position = position
        self.writer.set_file(file)

    def decode(self):
        """Decode until something is needed; returns a HALT_ code.

        Raises DecodeError (with file and position) for an event that cannot be read;
        what came before it can still be taken.
        """
        cdef int halt
        self.slot = NULL
        with nogil:
            halt = self.run()
        if halt == NO_MEMORY:
            raise MemoryError(f"no memory for the event at {self.where()}")
        if halt == BROKEN:
            reason = self.reason.decode() if self.reason != NULL else "broken event"
            if "%d" in reason:
                reason = reason % self.reason_value
            if self.slot != NULL:
                table = self.images[self.slot - self.tables].meta
                reason = f"row {self.row} of table {table}: {reason}"
            raise DecodeError(f"event type {self.event.type}: {reason}",
                              file=self.file, position=self.event.offset)
        return halt

    def set_gtids(self, gtids):
        """Go on with this executed set (GtidSet, MariaGtidSet; None: no GTID mode)."""
        if gtids is not None and not isinstance(gtids, (GtidSet, MariaGtidSet)):
            raise TypeError(f"gtids: {gtids!r} is no GTID set")
        self.mysql_gtids = gtids if isinstance(gtids, GtidSet) else None
        self.maria_gtids = gtids if isinstance(gtids, MariaGtidSet) else None

    def set_limit(self, uint64_t position):
        """Halt with HALT_LIMIT when the file is decoded up to this offset."""
        self.limit = position

    def take(self):
        """Return the spans of the records finished since the last call."""
        return self.writer.take()

    def skip(self):
        """Answer: nothing is to be delivered for the current event."""
        self.answered = True

    def emit(self, bytes store_value, *, uint8_t event_type, bytes names,
             uint32_t subject=0, bint begins=False):
        """Answer: deliver a ROWDATA entry with this storeValue for the event.

        `names`: header fields 8 and 9, serialized. `begins`: the statement begins a
        transaction, whose rows follow (CREATE TABLE … SELECT).
        """
        cdef Envelope e
        if begins:
            self.in_group = True
        self.envelope(&e, True)
        e.kind = KIND_OTHER
        e.entry_type = 2
        e.event_type = event_type
        e.subject = subject
        e.names.p = names
        e.names.n = <uint32_t>len(names)
        if self.writer.put_entry(&e, store_value, len(store_value)) != 0:
            raise MemoryError(f"no memory for the entry of the event at {self.where()}")
        self.answered = True

    def install_table(self, TableImage image):
        """Answer a TABLE halt: rows of this table map are read so, or not at all."""
        cdef uint64_t table_id
        cdef TableSlot* slot
        cdef uint8_t* body
        if self.event.type != EV_TABLE_MAP or self.event.body_n < 6:
            raise ValueError(f"no table map is asked for at {self.where()}")
        table_id = read48(self.event.body)
        if self.table_n >= TABLES_MAX:
            self.free_tables()
        body = <uint8_t*>malloc(self.event.body_n + 1)
        if body == NULL:
            raise MemoryError("no memory for a table map")
        memcpy(body, self.event.body, self.event.body_n)
        slot = self.slot_of(table_id)
        if not slot.used:
            self.table_n += 1
        free(slot.body)
        slot.body = body
        slot.body_n = self.event.body_n
        slot.table_id = table_id
        slot.used = True
        slot.stale = False
        slot.image = NULL if image is None else &image.image
        self.images[slot - self.tables] = image
        self.answered = True

    def forget_tables(self):
        """Let every table map ask again. After DDL or a new filter.

        Rows whose table map was seen already are still read with its image.
        """
        cdef uint32_t i
        for i in range(TABLE_SLOTS):
            self.tables[i].stale = True

    def finish_payload(self):
        """Say that all inner events of the current payload were fed.

        Raises DecodeError when bytes are left that are no whole event.
        """
        left = self.inner.waiting
        self.inner.clear()
        self.in_payload = False
        self.event = self.outer
        self.event_bytes = self.outer_bytes
        self.answered = True
        if left:
            raise DecodeError(f"{left} bytes left behind the last inner event",
                              file=self.file, position=self.event.offset)

    def begin_payload(self):
        """Say that inner events of the current event will be fed to `inner`."""
        self.outer = self.event
        self.outer_bytes = self.event_bytes
        self.event_bytes = 0
        self.in_payload = True
        self.ordinal = 0
        self.inner.clear()

    @property
    def body(self):
        """Return the current event's body as bytes."""
        return PyBytes_FromStringAndSize(<const char*>self.event.body,
                                         self.event.body_n)

    @property
    def event_type(self):
        """Return the current event's type code."""
        return self.event.type

    @property
    def event_time(self):
        """Return the current event's time, s."""
        return self.event.time

    @property
    def event_server_id(self):
        """Return the server id of the current event's header."""
        return self.event.server_id

    @property
    def event_offset(self):
        """Return the offset of the current event's start in its file."""
        return self.event.offset

    @property
    def missing(self):
        """Return how many bytes the event at the feed's head still lacks, about."""
        cdef size_t waiting = self.feed.end - self.feed.begin
        cdef const uint8_t* p = self.feed.data + self.feed.begin
        cdef size_t wanted
        if self.packets:
            if waiting < 4:
                return 4
            wanted = 4 + (p[0] | p[1] << 8 | p[2] << 16)
        else:
            if waiting < HEADER_BYTES:
                return HEADER_BYTES
            wanted = p[9] | p[10] << 8 | p[11] << 16 | <size_t>p[12] << 24
        return max(wanted - waiting, 0) if wanted > waiting else PACKET_MAX

    def where(self):
        """Return file:offset of the current event, for messages."""
        return f"{self.file}:{self.event.offset}"

    # --- framing ----------------------------------------------------------------------

    cdef int run(self) noexcept nogil:
        """Decode events until one of them or the feed makes it halt."""
        cdef int halt
        while True:
            if self.answered:
                self.advance()
            if self.position >= self.limit and not self.in_payload:
                return LIMIT
            if self.writer.pending_bytes >= PAUSE_BYTES:
                return PAUSE
            if self.in_payload:
                halt = self.next_inner()
            elif self.packets:
                halt = self.next_packet()
            else:
                halt = self.next_event(&self.feed.data[self.feed.begin],
                                       self.feed.end - self.feed.begin, 0)
            if halt != RUNNING:
                return halt
            halt = self.dispatch()
            if halt != RUNNING:
                return halt
            self.answered = True

    cdef void advance(self) noexcept nogil:
        """Step behind the current event."""
        self.answered = False
        if self.in_payload:
            self.inner.begin += self.event_bytes
        else:
            self.feed.begin += self.event_bytes
            # Artificial events stand nowhere in the file.
            if self.placed and self.event.type != EV_ROTATE:
                self.position = self.event.offset + self.event.length
            self.events += 1
            self.bytes_in += self.event_bytes
        if self.event.time:
            self.last_event_time = self.event.time
        self.event_bytes = 0

    cdef int next_packet(self) noexcept nogil:
        """Find the event in the packets at the feed's head."""
        cdef uint8_t* p = self.feed.data + self.feed.begin
        cdef size_t waiting = self.feed.end - self.feed.begin
        cdef size_t n, total, following
        if waiting < 4:
            return NEED_INPUT
        n = p[0] | p[1] << 8 | p[2] << 16
        if waiting < 4 + n:
            return NEED_INPUT
        if n == PACKET_MAX:
            # The event goes on in further packets. When all are there, the headers
            # between them are squeezed out, and the gap is left behind the event.
            total = 4 + n
            following = n
            while following == PACKET_MAX:
                if waiting < total + 4:
                    return NEED_INPUT
                following = p[total] | p[total + 1] << 8 | p[total + 2] << 16
                total += 4 + following
                if waiting < total:
                    return NEED_INPUT
            n = self.join_packets(p, total)
            return self.packet_event(p + 4, n, total)
        if n == 0:
            return self.fail("an empty packet", 0)
        return self.packet_event(p + 4, n, 4 + n)

    cdef size_t join_packets(self, uint8_t* p, size_t total) noexcept nogil:
        """Squeeze the inner headers out; returns the payload's length.

        Packets of 16 MiB are joined once, when the last byte is there; a second look
        at the same bytes cannot happen, as the event is then decoded to its end or
        halts and is found by `event` (`answered` is false and event_bytes is set).
        """
        cdef size_t at = 4 + PACKET_MAX
        cdef size_t to = 4 + PACKET_MAX
        cdef size_t n
        while at < total:
            n = p[at] | p[at + 1] << 8 | p[at + 2] << 16
            memmove(p + to, p + at + 4, n)
            at += 4 + n
            to += n
        return to - 4

    cdef int packet_event(self, const uint8_t* p, size_t n, size_t taken) noexcept nogil:
        if p[0] == 0xFF or (p[0] == 0xFE and n < 9):
            self.event.body = p + 1
            self.event.body_n = n - 1
            self.event_bytes = taken
            return SOURCE_ERROR if p[0] == 0xFF else SOURCE_END
        if p[0] != 0:
            return self.fail("a packet that begins with %d instead of 0", p[0])
        return self.next_event(p + 1, n - 1, taken)

    cdef int next_event(self, const uint8_t* p, size_t n, size_t taken) noexcept nogil:
        """Read the header at p; `taken` is 0 when no packet tells the length."""
        cdef Event* e = &self.event
        cdef uint32_t length, log_pos
        cdef uint64_t end
        if n < HEADER_BYTES:
            if taken == 0:
                return NEED_INPUT
            e.type = 0
            return self.fail("a header of %d bytes", n)
        length = read32(p + 9)
        e.time = read32(p)
        e.type = p[4]
        e.server_id = read32(p + 5)
        log_pos = read32(p + 13)
        e.flags = p[17] | p[18] << 8
        e.length = length
        e.offset = self.position
        if taken == 0:
            if length < HEADER_BYTES:
                return self.fail("a length of %d", length)
            if n < length:
                return NEED_INPUT
            taken = length
        elif length != n:
            return self.fail("a length of %d that is not its packet's", length)
        self.placed = log_pos != 0
        if log_pos:
            # The field has 32 bits; files of 4 GiB and more wrap it around.
            end = (self.position >> 32 << 32) | log_pos
            if end + (<uint64_t>1 << 31) < self.position:
                end += <uint64_t>1 << 32
            e.offset = end - length if end >= length else 0
        e.body = p + HEADER_BYTES
        e.body_n = length - HEADER_BYTES
        self.event_bytes = taken
        return self.check_sum(p, length)

    cdef int check_sum(self, const uint8_t* p, uint32_t length) noexcept nogil:
        """Verify and take off the checksum."""
        cdef Event* e = &self.event
        cdef uint32_t found, wanted
        cdef uint8_t[2] flags
        if e.type == EV_FORMAT_DESCRIPTION:
            self.checksum = False
            if e.body_n < VERSION_AT + 5:
                return self.fail("a format description of %d bytes", length)
            # Its last byte before its own checksum tells the algorithm: 1 is CRC32.
            if (starts_with_version(p + HEADER_BYTES + 2)
                    and p[length - 5] <= 1):
                self.checksum = p[length - 5] == 1
                e.body_n -= CHECKSUM_BYTES
                if not self.checksum:
                    return RUNNING
            else:
                return RUNNING
        elif not self.checksum:
            return RUNNING
        else:
            if e.body_n < CHECKSUM_BYTES:
                return self.fail("a body of %d bytes, too short for its checksum",
                                 e.body_n)
            e.body_n -= CHECKSUM_BYTES
        wanted = read32(p + length - CHECKSUM_BYTES)
        if e.type == EV_FORMAT_DESCRIPTION and e.flags & IN_USE_FLAG:
            # The checksum was made before the flag was set.
            flags[0] = p[17] & 0xFE
            flags[1] = p[18]
            found = crc32(p, 17, 0)
            found = crc32(flags, 2, found)
            found = crc32(p + 19, length - 19 - CHECKSUM_BYTES, found)
        else:
            found = crc32(p, length - CHECKSUM_BYTES, 0)
        if found != wanted:
            if e.type == EV_ROTATE and e.offset == self.position:
                # The artificial one at the head of a stream may have none.
                e.body_n += CHECKSUM_BYTES
                return RUNNING
            return self.fail("a checksum that does not match: it was damaged on its "
                             "way or on the server's disk", 0)
        return RUNNING

    cdef int next_inner(self) noexcept nogil:
        """Read the next event of a payload: no checksum, positions of the outer one."""
        cdef const uint8_t* p = self.inner.data + self.inner.begin
        cdef size_t n = self.inner.end - self.inner.begin
        cdef Event* e = &self.event
        cdef uint32_t length
        if n < HEADER_BYTES:
            return NEED_INPUT
        length = read32(p + 9)
        if length < HEADER_BYTES:
            return self.fail("an inner event with a length of %d", length)
        if n < length:
            return NEED_INPUT
        e.time = read32(p)
        e.type = p[4]
        e.server_id = read32(p + 5)
        e.flags = p[17] | p[18] << 8
        e.offset = self.outer.offset
        e.length = self.outer.length
        e.body = p + HEADER_BYTES
        e.body_n = length - HEADER_BYTES
        self.event_bytes = length
        return RUNNING

    cdef int fail(self, const char* reason, int64_t value) noexcept nogil:
        self.reason = reason
        self.reason_value = value
        return BROKEN

    # --- events -----------------------------------------------------------------------

    cdef int dispatch(self) noexcept nogil:
        """Decode the current event; RUNNING when it is done with."""
        cdef Event* e = &self.event
        cdef uint8_t kind = e.type
        cdef int halt = RUNNING
        if self.in_payload and (
                kind == EV_FORMAT_DESCRIPTION or kind == EV_ROTATE
                or kind == EV_TRANSACTION_PAYLOAD
                or EV_QUERY_COMPRESSED <= kind <= EV_ROWS_COMPRESSED_LAST):
            return self.fail("inside of a compressed event, where none can be", 0)
        if kind == EV_TABLE_MAP:
            halt = self.table_map()
        elif EV_WRITE_ROWS <= kind <= EV_DELETE_ROWS or kind == EV_PARTIAL_UPDATE_ROWS:
            halt = self.row_event(kind, True)
        elif EV_WRITE_ROWS_V1 <= kind <= EV_DELETE_ROWS_V1:
            halt = self.row_event(kind + 7, False)
        elif kind == EV_QUERY:
            halt = self.query()
        elif kind == EV_XID:
            halt = self.xid()
        elif kind == EV_GTID or kind == EV_ANONYMOUS_GTID:
            halt = self.gtid(kind == EV_GTID)
        elif kind == EV_GTID_TAGGED:
            halt = self.tagged_gtid()
        elif kind == EV_MARIA_GTID:
            halt = self.maria_gtid()
        elif kind == EV_HEARTBEAT or kind == EV_HEARTBEAT_V2:
            self.heartbeats += 1
            return RUNNING
        elif kind == EV_ROTATE:
            return ROTATE
        elif kind == EV_TRANSACTION_PAYLOAD:
            return PAYLOAD
        elif kind == EV_FORMAT_DESCRIPTION:
            self.note_version()
        elif kind == EV_MARIA_GTID_LIST or kind == EV_PREVIOUS_GTIDS:
            halt = EVENT
        elif (kind == EV_INTVAR or kind == EV_RAND or kind == EV_USER_VAR
                or kind == EV_ROWS_QUERY or kind == EV_ANNOTATE_ROWS
                or kind == EV_INCIDENT or kind == EV_EXECUTE_LOAD_QUERY):
            halt = EVENT
        elif EV_QUERY_COMPRESSED <= kind <= EV_ROWS_COMPRESSED_LAST:
            halt = EVENT
        elif kind == EV_START_ENCRYPTION and not self.packets:
            return self.fail("an encrypted binlog file: read it through its server", 0)
        elif kind == 20 or kind == 21 or kind == 22:
            return self.fail("row events of before MySQL 5.1.16 are not read", 0)
        elif kind > EV_GTID_TAGGED and not (EV_ANNOTATE_ROWS <= kind <= 164):
            if e.flags & IGNORABLE_FLAG == 0:
                if not self.skip_unknown:
                    return self.fail("unknown; it may carry rows. "
                                     "canal.instance.filter.unknown.events = true "
                                     "leaves such events out", 0)
                self.unknown_events += 1
        return halt

    cdef void note_version(self) noexcept with gil:
        self.server_version = self.event.body[2:52].split(b"\0")[0].decode(
            "utf-8", "replace")

    cdef void envelope(self, Envelope* e, bint with_gtid) noexcept nogil:
        """Fill what all entries of the current event share."""
        e.offset = self.event.offset
        e.event_length = self.event.length
        e.server_id = self.event.server_id
        e.time = self.event.time
        e.rows = 0
        e.subject = 0
        e.event_type = 0
        e.names.n = 0
        e.names.p = NULL
        e.ordinal = self.ordinal if self.in_payload else 0
        self.ordinal += 1
        e.gtid_props.p = self.gtid_props
        e.gtid_props.n = self.gtid_props_n if with_gtid else 0
        e.gtid.p = self.gtid_field
        e.gtid.n = self.gtid_field_n if with_gtid else 0
        e.open = self.in_group

    cdef int query(self) noexcept nogil:
        """QUERY: 4 thread id, 4 seconds, 1 length of schema, 2 error code, 2 length
        of status variables, those, schema, 0, statement."""
        cdef Input source
        cdef uint64_t thread_id, schema_n, status_n
        cdef const uint8_t* sql
        cdef size_t sql_n
        cdef int kind
        source.p = self.event.body
        source.end = source.p + self.event.body_n
        source.short = False
        thread_id = take_le(&source, 4)
        need(&source, 4)
        schema_n = take_le(&source, 1)
        need(&source, 2)
        status_n = take_le(&source, 2)
        need(&source, status_n + schema_n + 1)
        if source.short:
            return self.fail("a statement of %d bytes ends early", self.event.body_n)
        sql = source.p
        sql_n = source.end - source.p
        kind = statement_kind(sql, sql_n)
        if kind == ST_BEGIN:
            return self.put_begin(thread_id)
        if kind == ST_COMMIT:
            return self.put_end(0)
        if kind == ST_NOTHING:
            return RUNNING
        if kind == ST_OTHER:
            return QUERY
        return self.xa(kind, sql, sql_n, thread_id)

    cdef int put_begin(self, uint64_t thread_id) noexcept nogil:
        cdef Envelope e
        cdef uint8_t[16] store
        cdef uint64_t n = 0
        self.in_group = True
        self.envelope(&e, True)
        e.kind = KIND_BEGIN
        e.entry_type = 1
        if thread_id:
            store[0] = 0x20
            n = put_varint(store + 1, thread_id) - store
        return RUNNING if self.writer.put_entry(&e, store, n) == 0 else NO_MEMORY

    cdef int put_end(self, uint64_t xid) noexcept nogil:
        cdef Envelope e
        cdef uint8_t[32] store
        cdef uint8_t* p
        if self.table_n > TABLES_KEPT:
            self.free_tables()
        self.in_group = False
        self.envelope(&e, True)
        e.kind = KIND_END
        e.entry_type = 3
        p = put_u64(store + 2, xid)
        store[0] = 0x12
        store[1] = <uint8_t>(p - store - 2)
        return RUNNING if self.writer.put_entry(&e, store, p - store) == 0 else NO_MEMORY

    cdef int xid(self) noexcept nogil:
        if self.event.body_n < 8:
            return self.fail("a body of %d bytes", self.event.body_n)
        return self.put_end(read64(self.event.body))

    cdef int xa(self, int kind, const uint8_t* sql, size_t n,
                uint64_t thread_id) noexcept nogil:
        """XA statements: properties XA_TYPE and XA_XID, the rest of the statement."""
        cdef Envelope e
        cdef uint8_t[1400] store
        cdef uint8_t[700] props
        cdef uint8_t* p
        cdef const char* word = "XA START"
        cdef size_t word_n = 8
        cdef size_t xid_n, props_n
        cdef uint8_t tag = 0x1A
        if kind == ST_XA_END:
            word, word_n = "XA END", 6
        elif kind == ST_XA_COMMIT:
            word, word_n = "XA COMMIT", 9
        elif kind == ST_XA_ROLLBACK:
            word, word_n = "XA ROLLBACK", 11
        if n > 512:  # an xid has at most 128 bytes, in hexadecimal, and two quotes
            return self.fail("an XA statement of %d bytes", n)
        # What stands behind the word as the server writes it; nothing for others.
        xid_n = n - word_n if n > word_n and memcmp(sql, word, word_n) == 0 else 0
        if kind == ST_XA_COMMIT or kind == ST_XA_ROLLBACK:
            tag = 0x6A
        p = put_pair_field(props, tag, <const uint8_t*>"XA_TYPE", 7,
                           <const uint8_t*>word, word_n)
        p = put_pair_field(p, tag, <const uint8_t*>"XA_XID", 6, sql + n - xid_n, xid_n)
        props_n = p - props
        self.in_group = kind == ST_XA_START
        self.envelope(&e, True)
        p = store
        if kind == ST_XA_START:
            e.kind, e.entry_type = KIND_BEGIN, 1
            p = put_bytes(p, props, props_n)
            if thread_id:
                p[0] = 0x20
                p = put_varint(p + 1, thread_id)
        elif kind == ST_XA_END:
            e.kind, e.entry_type = KIND_END, 3
            p = put_bytes(p, b"\x12\x010", 3)
            p = put_bytes(p, props, props_n)
        else:
            e.kind, e.entry_type = KIND_OTHER, 2
            e.event_type = 13 if kind == ST_XA_COMMIT else 14
            p[0], p[1], p[2] = 0x10, e.event_type, 0x5A
            p = put_varint(p + 3, n)
            p = put_bytes(p, sql, n)
            p = put_bytes(p, props, props_n)
        return RUNNING if self.writer.put_entry(&e, store, p - store) == 0 else NO_MEMORY

    # --- GTIDs ------------------------------------------------------------------------

    cdef void new_group(self, bint begun) noexcept nogil:
        """Forget the group before: it may have ended without an end, by ROLLBACK."""
        self.gtid_props_n = self.gtid_field_n = 0
        self.in_group = begun

    cdef int gtid(self, bint named) noexcept nogil:
        """GTID: 1 flags, 16 source uuid, 8 number, 1 kind of clock, 8 last committed,
        8 sequence number, …"""
        cdef const uint8_t* body = self.event.body
        cdef uint64_t committed = 0
        cdef uint64_t number = 0
        self.new_group(False)
        if self.mysql_gtids is None or not named:
            return RUNNING  # anonymous ones do not enter the set
        if self.event.body_n < 25:
            return self.fail("a body of %d bytes", self.event.body_n)
        if self.event.body_n >= 42 and body[25] == 2:
            committed, number = read64(body + 26), read64(body + 34)
        return self.enter_gtid(body + 1, body, 0, read64(body + 17), committed, number)

    cdef int tagged_gtid(self) noexcept nogil:
        cdef TaggedGtid found
        self.new_group(False)
        if self.mysql_gtids is None:
            return RUNNING
        if read_tagged(self.event.body, self.event.body_n, &found) != 0:
            return self.fail("a tagged GTID of %d bytes that contradicts itself",
                             self.event.body_n)
        return self.enter_gtid(found.sid, found.tag, found.tag_n, found.number,
                               found.last_committed, found.sequence_number)

    cdef int enter_gtid(self, const uint8_t* sid, const uint8_t* tag, size_t tag_n,
                        uint64_t gno, uint64_t committed, uint64_t number) noexcept nogil:
        """Add to the executed set and render what the transaction's headers carry."""
        cdef uint8_t[160] text
        cdef uint8_t[24] digits
        cdef uint8_t* p = put_uuid_text(text, sid)
        cdef uint8_t* q = self.gtid_props
        p[0] = 58
        if tag_n:
            p = put_bytes(p + 1, tag, tag_n)
            p[0] = 58
        p = put_u64(p + 1, gno)
        q = put_pair_field(q, 0x62, <const uint8_t*>"curtGtid", 8, text, p - text)
        p = put_u64(digits, number)
        q = put_pair_field(q, 0x62, <const uint8_t*>"curtGtidSn", 10, digits, p - digits)
        p = put_u64(digits, committed)
        q = put_pair_field(q, 0x62, <const uint8_t*>"curtGtidLct", 11, digits,
                           p - digits)
        self.gtid_props_n = <uint32_t>(q - self.gtid_props)
        if self.mysql_gtids.add_c(sid, tag, tag_n, <int64_t>gno) != 0:
            return NO_MEMORY
        if self.mysql_gtids.render() != 0:
            return NO_MEMORY
        return self.set_gtid_field(self.mysql_gtids.text, self.mysql_gtids.text_n)

    cdef int maria_gtid(self) noexcept nogil:
        """GTID of MariaDB: 8 sequence, 4 domain, 1 flags (1: stands alone), …"""
        if self.event.body_n < 13:
            return self.fail("a body of %d bytes", self.event.body_n)
        # It stands for BEGIN, too, unless a single statement follows.
        self.new_group(self.event.body[12] & 1 == 0)
        if self.maria_gtids is None:
            return RUNNING
        if self.maria_gtids.update_c(read32(self.event.body + 8), self.event.server_id,
                                     read64(self.event.body)) != 0:
            return NO_MEMORY
        if self.maria_gtids.render() != 0:
            return NO_MEMORY
        return self.set_gtid_field(self.maria_gtids.text, self.maria_gtids.text_n)

    cdef int set_gtid_field(self, const char* text, size_t n) noexcept nogil:
        cdef uint8_t* memory
        if n + 16 > self.gtid_capacity:
            memory = <uint8_t*>malloc(2 * n + 64)
            if memory == NULL:
                return NO_MEMORY
            free(self.gtid_field)
            self.gtid_field = memory
            self.gtid_capacity = <uint32_t>(2 * n + 64)
        self.gtid_field[0] = 0x6A
        memory = put_varint(self.gtid_field + 1, n)
        memory = put_bytes(memory, text, n)
        self.gtid_field_n = <uint32_t>(memory - self.gtid_field)
        return RUNNING

    # --- rows -------------------------------------------------------------------------

    cdef TableSlot* slot_of(self, uint64_t table_id) noexcept nogil:
        """Return the slot of a table id, or the free one where it would be."""
        cdef uint32_t i = <uint32_t>(table_id * 0x9E3779B1u >> 7) & (TABLE_SLOTS - 1)
        while self.tables[i].used and self.tables[i].table_id != table_id:
            i = (i + 1) & (TABLE_SLOTS - 1)
        return &self.tables[i]

    cdef void free_tables(self) noexcept nogil:
        cdef uint32_t i
        if self.tables == NULL:
            return
        for i in range(TABLE_SLOTS):
            free(self.tables[i].body)
            self.tables[i].body = NULL
            self.tables[i].used = False
        self.table_n = 0

    cdef int table_map(self) noexcept nogil:
        """TABLE_MAP: 6 table id, …; an image is used as long as all bytes agree."""
        cdef TableSlot* slot
        if self.event.body_n < 8:
            return self.fail("a body of %d bytes", self.event.body_n)
        if self.skip_rows:
            return RUNNING
        slot = self.slot_of(read48(self.event.body))
        if (slot.used and not slot.stale and slot.body_n == self.event.body_n
                and memcmp(slot.body, self.event.body, slot.body_n) == 0):
            return RUNNING
        return TABLE

    cdef int row_event(self, uint8_t kind, bint second_version) noexcept nogil:
        """Rows: 6 table id, 2 flags, [v2: 2 length of extra data, that], width of the
        table, a bitmap of columns (updates: two), rows."""
        cdef Input source
        cdef uint64_t table_id
        cdef TableSlot* slot
        cdef uint64_t extra
        cdef const uint8_t* present
        cdef const uint8_t* present_after
        cdef uint64_t width
        cdef bint update = kind == EV_UPDATE_ROWS or kind == EV_PARTIAL_UPDATE_ROWS
        if self.skip_rows:
            return RUNNING
        source.p = self.event.body
        source.end = source.p + self.event.body_n
        source.short = False
        table_id = take_le(&source, 6)
        need(&source, 2)
        if second_version:
            extra = take_le(&source, 2)
            if extra < 2:
                return self.fail("extra data of %d bytes", extra)
            need(&source, extra - 2)
        if source.short:
            return self.fail("a body of %d bytes ends early", self.event.body_n)
        slot = self.slot_of(table_id)
        if not slot.used:
            # The last event of a statement whose tables were all let go of.
            return RUNNING if table_id == 0xFFFFFF else NO_TABLE_MAP
        if slot.image == NULL:
            return RUNNING
        if ((kind == EV_WRITE_ROWS and self.skip_inserts)
                or (update and self.skip_updates)
                or (kind == EV_DELETE_ROWS and self.skip_deletes)):
            return RUNNING
        width = take_packed(&source)
        if width != slot.image.width:
            return self.fail("rows of %d columns, unlike their table map", width)
        present = need(&source, (width + 7) // 8)
        present_after = need(&source, (width + 7) // 8) if update else present
        if source.short:
            return self.fail("a body of %d bytes ends early", self.event.body_n)
        return self.put_rows(&source, slot, kind, present, present_after)

    cdef int put_rows(self, Input* source, TableSlot* slot, uint8_t kind,
                      const uint8_t* present,
                      const uint8_t* present_after) noexcept nogil:
        """Write the entry of a row event: the rows first, the front by a guess."""
        cdef Image* image = slot.image
        cdef Envelope e
        cdef uint8_t[24] change     # RowChange in front of its rows
        cdef uint64_t change_n
        cdef uint64_t front, guess, rows_n
        cdef uint32_t rows = 0
        cdef int status
        cdef uint8_t* p
        self.envelope(&e, True)
        e.kind = KIND_ROWS
        e.entry_type = 2
        e.event_type = 1 if kind == EV_WRITE_ROWS else 3 if kind == EV_DELETE_ROWS else 2
        e.names = image.names
        e.subject = image.subject
        p = change
        if slot.table_id:
            p[0] = 0x08
            p = put_varint(p + 1, slot.table_id)
        p[0], p[1], p[2], p[3] = 0x10, e.event_type, 0x50, 0
        change_n = p + 4 - change

        e.rows = image.last_rows
        guess = self.writer.front_size(&e, change_n + image.last_bytes) + change_n
        if (self.writer.begin() != 0
                or ensure(&self.writer.out, guess + 64) != 0):
            return NO_MEMORY
        self.writer.out.p += guess
        while source.p < source.end:
            status = self.put_row(source, image, kind, present, present_after)
            if status == ROW_OK:
                rows += 1
                continue
            if status == ROW_MEMORY:
                return NO_MEMORY
            self.slot, self.row = slot, rows + 1
            if status == ROW_SHORT:
                return self.fail("its rows end early, in column %d",
                                 self.rows.column + 1)
            return self.fail("a value of column %d contradicts its type",
                             self.rows.column + 1)

        rows_n = self.writer.out.p - self.writer.out.start - guess
        e.rows = rows
        front = self.writer.front_size(&e, change_n + rows_n)
        if front + change_n + rows_n > ENTRY_BYTES_MAX:
            self.slot, self.row = slot, rows
            return self.fail("an entry of %d bytes is larger than a frame can be",
                             front + change_n + rows_n)
        if front + change_n != guess:
            if ensure(&self.writer.out, front + change_n) != 0:
                return NO_MEMORY
            memmove(self.writer.out.start + front + change_n,
                    self.writer.out.start + guess, rows_n)
            self.writer.out.p = self.writer.out.start + front + change_n + rows_n
        self.writer.put_front(&e, change_n + rows_n, self.writer.out.start)
        memcpy(self.writer.out.start + front, change, change_n)
        image.last_rows = rows
        image.last_bytes = rows_n
        self.writer.finish(&e)
        return RUNNING

    cdef int put_row(self, Input* source, const Image* image, uint8_t kind,
                     const uint8_t* present,
                     const uint8_t* present_after) noexcept nogil:
        """Write one RowData; its length's width is guessed as two bytes."""
        cdef size_t at, n
        cdef int status = ROW_OK
        cdef int width
        cdef uint8_t* p
        if ensure(&self.writer.out, 64) != 0:
            return ROW_MEMORY
        at = self.writer.out.p - self.writer.out.start
        self.writer.out.p += 3
        if kind == EV_WRITE_ROWS:
            status = encode_image(&self.rows, source, image, present, image.width,
                                  &self.writer.out, ROLE_INSERT, NULL, 0)
        else:
            status = encode_image(&self.rows, source, image, present, image.width,
                                  &self.writer.out, ROLE_BEFORE, NULL, 0)
            if status == ROW_OK and kind != EV_DELETE_ROWS and source.p < source.end:
                status = self.put_after(source, image, kind, present_after)
        if status != ROW_OK:
            return status
        n = self.writer.out.p - self.writer.out.start - at - 3
        width = varint_size(n)
        if width != 2:
            if ensure(&self.writer.out, 16) != 0:
                return ROW_MEMORY
            p = self.writer.out.start + at
            memmove(p + 1 + width, p + 3, n)
            self.writer.out.p = p + 1 + width + n
        p = self.writer.out.start + at
        p[0] = 0x62
        put_varint(p + 1, n)
        return ROW_OK

    cdef int put_after(self, Input* source, const Image* image, uint8_t kind,
                       const uint8_t* present) noexcept nogil:
        """Write the after image of an update, with its bitmap of JSON diffs if any."""
        cdef const uint8_t* partial = NULL
        cdef uint32_t partial_n = 0
        cdef uint32_t i, json = 0
        cdef uint64_t options
        if kind == EV_PARTIAL_UPDATE_ROWS:
            options = take_packed(source)
            if options & 1:
                for i in range(image.width):
                    json += image.columns[i].op == OP_JSON
                partial_n = (json + 7) // 8
                partial = need(source, partial_n)
                if partial == NULL:
                    return ROW_SHORT
        return encode_image(&self.rows, source, image, present, image.width,
                            &self.writer.out, ROLE_AFTER, partial, partial_n)


cdef inline uint32_t read32(const uint8_t* p) noexcept nogil:
    return p[0] | p[1] << 8 | p[2] << 16 | <uint32_t>p[3] << 24


cdef inline uint64_t read48(const uint8_t* p) noexcept nogil:
    return read32(p) | <uint64_t>(p[4] | p[5] << 8) << 32


cdef inline uint64_t read64(const uint8_t* p) noexcept nogil:
    return read32(p) | <uint64_t>read32(p + 4) << 32


cdef bint starts_with_version(const uint8_t* p) noexcept nogil:
    """Tell whether a server of this version writes its checksum algorithm.

    MySQL from 5.6.1 and MariaDB from 5.3 do.
    """
    if p[0] >= 49 and p[0] <= 57 and p[1] >= 48 and p[1] <= 57:
        return True  # 10.x and later
    if p[0] > 53 and p[0] <= 57:
        return True
    return p[0] == 53 and p[1] == 46 and (p[2] >= 54 or p[2] == 51 or p[2] == 53)


cdef uint8_t* put_uuid_text(uint8_t* p, const uint8_t* raw) noexcept nogil:
    cdef const char* digits = "0123456789abcdef"
    cdef int i
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            p[0] = 45
            p += 1
        p[0] = <uint8_t>digits[raw[i] >> 4]
        p[1] = <uint8_t>digits[raw[i] & 15]
        p += 2
    return p


cdef uint8_t* put_pair_field(uint8_t* p, uint8_t tag, const uint8_t* key, size_t key_n,
                             const uint8_t* value, size_t value_n) noexcept nogil:
    """Write a Pair{key, value} as a field; both below 700 bytes, value may be empty."""
    cdef size_t n = 2 + key_n
    if value_n:
        n += 1 + varint_size(value_n) + value_n
    p[0] = tag
    p = put_varint(p + 1, n)
    p[0], p[1] = 0x0A, <uint8_t>key_n
    p = put_bytes(p + 2, key, key_n)
    if value_n:
        p[0] = 0x12
        p = put_varint(p + 1, value_n)
        p = put_bytes(p, value, value_n)
    return p
