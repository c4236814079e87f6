# cython: language_level=3, cdivision=True
"""Rows of any table as columns that are the same for all of them.

Values remain the texts of entries; before and after are maps by column name (without
columns that were not logged), or one JSON object each.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from canal_server.core.wire cimport Input
from canal_server.arrow.column_buffers cimport (
    LAYOUT_BITS, LAYOUT_FIXED, LAYOUT_LIST, LAYOUT_TEXT, MALFORMED, NO_ROOM, OK,
    ArrowColumn, Layout, Memory, column_bytes, end_value, free_column, init_column, put_bool,
    put_fixed_times, put_null, put_nulls, put_offset, put_piece, put_short_text,
    put_text, put_texts, put_valid, reserve, take_column,
)
from canal_server.arrow.entry_walk cimport EntryColumns
from canal_server.arrow.key_hashes cimport RowKeys, read_keys
from canal_server.arrow.entry_shapes cimport (
    COLUMNS_MAX, SPARE, ColumnText, Shape, free_shape, is_shape_of, name_shape, read_column,
)
from canal_server.arrow.text_values cimport is_utf8
from canal_server.core.entry_wire cimport (
    EVENT_DELETE, EVENT_INSERT, EVENT_TRUNCATE, EVENT_UPDATE, EVENT_XACOMMIT,
    EVENT_XAROLLBACK, TAG_AFTER, TAG_BEFORE, TAG_ROW, Slice, input_of, next_field, same,
)
from canal_server.decoder.text.charset_text cimport is_ascii

cdef enum:
    SHAPES = 64         # tables whose columns are remembered; a power of two

cdef enum:
    # The columns in the order of `take`. A map is a list, its keys and its items.
    DESTINATION = 0
    SCHEMA
    TABLE
    OP
    PK
    PK_KEYS
    PK_ITEMS
    BEFORE
    BEFORE_KEYS
    BEFORE_ITEMS
    AFTER
    AFTER_KEYS
    AFTER_ITEMS
    UPDATED
    UPDATED_NAMES
    TYPES
    TYPES_KEYS
    TYPES_ITEMS
    IS_DDL
    SQL
    JOURNAL
    POSITION
    GTID
    SERVER_ID
    XID
    COUNT


cdef Layout layout_of(int number) noexcept:
    if number in (PK, BEFORE, AFTER, UPDATED, TYPES):
        return LAYOUT_LIST
    if number in (POSITION, SERVER_ID):
        return LAYOUT_FIXED
    return LAYOUT_BITS if number == IS_DDL else LAYOUT_TEXT


cdef class GenericColumns(EntryColumns):
    """The columns of spark's generic mode.

    `take` returns the columns listed above, then the four of EntryColumns. With `json`
    before and after are one text each, without lists and keys.
    """

    cdef ArrowColumn[COUNT] columns
    cdef Shape[SHAPES] shapes
    cdef Shape* shape
    cdef bint json
    cdef bytes destination
    cdef Slice destination_text
    cdef uint32_t[COLUMNS_MAX] seen   # the number of the row that last had a column
    cdef uint32_t row_number

    def __cinit__(self, *args, **options):
        cdef int i
        memset(self.shapes, 0, sizeof(self.shapes))
        memset(self.columns, 0, sizeof(self.columns))
        for i in range(COUNT):
            init_column(&self.columns[i], layout_of(i), 8)

    def __init__(self, str destination, *, bint json=False, epoch=0, rows_max=65536,
                 bytes_max=32 << 20):
        EntryColumns.__init__(self, epoch=epoch, rows_max=rows_max, bytes_max=bytes_max)
        self.json = json
        self.destination = destination.encode()
        self.destination_text.p = self.destination
        self.destination_text.n = len(self.destination)

    def __dealloc__(self):
        cdef int i
        for i in range(COUNT):
            free_column(&self.columns[i])
        for i in range(SHAPES):
            free_shape(&self.shapes[i])

    # --- rows -------------------------------------------------------------------------

    cdef int put_change(self) noexcept nogil:
        cdef Input source = input_of(self.head.store)
        cdef Slice row
        cdef size_t count = self.rows
        cdef int status = self.find_shape()
        while status == OK and next_field(&source, TAG_ROW, &row):
            status = self.put_row(row)
        if source.short:
            return MALFORMED
        if status != OK:
            return status
        count = self.rows - count
        status = put_nulls(&self.columns[SQL], count)
        return self.put_entry(count) if status == OK else status

    cdef int put_row(self, Slice row) noexcept nogil:
        """Append a row, or two: split by key, an update uses two numbers."""
        cdef uint32_t event = self.change.event
        cdef RowKeys keys
        cdef int status
        if self.key_parts == 1:
            return self.put_images(row, event)
        status = read_keys(self.shape, row, &keys)
        if status != OK:
            return status
        if event == EVENT_UPDATE:
            if not keys.changed:
                self.row_now += 1
            elif self.takes(keys.before):
                status = self.put_images(row, EVENT_DELETE)
            if keys.changed:
                event = EVENT_INSERT
        if status == OK and self.takes(
                keys.before if event == EVENT_DELETE else keys.after):
            status = self.put_images(row, event)
        return status

    cdef int put_images(self, Slice row, uint32_t event) noexcept nogil:
        """Append a row's images. Key and types are those of the later image."""
        cdef Slice op = op_of_rows(event)
        cdef int status
        self.row_number += 1
        if self.row_number == 0:
            memset(self.seen, 0, sizeof(self.seen))
            self.row_number = 1
        status = self.put_order(1)
        if status == OK:
            status = put_text(&self.columns[OP], op.p, op.n)
        if status == OK and event != EVENT_DELETE:
            status = self.put_image(row, TAG_AFTER, &self.columns[AFTER])
        elif status == OK:
            status = put_null(self.outer(AFTER))
        if status == OK and event != EVENT_INSERT:
            status = self.put_image(row, TAG_BEFORE, &self.columns[BEFORE])
        elif status == OK:
            status = put_null(self.outer(BEFORE))
        if status == OK:
            status = end_list(&self.columns[PK])
        if status == OK:
            status = end_list(&self.columns[TYPES])
        if status == OK:
            status = end_list(&self.columns[UPDATED])
        return status

    cdef inline ArrowColumn* outer(self, int image) noexcept nogil:
        """Return the column of an image that has one value per row."""
        return &self.columns[image + 2 if self.json else image]

    cdef int put_image(self, Slice row, uint64_t requested,
                       ArrowColumn* image) noexcept nogil:
        """Append one image of a row to a map, or as JSON to the items of one."""
        cdef Input source = input_of(row)
        cdef ArrowColumn* keys = image + 1
        cdef ArrowColumn* items = image + 2
        cdef Slice column, value
        cdef ColumnText* text
        cdef size_t at = 0
        cdef int status = OK
        cdef const uint8_t* end = self.head.store.p + self.head.store.n
        while next_field(&source, requested, &column):
            status = read_column(self.shape, at, column, &text, &value)
            if status != OK:
                return status
            if not (is_ascii(value.p, value.n) or is_utf8(value.p, value.n)):
                return MALFORMED
            if self.json:
                status = put_pair(&items.values, text, value, at == 0)
            else:
                status = put_name(keys, text.name)
                if status == OK:
                    status = put_item(items, text, value, end)
            if status == OK and self.seen[text.index] != self.row_number:
                self.seen[text.index] = self.row_number
                status = self.put_traits(text, value, end)
            if status != OK:
                return status
            at += 1
        if source.short:
            return MALFORMED
        if not self.json:
            return end_list(image)
        if at == 0 and put_piece(&items.values, b"{", 1) != OK:
            return NO_ROOM
        if put_piece(&items.values, b"}", 1) != OK:
            return NO_ROOM
        return end_value(items)

    cdef int put_traits(self, const ColumnText* text, Slice value,
                        const uint8_t* end) noexcept nogil:
        """Append a column's attributes to the row's key, types and updated names."""
        cdef int status = put_name(&self.columns[TYPES_KEYS], text.name)
        if status == OK:
            status = put_name(&self.columns[TYPES_ITEMS], text.mysql_type)
        if status == OK and text.updated:
            status = put_name(&self.columns[UPDATED_NAMES], text.name)
        if status == OK and text.is_key:
            status = put_name(&self.columns[PK_KEYS], text.name)
            if status == OK:
                status = put_item(&self.columns[PK_ITEMS], text, value, end)
        return status

    cdef int put_statement(self) noexcept nogil:
        """Append a statement as a row without images."""
        cdef Slice op = self.op_of_statement()
        cdef Slice sql = self.change.sql
        cdef int status
        if self.key_part > 0:
            self.row_now += 1  # belongs to the first part
            return OK
        status = self.put_order(1)
        if not is_utf8(sql.p, sql.n):
            return MALFORMED
        if self.head.schema.n == 0:
            self.head.schema = self.change.schema
        if status == OK:
            status = put_null(&self.columns[PK])
        if status == OK:
            status = put_null(self.outer(BEFORE))
        if status == OK:
            status = put_null(self.outer(AFTER))
        if status == OK:
            status = put_null(&self.columns[UPDATED])
        if status == OK:
            status = put_null(&self.columns[TYPES])
        if status == OK:
            status = put_text(&self.columns[SQL], sql.p, sql.n)
        if status == OK:
            status = put_text(&self.columns[OP], op.p, op.n)
        return self.put_entry(1) if status == OK else status

    cdef Slice op_of_statement(self) noexcept nogil:
        cdef Slice op
        cdef uint32_t event = self.change.event
        op.p, op.n = <const uint8_t*>b"DDL", 3
        if event == EVENT_TRUNCATE:
            op.p, op.n = <const uint8_t*>b"TRUNCATE", 8
        elif EVENT_INSERT <= event <= EVENT_DELETE:
            op = op_of_rows(event)
        elif event == EVENT_XACOMMIT:
            op.p, op.n = <const uint8_t*>b"XACOMMIT", 8
        elif event == EVENT_XAROLLBACK:
            op.p, op.n = <const uint8_t*>b"XAROLLBACK", 10
        return op

    cdef int put_entry(self, size_t count) noexcept nogil:
        """Append the values that all rows of an entry share."""
        cdef ArrowColumn* columns = self.columns
        cdef Slice gtid = self.head.gtid
        cdef size_t i
        cdef bint is_ddl = self.change.is_ddl
        cdef int status = put_utf8(&columns[SCHEMA], self.head.schema, count)
        if status == OK:
            status = put_utf8(&columns[TABLE], self.head.table, count)
        if status == OK:
            status = put_utf8(&columns[JOURNAL], self.head.file, count)
        if status == OK:
            status = put_utf8(&columns[DESTINATION], self.destination_text, count)
        if status == OK and gtid.n:
            status = put_utf8(&columns[GTID], gtid, count)
        elif status == OK:
            status = put_nulls(&columns[GTID], count)
        if status == OK:
            status = put_fixed_times(&columns[POSITION], &self.head.offset, count)
        if status == OK:
            status = put_fixed_times(&columns[SERVER_ID], &self.head.server_id, count)
        for i in range(count):
            if status == OK:
                status = put_bool(&columns[IS_DDL], is_ddl)
        return status

    cdef int put_commit(self, size_t count, Slice xid) noexcept nogil:
        if xid.n == 0 or same(xid, b"0", 1):
            return put_nulls(&self.columns[XID], count)
        return put_utf8(&self.columns[XID], xid, count)

    cdef int find_shape(self) noexcept nogil:
        """Find the stored shape of the entry's table."""
        cdef Slice schema = self.head.schema
        cdef Slice table = self.head.table
        cdef uint32_t hashed = 2166136261
        cdef size_t i
        for i in range(schema.n):
            hashed = (hashed ^ schema.p[i]) * 16777619
        for i in range(table.n):
            hashed = (hashed ^ table.p[i]) * 16777619
        self.shape = &self.shapes[(hashed ^ hashed >> 16) & (SHAPES - 1)]
        if is_shape_of(self.shape, schema, table):
            return OK
        return name_shape(self.shape, schema, table)

    # --- all rows ---------------------------------------------------------------------

    cdef size_t measure(self) noexcept nogil:
        cdef size_t total = 0
        cdef int i
        for i in range(COUNT):
            total += column_bytes(&self.columns[i])
        return total

    cdef list take_columns(self):
        cdef int i
        return [
            take_column(&self.columns[i])
            for i in range(COUNT)
            if not (self.json and i in (BEFORE, BEFORE_KEYS, AFTER, AFTER_KEYS))
        ]


