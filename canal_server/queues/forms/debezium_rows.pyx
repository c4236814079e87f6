# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Messages in the JSON of Debezium's connector for MySQL, one row in each.

    {"before", "after", "source": {…}, "op", "ts_ms", "transaction"}
    {"schema": {…}, "payload": {…}}                                   with schemas

A change of the key is a deletion and an insertion. Statements are left out. The same as
CloudEvents, in the structured mode of Kafka's binding, with the header `content-type`:

    {"specversion", "type", …, "iodebezium…", "id", "data": {"before", "after"}}
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free

from canal_server.arrow.text_values cimport MOMENT_BROKEN, MOMENT_NONE, Moment, read_u64
from canal_server.core.entry_wire cimport EVENT_DELETE, EVENT_INSERT, Slice
from canal_server.core.json_text cimport Text, put, put_number, reserve
from canal_server.decoder.text.number_text cimport FLOAT_TEXT_MAX, put_double
from canal_server.queues.batch_rows cimport check
from canal_server.queues.forms.column_plans cimport (
    KIND_BIT, KIND_BYTES, KIND_DATE, KIND_DECIMAL, KIND_DOUBLE, KIND_ENUM, KIND_FLOAT,
    KIND_GEOMETRY, KIND_INTEGER, KIND_JSON, KIND_SET, KIND_TIME, KIND_TIMESTAMP,
    KIND_VECTOR, KIND_YEAR, Plan,
)
from canal_server.queues.forms.debezium_values cimport (
    DECIMAL_DOUBLE, DECIMAL_PRECISE, Geometry, decimals_of, read_geometry, read_moment,
    read_wrapped,
)
from canal_server.queues.forms.rendered_values cimport (
    SQL_BLOB, put_base64, put_bits, put_bytes, put_decimal, put_decimal_bytes, put_digits,
    put_floating, put_label, put_labels, put_text, put_utc, put_vector,
)
from canal_server.queues.forms.row_messages cimport RowMessages, Value, value_of
from canal_server.queues.forms.shaped_rows cimport ShapedRows

import json
from datetime import UTC, datetime

from canal_server.queues.forms.debezium_schemas import envelope_schema, key_schema

cdef enum:
    MS = 1000


cdef int64_t TIME_MS_END = 253402300800000  # year 10000
cdef tuple CONTENT_TYPE = (
    "content-type", b"application/cloudevents+json; charset=UTF-8")


