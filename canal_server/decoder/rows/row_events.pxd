# cython: language_level=3
"""Row events; see row_events.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from canal_server.core.wire cimport Input, Output, put_varint
from canal_server.decoder.rows.row_layout cimport LayoutC
from canal_server.decoder.rows.row_images cimport RowContext

cdef enum EventError:
    EVENT_OK = 0
    EVENT_BROKEN = 1
    EVENT_MEMORY = 2

cdef enum:
    CHANGE_FRONT_MAX = 24  # bytes of RowChange before its rows
    PIECE_CELLS_MAX = 1 << 19        # columns of rows in one entry
    PIECE_BYTES_MAX = 8 * 1024 * 1024  # of an event that become one entry

cdef struct RowEvent:
    uint8_t kind            # EV_WRITE_ROWS, … as of the second version
    bint ends_statement
    uint64_t table_id
    Input source            # the unread rest
    const uint8_t* present  # a bit per column of an insert's, delete's or before image
    const uint8_t* present_after
    const uint8_t* rows_at  # start of the rows

    # The end of the next piece: after the row that reaches either limit.
    uint32_t rows_max
    const uint8_t* piece_end

    # Why the event cannot be read.
    const char* reason
    int64_t value           # for the %d in it
    uint32_t row            # the wrong row, from 1; 0: none

# The steps of reading, in order; each returns an EventError.
cdef int read_front(RowEvent* event, uint8_t code, const uint8_t* body,
                    size_t n) noexcept nogil
cdef int read_bitmaps(RowEvent* event, uint32_t width) noexcept nogil
# Limits the next piece to the rows and bytes of one entry; otherwise all rows are read
# at once.
cdef void limit_piece(RowEvent* event, uint32_t width) noexcept nogil
# Call one of the two; both count the rows.
cdef int put_rows(RowEvent* event, RowContext* context, const LayoutC* layout,
                  Output* out, uint32_t* rows) noexcept nogil
cdef int count_rows(RowEvent* event, const LayoutC* layout, uint32_t* rows) noexcept nogil


cdef inline uint8_t event_type_of(uint8_t kind) noexcept nogil:
    """Return the EventType of a kind: 1 insert, 2 update, 3 delete."""
    return 1 if kind == 30 else 3 if kind == 32 else 2


cdef inline uint8_t* put_change_front(uint8_t* p, const RowEvent* event) noexcept nogil:
    """Write the front of a RowChange: table id, eventType, isDdl."""
    if event.table_id:
        p[0] = 0x08
        p = put_varint(p + 1, event.table_id)
    p[0], p[1], p[2], p[3] = 0x10, event_type_of(event.kind), 0x50, 0
    return p + 4
