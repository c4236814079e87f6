# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Messages in the JSON of Maxwell, one row in each.

    {"database", "table", "type", "ts", "xid", "commit", "position", "gtid", "server_id",
     "primary_key", "primary_key_columns", "data", "old"}

`xid` and `commit` need the end of the transaction, which is in the batch unless the
transaction is large. What follows them up to `data` is there if it is asked for.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free

from canal_server.core.entry_wire cimport EVENT_DELETE, EVENT_INSERT, EVENT_UPDATE, Slice
from canal_server.core.json_text cimport Text, put, put_number
from canal_server.queues.forms.column_plans cimport (
    KIND_BIT, KIND_BYTES, KIND_DECIMAL, KIND_DOUBLE, KIND_ENUM, KIND_FLOAT,
    KIND_GEOMETRY, KIND_INTEGER, KIND_JSON, KIND_SET, KIND_TIMESTAMP, KIND_VECTOR,
    KIND_YEAR, Plan,
)
from canal_server.queues.forms.geometry_text cimport put_wkt
from canal_server.queues.forms.rendered_values cimport (
    SQL_BLOB, put_bytes, put_decimal, put_digits, put_document, put_floating, put_label,
    put_labels, put_text, put_utc, put_vector, take_bytes,
)
from canal_server.queues.forms.row_messages cimport RowMessages, Value, value_of

from canal_server.model.entry import EventType

cdef enum:
    SRID_BYTES = 4      # before the WKB of a geometry

# Kinds of statements, as Maxwell names them.
cdef dict statement_kinds = {
    int(EventType.CREATE): b"table-create",
    int(EventType.ERASE): b"table-drop",
    int(EventType.TRUNCATE): b"table-truncate",
    **{
        int(kind): b"table-alter"
        for kind in (EventType.ALTER, EventType.RENAME, EventType.CINDEX,
                     EventType.DINDEX)
    },
}