cdef Slice op_of_rows(uint32_t event) noexcept nogil:
    cdef Slice op
    op.p, op.n = <const uint8_t*>b"INSERT", 6
    if event == EVENT_UPDATE:
        op.p = <const uint8_t*>b"UPDATE"
    elif event == EVENT_DELETE:
        op.p = <const uint8_t*>b"DELETE"
    return op


cdef inline int end_list(ArrowColumn* column) noexcept nogil:
    """Count a list that ends with its items, the next column."""
    cdef int status = put_offset(column, (column + 1).length)
    return put_valid(column) if status == OK else status


cdef inline int put_name(ArrowColumn* column, Slice name) noexcept nogil:
    """Append a name or a type, as stored in the shape of a table."""
    return put_short_text(column, name.p, name.n, name.p + SPARE)


cdef inline int put_item(ArrowColumn* column, const ColumnText* text, Slice value,
                         const uint8_t* end) noexcept nogil:
    """Append the value of a column to the items of a map."""
    if text.is_null:
        return put_null(column)
    return put_short_text(column, value.p, value.n, end)


cdef int put_utf8(ArrowColumn* column, Slice text, size_t count) noexcept nogil:
    """Append a text of the entry's header to `count` rows."""
    if not is_utf8(text.p, text.n):
        return MALFORMED
    return put_texts(column, text.p, text.n, count)


