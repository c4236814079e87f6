# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Flat messages (canal-json), straight from the bytes of entries.

Each entry with rows or a statement is one message, or one for each partition that its
rows go to. The bytes are those of the original's producers, with their order of keys:

    data, database, es, gtid, id, isDdl, mysqlType, old, pkNames, sql, sqlType, table,
    ts, type

Nothing of a row becomes an object of Python.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from canal_server.arrow.text_values cimport is_utf8
from canal_server.core.entry_wire cimport (
    ENTRY_ROWDATA, EVENT_DELETE, EVENT_INSERT, EVENT_UPDATE, TAG_AFTER, TAG_BEFORE,
    TAG_ROW, Change, EntryHead, Slice, gtid_field, input_of, next_field, read_change,
    read_entry, same,
)
from canal_server.core.json_text cimport Text, put, put_number, put_string
from canal_server.core.wire cimport Input
from canal_server.queues.batch_rows cimport COLUMNS_MAX, Column, check, read_column
from canal_server.queues.table_routes cimport (
    HASH_COLUMNS, HASH_KEY, NO_HASH, Route, Routes, java_hash, partition_of,
)

from canal_server.errors import ProtocolError
from canal_server.model.entry import EventType

cdef dict type_names = {int(kind): kind.name.encode() for kind in EventType}


cdef struct Known:
    # A column of the message, as the last row had it.
    Slice name
    Slice mysql_type
    int32_t sql_type
    bint is_key
    bint updated            # in a row so far
    bint hashed             # its value decides about the partition


cdef struct Row:
    # Where a row's texts end, and where it goes.
    size_t data_end
    size_t old_end
    uint32_t partition