cdef class MaxwellRows(RowMessages):
    """Makes messages of batches; for one thread at a time.

    `output`: what messages have in addition, as Maxwell's settings `output_…` name it.
    """

    cdef bint has_position
    cdef bint has_gtids
    cdef bint has_server
    cdef bint has_key_values
    cdef bint has_key_names
    cdef bint has_ddl
    cdef Text head_text     # of the current entry: what its rows have in common

    def __init__(self, route_of, *, output=(), **options):
        """Set the function that knows the routes, and what messages have."""
        super().__init__(route_of, **options)
        self.looks_ahead = True
        self.has_position = "binlog_position" in output
        self.has_gtids = "gtid_position" in output
        self.has_server = "server_id" in output
        self.has_key_values = "primary_keys" in output
        self.has_key_names = "primary_key_columns" in output
        self.has_ddl = "ddl" in output

    def __dealloc__(self):
        free(self.head_text.p)

    cdef int begin_rows(self) except -1:
        """Write what the rows of an entry have in common, up to `commit`."""
        cdef Text* text = &self.head_text
        text.n = 0
        text.bad = text.failed = False
        put(text, b'{"database":', 12)
        put_text(text, self.head.schema)
        put(text, b',"table":', 9)
        put_text(text, self.head.table)
        if self.change.event == EVENT_INSERT:
            put(text, b',"type":"insert"', 16)
        elif self.change.event == EVENT_UPDATE:
            put(text, b',"type":"update"', 16)
        else:
            put(text, b',"type":"delete"', 16)
        put(text, b',"ts":', 6)
        put_number(text, self.head.time_ms // 1000)
        if self.xid.n:
            put(text, b',"xid":', 7)
            put_digits(text, self.xid)
        return 0

    cdef int put_value(self, uint32_t event) except -1:
        cdef Text* out = &self.out
        cdef bint is_delete = event == EVENT_DELETE
        put(out, self.head_text.p, self.head_text.n)
        out.bad |= self.head_text.bad
        out.failed |= self.head_text.failed
        if self.is_last and self.row + 1 == self.change.rows:
            put(out, b',"commit":true', 14)
        self.put_source()
        if self.has_key_values:
            self.put_key_list(b',"primary_key":[', 16, is_delete, True)
        if self.has_key_names:
            self.put_key_list(b',"primary_key_columns":[', 24, is_delete, False)
        put(out, b',"data":{', 9)
        self.put_data(is_delete)
        if event == EVENT_UPDATE:
            self.put_old()
        put(out, b"}", 1)
        return 0

    cdef int put_statement(self) except -1:
        cdef Text* out = &self.out
        cdef bytes kind = statement_kinds.get(self.change.event)
        if not (self.has_ddl and self.change.is_ddl and kind):
            return 0
        put(out, b'{"type":"', 9)
        put(out, <const char*>kind, len(kind))
        put(out, b'","database":', 13)
        put_text(out, self.head.schema)
        put(out, b',"table":', 9)
        put_text(out, self.head.table)
        put(out, b',"ts":', 6)
        put_number(out, self.head.time_ms)
        put(out, b',"sql":', 7)
        put_text(out, self.change.sql)
        self.put_source()
        put(out, b"}", 1)
        self.cells_n = 0
        self.put_shared_key(&self.key, False)
        self.add(self.statement_partition(), True, &self.key)
        return 0

    cdef void put_source(self) noexcept:
        """Append where an entry comes from, as far as that is asked for."""
        cdef Text* out = &self.out
        cdef Text* text = &self.scratch
        cdef Slice position
        if self.has_position:
            put(out, b',"position":', 12)
            text.n = 0
            put(text, self.head.file.p, self.head.file.n)
            put(text, b":", 1)
            put_number(text, <long long>self.head.offset)
            position.p, position.n = text.p, text.n
            out.failed |= text.failed
            put_text(out, position)
        if self.has_gtids:
            put(out, b',"gtid":', 8)
            if self.gtids.n:
                put_text(out, self.gtids)
            else:
                put(out, b"null", 4)
        if self.has_server:
            put(out, b',"server_id":', 13)
            put_number(out, self.head.server_id)

    cdef void put_key_list(self, const char* begin, size_t n, bint of_before,
                           bint values) noexcept:
        """Append the values of the primary key, or its names."""
        cdef Text* out = &self.out
        cdef size_t at
        cdef bint is_first = True
        put(out, begin, n)
        for at in range(self.cells_n):
            if not self.cells[at].plan.is_key:
                continue
            put(out, b",", 0 if is_first else 1)
            is_first = False
            if values:
                self.put_any(self.cells[at].plan, value_of(&self.cells[at], of_before))
            else:
                put(out, self.cells[at].plan.label.p, self.cells[at].plan.label.n - 1)
        put(out, b"]", 1)

    cdef void put_data(self, bint of_before) noexcept:
        cdef Text* out = &self.out
        cdef size_t at
        for at in range(self.cells_n):
            put(out, b",", 1 if at else 0)
            put(out, self.cells[at].plan.label.p, self.cells[at].plan.label.n)
            self.put_any(self.cells[at].plan, value_of(&self.cells[at], of_before))
        put(out, b"}", 1)

    cdef void put_old(self) noexcept:
        """Append what has changed, as it was."""
        cdef Text* out = &self.out
        cdef size_t at
        cdef bint is_first = True
        for at in range(self.cells_n):
            if not (self.cells[at].before.present and self.cells[at].after.updated):
                continue
            put(out, b',"old":{' if is_first else b",", 8 if is_first else 1)
            is_first = False
            put(out, self.cells[at].plan.label.p, self.cells[at].plan.label.n)
            self.put_any(self.cells[at].plan, &self.cells[at].before)
        put(out, b"}", 0 if is_first else 1)

    cdef inline void put_any(self, const Plan* plan, const Value* value) noexcept:
        if value.is_null:
            put(&self.out, b"null", 4)
        else:
            self.put_cell(&self.out, plan, value)

    cdef void put_cell(self, Text* text, const Plan* plan, const Value* value) noexcept:
        """Append a value that is not NULL, in Maxwell's notation."""
        cdef int kind = plan.kind
        if kind in (KIND_INTEGER, KIND_YEAR, KIND_BIT):
            put_digits(text, value.text)
        elif kind == KIND_DECIMAL:
            put_decimal(text, plan, value.text)
        elif kind in (KIND_FLOAT, KIND_DOUBLE):
            put_floating(text, value.text)
        elif kind == KIND_ENUM:
            put_label(text, plan, value.text, True)
        elif kind == KIND_SET:
            put_labels(text, plan, value.text, True)
        elif kind == KIND_TIMESTAMP:
            put_utc(text, value.text, &self.zone, False)
        elif kind == KIND_JSON:
            put_document(text, value.text)
        elif kind == KIND_GEOMETRY:
            self.put_geometry(text, value)
        elif kind == KIND_VECTOR:
            put_vector(text, &self.scratch, value.text)
        elif kind == KIND_BYTES or value.sql_type == SQL_BLOB:
            put_bytes(text, &self.scratch, plan, value.text)
        else:
            put_text(text, value.text)

    cdef void put_geometry(self, Text* text, const Value* value) noexcept:
        """Append the WKT of a geometry, which follows its spatial reference system."""
        if value.text.n == 0:
            put(text, b"null", 4)
            return
        put(text, b'"', 1)
        if not take_bytes(&self.scratch, value.text, 0) or self.scratch.n < SRID_BYTES or (
                not put_wkt(text, self.scratch.p + SRID_BYTES,
                            self.scratch.n - SRID_BYTES)):
            text.bad = True
        put(text, b'"', 1)
