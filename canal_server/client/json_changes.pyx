# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Changes as lines of JSON, straight from the bytes of entries.

The lines are those of `entry_format.changes` and `json_line`, byte by byte; nothing of
them becomes an object of Python.
"""

from typing import NamedTuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free

from canal_server.arrow.text_values cimport is_utf8
from canal_server.core.entry_wire cimport (
    ENTRY_BEGIN, ENTRY_END, ENTRY_ROWDATA, TAG_AFTER, TAG_BEFORE, TAG_ROW, Change,
    EntryHead, Slice, gtid_field, input_of, next_field, read_change, read_entry,
    read_transaction_id, skip_field, take_slice, take_varint,
)
from canal_server.core.json_text cimport Text, put, put_number, put_string
from canal_server.core.wire cimport Input

from canal_server.errors import ProtocolError
from canal_server.model.entry import EventType

cdef dict type_names = {int(kind): kind.name.encode() for kind in EventType}


class JsonLines(NamedTuple):
    """The lines, how many of them are changes, and whether all changes are there."""

    text: bytes
    changes: int
    whole: bool


cdef struct Column:
    Slice name
    Slice value
    bint is_key
    bint is_null
    bint updated


cdef void put_text(Text* text, Slice value) noexcept nogil:
    if is_utf8(value.p, value.n):
        put_string(text, value)
    else:
        text.bad = True


cdef bint read_json_column(Slice field, Column* column) noexcept nogil:
    cdef Input source = input_of(field)
    cdef uint64_t tag
    column.name.p = column.value.p = b""
    column.name.n = column.value.n = 0
    column.is_key = column.is_null = column.updated = False
    while source.p < source.end:
        tag = take_varint(&source)
        if tag == 0x1A:
            column.name = take_slice(&source)
        elif tag == 0x20:
            column.is_key = take_varint(&source) != 0
        elif tag == 0x28:
            column.updated = take_varint(&source) != 0
        elif tag == 0x30:
            column.is_null = take_varint(&source) != 0
        elif tag == 0x42:
            column.value = take_slice(&source)
        else:
            skip_field(&source, tag)
    return not source.short


cdef int put_columns(Text* text, Slice row, uint64_t image, int what) noexcept nogil:
    """Append the columns of an image: values (0), names of the key (1), of changes (2).

    Returns how many columns the image has, -1 for malformed ones.
    """
    cdef Input source = input_of(row)
    cdef Slice field
    cdef Column column
    cdef int count = 0
    cdef bint is_first = True
    put(text, b"[" if what else b"{", 1)
    while next_field(&source, image, &field):
        if not read_json_column(field, &column):
            return -1
        count += 1
        if what == 1 and not column.is_key or what == 2 and not column.updated:
            continue
        if not is_first:
            put(text, b",", 1)
        is_first = False
        put_text(text, column.name)
        if what:
            continue
        put(text, b":", 1)
        if column.is_null:
            put(text, b"null", 4)
        else:
            put_text(text, column.value)
    put(text, b"]" if what else b"}", 1)
    return -1 if source.short else count


cdef bint put_row(Text* text, Slice row) noexcept nogil:
    cdef size_t begin
    cdef int before, after
    put(text, b',"key":', 7)
    begin = text.n
    after = put_columns(text, row, TAG_AFTER, 1)
    if after == 0:
        text.n = begin
        before = put_columns(text, row, TAG_BEFORE, 1)
    if after < 0:
        return False
    begin = text.n
    put(text, b',"before":', 10)
    before = put_columns(text, row, TAG_BEFORE, 0)
    if before < 0:
        return False
    if before == 0:
        text.n = begin
    if after:
        put(text, b',"after":', 9)
        put_columns(text, row, TAG_AFTER, 0)
        if before:
            put(text, b',"changed":', 11)
            put_columns(text, row, TAG_AFTER, 2)
    return True


cdef class Writer:
    """Writes the lines of one body."""

    cdef Text text
    cdef EntryHead head
    cdef Slice gtid

    def __dealloc__(self):
        free(self.text.p)

    cdef int begin(self, bytes kind) except -1:
        put(&self.text, b'{"type":"', 9)
        put(&self.text, <const char*>kind, len(kind))
        put(&self.text, b'","schema":', 11)
        put_text(&self.text, self.head.schema)
        put(&self.text, b',"table":', 9)
        put_text(&self.text, self.head.table)
        put(&self.text, b',"time":', 8)
        put_number(&self.text, self.head.time_ms)
        put(&self.text, b',"file":', 8)
        put_text(&self.text, self.head.file)
        put(&self.text, b',"position":', 12)
        put_number(&self.text, <int64_t>self.head.offset)
        if self.gtid.n:
            put(&self.text, b',"gtid":', 8)
            put_text(&self.text, self.gtid)
        return 0

    cdef int mark(self, bytes kind) except -1:
        """Write the begin or the end of a transaction."""
        cdef Slice transaction
        self.begin(kind)
        if self.head.kind == ENTRY_END:
            check(read_transaction_id(self.head.store, &transaction))
            if transaction.p == NULL:
                transaction.p = b""
            put(&self.text, b',"transaction":', 15)
            put_text(&self.text, transaction)
        put(&self.text, b"}\n", 2)
        return 0

    cdef Py_ssize_t changes(self, Py_ssize_t limit, bint* whole) except -1:
        """Write the rows or the statement of an entry; returns how many lines."""
        cdef Change change
        cdef Input source
        cdef Slice row
        cdef Py_ssize_t count = 0
        cdef bint has_type
        cdef bytes kind
        check(read_change(self.head.store, &change))
        kind = type_names.get(change.event)
        if kind is None:
            has_type = change.event != 0 or has_event_type(self.head.store)
            kind = f"TYPE{change.event if has_type else None}".encode()
        source = input_of(self.head.store)
        while True:
            if change.rows and not next_field(&source, TAG_ROW, &row):
                break
            if limit >= 0 and count >= limit:
                whole[0] = False
                return count
            self.begin(kind)
            if change.rows:
                check(put_row(&self.text, row))
            else:
                put(&self.text, b',"sql":', 7)
                if change.sql.p == NULL:
                    change.sql.p = b""
                put_text(&self.text, change.sql)
            put(&self.text, b"}\n", 2)
            count += 1
            if not change.rows:
                break
        check(not source.short)
        return count


cdef bint has_event_type(Slice store) noexcept:
    cdef Input source = input_of(store)
    cdef uint64_t tag
    while source.p < source.end:
        tag = take_varint(&source)
        if tag == 0x10:
            return True
        skip_field(&source, tag)
    return False


cdef int check(bint is_right) except -1:
    if not is_right:
        raise ProtocolError("malformed entry in a batch")
    return 0


def json_lines(data, *, bint marks=False, Py_ssize_t limit=-1):
    """Return the changes in a body of Messages as lines of JSON.

    `marks` adds lines for begins and ends of transactions; after `limit` changes the
    others are left out (-1: none). Raises ProtocolError for malformed entries.
    """
    cdef Py_buffer view
    cdef Input entries
    cdef Slice slice
    cdef Writer writer = Writer.__new__(Writer)
    cdef Py_ssize_t count = 0
    cdef bint whole = True
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        entries.p = <const uint8_t*>view.buf
        entries.end, entries.short = entries.p + view.len, False
        while next_field(&entries, 0x12, &slice):
            check(read_entry(slice.p, slice.n, &writer.head))
            writer.gtid = gtid_field(slice)
            if writer.head.kind == ENTRY_ROWDATA:
                count += writer.changes(-1 if limit < 0 else limit - count, &whole)
            elif writer.head.kind == ENTRY_BEGIN and marks:
                writer.mark(b"BEGIN")
            elif writer.head.kind == ENTRY_END and marks:
                writer.mark(b"END")
            if writer.text.failed:
                raise MemoryError("no memory for lines of JSON")
            check(not writer.text.bad)
        check(not entries.short)
    finally:
        PyBuffer_Release(&view)
    return JsonLines(writer.text.p[:writer.text.n] if writer.text.n else b"", count, whole)
