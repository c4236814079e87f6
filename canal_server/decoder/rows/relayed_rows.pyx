# cython: language_level=3
"""Renders relayed row events into the entries that a server would have produced.

Bytes in, bytes out: the input is a piece of a ranged read, the output is the same piece
as if it had been read as entries, byte for byte. Other entries are copied unchanged.
Python is called for the layout of a table, once per shape.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove, memset

from canal_server.core.wire cimport (
    Input, Output, ensure, put_bytes, put_varint, varint_size,
)
from canal_server.core.entry_wire cimport (
    ENTRY_ROWDATA, EntryHead, Slice, input_of, read_entry, skip_field, take_slice,
    take_varint,
)
from canal_server.decoder.rows.event_constants cimport is_row_event
from canal_server.decoder.rows.row_layout cimport LayoutC, TableLayout
from canal_server.decoder.rows.row_events cimport (
    CHANGE_FRONT_MAX, EVENT_MEMORY, EVENT_OK, RowEvent, put_change_front, put_rows,
    read_bitmaps, read_front,
)
from canal_server.decoder.rows.row_images cimport (
    SLACK, RowContext, free_context, grow_rows, init_context,
)

from canal_server.errors import DecodeError

cdef enum:
    ENTRY_BYTES_MAX = 0x7FFFFFFF - 64
    ROOM_MAX = 1 << 20  # initial bytes
    FRONT_MAX = 64  # bytes of lengths and tags around an entry's header

cdef enum Outcome:
    DONE = 0
    BROKEN = 1
    NO_MEMORY = 2
    FAILED = 3      # a Python error is stored


cdef struct Relayed:
    # The parts of an entry with relayedRows.
    Slice header
    Slice shape     # sent with it; n is 0: none
    Slice body
    uint64_t code
    uint64_t number


cdef class Rendered:
    """Memory with finished entries."""

    cdef uint8_t* data
    cdef size_t used

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.used, 1, flags)


cdef class Renderer:
    """Renders the pieces of one answer, in order; for one thread.

    `layout_of` makes the layout of a table from the bytes of its shape.
    """

    cdef object layout_of
    cdef dict layouts               # by number: owns what the next one points to
    cdef LayoutC** by_number
    cdef RowContext context
    cdef Output out
    cdef uint8_t* padded           # a body at the end of its memory, followed by SLACK
    cdef const uint8_t* data_end
    cdef object error
    cdef const char* reason
    cdef long long reason_value
    cdef Slice entry               # the current one

    def __cinit__(self, *args):
        self.by_number = <LayoutC**>calloc(SHAPES_MAX + 1, sizeof(LayoutC*))
        if self.by_number == NULL:
            raise MemoryError("no memory for the tables of a range")

    def __init__(self, layout_of):
        self.layout_of = layout_of
        self.layouts = {}
        init_context(&self.context, ENTRY_BYTES_MAX)
        self.out.grow = grow_rows

    def __dealloc__(self):
        free_context(&self.context)
        free(self.out.start)
        free(self.padded)
        free(self.by_number)

    def render(self, data, size_t bytes_max):
        """Return how many bytes of the piece were read, and the entries.

        Reads whole entries, until about `bytes_max` bytes are rendered. Raises
        DecodeError for invalid bytes; the rest of the answer is lost then.
        """
        cdef Py_buffer view
        cdef const uint8_t* p
        cdef size_t consumed = 0
        cdef bint is_changed = False
        cdef int status
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            p = <const uint8_t*>view.buf
            with nogil:
                status = self.run(p, view.len, bytes_max, &consumed, &is_changed)
            if status != DONE:
                self.raise_error(status)  # its message is in the buffer
        finally:
            PyBuffer_Release(&view)
        if not is_changed:
            return consumed, memoryview(data)[:consumed]
        return consumed, self.take()

    cdef object take(self):
        cdef Rendered rendered = Rendered.__new__(Rendered)
        cdef size_t used = self.out.p - self.out.start
        rendered.data, rendered.used = self.out.start, used
        self.out.start = self.out.p = self.out.end = NULL
        return memoryview(rendered)

    # --- entries ----------------------------------------------------------------------

    cdef int run(self, const uint8_t* p, size_t n, size_t bytes_max, size_t* consumed,
                 bint* is_changed) noexcept nogil:
        cdef Input source
        cdef const uint8_t* at
        cdef const uint8_t* kept = p  # start of the entries to copy
        cdef uint64_t tag
        cdef Relayed relayed
        cdef int status
        source.p, source.end, source.short = p, p + n, False
        self.data_end = source.end
        self.out.p = self.out.start
        while source.p < source.end:
            if is_changed[0] and <size_t>(self.out.p - self.out.start) >= bytes_max:
                break
            at = source.p
            tag = take_varint(&source)
            if tag != 0x12:
                skip_field(&source, tag)
                if source.short:
                    return self.fail("a piece that is not a list of entries", 0)
                continue
            self.entry = take_slice(&source)
            if source.short:
                return self.fail("an entry that ends early", 0)
            if not split_entry(self.entry, &relayed):
                return self.fail("an invalid entry", 0)
            if relayed.body.p == NULL:
                continue
            if not is_changed[0] and ensure(&self.out, min(bytes_max, <size_t>ROOM_MAX)):
                return NO_MEMORY
            is_changed[0] = True
            if self.pass_on(kept, at) != DONE:
                return NO_MEMORY
            status = self.render_rows(&relayed)
            if status != DONE:
                return status
            kept = source.p
        consumed[0] = source.p - p
        return self.pass_on(kept, source.p) if is_changed[0] else DONE

    cdef int pass_on(self, const uint8_t* p, const uint8_t* end) noexcept nogil:
        """Copy entries unchanged."""
        if p == end:
            return DONE
        if ensure(&self.out, end - p) != 0:
            return NO_MEMORY
        self.out.p = put_bytes(self.out.p, p, end - p)
        return DONE

    cdef int render_rows(self, const Relayed* relayed) noexcept nogil:
        """Write the entry of a relayed event."""
        cdef RowEvent event
        cdef LayoutC* layout
        cdef const uint8_t* body = relayed.body.p
        cdef int status
        if relayed.shape.p != NULL and self.define(relayed) != DONE:
            return FAILED
        if relayed.number > SHAPES_MAX or self.by_number[relayed.number] == NULL:
            return self.fail("rows of table %d, whose shape is missing", relayed.number)
        layout = self.by_number[relayed.number]
        if relayed.code > 255 or not is_row_event(<uint8_t>relayed.code):
            return self.fail("relayed rows of event type %d", relayed.code)
        if <size_t>(self.data_end - body) < relayed.body.n + SLACK:
            body = self.with_slack(&relayed.body)
            if body == NULL:
                return NO_MEMORY
        status = read_front(&event, <uint8_t>relayed.code, body, relayed.body.n)
        if status == EVENT_OK:
            status = read_bitmaps(&event, layout.width)
        if status == EVENT_OK:
            return self.put_entry(&event, layout, relayed)
        return self.fail(event.reason, event.value)

    cdef const uint8_t* with_slack(self, const Slice* body) noexcept nogil:
        """Return a copy that is followed by SLACK readable bytes."""
        free(self.padded)
        self.padded = <uint8_t*>malloc(body.n + SLACK)
        if self.padded != NULL:
            memcpy(self.padded, body.p, body.n)
            memset(self.padded + body.n, 0, SLACK)
        return self.padded

    cdef int put_entry(self, RowEvent* event, LayoutC* layout,
                       const Relayed* relayed) noexcept nogil:
        """Write the rows first, leaving an estimated room for the front."""
        cdef uint8_t[CHANGE_FRONT_MAX] change
        cdef size_t change_n = put_change_front(change, event) - change
        cdef size_t header_n = relayed.header.n
        cdef size_t at = self.out.p - self.out.start
        cdef size_t guess = front_size(header_n, change_n + layout.last_bytes) + change_n
        cdef size_t front, rows_n
        cdef uint64_t large
        cdef uint32_t rows = 0
        cdef int status
        if ensure(&self.out, guess + FRONT_MAX) != 0:
            return NO_MEMORY
        self.out.p += guess
        status = put_rows(event, &self.context, layout, &self.out, &rows)
        if status == EVENT_MEMORY:
            large = max(self.context.inflates_to, self.context.too_large)
            if large:
                return self.fail("a value of %d bytes is larger than a frame", large)
            return NO_MEMORY
        if status != EVENT_OK:
            return self.fail_row(event, layout)

        rows_n = self.out.p - self.out.start - at - guess
        front = front_size(header_n, change_n + rows_n)
        if front + change_n + rows_n > ENTRY_BYTES_MAX:
            return self.fail("an entry of %d bytes is larger than a frame",
                             front + change_n + rows_n)
        if front + change_n != guess:
            if ensure(&self.out, FRONT_MAX) != 0:
                return NO_MEMORY
            memmove(self.out.start + at + front + change_n,
                    self.out.start + at + guess, rows_n)
            self.out.p = self.out.start + at + front + change_n + rows_n
        put_front(self.out.start + at, &relayed.header, change_n + rows_n)
        memcpy(self.out.start + at + front, change, change_n)
        layout.last_bytes = rows_n
        return DONE

    # --- shapes and errors ------------------------------------------------------------

    cdef int define(self, const Relayed* relayed) noexcept with gil:
        """Make the layout of a table whose shape was sent."""
        cdef TableLayout layout
        try:
            if not 0 < relayed.number <= SHAPES_MAX:
                raise self.error_of(f"a table with the number {relayed.number}")
            try:
                layout = self.layout_of(<bytes>relayed.shape.p[:relayed.shape.n])
            except DecodeError as error:
                raise self.error_of(str(error)) from error
            self.layouts[relayed.number] = layout
            self.by_number[relayed.number] = &layout.layout
        except BaseException as error:
            self.error = error
            return FAILED
        return DONE

    cdef int fail(self, const char* reason, long long value) noexcept nogil:
        self.reason, self.reason_value = reason, value
        return BROKEN

    cdef int fail_row(self, const RowEvent* event, const LayoutC* layout) noexcept with gil:
        """Store the error of a row of a table."""
        reason = event.reason.decode()
        if "%d" in reason:
            reason = reason % event.value
        for each in self.layouts.values():
            if &(<TableLayout>each).layout == layout:
                reason = f"row {event.row} of table {each.meta}: {reason}"
        self.error = self.error_of(reason)
        return FAILED

    cdef object error_of(self, str reason):
        """Return the error with the position of the current entry."""
        cdef EntryHead head
        if not read_entry(self.entry.p, self.entry.n, &head) or head.file.n == 0:
            return DecodeError(reason)
        file = (<bytes>head.file.p[:head.file.n]).decode("utf-8", "replace")
        return DecodeError(reason, file=file, position=head.offset)

    cdef int raise_error(self, int status) except -1:
        if status == NO_MEMORY:
            raise MemoryError("no memory for the entries of a range")
        if status == FAILED:
            error, self.error = self.error, None
            raise error
        reason = self.reason.decode()
        if "%d" in reason:
            reason = reason % self.reason_value
        raise self.error_of(reason)


# --- the messages -------------------------------------------------------------------

cdef bint split_entry(Slice entry, Relayed* relayed) noexcept nogil:
    """Find relayedRows in an entry; `body.p` stays NULL if there are none."""
    cdef Input source = input_of(entry)
    cdef uint64_t tag
    cdef Slice content
    cdef bint has_rows = False
    memset(relayed, 0, sizeof(Relayed))
    while source.p < source.end:
        tag = take_varint(&source)
        if tag == 0x0A:
            relayed.header = take_slice(&source)
        elif tag == 0x22:
            content = take_slice(&source)
            has_rows = True
        else:
            skip_field(&source, tag)
    if source.short or not has_rows:
        return not source.short
    return take_rows(content, relayed)


cdef bint take_rows(Slice content, Relayed* relayed) noexcept nogil:
    """Read relayedRows, which have a body."""
    cdef Input source = input_of(content)
    cdef uint64_t tag
    while source.p < source.end:
        tag = take_varint(&source)
        if tag == 0x08:
            relayed.code = take_varint(&source)
        elif tag == 0x10:
            relayed.number = take_varint(&source)
        elif tag == 0x1A:
            relayed.shape = take_slice(&source)
        elif tag == 0x22:
            relayed.body = take_slice(&source)
        else:
            skip_field(&source, tag)
    return not source.short and relayed.body.p != NULL


cdef size_t front_size(size_t header_n, size_t store_n) noexcept nogil:
    """Return the size of the front of a storeValue of so many bytes."""
    cdef size_t front = (1 + varint_size(header_n) + header_n + 2
                         + 1 + varint_size(store_n))
    return 1 + varint_size(front + store_n) + front


cdef void put_front(uint8_t* p, const Slice* header, size_t store_n) noexcept nogil:
    """Write an entry up to its storeValue, which has front_size bytes."""
    cdef size_t front = (1 + varint_size(header.n) + header.n + 2
                         + 1 + varint_size(store_n))
    p[0] = 0x12
    p = put_varint(p + 1, front + store_n)
    p[0] = 0x0A
    p = put_bytes(put_varint(p + 1, header.n), header.p, header.n)
    p[0], p[1], p[2] = 0x10, ENTRY_ROWDATA, 0x1A
    put_varint(p + 3, store_n)
