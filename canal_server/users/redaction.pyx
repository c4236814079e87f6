# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Entries as a user may see them: without tables and columns, or with masked values.

    entries     any number of 0x12 length Entry
    RowChange   0x5a sql, 0x50 isDdl, 0x62 rowDatas, 0x1a props
    RowData     0x0a beforeColumns, 0x12 afterColumns, each a Column
    Column      0x08 index, 0x1a name, 0x30 isNull, 0x42 value, 0x52 mysqlType

Begins and ends of transactions stay, so that a batch keeps its form. Statements that
are no DDL are left out: their texts hold values of any table.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from canal_server.core.entry_wire cimport (
    ENTRY_ROWDATA, EVENT_QUERY, EVENT_XACOMMIT, EVENT_XAROLLBACK, Change, EntryHead,
    Slice, input_of, next_field, read_change, read_entry, same, skip_field, take_slice,
    take_varint,
)
from canal_server.core.wire cimport Input, put_varint, varint_size

from canal_server.errors import ProtocolError
from canal_server.users.rights import ColumnRule

cdef enum:
    SHOWN = 0
    REMOVED = 1
    MASKED = 2
    TABLES_MAX = 10000  # whose rules are kept
    INDEX_MAX = 4096  # columns of a table
    KEPT_BYTES = 1 << 22  # of memory between two batches

MASK = b"****"  # of texts; other values are masked by NULL
assert [each.value for each in ColumnRule] == [SHOWN, REMOVED, MASKED]


cdef struct Buffer:
    uint8_t* data
    size_t used
    size_t room


cdef int reserve(Buffer* out, size_t n) except -1:
    cdef size_t room
    cdef uint8_t* data
    if out.room - out.used >= n:
        return 0
    room = max(2 * out.room, out.used + n, <size_t>4096)
    data = <uint8_t*>realloc(out.data, room)
    if data == NULL:
        raise MemoryError
    out.data, out.room = data, room
    return 0


cdef int put(Buffer* out, const uint8_t* p, size_t n) except -1:
    reserve(out, n)
    if n:
        memcpy(out.data + out.used, p, n)
    out.used += n
    return 0


cdef int put_field(Buffer* out, uint8_t tag, const uint8_t* p, size_t n) except -1:
    """Append a field of bytes; its tag is below 128."""
    reserve(out, n + 1 + varint_size(n))
    out.data[out.used] = tag
    put_varint(out.data + out.used + 1, n)
    out.used += 1 + varint_size(n)
    if n:
        memcpy(out.data + out.used, p, n)
    out.used += n
    return 0


cdef void shrink(Buffer* out) noexcept:
    if out.room > KEPT_BYTES:
        free(out.data)
        out.data, out.used, out.room = NULL, 0, 0


cdef class _Table:
    """A table that is shown, and the rules of its columns, by their index."""

    cdef object rule_of  # of a column's name, or None: all are shown
    cdef list names  # as bytes, or None where not known
    cdef bytearray rules

    def __init__(self, rule_of):
        self.rule_of = rule_of
        self.names, self.rules = [], bytearray()

    cdef int rule(self, uint64_t index, Slice name) except -1:
        cdef bytes known
        cdef Py_ssize_t i
        if index >= INDEX_MAX:
            return self.rule_of(_text(name)).value
        i = <Py_ssize_t>index
        if i < len(self.names):
            known = self.names[i]
            if known is not None and same(
                    name, <const uint8_t*>PyBytes_AS_STRING(known),
                    PyBytes_GET_SIZE(known)):
                return self.rules[i]
        while len(self.names) <= i:
            self.names.append(None)
            self.rules.append(0)
        # Another column has this index since a DDL statement.
        self.names[i] = name.p[:name.n]
        self.rules[i] = self.rule_of(_text(name)).value
        return self.rules[i]


cdef str _text(Slice slice):
    return slice.p[:slice.n].decode("utf-8", "replace")


