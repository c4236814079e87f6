# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Python values of columns, read from the texts in which entries carry them.

    integers, YEAR, BIT      int
    DECIMAL                  decimal.Decimal, with all digits of its scale
    FLOAT, DOUBLE            float
    CHAR, TEXT, UUID …       str
    BINARY, BLOB, geometry   bytes
    DATE, DATETIME           datetime.date, datetime.datetime without a zone
    TIMESTAMP                datetime.datetime in UTC
    TIME                     datetime.timedelta
    ENUM, SET                str: the label, the labels joined by commas
    JSON                     str, or what `load_json` makes of it

A text that its type cannot hold in Python stays the text that it is: dates with a zero
year, month or day (`0000-00-00`), and whatever another server writes differently. No
value raises an error.
"""

import re
from datetime import timezone
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context

from cpython.datetime cimport date_new, datetime_new, import_datetime, timedelta_new
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_1BYTE_DATA, PyUnicode_DecodeUTF8, PyUnicode_New
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from canal_server.arrow.text_values cimport (
    put_latin1, put_padded_decimal, read_double, read_i64, read_u64,
)
from canal_server.decoder.text.charset_text cimport is_ascii

from canal_server.arrow.type_pairs import filled_bytes
from canal_server.model.enum_labels import labels_of

import_datetime()

cdef enum:
    DECIMAL_BYTES_MAX = 128
    SECONDS_A_DAY = 86400

cdef object UTC = timezone.utc
# Quicker than the class, and without an upper bound of digits.
cdef object EXACT_DECIMAL = Context(
    prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[]
).create_decimal

_BASE = re.compile(r"\s*([a-z0-9_]+)", re.IGNORECASE)
_DIGITS = re.compile(r"\(\s*\d+\s*(?:,\s*(\d+)\s*)?\)")

_KINDS = {
    **dict.fromkeys(
        ("tinyint", "bool", "boolean", "smallint", "mediumint", "int", "integer",
         "bigint", "serial", "year", "bit"), VALUE_INTEGER
    ),
    **dict.fromkeys(("decimal", "numeric", "dec", "fixed"), VALUE_DECIMAL),
    **dict.fromkeys(("float", "double", "real"), VALUE_FLOAT),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector",
         "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring",
         "multipolygon", "geomcollection", "geometrycollection"), VALUE_BYTES
    ),
    "date": VALUE_DATE,
    "datetime": VALUE_DATETIME,
    "timestamp": VALUE_TIMESTAMP,
    "time": VALUE_TIME,
    "enum": VALUE_ENUM,
    "set": VALUE_SET,
    "json": VALUE_JSON,
}
_SQL_BLOB = 2004
# By java.sql.Types, where an entry has no mysqlType.
_SQL_KINDS = {
    -7: VALUE_INTEGER, -6: VALUE_INTEGER, -5: VALUE_INTEGER, 4: VALUE_INTEGER,
    5: VALUE_INTEGER, 3: VALUE_DECIMAL, 2: VALUE_DECIMAL, 6: VALUE_FLOAT, 7: VALUE_FLOAT,
    8: VALUE_FLOAT, 91: VALUE_DATE, 92: VALUE_TIME, 93: VALUE_DATETIME,
    _SQL_BLOB: VALUE_BYTES, -2: VALUE_BYTES, -3: VALUE_BYTES, -4: VALUE_BYTES,
}


cdef class ValueOptions:

    def __init__(self, *, bint as_texts=False, zone=None, load_json=None):
        self.as_texts = as_texts
        self.zone = None if zone is UTC else zone
        self.load_json = load_json


cdef class ColumnPlan:

    def __init__(self, str name, str mysql_type, int sql_type):
        found = _BASE.match(mysql_type)
        base = found[1].lower() if found else ""
        self.name = name
        self.mysql_type = mysql_type
        self.scale = -1
        self.labels = ()
        if sql_type == _SQL_BLOB:
            self.kind = VALUE_BYTES  # also CHAR and TEXT of bytes
        elif base:
            self.kind = _KINDS.get(base, VALUE_TEXT)
        else:
            self.kind = _SQL_KINDS.get(sql_type, VALUE_TEXT)
        if self.kind == VALUE_DECIMAL and base:
            digits = _DIGITS.search(mysql_type)
            self.scale = int(digits[1] or 0) if digits else 0
        elif self.kind == VALUE_BYTES:
            self.filled = filled_bytes(mysql_type)
        elif self.kind in (VALUE_ENUM, VALUE_SET):
            self.labels = known_labels(mysql_type)


def known_labels(str mysql_type):
    """Return the labels of an ENUM or SET; none of a type that cannot be read."""
    try:
        return tuple(
            label.decode("utf-8", "replace") if isinstance(label, bytes) else label
            for label in labels_of(mysql_type)
        )
    except ValueError:
        return ()


cdef str text_of(Slice slice):
    cdef object found
    if slice.n > 1 and is_ascii(slice.p, slice.n):
        found = PyUnicode_New(slice.n, 127)
        memcpy(PyUnicode_1BYTE_DATA(found), slice.p, slice.n)
        return <str>found
    if slice.n == 0:
        return ""
    return PyUnicode_DecodeUTF8(<const char*>slice.p, slice.n, "replace")


cdef object read_value(ColumnPlan plan, Slice value, ValueOptions options):
    """Return a value that is not NULL; its text where the type cannot hold it."""
    cdef ValueKind kind = plan.kind
    cdef int64_t number
    cdef uint64_t large
    cdef double floating
    cdef object found = None
    if options.as_texts or kind == VALUE_TEXT:
        return text_of(value)
    if kind == VALUE_INTEGER:
        if read_i64(value.p, value.n, &number):
            return number
        if read_u64(value.p, value.n, &large):
            return large
    elif kind == VALUE_DECIMAL:
        found = read_decimal_text(plan, value)
    elif kind == VALUE_FLOAT:
        if read_double(value.p, value.n, &floating):
            return floating
    elif kind == VALUE_BYTES:
        found = read_bytes(plan, value)
    elif kind == VALUE_DATE:
        found = read_day(value)
    elif kind == VALUE_DATETIME:
        found = read_moment(value, None)
    elif kind == VALUE_TIMESTAMP:
        found = read_timestamp(value, options)
    elif kind == VALUE_TIME:
        found = read_duration(value)
    elif kind == VALUE_ENUM:
        if read_u64(value.p, value.n, &large) and large <= <uint64_t>len(plan.labels):
            return plan.labels[large - 1] if large else ""
    elif kind == VALUE_SET:
        if read_u64(value.p, value.n, &large):
            found = joined_labels(plan.labels, large)
    elif kind == VALUE_JSON:
        # A document of no bytes, of ALTER TABLE … ADD … JSON NOT NULL, is null in MySQL.
        found = text_of(value) if value.n else "null"
        if options.load_json is not None:
            try:
                return options.load_json(found)
            except (ValueError, RecursionError):
                pass
    return text_of(value) if found is None else found


cdef object read_decimal_text(ColumnPlan plan, Slice value):
    """Return a number of digits, a sign and a point at most; None for other texts."""
    cdef uint8_t[2 * DECIMAL_BYTES_MAX] room
    cdef size_t i
    cdef size_t point = value.n  # where it is
    cdef size_t digits = 0
    if value.n == 0 or value.n > DECIMAL_BYTES_MAX or plan.scale > 64:
        return None
    for i in range(value.p[0] == 45, value.n):
        if 48 <= value.p[i] <= 57:
            digits += 1
        elif value.p[i] == 46 and point == value.n:
            point = i
        else:
            return None
    if digits == 0:
        return None
    if point + plan.scale < value.n or plan.scale <= 0:
        return EXACT_DECIMAL(text_of(value))
    value.n = put_padded_decimal(room, value.p, value.n, plan.scale) - room
    value.p = room
    return EXACT_DECIMAL(text_of(value))


cdef object read_bytes(ColumnPlan plan, Slice value):
    """Return the bytes that stand as ISO-8859-1 in the text; None: it is another text."""
    cdef int64_t n = value.n
    cdef bytes found
    cdef uint8_t* to
    if n >= plan.filled and is_ascii(value.p, value.n):
        return PyBytes_FromStringAndSize(<const char*>value.p, value.n)
    found = PyBytes_FromStringAndSize(NULL, max(value.n, <size_t>plan.filled))
    to = <uint8_t*>PyBytes_AS_STRING(found)
    n = put_latin1(to, value.p, value.n)
    if n < 0:
        return None
    if n < plan.filled:
        memset(to + n, 0, plan.filled - n)  # the server leaves zeros at the end out
        n = plan.filled
    return found if n == len(found) else found[:n]


cdef inline int two(const uint8_t* p) noexcept:
    """Return the number of two digits, or a negative one."""
    cdef int tens = p[0] - 48
    cdef int ones = p[1] - 48
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else -10000


cdef int read_micros(const uint8_t* p, size_t n) noexcept:
    """Return the microseconds of a fraction with its point; -1 for another text."""
    cdef int us = 0
    cdef size_t i
    if n == 0:
        return 0
    if p[0] != 46 or not 2 <= n <= 7:
        return -1
    for i in range(1, 7):
        us *= 10
        if i < n:
            if not 48 <= p[i] <= 57:
                return -1
            us += p[i] - 48
    return us


cdef object read_day(Slice value):
    cdef const uint8_t* p = value.p
    cdef int year
    if value.n != 10 or p[4] != 45 or p[7] != 45:
        return None
    year = two(p) * 100 + two(p + 2)
    try:
        return date_new(year, two(p + 5), two(p + 8))
    except ValueError:
        return None  # no such day


cdef object read_moment(Slice value, object zone):
    cdef const uint8_t* p = value.p
    cdef int us
    if (value.n < 19 or p[4] != 45 or p[7] != 45 or p[10] != 32 or p[13] != 58
            or p[16] != 58):
        return None
    us = read_micros(p + 19, value.n - 19)
    if us < 0:
        return None
    try:
        return datetime_new(two(p) * 100 + two(p + 2), two(p + 5), two(p + 8),
                            two(p + 11), two(p + 14), two(p + 17), us, zone)
    except ValueError:
        return None  # no such day


cdef object read_timestamp(Slice value, ValueOptions options):
    """Return a moment in UTC; the text is in the zone in which the server decodes."""
    cdef object local
    if options.zone is None:
        return read_moment(value, UTC)
    local = read_moment(value, options.zone)
    if local is None:
        return None
    try:
        return local.astimezone(UTC)
    except OverflowError:
        return None


cdef object read_duration(Slice value):
    """Return a TIME, such as -838:59:59.000000."""
    cdef const uint8_t* p = value.p
    cdef size_t n = value.n
    cdef bint negative = n > 0 and p[0] == 45
    cdef int hours = 0
    cdef int minutes, seconds, us
    cdef int64_t total
    cdef size_t i
    if negative:
        p += 1
        n -= 1
    i = 0
    while i < n and i < 4 and 48 <= p[i] <= 57:
        hours = hours * 10 + p[i] - 48
        i += 1
    if i == 0 or n < i + 6 or p[i] != 58 or p[i + 3] != 58:
        return None
    minutes, seconds = two(p + i + 1), two(p + i + 4)
    us = read_micros(p + i + 6, n - i - 6)
    if not (0 <= minutes < 60 and 0 <= seconds < 60) or us < 0:
        return None
    total = hours * 3600 + minutes * 60 + seconds
    if negative:
        return timedelta_new(0, -<int>total, -us)
    return timedelta_new(0, <int>total, us)


cdef object joined_labels(tuple labels, uint64_t bits):
    """Return the labels of a SET; None when a bit has none."""
    cdef Py_ssize_t count = len(labels)
    cdef Py_ssize_t i
    if count < 64 and bits >> count:
        return None
    return ",".join([labels[i] for i in range(min(count, 64)) if bits >> i & 1])