# --- JSON -------------------------------------------------------------------------

cdef int put_pair(Memory* memory, const ColumnText* text, Slice value,
                    bint first) noexcept nogil:
    """Append a column as a key and value of a JSON object."""
    if put_piece(memory, b"{" if first else b",", 1) != OK:
        return NO_ROOM
    if put_json_text(memory, text.name) != OK or put_piece(memory, b":", 1) != OK:
        return NO_ROOM
    if text.is_null:
        return put_piece(memory, b"null", 4)
    return put_json_text(memory, value)


cdef int put_json_text(Memory* memory, Slice text) noexcept nogil:
    """Append a text in quotes."""
    cdef const char* hexadecimal = b"0123456789abcdef"
    cdef uint8_t* to
    cdef uint8_t byte
    cdef size_t i
    # The longest escape has six bytes.
    if reserve(memory, text.n * 6 + 2) != OK:
        return NO_ROOM
    to = memory.data + memory.used
    to[0] = 34
    to += 1
    for i in range(text.n):
        byte = text.p[i]
        if byte >= 32 and byte != 34 and byte != 92:
            to[0] = byte
            to += 1
        elif byte == 34 or byte == 92:
            to[0], to[1] = 92, byte
            to += 2
        else:
            memcpy(to, b"\\u00", 4)
            to[4] = hexadecimal[byte >> 4]
            to[5] = hexadecimal[byte & 15]
            to += 6
    to[0] = 34
    memory.used = to + 1 - memory.data
    return OK
