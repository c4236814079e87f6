# cython: language_level=3
"""Writes the entries of row events, in pieces where an event has very many rows.

An event of some MiB may have hundreds of millions of NULL columns, each of which needs
many bytes in an entry: after PIECE_CELLS_MAX columns or PIECE_BYTES_MAX bytes of the
event the entry ends, and the other rows go into further entries, once the written ones
were delivered. Where an event is split depends only on its bytes. Leaves out the kinds
of events (`engine`).
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from canal_server.core.blocks cimport BlockPool, KIND_ROWS
from canal_server.core.wire cimport ensure
from canal_server.decoder.rows.event_constants cimport (
    EV_DELETE_ROWS, EV_WRITE_ROWS, LOST_ROWS, NO_MEMORY, NO_TABLE_MAP, RUNNING, TABLE,
)
from canal_server.decoder.events.gtid_headers cimport GtidHeaders
from canal_server.decoder.rows.row_layout cimport LayoutC, ShapeC
from canal_server.decoder.rows.relayed_rows cimport SHAPES_MAX, put_relayed, relayed_size
from canal_server.decoder.rows.row_events cimport (
    CHANGE_FRONT_MAX, EVENT_MEMORY, EVENT_OK, RowEvent, count_rows, event_type_of,
    limit_piece, put_change_front, put_rows, read_bitmaps, read_front,
)
from canal_server.decoder.rows.row_images cimport free_context, init_context
from canal_server.decoder.events.event_stream cimport EventStream
from canal_server.decoder.rows.layouts_by_id cimport TableCache, TableSlot
from canal_server.decoder.events.entry_writer cimport (
    Envelope, RecordWriter, front_size,
)

cdef enum:
    FRAME_BYTES_MAX = 0x7FFFFFFF - 64  # of the protocol to clients
    ENTRY_BYTES_LEAST = 64 * 1024 * 1024
    ENTRY_FACTOR = 4  # how much larger than an event an entry may be


cdef class RowEntries(EventStream):
    """Writes row events; base of the decoder."""

    def __init__(self, BlockPool pool, *, source=None, **framing):
        EventStream.__init__(self, **framing)
        init_context(&self.rows, self.event_bytes_max)
        self.tables = TableCache()
        self.gtids = GtidHeaders()
        self.writer = RecordWriter(pool, source)
        self.writer.entry_bytes_max = min(
            <uint64_t>FRAME_BYTES_MAX,
            max(<uint64_t>ENTRY_BYTES_LEAST, ENTRY_FACTOR * self.event_bytes_max))
        self.rows.text_bytes_max = self.writer.entry_bytes_max
        self.shape_generation = 1

    def __dealloc__(self):
        free_context(&self.rows)

    def relay(self, uint64_t file_number, uint64_t offset):
        """Write rows of tables with a shape unchanged; call before decoding.

        A shape is sent before the first event that uses it, counting only events that
        start in this file at or after this offset.
        """
        self.relays = True
        self.relay_file, self.relay_offset = file_number, offset

    cdef int put_begin(self, uint64_t thread_id) noexcept nogil:
        """Write a BEGIN; implemented by the decoder."""
        return NO_MEMORY

    cdef void envelope(self, Envelope* e) noexcept nogil:
        """Fill the fields that all entries of the current event share."""
        e.offset = self.event.offset
        e.event_length = self.event.length
        e.server_id = self.event.server_id
        e.time = self.event.time
        e.rows = 0
        e.table_ordinal = 0
        e.event_type = 0
        e.store_tag = 0x1A
        e.names.n = 0
        e.names.p = NULL
        # Counts events, not entries: filters decide which of them become entries, and
        # a position must mean the same with any filter.
        e.ordinal = self.ordinal if self.in_payload else 0
        e.gtid_props = self.gtids.props
        e.gtid = self.gtids.field
        e.open = self.in_group

    # --- rows -------------------------------------------------------------------------

    cdef int table_map(self) noexcept nogil:
        """TABLE_MAP: 6 table id, …"""
        if self.event.body_n < 8:
            return self.fail("a body of %d bytes", self.event.body_n)
        if self.refuses_inside and not self.grouped:
            return NO_TABLE_MAP
        if self.begin_lost and not self.in_group and self.put_begin(0) != RUNNING:
            return NO_MEMORY
        self.begin_lost = False
        self.enter_statement()
        self.tables.expect_rows()
        if self.skip_rows or self.tables.knows(self.event.body, self.event.body_n):
            return RUNNING
        return TABLE

    cdef int row_event(self) noexcept nogil:
        """Write the entry of a row event, unless its rows are skipped."""
        cdef RowEvent rows
        cdef TableSlot* slot
        cdef int halt
        if self.skip_rows:
            return RUNNING
        if read_front(&rows, self.event.type, self.event.body,
                      self.event.body_n) != EVENT_OK:
            return self.fail(rows.reason, rows.value)
        if rows.ends_statement:
            self.tables.end_rows()
        slot = self.tables.slot_of(rows.table_id)
        if not slot.used:
            # The last event of a statement whose tables were all discarded.
            if rows.table_id == 0xFFFFFF:
                return RUNNING
            return LOST_ROWS if self.tables.map_lost else NO_TABLE_MAP
        if slot.lost:
            return LOST_ROWS
        if slot.layout == NULL or self.is_skipped(rows.kind):
            return RUNNING
        if read_bitmaps(&rows, slot.layout.width) != EVENT_OK:
            return self.fail(rows.reason, rows.value)
        self.rows_before = 0
        limit_piece(&rows, slot.layout.width)
        halt = self.put_piece(&rows, slot)
        if halt == RUNNING and rows.source.p < rows.source.end:
            self.in_rows = True
            self.piece, self.piece_slot = rows, slot
        return halt

    cdef int next_piece(self) noexcept nogil:
        """Write further rows of an event whose first rows are written."""
        cdef int halt
        self.in_rows = False
        limit_piece(&self.piece, self.piece_slot.layout.width)
        halt = self.put_piece(&self.piece, self.piece_slot)
        self.in_rows = halt == RUNNING and self.piece.source.p < self.piece.source.end
        return halt

    cdef int put_piece(self, RowEvent* rows, TableSlot* slot) noexcept nogil:
        if self.counts:
            return self.count_rows(rows, slot)
        if self.relays and slot.layout.shape != NULL:
            return self.relay_rows(rows, slot)
        return self.put_rows(rows, slot)

    cdef bint is_skipped(self, uint8_t kind) noexcept nogil:
        if kind == EV_WRITE_ROWS:
            return self.skip_inserts
        if kind == EV_DELETE_ROWS:
            return self.skip_deletes
        return self.skip_updates

    cdef void row_envelope(self, Envelope* e, const RowEvent* rows,
                           const LayoutC* layout) noexcept nogil:
        self.envelope(e)
        e.kind = KIND_ROWS
        e.entry_type = 2
        e.event_type = event_type_of(rows.kind)
        e.names = layout.names
        e.table_ordinal = layout.table_ordinal

    cdef int put_rows(self, RowEvent* rows, TableSlot* slot) noexcept nogil:
        """Write the entry of a row event: the rows first, with an estimated front."""
        cdef LayoutC* layout = slot.layout
        cdef Envelope e
        cdef uint8_t[CHANGE_FRONT_MAX] change
        cdef uint64_t change_n = put_change_front(change, rows) - change
        cdef uint64_t header, front, guess, rows_n
        cdef int status
        self.row_envelope(&e, rows, layout)
        e.rows = layout.last_rows
        header = self.writer.header_size(&e)
        guess = front_size(header, change_n + layout.last_bytes) + change_n
        if (self.writer.begin() != 0
                or ensure(&self.writer.out, guess + 64) != 0):
            return NO_MEMORY
        self.writer.out.p += guess
        status = put_rows(rows, &self.rows, layout, &self.writer.out, &e.rows)
        if status != EVENT_OK:
            return self.fail_rows(status, rows, slot)

        rows_n = self.writer.out.p - self.writer.out.start - guess
        if e.rows != layout.last_rows:
            header = self.writer.header_size(&e)
        front = front_size(header, change_n + rows_n)
        if front + change_n + rows_n > self.writer.entry_bytes_max:
            return self.fail_large(rows, slot, front + change_n + rows_n, e.rows)
        if front + change_n != guess:
            if ensure(&self.writer.out, front + change_n) != 0:
                return NO_MEMORY
            memmove(self.writer.out.start + front + change_n,
                    self.writer.out.start + guess, rows_n)
            self.writer.out.p = self.writer.out.start + front + change_n + rows_n
        self.writer.put_front(&e, header, change_n + rows_n, self.writer.out.start)
        memcpy(self.writer.out.start + front, change, change_n)
        layout.last_rows = e.rows
        layout.last_bytes = rows_n
        self.rows_before += e.rows
        self.writer.finish(&e)
        return RUNNING

    cdef int count_rows(self, RowEvent* rows, TableSlot* slot) noexcept nogil:
        """Write an entry with the number of rows instead of the rows."""
        cdef uint8_t[1] nothing
        cdef Envelope e
        cdef int status
        self.row_envelope(&e, rows, slot.layout)
        status = count_rows(rows, slot.layout, &e.rows)
        if status != EVENT_OK:
            return self.fail_rows(status, rows, slot)
        self.rows_before += e.rows
        return RUNNING if self.writer.put_entry(&e, nothing, 0) == 0 else NO_MEMORY

    cdef int relay_rows(self, RowEvent* rows, TableSlot* slot) noexcept nogil:
        """Write the entry of an unchanged row event, with its shape on first use."""
        cdef LayoutC* layout = slot.layout
        cdef Envelope e
        cdef ShapeC* new_shape = NULL
        cdef const uint8_t* piece = rows.source.p
        cdef size_t head_n = rows.rows_at - self.event.body
        cdef size_t piece_n
        cdef uint64_t header, front, n
        cdef uint8_t* p
        cdef int status
        self.row_envelope(&e, rows, layout)
        e.store_tag = 0x22
        status = count_rows(rows, layout, &e.rows)
        if status != EVENT_OK:
            return self.fail_rows(status, rows, slot)
        if self.is_for_reader() and layout.shape.generation != self.shape_generation:
            new_shape = layout.shape
            self.number_shape(new_shape)
        piece_n = rows.source.p - piece
        n = relayed_size(self.event.type, layout.shape, new_shape, head_n + piece_n)
        header = self.writer.header_size(&e)
        front = front_size(header, n)
        if front + n > self.writer.entry_bytes_max:
            return self.fail_large(rows, slot, front + n, e.rows)
        if (self.writer.begin() != 0
                or ensure(&self.writer.out, front + n) != 0):
            return NO_MEMORY
        p = self.writer.out.start
        self.writer.put_front(&e, header, n, p)
        self.writer.out.p = put_relayed(p + front, self.event.type, layout.shape, new_shape,
                                        self.event.body, head_n, piece, piece_n)
        self.rows_before += e.rows
        self.writer.finish(&e)
        return RUNNING

    cdef bint is_for_reader(self) noexcept nogil:
        """Check whether the reader gets the current event."""
        return self.writer.file_number > self.relay_file or (
            self.writer.file_number == self.relay_file
            and self.event.offset >= self.relay_offset)

    cdef void number_shape(self, ShapeC* shape) noexcept nogil:
        """Assign the next number to a shape; after the last number they restart."""
        if self.shapes_sent == SHAPES_MAX:
            self.shapes_sent = 0
            self.shape_generation += 1
        self.shapes_sent += 1
        shape.number, shape.generation = self.shapes_sent, self.shape_generation

    cdef int fail_rows(self, int status, const RowEvent* rows,
                       TableSlot* slot) noexcept nogil:
        if status == EVENT_MEMORY and self.writer.too_large:
            return self.fail_large(rows, slot, self.writer.too_large, rows.row)
        if status == EVENT_MEMORY and self.rows.inflates_to:
            self.slot, self.row = slot, self.rows_before + rows.row
            return self.fail_limit("a value of %d bytes when inflated, above "
                                   "canal.instance.event.bytes.max = %d",
                                   self.rows.inflates_to, self.event_bytes_max)
        if status == EVENT_MEMORY and self.rows.too_large:
            return self.fail_large(rows, slot, self.rows.too_large, rows.row)
        if status == EVENT_MEMORY:
            return NO_MEMORY
        self.slot, self.row = slot, self.rows_before + rows.row
        return self.fail(rows.reason, rows.value)

    cdef int fail_large(self, const RowEvent* rows, TableSlot* slot, uint64_t n,
                        uint32_t row) noexcept nogil:
        self.slot, self.row = slot, self.rows_before + row
        return self.fail_limit("an entry of %d bytes, above the limit of %d (of a frame, "
                               "and 4 times canal.instance.event.bytes.max)", n,
                               self.writer.entry_bytes_max)
