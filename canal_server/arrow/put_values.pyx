# cython: language_level=3, cdivision=True
"""Appends values to columns: converts a text to the bytes of its kind."""

from libc.stdint cimport INT8_MAX, INT8_MIN, INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN
from libc.stdint cimport UINT8_MAX, UINT16_MAX, UINT32_MAX
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from canal_server.arrow.column_buffers cimport (
    BAD_VALUE, LAYOUT_FIXED, LAYOUT_TEXT, NO_ROOM, OK, ArrowColumn, Layout, end_value,
    put_fixed_value, put_i8, put_i32, put_i64, put_null, put_short_text, reserve,
)
from canal_server.arrow.conversions cimport (
    CONVERTED_BYTES_MAX, READ_CONVERTED, READ_ENUM, convert,
)
from canal_server.arrow.label_texts cimport Labels, put_enum, put_set
from canal_server.arrow.text_values cimport (
    MOMENT_BROKEN, MOMENT_NONE, Moment, i128, is_utf8, put_latin1, put_padded_decimal,
    read_date, read_datetime, read_decimal, read_double, read_float, read_i64, read_u64,
)
from canal_server.decoder.text.charset_text cimport is_ascii

KINDS = {
    "int8": KIND_I8, "int16": KIND_I16, "int32": KIND_I32, "int64": KIND_I64,
    "uint8": KIND_U8, "uint16": KIND_U16, "uint32": KIND_U32, "uint64": KIND_BITS,
    "bits": KIND_BITS, "decimal": KIND_DECIMAL, "wide decimal": KIND_WIDE,
    "float": KIND_FLOAT, "double": KIND_DOUBLE, "date": KIND_DATE,
    "datetime": KIND_DATETIME, "timestamp": KIND_TIMESTAMP, "text": KIND_TEXT,
    "binary": KIND_BINARY,
}

cdef enum:
    SQL_BLOB = 2004  # of java.sql.Types: bytes as ISO-8859-1
    US = 1000000


cdef Layout layout_of_kind(int kind) noexcept:
    return LAYOUT_TEXT if kind in (KIND_WIDE, KIND_TEXT, KIND_BINARY) else LAYOUT_FIXED


cdef uint32_t width_of_kind(int kind) noexcept:
    if kind in (KIND_I64, KIND_BITS, KIND_DOUBLE, KIND_DATETIME, KIND_TIMESTAMP):
        return 8
    if kind in (KIND_I32, KIND_U32, KIND_FLOAT, KIND_DATE):
        return 4
    if kind == KIND_DECIMAL:
        return 16
    return 2 if kind in (KIND_I16, KIND_U16) else 1


cdef int put_value(ArrowColumn* column, const Field* field, const ColumnText* text,
                   Slice value, const uint8_t* end, const Zone* zone) noexcept nogil:
    if text.reading >= READ_CONVERTED:
        return put_converted(column, field, text, value, zone)
    return put_read(column, field, text, value, end, zone)


cdef int put_converted(ArrowColumn* column, const Field* field, const ColumnText* text,
                       Slice value, const Zone* zone) noexcept nogil:
    """Append a value of a column that had another type, if the kind can hold it."""
    cdef uint8_t[CONVERTED_BYTES_MAX] room
    cdef Slice found
    if not convert(text.reading, value, room, &found):
        return BAD_VALUE
    return put_read(column, field, text, found, found.p + found.n, zone)


cdef inline int put_read(ArrowColumn* column, const Field* field, const ColumnText* text,
                         Slice value, const uint8_t* end,
                         const Zone* zone) noexcept nogil:
    """Append a text, unless its kind's reader rejects it."""
    cdef int kind = field.kind
    if kind <= KIND_BITS:
        return put_integer(column, kind, value)
    if kind == KIND_TEXT:
        return put_string(column, text, value, end)
    if kind >= KIND_DATE and kind <= KIND_TIMESTAMP:
        return put_moment(column, kind, value, zone)
    if kind == KIND_DECIMAL:
        return put_decimal(column, field, value)
    if kind == KIND_BINARY:
        return put_binary(column, text, value)
    if kind == KIND_WIDE:
        return put_wide(column, field, value)
    return put_floating(column, kind, value)


cdef inline int put_integer(ArrowColumn* column, int kind, Slice value) noexcept nogil:
    cdef int64_t v
    cdef short small
    if kind == KIND_BITS:
        return put_bits(column, value)
    if not read_i64(value.p, value.n, &v):
        return BAD_VALUE
    if kind == KIND_I64:
        return put_i64(column, v)
    if kind == KIND_I32:
        if not INT32_MIN <= v <= INT32_MAX:
            return BAD_VALUE
        return put_i32(column, <int32_t>v)
    if kind == KIND_I16:
        if not INT16_MIN <= v <= INT16_MAX:
            return BAD_VALUE
        small = <short>v
        return put_fixed_value(column, &small, 2)
    if kind == KIND_I8:
        if not INT8_MIN <= v <= INT8_MAX:
            return BAD_VALUE
        return put_i8(column, v)
    return put_unsigned(column, kind, v)