cdef class FlatMessages:
    """Makes messages of batches; for one thread at a time.

    `route_of(schema, table)` returns a Route; it is asked once for each table.
    """

    cdef Routes routes
    cdef Text out
    cdef Text data          # the rows of the current entry, with commas before them
    cdef Text old
    cdef Known* known
    cdef size_t known_n
    cdef Row* rows
    cdef size_t rows_n
    cdef size_t rows_room
    cdef bint bad
    cdef EntryHead head
    cdef Slice gtid

    def __cinit__(self):
        self.known = <Known*>calloc(COLUMNS_MAX, sizeof(Known))
        if self.known == NULL:
            raise MemoryError("no memory for the columns of messages")

    def __init__(self, route_of):
        """Set the function that knows the routes."""
        self.routes = Routes(route_of)

    def __dealloc__(self):
        free(self.out.p)
        free(self.data.p)
        free(self.old.p)
        free(self.known)
        free(self.rows)

    def convert(self, int64_t batch_id, data, int64_t now_ms):
        """Return the messages of a body of Messages: topic, partition, bytes.

        Raises ProtocolError for malformed entries.
        """
        cdef Py_buffer view
        cdef Input entries
        cdef Slice slice
        cdef list made = []
        # A batch for which there was no memory does not affect later ones.
        self.out.failed = self.data.failed = self.old.failed = False
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            entries.p = <const uint8_t*>view.buf
            entries.end, entries.short = entries.p + view.len, False
            while next_field(&entries, 0x12, &slice):
                check(read_entry(slice.p, slice.n, &self.head))
                if self.head.kind == ENTRY_ROWDATA:
                    self.gtid = gtid_field(slice)
                    self.entry(batch_id, now_ms, made)
            check(not entries.short)
        finally:
            PyBuffer_Release(&view)
        return made

    cdef int entry(self, int64_t batch_id, int64_t now_ms, list made) except -1:
        cdef Change change
        cdef Route route = self.routes.find(self.head.schema, self.head.table)
        cdef bint is_rows, split
        cdef bytes kind
        check(read_change(self.head.store, &change))
        kind = type_names.get(change.event, b"UPDATE")
        is_rows = change.event in (EVENT_INSERT, EVENT_UPDATE, EVENT_DELETE)
        self.data.n = self.old.n = 0
        self.known_n = self.rows_n = 0
        self.bad = False
        if is_rows and not change.is_ddl:
            check(self.read_rows(&change, route))
        if self.data.failed or self.old.failed:
            raise MemoryError("no memory for messages")
        split = route.mode != NO_HASH and self.data.n > 0
        if not split:
            self.put_message(&change, kind, batch_id, now_ms, False, 0)
            self.finish(made, route.topic, 0 if route.mode != NO_HASH else route.partition)
            return 0
        for partition in sorted(self.partitions()):
            self.put_message(&change, kind, batch_id, now_ms, True, partition)
            self.finish(made, route.topic, partition)
        return 0

    cdef set partitions(self):
        cdef size_t at
        cdef set found = set()
        for at in range(self.rows_n):
            found.add(self.rows[at].partition)
        return found

    cdef int finish(self, list made, str topic, uint32_t partition) except -1:
        if self.out.failed:
            raise MemoryError("no memory for messages")
        check(not self.bad)
        made.append((topic, partition, PyBytes_FromStringAndSize(
            <char*>self.out.p, self.out.n)))
        return 0

    # --- the rows of an entry ---------------------------------------------------------

    cdef bint read_rows(self, const Change* change, Route route) except? False:
        """Write the rows of the entry one after the other."""
        cdef Input source = input_of(self.head.store)
        cdef Slice row
        cdef uint64_t image = TAG_BEFORE if change.event == EVENT_DELETE else TAG_AFTER
        while next_field(&source, TAG_ROW, &row):
            if not self.read_row(row, image, change.event == EVENT_UPDATE, route):
                return False
        return not source.short

    cdef bint read_row(self, Slice row, uint64_t image, bint is_update,
                       Route route) except? False:
        cdef Input source = input_of(row)
        cdef Slice field
        cdef Column column
        cdef Known* known
        cdef Row* made
        cdef size_t at = 0
        cdef bint is_first = self.rows_n == 0
        cdef bint is_empty = True
        cdef int32_t hashed = route.begin
        while next_field(&source, image, &field):
            if not read_column(field, &column):
                return False
            known = self.find(&column, at, route)
            if known == NULL:
                return False
            at += 1
            if is_first:
                known.is_key = column.is_key
                if route.mode == HASH_KEY:
                    known.hashed = column.is_key
            known.sql_type, known.mysql_type = column.sql_type, column.mysql_type
            if column.updated:
                known.updated = True
            put(&self.data, b",{" if is_empty else b",", 2 if is_empty else 1)
            is_empty = False
            self.put_column(&self.data, &column)
            # Only of UTF-8, which was checked when it was written.
            if known.hashed and not column.is_null and not self.bad:
                hashed ^= java_hash(column.value)
        if source.short:
            return False
        if not is_empty:
            put(&self.data, b"}", 1)
        if is_update and not self.read_old(row):
            return False
        made = self.next_row()
        made.data_end, made.old_end = self.data.n, self.old.n
        made.partition = partition_of(hashed, route.partitions)
        return True

    cdef bint read_old(self, Slice row) noexcept:
        """Write the values before the change, of columns that changed in a row so far."""
        cdef Input source = input_of(row)
        cdef Slice field
        cdef Column column
        cdef size_t at = 0
        cdef size_t found
        cdef bint is_empty = True
        put(&self.old, b",{", 2)
        while next_field(&source, TAG_BEFORE, &field):
            if not read_column(field, &column):
                return False
            found = self.index_of(column.name, at)
            at += 1
            if found == self.known_n or not self.known[found].updated:
                continue
            if not is_empty:
                put(&self.old, b",", 1)
            is_empty = False
            self.put_column(&self.old, &column)
        put(&self.old, b"}", 1)
        return not source.short

    cdef size_t index_of(self, Slice name, size_t guess) noexcept nogil:
        """Return which known column has this name; their number if none has."""
        cdef size_t at
        if guess < self.known_n and same(name, self.known[guess].name.p, self.known[guess].name.n):
            return guess
        for at in range(self.known_n):
            if same(name, self.known[at].name.p, self.known[at].name.n):
                return at
        return self.known_n

    cdef Known* find(self, const Column* column, size_t guess, Route route) except? NULL:
        """Return the known column of this name, a new one if there is none."""
        cdef size_t at = self.index_of(column.name, guess)
        cdef Known* known
        if at < self.known_n:
            return &self.known[at]
        if at == COLUMNS_MAX:
            raise ProtocolError(f"a row has more than {COLUMNS_MAX} columns")
        self.known_n += 1
        known = &self.known[at]
        memset(known, 0, sizeof(Known))
        known.name = column.name
        if route.mode == HASH_COLUMNS:
            known.hashed = route.names(column.name)
        return known

    cdef Row* next_row(self) except NULL:
        cdef Row* grown
        if self.rows_n == self.rows_room:
            self.rows_room = 2 * self.rows_room + 64
            grown = <Row*>realloc(self.rows, self.rows_room * sizeof(Row))
            if grown == NULL:
                raise MemoryError("no memory for the rows of messages")
            self.rows = grown
        self.rows_n += 1
        return &self.rows[self.rows_n - 1]

    cdef void put_column(self, Text* text, const Column* column) noexcept nogil:
        """Append the name and the value of a column."""
        self.put_text(text, column.name)
        put(text, b":", 1)
        if column.is_null:
            put(text, b"null", 4)
        else:
            self.put_text(text, column.value)

    cdef void put_text(self, Text* text, Slice value) noexcept nogil:
        if is_utf8(value.p, value.n):
            put_string(text, value)
        else:
            self.bad = True

    # --- the message ------------------------------------------------------------------

    cdef int put_message(self, const Change* change, bytes kind, int64_t batch_id,
                         int64_t now_ms, bint split, uint32_t partition) except -1:
        cdef Text* out = &self.out
        cdef Slice sql = change.sql
        cdef size_t at
        cdef bint is_first
        out.n = 0
        put(out, b'{"data":', 8)
        self.put_rows(False, split, partition)
        put(out, b',"database":', 12)
        self.put_text(out, self.head.schema)
        put(out, b',"es":', 6)
        put_number(out, self.head.time_ms)
        put(out, b',"gtid":', 8)
        self.put_text(out, self.gtid)
        put(out, b',"id":', 6)
        put_number(out, batch_id)
        put(out, b',"isDdl":true' if change.is_ddl else b',"isDdl":false',
            13 if change.is_ddl else 14)
        put(out, b',"mysqlType":', 13)
        if self.known_n == 0:
            put(out, b"null", 4)
        for at in range(self.known_n):
            put(out, b"," if at else b"{", 1)
            self.put_text(out, self.known[at].name)
            put(out, b":", 1)
            self.put_text(out, self.known[at].mysql_type)
        put(out, b"}", 1 if self.known_n else 0)
        put(out, b',"old":', 7)
        self.put_rows(True, split, partition)
        put(out, b',"pkNames":', 11)
        is_first = True
        for at in range(self.known_n):
            if self.known[at].is_key:
                put(out, b"[" if is_first else b",", 1)
                is_first = False
                self.put_text(out, self.known[at].name)
        put(out, b"null" if is_first else b"]", 4 if is_first else 1)
        put(out, b',"sql":', 7)
        self.put_text(out, sql)
        put(out, b',"sqlType":', 11)
        if self.known_n == 0:
            put(out, b"null", 4)
        for at in range(self.known_n):
            put(out, b"," if at else b"{", 1)
            self.put_text(out, self.known[at].name)
            put(out, b":", 1)
            put_number(out, self.known[at].sql_type)
        put(out, b"}", 1 if self.known_n else 0)
        put(out, b',"table":', 9)
        self.put_text(out, self.head.table)
        put(out, b',"ts":', 6)
        put_number(out, now_ms)
        put(out, b',"type":"', 9)
        put(out, <const char*>kind, len(kind))
        put(out, b'"}', 2)
        return 0

    cdef void put_rows(self, bint is_old, bint split, uint32_t partition) noexcept:
        """Append the rows, or what they were before; only those of a partition."""
        cdef Text* out = &self.out
        cdef Text* text = &self.old if is_old else &self.data
        cdef size_t at, end
        cdef size_t begin = 0
        cdef size_t start = out.n
        if not split:
            if text.n == 0:
                put(out, b"null", 4)
                return
            put(out, text.p, text.n)
        else:
            for at in range(self.rows_n):
                end = self.rows[at].old_end if is_old else self.rows[at].data_end
                if self.rows[at].partition == partition:
                    put(out, text.p + begin, end - begin)
                begin = end
            if out.n == start:
                put(out, b"null", 4)
                return
        if not out.failed:
            out.p[start] = 91  # instead of the first comma
        put(out, b"]", 1)
