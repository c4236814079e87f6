# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Messages of Debezium in Avro, with the ids of their schemas, one row in each.

    0, id of the schema (4 bytes, big-endian), value or key in Avro's binary encoding

Values have the fields that those of `debezium_rows` have, in their order. A field that
may be null is a union: the number of its type, and the value. A change of the key is a
deletion and an insertion. Statements are left out.
"""

from libc.stdint cimport INT32_MAX, INT32_MIN, int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free

from canal_server.arrow.text_values cimport (
    MOMENT_BROKEN, MOMENT_NONE, MOMENT_OK, Moment, is_utf8, read_double, read_float,
    read_i64, read_u64,
)
from canal_server.core.entry_wire cimport EVENT_DELETE, EVENT_INSERT, Slice
from canal_server.core.json_text cimport Text, put, reserve
from canal_server.queues.batch_rows cimport check
from canal_server.queues.forms.avro_wire cimport (
    put_choice, put_floats, put_long, put_octets,
)
from canal_server.queues.forms.column_plans cimport (
    KIND_BIT, KIND_BYTES, KIND_DATE, KIND_DATETIME, KIND_DECIMAL, KIND_DOUBLE, KIND_ENUM,
    KIND_FLOAT, KIND_GEOMETRY, KIND_INTEGER, KIND_JSON, KIND_SET, KIND_TIME,
    KIND_TIMESTAMP, KIND_VECTOR, KIND_YEAR, Plan,
)
from canal_server.queues.forms.debezium_values cimport (
    DECIMAL_DOUBLE, DECIMAL_PRECISE, Geometry, decimals_of, read_geometry, read_moment,
    read_wrapped,
)
from canal_server.queues.forms.rendered_values cimport (
    LABEL_BROKEN, LABEL_NONE, MOMENT_BYTES_MAX, SQL_BLOB, UNSCALED_BYTES_MAX, Labeled,
    bits_of_labels, bytes_of_bits, label_of, put_base64, put_decimal, take_bytes,
    unscaled_bytes, write_utc,
)
from canal_server.queues.forms.row_messages cimport RowMessages, Value, value_of
from canal_server.queues.forms.shaped_rows cimport ShapedRows

from canal_server.queues.forms.avro_schemas import (
    key_schema, record_prefix, value_schema,
)

cdef enum:
    NULL_FIRST = 0              # the types of an optional field: null, and its own
    VALUE_SECOND = 1
    LONG_BITS = 64
    INT_BITS = 32
    BASE64_ROOM = 8


cdef class AvroRows(ShapedRows):
    """Makes messages of batches; for one thread at a time.

    `name` is that of the source in messages and schemas, `version` that of the program.
    `id_of(topic, is_key, record, schema)` returns the id of a schema, whose record has
    this name. It is asked once for each shape of a table; what it raises ends the batch.
    """

    cdef str name
    cdef str how_decimals
    cdef int decimals
    cdef object id_of
    cdef bytes source_begin     # of the source, the same in all messages
    cdef Text source_text       # of the current entry, up to the number of the row
    cdef bytes value_begin      # with the id of the schema
    cdef bytes key_begin

    def __init__(self, route_of, *, str name, id_of, str version="",
                 str decimals="precise", **options):
        """Set the functions that know routes and ids, and what messages have."""
        super().__init__(route_of, **options)
        self.name, self.id_of, self.how_decimals = name, id_of, decimals
        self.splits_moves = True
        self.decimals = decimals_of(decimals)
        self.source_begin = b"".join(map(octets, (version, "mysql", name)))
        self.value_begin = self.key_begin = b""

    def __dealloc__(self):
        free(self.source_text.p)

    # --- schemas ----------------------------------------------------------------------

    cdef object made_shape(self, list columns):
        """Return what values and keys begin with: the ids of their schemas."""
        check(not (self.out.bad or self.source_text.bad))
        cdef str topic = self.table.route.topic
        cdef str prefix = record_prefix(self.names(self.name))
        cdef object value = self.id_of(
            topic, False, *value_schema(columns, prefix, self.how_decimals))
        cdef object key = 0
        if self.has_keys and any(each.is_key for each in columns):
            key = self.id_of(topic, True, *key_schema(columns, prefix, self.how_decimals))
        return begin_of(value), begin_of(key)

    cdef int use_shape(self, made) except -1:
        self.value_begin, self.key_begin = made
        return 0

    # --- messages ---------------------------------------------------------------------

    cdef int begin_rows(self) except -1:
        """Write the source of the rows of an entry."""
        cdef Text* text = &self.source_text
        text.n = 0
        text.bad = text.failed = False
        put(text, <const char*>self.source_begin, len(self.source_begin))
        put_long(text, self.head.time_ms)
        put_choice(text, 0)                     # snapshot, whose default is a text
        put_octets(text, b"false", 5)
        put_string_of(text, self.head.schema)
        put_choice(text, NULL_FIRST)            # sequence
        put_choice(text, VALUE_SECOND)
        put_string_of(text, self.head.table)
        put_long(text, self.head.server_id)
        if self.head.gtid.n:
            put_choice(text, VALUE_SECOND)
            put_string_of(text, self.head.gtid)
        else:
            put_choice(text, NULL_FIRST)
        put_string_of(text, self.head.file)
        put_long(text, <int64_t>self.head.offset)
        return 0

    cdef int put_value(self, uint32_t event) except -1:
        cdef Text* out = &self.out
        self.find_shape()
        put(out, <const char*>self.value_begin, len(self.value_begin))
        if event == EVENT_INSERT:
            put_choice(out, NULL_FIRST)
        else:
            put_choice(out, VALUE_SECOND)
            self.put_image(out, True)
        if event == EVENT_DELETE:
            put_choice(out, NULL_FIRST)
        else:
            put_choice(out, VALUE_SECOND)
            self.put_image(out, False)
        put(out, self.source_text.p, self.source_text.n)
        out.bad |= self.source_text.bad
        out.failed |= self.source_text.failed
        put_long(out, self.row)
        put_choice(out, NULL_FIRST)             # thread
        put_choice(out, NULL_FIRST)             # query
        put_octets(out, b"c" if event == EVENT_INSERT else b"d" if event == EVENT_DELETE
                   else b"u", 1)
        put_choice(out, VALUE_SECOND)
        put_long(out, self.now_ms)
        put_choice(out, NULL_FIRST)             # transaction
        return 0

    cdef int put_key(self, Text* text, bint of_before) except -1:
        """Write the key of a row: a record of the columns of the primary key."""
        cdef size_t at
        cdef bint found = False
        text.n = 0
        self.find_shape()
        put(text, <const char*>self.key_begin, len(self.key_begin))
        for at in range(self.cells_n):
            if self.cells[at].plan.is_key:
                found = True
                self.put_any(text, self.cells[at].plan,
                             value_of(&self.cells[at], of_before))
        return found

    cdef void put_image(self, Text* out, bint of_before) noexcept:
        """Append a row as it is, or was, as far as that is known.

        What the later image leaves out has not changed; what the earlier one leaves out
        is not known, so it is null.
        """
        cdef size_t at
        cdef const Plan* plan
        for at in range(self.cells_n):
            plan = self.cells[at].plan
            if of_before and not self.cells[at].before.present and not plan.is_key:
                put_choice(out, NULL_FIRST)
            else:
                self.put_any(out, plan, value_of(&self.cells[at], of_before))

    # --- values -----------------------------------------------------------------------

    cdef inline void put_any(self, Text* text, const Plan* plan,
                             const Value* value) noexcept:
        """Append the value of a field; those of the primary key are not optional."""
        cdef size_t at
        if plan.is_key:
            if value.is_null or not self.put_known(text, plan, value):
                text.bad = True
        elif value.is_null:
            put_choice(text, NULL_FIRST)
        else:
            at = put_choice(text, VALUE_SECOND)
            if not self.put_known(text, plan, value) and not text.failed:
                text.n = at
                put_choice(text, NULL_FIRST)

    cdef void put_cell(self, Text* text, const Plan* plan, const Value* value) noexcept:
        """Append a value that is not NULL, for what may be wrong with it."""
        if not self.put_known(text, plan, value) and plan.is_key:
            text.bad = True

    cdef bint put_known(self, Text* text, const Plan* plan, const Value* value) noexcept:
        """Append a value by Debezium's mapping of types; false: it is null there."""
        cdef int kind = plan.kind
        if kind == KIND_INTEGER:
            self.put_integer(text, plan, value.text)
        elif kind == KIND_DECIMAL:
            return self.put_number_of(text, plan, value.text)
        elif kind in (KIND_FLOAT, KIND_DOUBLE):
            return put_floating_of(text, plan, value.text)
        elif kind == KIND_YEAR:
            self.put_integer(text, plan, value.text)
        elif KIND_DATE <= kind <= KIND_TIME:
            return self.put_moment(text, plan, value.text)
        elif kind == KIND_BIT:
            self.put_bits_of(text, plan, value.text)
        elif kind == KIND_ENUM:
            return put_label_of(text, plan, value.text)
        elif kind == KIND_SET:
            return put_labels_of(text, plan, value.text)
        elif kind == KIND_GEOMETRY:
            return self.put_geometry(text, plan, value.text)
        elif kind == KIND_VECTOR:
            self.put_vector_of(text, value.text)
        elif kind == KIND_BYTES:
            if take_bytes(&self.scratch, value.text, plan.filled):
                put_octets(text, self.scratch.p, self.scratch.n)
            else:
                text.bad = True
        elif value.sql_type == SQL_BLOB:
            self.put_base64_of(text, plan, value.text)
        elif kind == KIND_JSON and value.text.n == 0:
            return False
        else:
            put_string_of(text, value.text)
        return True

    cdef void put_integer(self, Text* text, const Plan* plan, Slice value) noexcept:
        """Append an integer; above 2^63 - 1, what a signed one of 64 bits makes of it."""
        cdef int64_t number = 0
        cdef bint is_long = plan.kind == KIND_INTEGER and (
            plan.a == LONG_BITS or (plan.a == INT_BITS and plan.b))
        if not read_i64(value.p, value.n, &number) and (
                not read_wrapped(plan, value, &number)):
            text.bad = True
        elif is_long or INT32_MIN <= number <= INT32_MAX:
            put_long(text, number)
        else:
            text.bad = True

    cdef bint put_number_of(self, Text* text, const Plan* plan, Slice value) noexcept:
        """Append a decimal: the unscaled number, a text, or a double."""
        cdef uint8_t[UNSCALED_BYTES_MAX] made
        cdef int size
        cdef Slice shown
        if self.decimals == DECIMAL_PRECISE:
            size = unscaled_bytes(made, plan, value)
            if size < 0:
                text.bad = True
            else:
                put_octets(text, made, size)
            return True
        self.scratch.n = 0
        self.scratch.bad = False
        put_decimal(&self.scratch, plan, value)
        shown.p, shown.n = self.scratch.p, self.scratch.n
        if self.scratch.bad or self.scratch.failed:
            text.bad |= self.scratch.bad
        elif self.decimals == DECIMAL_DOUBLE:
            return put_double_of(text, shown)
        else:
            put_octets(text, shown.p, shown.n)
        return True

    cdef void put_bits_of(self, Text* text, const Plan* plan, Slice value) noexcept:
        """Append a boolean, or the bytes of a BIT, the lowest first."""
        cdef uint8_t[8] made
        cdef uint64_t number
        cdef int size
        if plan.a != 1:
            size = bytes_of_bits(made, plan, value)
            if size < 0:
                text.bad = True
            else:
                put_octets(text, made, size)
        elif read_u64(value.p, value.n, &number):
            put(text, b"\1" if number else b"\0", 1)
        else:
            text.bad = True

    cdef bint put_moment(self, Text* text, const Plan* plan, Slice value) noexcept:
        """Append a date or a time; an invalid date is null, in a key 1970-01-01."""
        cdef uint8_t[MOMENT_BYTES_MAX] made
        cdef size_t n = 0
        cdef int64_t number = 0
        cdef Moment found
        if plan.kind == KIND_TIMESTAMP:
            found = write_utc(made, &n, value, &self.zone, True)
            if found == MOMENT_OK:
                put_octets(text, made, n)
            elif found == MOMENT_NONE and plan.is_key:
                put_octets(text, b"1970-01-01T00:00:00Z", 20)
                return True
        else:
            found = read_moment(plan, value, &number)
            if found == MOMENT_OK:
                put_long(text, number)
        if found == MOMENT_BROKEN:
            text.bad = True
        return found != MOMENT_NONE

    cdef bint put_geometry(self, Text* text, const Plan* plan, Slice value) noexcept:
        """Append a record: of a point x and y first, then WKB and reference system."""
        cdef Geometry found
        if value.n == 0:
            return False
        if not read_geometry(&self.scratch, plan, value, &found):
            text.bad = True
            return True
        if plan.a:
            put_floats(text, &found.x, sizeof(double))
            put_floats(text, &found.y, sizeof(double))
            put_choice(text, VALUE_SECOND)      # the WKB of a point is optional
        put_octets(text, found.wkb, found.n)
        if found.srid:
            put_choice(text, VALUE_SECOND)
            put_long(text, found.srid)
        else:
            put_choice(text, NULL_FIRST)
        return True

    cdef void put_vector_of(self, Text* text, Slice value) noexcept:
        """Append an array of one block, and a block of none, which ends it."""
        cdef Text* scratch = &self.scratch
        if not take_bytes(scratch, value, 0) or scratch.n % sizeof(float):
            text.bad = True
            return
        if scratch.n:
            put_long(text, <int64_t>(scratch.n // sizeof(float)))
            put_floats(text, scratch.p, scratch.n)
        put_long(text, 0)

    cdef void put_base64_of(self, Text* text, const Plan* plan, Slice value) noexcept:
        """Append bytes of a column that is a text by its type, as a text of base64."""
        cdef Text* scratch = &self.scratch
        cdef size_t n
        if not take_bytes(scratch, value, plan.filled):
            text.bad = True
            return
        n = scratch.n
        if reserve(scratch, BASE64_ROOM + 2 * n):  # so that the bytes are not moved
            put_base64(scratch, scratch.p, n)
            put_octets(text, scratch.p + n + 1, scratch.n - n - 2)


cdef bytes octets(str text):
    """Return a string in Avro: its length, as `put_long` writes it, and its bytes."""
    cdef bytes given = text.encode()
    cdef uint64_t rest = 2 * <uint64_t>len(given)
    cdef bytes size = b""
    while rest > 127:
        size += bytes((rest & 127 | 128,))
        rest >>= 7
    return size + bytes((rest,)) + given


cdef bytes begin_of(schema_id):
    """Return what a value or a key begins with: a zero, and the id of its schema."""
    return b"\0" + int(schema_id).to_bytes(4, "big")


cdef void put_string_of(Text* out, Slice value) noexcept nogil:
    if is_utf8(value.p, value.n):
        put_octets(out, value.p, value.n)
    else:
        out.bad = True


cdef bint put_double_of(Text* out, Slice value) noexcept nogil:
    """Append a double; false for what is no number, such as NaN."""
    cdef double number
    if not read_double(value.p, value.n, &number):
        out.bad = True
    elif number - number != 0:  # infinite, or NaN
        return False
    else:
        put_floats(out, &number, sizeof(double))
    return True


cdef bint put_floating_of(Text* out, const Plan* plan, Slice value) noexcept nogil:
    cdef float number
    if plan.kind == KIND_DOUBLE or plan.b:  # as Debezium has a FLOAT(M,D)
        return put_double_of(out, value)
    if not read_float(value.p, value.n, &number):
        out.bad = True
    elif number - number != 0:
        return False
    else:
        put_floats(out, &number, sizeof(float))
    return True


cdef bint put_unlabeled_of(Text* out, const Plan* plan, Slice value) noexcept nogil:
    """Append the number of a label that the type does not have, in a key only."""
    if plan.is_key:
        put_string_of(out, value)
    return plan.is_key


cdef bint put_label_of(Text* out, const Plan* plan, Slice value) noexcept nogil:
    cdef Slice label
    cdef Labeled found = label_of(plan, value, &label)
    if found == LABEL_NONE:
        return put_unlabeled_of(out, plan, value)
    if found == LABEL_BROKEN:
        out.bad = True
    else:
        put_octets(out, label.p, label.n)
    return True


cdef bint put_labels_of(Text* out, const Plan* plan, Slice value) noexcept nogil:
    """Append the labels of a SET with commas between them."""
    cdef uint64_t bits, i
    cdef size_t n = 0
    cdef bint is_first = True
    cdef Labeled found = bits_of_labels(plan, value, &bits)
    if found == LABEL_NONE:
        return put_unlabeled_of(out, plan, value)
    if found == LABEL_BROKEN:
        out.bad = True
        return True
    for i in range(min(<size_t>64, plan.labels.count)):
        if bits >> i & 1:
            n += plan.labels.labels[i].n + 1
    put_long(out, <int64_t>n - 1 if n else 0)
    for i in range(min(<size_t>64, plan.labels.count)):
        if bits >> i & 1:
            put(out, b",", 0 if is_first else 1)
            is_first = False
            put(out, plan.labels.labels[i].p, plan.labels.labels[i].n)
    return True