cdef class DebeziumRows(ShapedRows):
    """Makes messages of batches; for one thread at a time.

    `name` is that of the source in messages and schemas, `version` that of the program.
    """

    cdef str name
    cdef bint has_schemas
    cdef bint is_cloud          # messages are CloudEvents
    cdef bint asks_headers
    cdef str how_decimals
    cdef int decimals
    cdef bytes source_begin     # of the source, the same in all messages
    cdef Text source_text       # of the current entry, up to the number of the row
    cdef bytes value_begin      # with the schema of the row's columns, or without any
    cdef bytes key_begin
    cdef Text data_text         # the data of a CloudEvent
    cdef tuple position         # of the current entry in the binlog,
    cdef dict seen              # and how often the entries there had each id

    def __init__(self, route_of, *, str name, str version="", bint has_schemas=False,
                 str decimals="precise", bint cloud_events=False, **options):
        """Set the function that knows the routes, and what messages have."""
        super().__init__(route_of, **options)
        self.name, self.has_schemas, self.how_decimals = name, has_schemas, decimals
        self.splits_moves = True
        self.is_cloud, self.asks_headers = cloud_events, self.has_headers
        self.has_headers |= cloud_events
        self.decimals = decimals_of(decimals)
        version_text, name_text = json.dumps(version), json.dumps(name, ensure_ascii=False)
        self.source_begin = (
            f'"source":{{"version":{version_text},"connector":"mysql","name":{name_text},'
            '"ts_ms":'
        ).encode()
        if cloud_events:
            source_text = json.dumps(f"/debezium/mysql/{name}", ensure_ascii=False)
            self.source_begin = (
                '{"specversion":"1.0","type":"io.debezium.connector.mysql.DataChangeEvent",'
                f'"source":{source_text},"datacontenttype":"application/json",'
                f'"iodebeziumversion":{version_text},"iodebeziumconnector":"mysql",'
                f'"iodebeziumname":{name_text},"iodebeziumsnapshot":"false",'
                '"iodebeziumtsms":"'
            ).encode()
        self.value_begin = b"{"
        self.key_begin = b""

    def __dealloc__(self):
        free(self.source_text.p)
        free(self.data_text.p)

    def convert(self, int64_t batch_id, data, int64_t now_ms):
        """Return the messages of a body of Messages; see RowMessages."""
        # Ids do not depend on earlier batches, which may be sent once more.
        self.position, self.seen = None, {}
        return RowMessages.convert(self, batch_id, data, now_ms)

    # --- messages ---------------------------------------------------------------------

    cdef int begin_rows(self) except -1:
        """Write the source of the rows of an entry."""
        cdef Text* text = &self.source_text
        text.n = 0
        text.bad = text.failed = False
        put(text, <const char*>self.source_begin, len(self.source_begin))
        put_number(text, self.head.time_ms)
        if self.is_cloud:
            return self.begin_events(text)
        put(text, b',"snapshot":"false","db":', 25)
        put_text(text, self.head.schema)
        put(text, b',"sequence":null,"table":', 25)
        put_text(text, self.head.table)
        put(text, b',"server_id":', 13)
        put_number(text, self.head.server_id)
        put(text, b',"gtid":', 8)
        if self.head.gtid.n:
            put_text(text, self.head.gtid)
        else:
            put(text, b"null", 4)
        put(text, b',"file":', 8)
        put_text(text, self.head.file)
        put(text, b',"pos":', 7)
        put_number(text, <int64_t>self.head.offset)
        put(text, b',"row":', 7)
        return 0

    cdef int begin_events(self, Text* text) except -1:
        """Write the rest of the attributes that the rows of an entry have in common."""
        cdef bytes when
        cdef tuple position = (
            self.head.server_id, self.head.file.p[:self.head.file.n], self.head.offset)
        if position != self.position:
            self.position, self.seen = position, {}
        self.data_text.failed = False
        if 0 <= self.head.time_ms < TIME_MS_END:
            moment = datetime.fromtimestamp(self.head.time_ms / MS, UTC)
            when = moment.strftime('","time":"%Y-%m-%dT%H:%M:%SZ').encode()
            put(text, <const char*>when, len(when))
        put(text, b'","iodebeziumdb":', 17)
        put_text(text, self.head.schema)
        put(text, b',"iodebeziumtable":', 19)
        put_text(text, self.head.table)
        put(text, b',"iodebeziumserverid":"', 23)
        put_number(text, self.head.server_id)
        put(text, b'"', 1)
        if self.head.gtid.n:
            put(text, b',"iodebeziumgtid":', 18)
            put_text(text, self.head.gtid)
        put(text, b',"iodebeziumfile":', 18)
        put_text(text, self.head.file)
        put(text, b',"iodebeziumpos":"', 18)
        put_number(text, <int64_t>self.head.offset)
        put(text, b'","iodebeziumrow":"', 19)
        return 0

    cdef int put_event(self, uint32_t event) except -1:
        """Append a CloudEvent."""
        cdef Text* out = &self.out
        cdef Text* data = &self.data_text
        cdef const char* op = (
            b"c" if event == EVENT_INSERT else b"d" if event == EVENT_DELETE else b"u")
        data.n = 0
        data.bad = False
        put(data, b'{"before":', 10)
        if event == EVENT_INSERT:
            put(data, b"null", 4)
        else:
            self.put_image(data, True)
        put(data, b',"after":', 9)
        if event == EVENT_DELETE:
            put(data, b"null", 4)
        else:
            self.put_image(data, False)
        put(data, b"}", 1)
        put(out, self.source_text.p, self.source_text.n)
        put_number(out, self.row)
        put(out, b'","iodebeziumop":"', 18)
        put(out, op, 1)
        put(out, b'","id":', 7)
        self.put_id(op)
        put(out, b',"data":', 8)
        put(out, data.p, data.n)
        put(out, b"}", 1)
        out.bad |= self.source_text.bad or data.bad
        out.failed |= self.source_text.failed or data.failed
        return 0

    cdef int put_id(self, const char* op) except -1:
        """Append the id of a CloudEvent: where the row is, `op`, a hash of the data.

        Events may share a position: those of a compressed transaction have that of its
        event. Equal changes there are numbered.
        """
        cdef Text* text = &self.scratch
        cdef const char* digits = b"0123456789abcdef"
        cdef uint64_t hashed = hash_of(&self.data_text, self.head.time_ms)
        cdef int at
        cdef Slice made
        cdef bytes known
        text.n = 0
        put_number(text, self.head.server_id)
        put(text, b":", 1)
        put(text, self.head.file.p, self.head.file.n)
        put(text, b":", 1)
        put_number(text, <int64_t>self.head.offset)
        put(text, b":", 1)
        put(text, self.head.schema.p, self.head.schema.n)
        put(text, b".", 1)
        put(text, self.head.table.p, self.head.table.n)
        put(text, b":", 1)
        put_number(text, self.row)
        put(text, b":", 1)
        put(text, op, 1)
        put(text, b":", 1)
        for at in range(60, -4, -4):
            put(text, digits + (hashed >> at & 15), 1)
        if text.failed:
            return 0
        known = text.p[:text.n]
        found = self.seen.get(known, 0)
        self.seen[known] = found + 1
        if found:
            put(text, b":", 1)
            put_number(text, found)
        made.p, made.n = text.p, text.n
        put_text(&self.out, made)
        return 0

    cdef list made_headers(self):
        cdef list found = RowMessages.made_headers(self) if self.asks_headers else []
        if self.is_cloud:
            found.append(CONTENT_TYPE)
        return found

    cdef int put_value(self, uint32_t event) except -1:
        cdef Text* out = &self.out
        if self.is_cloud:
            return self.put_event(event)
        if self.has_schemas:
            self.find_shape()
        put(out, <const char*>self.value_begin, len(self.value_begin))
        if event == EVENT_INSERT:
            put(out, b'"before":null,', 14)
        else:
            put(out, b'"before":', 9)
            self.put_image(out, True)
            put(out, b",", 1)
        if event == EVENT_DELETE:
            put(out, b'"after":null,', 13)
        else:
            put(out, b'"after":', 8)
            self.put_image(out, False)
            put(out, b",", 1)
        put(out, self.source_text.p, self.source_text.n)
        out.bad |= self.source_text.bad
        out.failed |= self.source_text.failed
        put_number(out, self.row)
        put(out, b',"thread":null,"query":null},"op":"', 35)
        put(out, b"c" if event == EVENT_INSERT else b"d" if event == EVENT_DELETE
            else b"u", 1)
        put(out, b'","ts_ms":', 10)
        put_number(out, self.now_ms)
        put(out, b',"transaction":null}}', 21 if self.has_schemas else 20)
        return 0

    cdef int put_key(self, Text* text, bint of_before) except -1:
        """Write the key of a row: an object of the columns of the primary key."""
        cdef size_t at
        cdef bint found = False
        text.n = 0
        if self.has_schemas:
            self.find_shape()
            put(text, <const char*>self.key_begin, len(self.key_begin))
        put(text, b"{", 1)
        for at in range(self.cells_n):
            if not self.cells[at].plan.is_key:
                continue
            put(text, b",", 1 if found else 0)
            found = True
            put(text, self.cells[at].plan.label.p, self.cells[at].plan.label.n)
            self.put_any(text, self.cells[at].plan, value_of(&self.cells[at], of_before))
        put(text, b"}}", 2 if self.has_schemas else 1)
        return found

    cdef void put_image(self, Text* out, bint of_before) noexcept:
        """Append a row as it is, or was, as far as that is known.

        What the later image leaves out has not changed; what the earlier one leaves out
        is not known.
        """
        cdef size_t at
        cdef bint is_first = True
        put(out, b"{", 1)
        for at in range(self.cells_n):
            if of_before and not self.cells[at].before.present:
                continue
            put(out, b",", 0 if is_first else 1)
            is_first = False
            put(out, self.cells[at].plan.label.p, self.cells[at].plan.label.n)
            self.put_any(out, self.cells[at].plan, value_of(&self.cells[at], of_before))
        put(out, b"}", 1)

    # --- schemas ----------------------------------------------------------------------

    cdef object made_shape(self, list columns):
        """Return what values and keys begin with."""
        check(not (self.out.bad or self.source_text.bad))
        prefix = ".".join(self.names(self.name))
        keys = [each for each in columns if each.is_key]
        value = envelope_schema(columns, prefix, self.how_decimals)
        key = key_schema(keys, prefix, self.how_decimals)
        return (f'{{"schema":{value},"payload":{{'.encode(),
                f'{{"schema":{key},"payload":'.encode())

    cdef int use_shape(self, made) except -1:
        self.value_begin, self.key_begin = made
        return 0

    # --- values -----------------------------------------------------------------------

    cdef inline void put_any(self, Text* text, const Plan* plan,
                             const Value* value) noexcept:
        if value.is_null:
            put(text, b"null", 4)
        else:
            self.put_cell(text, plan, value)

    cdef void put_cell(self, Text* text, const Plan* plan, const Value* value) noexcept:
        """Append a value that is not NULL, by Debezium's mapping of types."""
        cdef int kind = plan.kind
        if kind == KIND_INTEGER:
            self.put_integer(text, plan, value.text)
        elif kind == KIND_YEAR:
            put_digits(text, value.text)
        elif kind == KIND_DECIMAL:
            if self.decimals == DECIMAL_PRECISE:
                put_decimal_bytes(text, plan, value.text)
            elif self.decimals == DECIMAL_DOUBLE:
                put_decimal(text, plan, value.text)
            else:
                put(text, b'"', 1)
                put_decimal(text, plan, value.text)
                put(text, b'"', 1)
        elif kind in (KIND_FLOAT, KIND_DOUBLE):
            put_floating(text, value.text)
        elif kind == KIND_BIT:
            if plan.a == 1:
                self.put_boolean(text, value.text)
            else:
                put_bits(text, plan, value.text)
        elif kind == KIND_ENUM:
            put_label(text, plan, value.text, False)
        elif kind == KIND_SET:
            put_labels(text, plan, value.text, False)
        elif KIND_DATE <= kind <= KIND_TIME:
            self.put_moment(text, plan, value.text)
        elif kind == KIND_GEOMETRY:
            self.put_geometry(text, plan, value.text)
        elif kind == KIND_VECTOR:
            put_vector(text, &self.scratch, value.text)
        elif kind == KIND_BYTES or value.sql_type == SQL_BLOB:
            put_bytes(text, &self.scratch, plan, value.text)
        elif kind == KIND_JSON and value.text.n == 0:
            put(text, b"null", 4)
        else:
            put_text(text, value.text)

    cdef void put_integer(self, Text* text, const Plan* plan, Slice value) noexcept:
        """Append an integer; above 2^63 - 1, what a signed one of 64 bits makes of it."""
        cdef int64_t number
        if read_wrapped(plan, value, &number):
            put_number(text, number)
        else:
            put_digits(text, value)

    cdef void put_boolean(self, Text* text, Slice value) noexcept:
        cdef uint64_t number
        if not read_u64(value.p, value.n, &number):
            text.bad = True
        elif number:
            put(text, b"true", 4)
        else:
            put(text, b"false", 5)

    cdef void put_moment(self, Text* text, const Plan* plan, Slice value) noexcept:
        """Append a date or a time; an invalid date is null, in a key 1970-01-01."""
        cdef int64_t number = 0
        cdef Moment found
        if plan.kind == KIND_TIMESTAMP:
            if put_utc(text, value, &self.zone, True):
                return
            if plan.is_key:
                put(text, b'"1970-01-01T00:00:00Z"', 22)
            else:
                put(text, b"null", 4)
            return
        found = read_moment(plan, value, &number)
        if found == MOMENT_BROKEN:
            text.bad = True
        elif found == MOMENT_NONE:
            put(text, b"null", 4)
        else:
            put_number(text, number)

    cdef void put_geometry(self, Text* text, const Plan* plan, Slice value) noexcept:
        """Append the WKB of a geometry, its spatial reference system, and a point's x, y."""
        cdef Geometry found
        if value.n == 0:
            put(text, b"null", 4)
            return
        if not read_geometry(&self.scratch, plan, value, &found):
            text.bad = True
            return
        put(text, b"{", 1)
        if plan.a:
            put(text, b'"x":', 4)
            if reserve(text, FLOAT_TEXT_MAX):
                text.n += put_double(text.p + text.n, found.x)
            put(text, b',"y":', 5)
            if reserve(text, FLOAT_TEXT_MAX):
                text.n += put_double(text.p + text.n, found.y)
            put(text, b",", 1)
        put(text, b'"wkb":', 6)
        put_base64(text, found.wkb, found.n)
        put(text, b',"srid":', 8)
        if found.srid:
            put_number(text, found.srid)
        else:
            put(text, b"null", 4)
        put(text, b"}", 1)


cdef uint64_t hash_of(const Text* text, int64_t seed) noexcept nogil:
    """Return the FNV-1a hash of a text, of 64 bits."""
    cdef uint64_t hashed = 0xCBF29CE484222325ULL ^ <uint64_t>seed
    cdef size_t i
    for i in range(text.n):
        hashed = (hashed ^ text.p[i]) * 0x100000001B3ULL
    return hashed
