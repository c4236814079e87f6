# cython: language_level=3
"""Row events: the part before their rows, and the loop over the rows.

    6 table id, 2 flags, [second version: 2 length of extra data, that], width of the
    table, a bitmap of columns (updates: two), rows

The rows become RowData, or are only counted, so that the event can be relayed unchanged
and rendered elsewhere. Leaves out the layout of a table (`layouts_by_id`) and the entry
around the rows.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memmove, memset

from canal_server.core.wire cimport (
    Input, Output, ensure, need, put_varint, take_le, take_packed, varint_size,
)
from canal_server.decoder.rows.event_constants cimport (
    EV_DELETE_ROWS, EV_DELETE_ROWS_V1, EV_PARTIAL_UPDATE_ROWS, EV_UPDATE_ROWS,
    EV_WRITE_ROWS, EV_WRITE_ROWS_V1,
)
from canal_server.decoder.rows.row_layout cimport ColumnPlan, LayoutC, OP_JSON
from canal_server.decoder.rows.row_images cimport (
    ROLE_AFTER, ROLE_BEFORE, ROLE_INSERT, ROW_MEMORY, ROW_OK, ROW_SHORT, RowContext,
    encode_image,
)

cdef enum:
    STATEMENT_END_FLAG = 1  # the last event of its statement


cdef inline bint is_update(uint8_t kind) noexcept nogil:
    return kind == EV_UPDATE_ROWS or kind == EV_PARTIAL_UPDATE_ROWS


cdef int fail(RowEvent* event, const char* reason, int64_t value) noexcept nogil:
    event.reason, event.value = reason, value
    return EVENT_BROKEN


# --- before the rows ------------------------------------------------------------------

cdef int read_front(RowEvent* event, uint8_t code, const uint8_t* body,
                    size_t n) noexcept nogil:
    """Read the table of the rows; `code` is that of a row event."""
    cdef bint second_version = True
    cdef uint64_t extra
    memset(event, 0, sizeof(RowEvent))
    event.kind = code
    if EV_WRITE_ROWS_V1 <= code <= EV_DELETE_ROWS_V1:
        event.kind = code + EV_WRITE_ROWS - EV_WRITE_ROWS_V1
        second_version = False
    event.source.p, event.source.end = body, body + n
    event.table_id = take_le(&event.source, 6)
    event.ends_statement = take_le(&event.source, 2) & STATEMENT_END_FLAG
    if second_version:
        extra = take_le(&event.source, 2)
        if extra < 2:
            return fail(event, "extra data of %d bytes", extra)
        need(&event.source, extra - 2)
    if event.source.short:
        return fail(event, "a body of %d bytes ends early", n)
    return EVENT_OK


cdef int read_bitmaps(RowEvent* event, uint32_t width) noexcept nogil:
    """Read which of `width` columns the rows have."""
    cdef size_t n = event.source.end - event.source.p
    cdef uint64_t found = take_packed(&event.source)
    if found != width:
        return fail(event, "rows of %d columns, unlike their table map", found)
    event.present = need(&event.source, (width + 7) // 8)
    event.present_after = event.present
    if is_update(event.kind):
        event.present_after = need(&event.source, (width + 7) // 8)
    if event.source.short:
        return fail(event, "a list of columns of %d bytes ends early", n)
    event.rows_at = event.source.p
    event.rows_max, event.piece_end = 0xFFFFFFFF, event.source.end
    return EVENT_OK


cdef void limit_piece(RowEvent* event, uint32_t width) noexcept nogil:
    cdef uint32_t cells = width * (2 if is_update(event.kind) else 1)
    event.rows_max = PIECE_CELLS_MAX // max(cells, <uint32_t>1) + 1
    event.piece_end = event.source.end
    if event.source.end - event.source.p > PIECE_BYTES_MAX:
        event.piece_end = event.source.p + PIECE_BYTES_MAX


# --- rows ---------------------------------------------------------------------------

cdef int put_rows(RowEvent* event, RowContext* context, const LayoutC* layout,
                  Output* out, uint32_t* rows) noexcept nogil:
    """Append each row as field 12 of RowChange."""
    cdef const uint8_t* row
    cdef int status = ROW_OK
    rows[0] = 0
    while event.source.p < event.piece_end and rows[0] < event.rows_max:
        row = event.source.p
        status = put_row(event, context, layout, out)
        if status != ROW_OK or event.source.p == row:
            return fail_row(event, status, rows[0], context.column)
        rows[0] += 1
    return EVENT_OK


cdef int fail_row(RowEvent* event, int status, uint32_t rows,
                  uint32_t column) noexcept nogil:
    event.row = rows + 1
    if status == ROW_MEMORY:
        return EVENT_MEMORY
    if status == ROW_SHORT:
        return fail(event, "its rows end early, in column %d", <int64_t>column + 1)
    if status == ROW_OK:
        return fail(event, "rows without a column, followed by bytes", 0)
    return fail(event, "a value of column %d contradicts its type", <int64_t>column + 1)


cdef int put_row(RowEvent* event, RowContext* context, const LayoutC* layout,
                 Output* out) noexcept nogil:
    """Write one RowData, with an estimate of two bytes for its length."""
    cdef size_t at, n
    cdef int status = ROW_OK
    cdef int width
    cdef uint8_t* p
    if ensure(out, 64) != 0:
        return ROW_MEMORY
    at = out.p - out.start
    out.p += 3
    status = encode_image(
        context, &event.source, layout, event.present, layout.width, out,
        ROLE_INSERT if event.kind == EV_WRITE_ROWS else ROLE_BEFORE, NULL, 0)
    if (status == ROW_OK and is_update(event.kind)
            and event.source.p < event.source.end):
        status = put_after(event, context, layout, out)
    if status != ROW_OK:
        return status
    n = out.p - out.start - at - 3
    width = varint_size(n)
    if width != 2:
        if ensure(out, 16) != 0:
            return ROW_MEMORY
        p = out.start + at
        memmove(p + 1 + width, p + 3, n)
        out.p = p + 1 + width + n
    p = out.start + at
    p[0] = 0x62
    put_varint(p + 1, n)
    return ROW_OK


cdef int put_after(RowEvent* event, RowContext* context, const LayoutC* layout,
                   Output* out) noexcept nogil:
    """Write the after image of an update."""
    cdef const uint8_t* partial = NULL
    cdef uint32_t partial_n = 0
    if not take_partial(event, layout, &partial, &partial_n):
        context.column = 0
        return ROW_SHORT
    return encode_image(context, &event.source, layout, event.present_after, layout.width,
                        out, ROLE_AFTER, partial, partial_n)


cdef bint take_partial(RowEvent* event, const LayoutC* layout, const uint8_t** partial,
                       uint32_t* partial_n) noexcept nogil:
    """Read the bitmap of JSON diffs that may precede an after image."""
    cdef uint32_t i, json = 0
    if event.kind != EV_PARTIAL_UPDATE_ROWS or take_packed(&event.source) & 1 == 0:
        return True
    for i in range(layout.width):
        json += layout.columns[i].op == OP_JSON
    partial_n[0] = (json + 7) // 8
    partial[0] = need(&event.source, partial_n[0])
    return partial[0] != NULL


# --- counting -----------------------------------------------------------------------

cdef int count_rows(RowEvent* event, const LayoutC* layout, uint32_t* rows) noexcept nogil:
    """Skip all rows without decoding their values."""
    cdef const uint8_t* row
    cdef const uint8_t* partial = NULL
    cdef uint32_t partial_n = 0
    cdef uint32_t column = 0
    cdef int status
    rows[0] = 0
    while event.source.p < event.piece_end and rows[0] < event.rows_max:
        row = event.source.p
        status = skip_image(&event.source, layout, event.present, &column)
        if (status == ROW_OK and is_update(event.kind)
                and event.source.p < event.source.end):
            status = ROW_SHORT
            if take_partial(event, layout, &partial, &partial_n):
                status = skip_image(&event.source, layout, event.present_after, &column)
        if status != ROW_OK or event.source.p == row:
            return fail_row(event, status, rows[0], column)
        rows[0] += 1
    return EVENT_OK


cdef int skip_image(Input* source, const LayoutC* layout, const uint8_t* present,
                    uint32_t* column) noexcept nogil:
    """Skip one row image."""
    cdef uint32_t in_image = 0
    cdef uint32_t bit = 0
    cdef uint32_t i
    cdef const uint8_t* nulls
    cdef const ColumnPlan* plan
    column[0] = 0
    for i in range(layout.width):
        in_image += has_bit(present, i)
    nulls = need(source, (in_image + 7) // 8)
    if nulls == NULL:
        return ROW_SHORT
    for i in range(layout.width):
        if not has_bit(present, i):
            continue
        bit += 1
        if has_bit(nulls, bit - 1):
            continue
        plan = &layout.columns[i]
        need(source, plan.raw_n if plan.raw_n else take_le(source, plan.a))
        if source.short:
            column[0] = i
            return ROW_SHORT
    return ROW_OK


cdef inline bint has_bit(const uint8_t* bits, uint32_t i) noexcept nogil:
    return bits[i >> 3] >> (i & 7) & 1