cdef class Redaction:
    """Applies the rules of one user to batches; for one thread at a time.

    Args:
        shows: whether a table (schema, name) is shown
        column_rule: the ColumnRule of a column (schema, name, column); None if all
            columns are shown

    """

    cdef object shows, column_rule
    cdef dict tables
    cdef bytes last_key  # of the last entry
    cdef object last_table
    cdef Buffer out, change, row, column

    def __init__(self, shows, column_rule=None):
        self.shows, self.column_rule = shows, column_rule
        self.tables = {}

    def __dealloc__(self):
        free(self.out.data)
        free(self.change.data)
        free(self.row.data)
        free(self.column.data)

    def apply(self, data):
        """Return the entries in `data` that may be seen, as bytes.

        Raises ProtocolError if they are malformed; then nothing may be sent.
        """
        cdef Py_buffer view
        cdef Input entries
        cdef Slice entry
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        self.out.used = 0
        try:
            entries.p = <const uint8_t*>view.buf
            entries.end, entries.short = entries.p + view.len, False
            while next_field(&entries, 0x12, &entry):
                self.put_entry(entry)
            if entries.short:
                raise ProtocolError("malformed entry in a batch")
            return PyBytes_FromStringAndSize(<char*>self.out.data, self.out.used)
        finally:
            PyBuffer_Release(&view)
            self._shrink()

    cdef void _shrink(self):
        """Release what a large batch has taken."""
        shrink(&self.out)
        shrink(&self.change)
        shrink(&self.row)
        shrink(&self.column)

    cdef int put_entry(self, Slice entry) except -1:
        cdef EntryHead head
        cdef Change change
        cdef uint32_t event
        cdef Input source
        cdef const uint8_t* begin
        cdef uint64_t tag
        if not read_entry(entry.p, entry.n, &head):
            raise ProtocolError("malformed entry in a batch")
        if head.kind != ENTRY_ROWDATA:
            return put_field(&self.out, 0x12, entry.p, entry.n)
        if not read_change(head.store, &change):
            raise ProtocolError("malformed entry in a batch")
        event = change.event or head.event
        if head.table.n == 0:
            if event == EVENT_XACOMMIT or event == EVENT_XAROLLBACK:
                return put_field(&self.out, 0x12, entry.p, entry.n)
            return 0
        if event == EVENT_QUERY and not change.is_ddl:
            return 0
        table = self.table_of(head.schema, head.table)
        if table is None:
            return 0
        if (<_Table>table).rule_of is None and (change.is_ddl or change.sql.n == 0):
            return put_field(&self.out, 0x12, entry.p, entry.n)
        self.put_change(head.store, <_Table>table, change.is_ddl)
        # The entry again, with the other content: all fields are small but that one.
        self.row.used = 0
        source = input_of(entry)
        while source.p < source.end:
            begin = source.p
            tag = take_varint(&source)
            if tag == 0x1A:
                take_slice(&source)
                put_field(&self.row, 0x1A, self.change.data, self.change.used)
            else:
                skip_field(&source, tag)
                put(&self.row, begin, source.p - begin)
        if source.short:
            raise ProtocolError("malformed entry in a batch")
        return put_field(&self.out, 0x12, self.row.data, self.row.used)

    cdef object table_of(self, Slice schema, Slice name):
        """Return the _Table, None if the table is not shown."""
        cdef bytes key = self.last_key
        cdef const uint8_t* p
        if key is not None:
            p = <const uint8_t*>PyBytes_AS_STRING(key)
            if (<size_t>PyBytes_GET_SIZE(key) == schema.n + 1 + name.n
                    and p[schema.n] == 0
                    and (schema.n == 0 or memcmp(p, schema.p, schema.n) == 0)
                    and memcmp(p + schema.n + 1, name.p, name.n) == 0):
                return self.last_table
        key = (schema.p[:schema.n] if schema.n else b"") + b"\0" + name.p[:name.n]
        if key in self.tables:
            table = self.tables[key]
        else:
            table = self.made_table(_text(schema) if schema.n else "", _text(name))
            if len(self.tables) >= TABLES_MAX:
                self.tables.clear()
            self.tables[key] = table
        self.last_key, self.last_table = key, table
        return table

    cdef object made_table(self, str schema, str name):
        if not self.shows(schema, name):
            return None
        if self.column_rule is None:
            return _Table(None)
        column_rule = self.column_rule

        def rule_of(column):
            return column_rule(schema, name, column)

        return _Table(rule_of)

    cdef int put_change(self, Slice store, _Table table, bint is_ddl) except -1:
        """Make the content of an entry in `self.change`."""
        cdef Input source = input_of(store)
        cdef const uint8_t* begin
        cdef uint64_t tag
        cdef Slice field
        self.change.used = 0
        while source.p < source.end:
            begin = source.p
            tag = take_varint(&source)
            if tag == 0x62 and table.rule_of is not None:
                field = take_slice(&source)
                if source.short:
                    break
                self.put_row(field, table)
                put_field(&self.change, 0x62, self.row.data, self.row.used)
                continue
            skip_field(&source, tag)
            if source.short:
                break
            if tag == 0x5A and not is_ddl:
                continue  # MariaDB's rows may have their statement's text
            put(&self.change, begin, source.p - begin)
        if source.short:
            raise ProtocolError("malformed row in a batch")
        return 0

    cdef int put_row(self, Slice row, _Table table) except -1:
        """Make a row in `self.row`."""
        cdef Input source = input_of(row)
        cdef const uint8_t* begin
        cdef uint64_t tag
        cdef Slice field
        self.row.used = 0
        while source.p < source.end:
            begin = source.p
            tag = take_varint(&source)
            if tag == 0x0A or tag == 0x12:
                field = take_slice(&source)
                if source.short:
                    break
                self.put_column(<uint8_t>tag, field, table)
            else:
                skip_field(&source, tag)
                if not source.short:
                    put(&self.row, begin, source.p - begin)
        if source.short:
            raise ProtocolError("malformed row in a batch")
        return 0

    cdef int put_column(self, uint8_t of, Slice column, _Table table) except -1:
        cdef Input source = input_of(column)
        cdef const uint8_t* begin
        cdef uint64_t tag, index = 0
        cdef Slice name, mysql_type
        cdef int rule
        name.p = mysql_type.p = NULL
        name.n = mysql_type.n = 0
        while source.p < source.end:
            tag = take_varint(&source)
            if tag == 0x08:
                index = take_varint(&source)
            elif tag == 0x1A:
                name = take_slice(&source)
            elif tag == 0x52:
                mysql_type = take_slice(&source)
            else:
                skip_field(&source, tag)
        if source.short:
            raise ProtocolError("malformed column in a batch")
        rule = table.rule(index, name)
        if rule == REMOVED:
            return 0
        if rule == SHOWN:
            return put_field(&self.row, of, column.p, column.n)
        self.column.used = 0
        source = input_of(column)
        while source.p < source.end:
            begin = source.p
            tag = take_varint(&source)
            skip_field(&source, tag)
            # isNull, value, length; props could hold anything.
            if tag not in (0x30, 0x42, 0x48, 0x3A):
                put(&self.column, begin, source.p - begin)
        if is_text(mysql_type):
            put(&self.column, <const uint8_t*>b"\x30\x00", 2)
            put_field(&self.column, 0x42, <const uint8_t*>PyBytes_AS_STRING(MASK),
                      PyBytes_GET_SIZE(MASK))
        else:
            put(&self.column, <const uint8_t*>b"\x30\x01", 2)
        return put_field(&self.row, of, self.column.data, self.column.used)


cdef bint is_text(Slice mysql_type) noexcept:
    """Return whether a type is one of characters."""
    return (starts(mysql_type, b"char", 4) or starts(mysql_type, b"varchar", 7)
            or starts(mysql_type, b"text", 4) or starts(mysql_type, b"tinytext", 8)
            or starts(mysql_type, b"mediumtext", 10)
            or starts(mysql_type, b"longtext", 8))


cdef bint starts(Slice slice, const char* word, size_t n) noexcept:
    """Return whether a text begins with a word, in any case."""
    cdef size_t i
    if slice.n < n:
        return False
    for i in range(n):
        if (slice.p[i] | 0x20) != <uint8_t>word[i]:
            return False
    return True
