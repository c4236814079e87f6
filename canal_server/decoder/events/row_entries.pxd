# cython: language_level=3
"""Entries of row events; see row_entries.pyx."""

from libc.stdint cimport uint32_t, uint64_t, uint8_t

from canal_server.decoder.events.gtid_headers cimport GtidHeaders
from canal_server.decoder.rows.row_layout cimport LayoutC, ShapeC
from canal_server.decoder.rows.row_events cimport RowEvent
from canal_server.decoder.rows.row_images cimport RowContext
from canal_server.decoder.events.event_stream cimport EventStream
from canal_server.decoder.rows.layouts_by_id cimport TableCache, TableSlot
from canal_server.decoder.events.entry_writer cimport Envelope, RecordWriter

cdef class RowEntries(EventStream):
    cdef RecordWriter writer
    cdef RowContext rows
    cdef TableCache tables
    cdef GtidHeaders gtids
    cdef bint in_group                        # after a begin, before its end
    cdef bint grouped                         # a transaction began since the start
    cdef public bint refuses_inside           # rows of a transaction that began before it
    cdef bint skip_inserts, skip_updates, skip_deletes, skip_rows
    cdef public bint counts                   # counts rows without writing them
    cdef bint relays                          # relays row events unchanged
    cdef uint64_t relay_file, relay_offset    # start of the events for the reader
    cdef uint32_t shapes_sent, shape_generation
    cdef TableSlot* slot                      # of the row event that failed
    cdef uint32_t row                         # and its failed row, from 1
    cdef bint begin_lost                      # a lost event may have been a BEGIN
    cdef bint in_rows                         # the current event has further pieces
    cdef RowEvent piece                       # the part that is not written yet
    cdef TableSlot* piece_slot
    cdef uint32_t rows_before                 # the piece, of the event

    cdef int put_begin(self, uint64_t thread_id) noexcept nogil
    cdef void envelope(self, Envelope* e) noexcept nogil
    cdef int table_map(self) noexcept nogil
    cdef int row_event(self) noexcept nogil
    cdef bint is_skipped(self, uint8_t kind) noexcept nogil
    cdef void row_envelope(self, Envelope* e, const RowEvent* rows,
                           const LayoutC* layout) noexcept nogil
    # Writes the next piece of the current event.
    cdef int next_piece(self) noexcept nogil
    cdef int put_piece(self, RowEvent* rows, TableSlot* slot) noexcept nogil
    cdef int put_rows(self, RowEvent* rows, TableSlot* slot) noexcept nogil
    cdef int count_rows(self, RowEvent* rows, TableSlot* slot) noexcept nogil
    cdef int relay_rows(self, RowEvent* rows, TableSlot* slot) noexcept nogil
    cdef bint is_for_reader(self) noexcept nogil
    cdef void number_shape(self, ShapeC* shape) noexcept nogil
    cdef int fail_rows(self, int status, const RowEvent* rows,
                       TableSlot* slot) noexcept nogil
    cdef int fail_large(self, const RowEvent* rows, TableSlot* slot, uint64_t n,
                        uint32_t row) noexcept nogil
