# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Canal-json with one row in each message, for messages with keys.

A message has the bytes that `flat_messages` makes of an entry with this row alone. A
statement, which has no row, has the key of its table, so that compacted topics take it.
"""

from libc.stdint cimport uint32_t

from canal_server.core.entry_wire cimport EVENT_DELETE, EVENT_UPDATE, Slice
from canal_server.core.json_text cimport Text, put, put_number
from canal_server.queues.forms.column_plans cimport Plan
from canal_server.queues.forms.rendered_values cimport put_text
from canal_server.queues.forms.row_messages cimport RowMessages, Value

from canal_server.model.entry import EventType

cdef dict type_names = {int(kind): kind.name.encode() for kind in EventType}


cdef class FlatRows(RowMessages):
    """Makes messages of batches; for one thread at a time."""

    cdef int put_value(self, uint32_t event) except -1:
        cdef bint is_delete = event == EVENT_DELETE
        self.put_image(b'{"data":[{', is_delete, False)
        self.put_message(is_delete, event == EVENT_UPDATE)
        return 0

    cdef int put_statement(self) except -1:
        put(&self.out, b'{"data":null', 12)
        self.cells_n = 0
        self.put_message(False, False)
        self.put_shared_key(&self.key, False)
        self.add(self.statement_partition(), True, &self.key)
        return 0

    cdef void put_image(self, const char* begin, bint of_before, bint is_old) noexcept:
        """Append an image in a list, null if it is empty.

        `is_old`: only what has changed, and an empty image counts.
        """
        cdef Text* out = &self.out
        cdef size_t at
        cdef const Value* value
        cdef bint is_first = True
        put(out, begin, 10 if not is_old else 9)
        for at in range(self.cells_n):
            value = &self.cells[at].before if of_before else &self.cells[at].after
            if not value.present or is_old and not self.cells[at].after.updated:
                continue
            put(out, b",", 0 if is_first else 1)
            is_first = False
            put(out, self.cells[at].plan.label.p, self.cells[at].plan.label.n)
            if value.is_null:
                put(out, b"null", 4)
            else:
                put_text(out, value.text)
        if is_first and not is_old:
            if not out.failed:
                out.n -= 2
            put(out, b"null", 4)
        else:
            put(out, b"}]", 2)

    cdef int put_message(self, bint of_before, bint is_update) except -1:
        """Append all but the row."""
        cdef Text* out = &self.out
        cdef bytes kind = type_names.get(self.change.event, b"UPDATE")
        cdef size_t at
        cdef const Value* value
        cdef bint is_first = True
        put(out, b',"database":', 12)
        put_text(out, self.head.schema)
        put(out, b',"es":', 6)
        put_number(out, self.head.time_ms)
        put(out, b',"gtid":', 8)
        put_text(out, self.gtids)
        put(out, b',"id":', 6)
        put_number(out, self.batch_id)
        put(out, b',"isDdl":true' if self.change.is_ddl else b',"isDdl":false',
            13 if self.change.is_ddl else 14)
        self.put_types(b',"mysqlType":', 13, of_before, False)
        if is_update and self.has_image(of_before):
            self.put_image(b',"old":[{', True, True)
        else:
            put(out, b',"old":null', 11)
        put(out, b',"pkNames":', 11)
        for at in range(self.cells_n):
            value = &self.cells[at].before if of_before else &self.cells[at].after
            if value.present and self.cells[at].plan.is_key:
                put(out, b"[" if is_first else b",", 1)
                is_first = False
                put(out, self.cells[at].plan.label.p, self.cells[at].plan.label.n - 1)
        put(out, b"null" if is_first else b"]", 4 if is_first else 1)
        put(out, b',"sql":', 7)
        put_text(out, self.change.sql)
        self.put_types(b',"sqlType":', 11, of_before, True)
        put(out, b',"table":', 9)
        put_text(out, self.head.table)
        put(out, b',"ts":', 6)
        put_number(out, self.now_ms)
        put(out, b',"type":"', 9)
        put(out, <const char*>kind, len(kind))
        put(out, b'"}', 2)
        return 0

    cdef bint has_image(self, bint of_before) noexcept:
        cdef size_t at
        for at in range(self.cells_n):
            if (self.cells[at].before if of_before else self.cells[at].after).present:
                return True
        return False

    cdef void put_types(self, const char* begin, size_t n, bint of_before,
                        bint is_sql) noexcept:
        """Append the types of the columns of an image, of JDBC or of the server."""
        cdef Text* out = &self.out
        cdef size_t at
        cdef const Value* value
        cdef bint is_first = True
        put(out, begin, n)
        for at in range(self.cells_n):
            value = &self.cells[at].before if of_before else &self.cells[at].after
            if not value.present:
                continue
            put(out, b"{" if is_first else b",", 1)
            is_first = False
            put(out, self.cells[at].plan.label.p, self.cells[at].plan.label.n)
            if is_sql:
                put_number(out, value.sql_type)
            else:
                put_text(out, self.cells[at].plan.mysql_type)
        put(out, b"null" if is_first else b"}", 4 if is_first else 1)