cdef int put_unsigned(ArrowColumn* column, int kind, int64_t v) noexcept nogil:
    """Append a number of up to 32 bits without a sign."""
    cdef uint8_t tiny = <uint8_t>v
    cdef uint16_t small = <uint16_t>v
    cdef uint32_t whole = <uint32_t>v
    if kind == KIND_U32:
        return put_fixed_value(column, &whole, 4) if 0 <= v <= UINT32_MAX else BAD_VALUE
    if kind == KIND_U16:
        return put_fixed_value(column, &small, 2) if 0 <= v <= UINT16_MAX else BAD_VALUE
    return put_fixed_value(column, &tiny, 1) if 0 <= v <= UINT8_MAX else BAD_VALUE


cdef int put_bits(ArrowColumn* column, Slice value) noexcept nogil:
    cdef uint64_t v
    if not read_u64(value.p, value.n, &v):
        return BAD_VALUE
    return put_i64(column, <int64_t>v)


cdef inline int put_string(ArrowColumn* column, const ColumnText* text, Slice value,
                           const uint8_t* end) noexcept nogil:
    """Append a text, or the labels of a number."""
    cdef const Labels* labels = <const Labels*>text.labels
    cdef uint64_t number
    if labels != NULL:
        if not read_u64(value.p, value.n, &number):
            return BAD_VALUE
        if text.reading == READ_ENUM:
            return put_enum(column, labels, number)
        return put_set(column, labels, number)
    if text.sql_type == SQL_BLOB:
        return BAD_VALUE
    if not (is_ascii(value.p, value.n) or is_utf8(value.p, value.n)):
        return BAD_VALUE
    return put_short_text(column, value.p, value.n, end)


cdef int put_binary(ArrowColumn* column, const ColumnText* text,
                    Slice value) noexcept nogil:
    cdef uint8_t* to
    cdef int64_t n
    if text.sql_type != SQL_BLOB:
        return BAD_VALUE
    if reserve(&column.values, value.n + text.filled) != OK:
        return NO_ROOM
    to = column.values.data + column.values.used
    n = put_latin1(to, value.p, value.n)
    if n < 0:
        return BAD_VALUE
    if n < text.filled:
        memset(to + n, 0, text.filled - n)
        n = text.filled
    column.values.used += n
    return end_value(column)


cdef inline int put_decimal(ArrowColumn* column, const Field* field,
                            Slice value) noexcept nogil:
    cdef i128 v
    if not read_decimal(value.p, value.n, field.a, field.b, &v):
        return BAD_VALUE
    return put_fixed_value(column, &v, 16)


cdef int put_wide(ArrowColumn* column, const Field* field, Slice value) noexcept nogil:
    """Append a decimal with too many digits for a number, with its full scale."""
    cdef uint8_t* to
    cdef bint digits = False
    cdef size_t fraction = 0  # including the point
    cdef size_t i
    for i in range(value.n):
        fraction += fraction > 0
        if value.p[i] == 46 and not fraction:
            fraction = 1
        elif 48 <= value.p[i] <= 57:
            digits = True
            if fraction > <size_t>field.b + 1 and value.p[i] != 48:
                return BAD_VALUE
        elif not (value.p[i] == 45 and i == 0):
            return BAD_VALUE
    if not digits:
        return BAD_VALUE
    if reserve(&column.values, value.n + field.b + 2) != OK:
        return NO_ROOM
    to = column.values.data + column.values.used
    column.values.used += put_padded_decimal(to, value.p, value.n, field.b) - to
    return end_value(column)


cdef int put_floating(ArrowColumn* column, int kind, Slice value) noexcept nogil:
    cdef double double_value
    cdef float float_value
    if kind == KIND_DOUBLE:
        if not read_double(value.p, value.n, &double_value):
            return BAD_VALUE
        return put_fixed_value(column, &double_value, 8)
    if not read_float(value.p, value.n, &float_value):
        return BAD_VALUE
    return put_fixed_value(column, &float_value, 4)


cdef inline int put_moment(ArrowColumn* column, int kind, Slice value,
                           const Zone* zone) noexcept nogil:
    cdef int32_t days
    cdef int64_t us
    cdef Moment found
    if kind == KIND_DATE:
        found = read_date(value.p, value.n, &days)
    else:
        found = read_datetime(value.p, value.n, &us)
    if found == MOMENT_BROKEN or (found == MOMENT_NONE and not zone.zero_is_null):
        return BAD_VALUE
    if found == MOMENT_NONE:
        return put_null(column)
    if kind == KIND_DATE:
        return put_i32(column, days)
    if kind == KIND_TIMESTAMP and zone.count:
        us -= offset_at(zone, us) * US
    return put_i64(column, us)


cdef int64_t offset_at(const Zone* zone, int64_t local_us) noexcept nogil:
    """Return the seconds east of UTC at a moment of local time."""
    cdef int64_t second = local_us // US - (local_us % US < 0)
    cdef size_t low = 0
    cdef size_t high = zone.count
    cdef size_t middle
    while high - low > 1:
        middle = (low + high) // 2
        if zone.steps[2 * middle] <= second:
            low = middle
        else:
            high = middle
    return zone.steps[2 * low + 1]
