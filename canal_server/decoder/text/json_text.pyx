# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Text of MySQL's binary JSON. Partial updates are in `json_diff`.

The layout is canal's: `{"k": v}`, `[a, b]`, floating point as in Java, control
characters as \\u00xx up to U+00A0. Temporal values have six fraction digits, values
without a JSON type are `"base64:typeN:…"`, both as MySQL displays them.

Offsets in the bytes may have any value. Each is checked against the bounds of the
enclosing value, nesting is limited as in MySQL, and the bytes visited, repetitions
included, are limited to a small multiple of the input.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from canal_server.core.digits cimport put_fixed, put_i64, put_pair, put_u32, put_u64
from canal_server.core.wire cimport Output, ensure, put_bytes
from canal_server.decoder.text.charset_text cimport grow_heap, utf8_sequence
from canal_server.decoder.text.number_text cimport (
    put_decimal,
    put_double,
    stored_decimal_size,
)

cdef enum:
    SMALL_OBJECT = 0
    LARGE_OBJECT = 1
    SMALL_ARRAY = 2
    LARGE_ARRAY = 3
    LITERAL = 4
    INT16 = 5
    UINT16 = 6
    INT32 = 7
    UINT32 = 8
    INT64 = 9
    UINT64 = 10
    DOUBLE = 11
    STRING = 12
    OPAQUE = 15

    # Types of opaque values, as in table maps.
    TIMESTAMP = 7
    DATE = 10
    TIME = 11
    DATETIME = 12
    NEWDECIMAL = 246

    DEPTH_MAX = 100
    # Visited bytes per input byte; a value written by MySQL needs 1.
    VISITS_MAX = 8
    SCALAR_TEXT_MAX = 96
    BASE64_LINE_BYTES = 57  # give the 76 characters of MySQL's lines

cdef struct Walk:
    Output* out
    size_t visits  # bytes that may still be visited

cdef uint8_t[256] escaped  # bytes that a string must escape

for _byte in range(256):
    escaped[_byte] = _byte < 0x20 or _byte >= 0x7F or _byte in b'"\\'


cdef inline uint32_t read_size(const uint8_t* p, bint large) noexcept nogil:
    """Read a number of two or, in the large format, four bytes."""
    if large:
        return p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24
    return p[0] | <uint32_t>p[1] << 8


cdef inline uint64_t read_8(const uint8_t* p) noexcept nogil:
    return read_size(p, True) | <uint64_t>read_size(p + 4, True) << 32


cdef int read_length(const uint8_t* p, size_t n, size_t* length) noexcept nogil:
    """Read a length of 7 bits per byte; returns its size, 0 if it does not fit in n.

    The bytes that it counts fit as well.
    """
    cdef uint64_t value = 0
    cdef int i
    for i in range(5):
        if <size_t>i == n:
            return 0
        value |= <uint64_t>(p[i] & 0x7F) << (7 * i)
        if p[i] < 0x80:
            length[0] = <size_t>value
            return i + 1 if value <= n - i - 1 else 0
    return 0


cdef int put_quoted(Output* out, const uint8_t* p, size_t n) noexcept nogil:
    """Write a JSON string; -1 without memory."""
    cdef size_t i = 0
    cdef int step
    if ensure(out, n + 2) != 0:
        return -1
    out.p[0] = 34
    out.p += 1
    while True:
        while i < n and not escaped[p[i]]:
            i += 1
        if i < n and p[i] >= 0x80:
            step = utf8_sequence(p + i, n - i)
            if step > 0 and not (p[i] == 0xC2 and p[i + 1] <= 0xA0):
                i += step
                continue
        # A plain run ends here: at the end or at a byte to escape.
        if ensure(out, i + 8) != 0:
            return -1
        out.p = put_bytes(out.p, p, i)
        if i == n:
            out.p[0] = 34
            out.p += 1
            return 0
        p += i
        n -= i
        step = put_escape(out, p, n)
        p += step
        n -= step
        i = 0


cdef int put_escape(Output* out, const uint8_t* p, size_t n) noexcept nogil:
    """Write an escape of at most 8 bytes; returns the input bytes that it replaces."""
    cdef const char* digits = b"0123456789abcdef"
    cdef uint8_t byte = p[0]
    cdef uint8_t short = 0
    cdef int consumed = 1
    if byte >= 0x80:
        consumed = utf8_sequence(p, n)
        if consumed < 0:
            out.p = put_bytes(out.p, b"\xef\xbf\xbd", 3)
            return -consumed
        byte = p[1]  # of U+0080 to U+00A0
    elif byte == 34 or byte == 92:
        short = byte
    elif byte == 10:
        short = 110
    elif byte == 13:
        short = 114
    elif byte == 9:
        short = 116
    if short:
        out.p[0] = 92
        out.p[1] = short
        out.p += 2
        return 1
    out.p = put_bytes(out.p, b"\\u00", 4)
    out.p[0] = digits[byte >> 4]
    out.p[1] = digits[byte & 15]
    out.p += 2
    return consumed


cdef int put_text(Output* out, const char* text, size_t n) noexcept nogil:
    """Write n ASCII characters; -1 without memory."""
    if ensure(out, n) != 0:
        return -1
    out.p = put_bytes(out.p, text, n)
    return 0


cdef int put_literal(Output* out, uint8_t value) noexcept nogil:
    if value == 0:
        return put_text(out, b"null", 4)
    if value == 1:
        return put_text(out, b"true", 4)
    if value == 2:
        return put_text(out, b"false", 5)
    return JSON_MALFORMED


cdef int scalar_size(int kind) noexcept nogil:
    """Size of a literal or number, 0 for other types."""
    if kind == LITERAL:
        return 1
    if kind == INT16 or kind == UINT16:
        return 2
    if kind == INT32 or kind == UINT32:
        return 4
    return 8 if kind == INT64 or kind == UINT64 or kind == DOUBLE else 0


cdef int put_scalar(Output* out, int kind, const uint8_t* p) noexcept nogil:
    """Write a literal or number, whose bytes are complete."""
    cdef uint64_t bits
    cdef double real
    if kind == LITERAL:
        return put_literal(out, p[0])
    if ensure(out, SCALAR_TEXT_MAX) != 0:
        return -1
    if kind == INT16:
        out.p = put_i64(out.p, <int16_t>read_size(p, False))
    elif kind == UINT16:
        out.p = put_u64(out.p, read_size(p, False))
    elif kind == INT32:
        out.p = put_i64(out.p, <int32_t>read_size(p, True))
    elif kind == UINT32:
        out.p = put_u64(out.p, read_size(p, True))
    elif kind == INT64:
        out.p = put_i64(out.p, <int64_t>read_8(p))
    elif kind == UINT64:
        out.p = put_u64(out.p, read_8(p))
    else:
        bits = read_8(p)
        memcpy(&real, &bits, 8)
        out.p += put_double(out.p, real)
    return 0


cdef uint8_t* put_clock(uint8_t* p, uint64_t hours, uint32_t rest,
                        uint32_t micros) noexcept nogil:
    """Write hh:mm:ss.ffffff; `rest` has minutes and seconds of 6 bits each."""
    p = put_pair(p, <uint32_t>hours) if hours < 100 else put_u64(p, hours)
    p[0] = 58
    p = put_pair(p + 1, rest >> 6 & 63)
    p[0] = 58
    p = put_pair(p + 1, rest & 63)
    p[0] = 46
    return put_fixed(p + 1, micros, 6)


cdef int put_temporal(Output* out, int kind, const uint8_t* p) noexcept nogil:
    """Write a packed DATE, DATETIME, TIMESTAMP or TIME of 8 bytes, quoted."""
    cdef uint64_t packed = read_8(p)
    cdef bint negative = packed >> 63
    cdef uint32_t months
    cdef uint8_t* q
    if negative:
        packed = 0 - packed
    if ensure(out, SCALAR_TEXT_MAX) != 0:
        return -1
    q = out.p
    q[0] = 34
    q += 1
    if kind == TIME:
        if negative:
            q[0] = 45
            q += 1
        q = put_clock(q, packed >> 36 & 0x3FF, packed >> 24 & 0xFFF, packed & 0xFFFFFF)
    else:
        months = packed >> 46 & 0x1FFFF  # 13 per year: month 0 means no month
        q = put_fixed(q, months // 13, 4)
        q[0] = 45
        q = put_pair(q + 1, months % 13)
        q[0] = 45
        q = put_pair(q + 1, packed >> 41 & 31)
        if kind != DATE:
            q[0] = 32
            q = put_clock(q + 1, packed >> 36 & 31, packed >> 24 & 0xFFF,
                          packed & 0xFFFFFF)
    q[0] = 34
    out.p = q + 1
    return 0


cdef int put_base64(Output* out, int kind, const uint8_t* p, size_t n) noexcept nogil:
    """Write bytes of a type that JSON does not have in MySQL's form: in lines."""
    cdef const char* digits = (
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    )
    cdef uint32_t three
    cdef size_t i = 0
    cdef uint8_t* q
    if ensure(out, n // 3 * 4 + n // BASE64_LINE_BYTES * 2 + 32) != 0:
        return -1
    q = put_u32(put_bytes(out.p, b'"base64:type', 12), kind)
    q[0] = 58
    q += 1
    while n:
        if i == BASE64_LINE_BYTES:
            i = 0
            q = put_bytes(q, b"\\n", 2)
        i += 3
        three = <uint32_t>p[0] << 16
        if n > 1:
            three |= <uint32_t>p[1] << 8
        if n > 2:
            three |= p[2]
        q[0] = digits[three >> 18]
        q[1] = digits[three >> 12 & 63]
        q[2] = digits[three >> 6 & 63] if n > 1 else 61
        q[3] = digits[three & 63] if n > 2 else 61
        q += 4
        p += 3
        n = n - 3 if n > 3 else 0
    q[0] = 34
    out.p = q + 1
    return 0


cdef int put_opaque(Output* out, int kind, const uint8_t* p, size_t n) noexcept nogil:
    """Write a value of a type that JSON does not have."""
    cdef int size
    if kind == NEWDECIMAL:
        size = stored_decimal_size(p[0], p[1]) if n >= 2 else -1
        if size < 0 or <size_t>size != n - 2:
            return JSON_MALFORMED
        if ensure(out, SCALAR_TEXT_MAX) != 0:
            return -1
        out.p += put_decimal(out.p, p + 2, p[0], p[1])
        return 0
    if kind == DATE or kind == DATETIME or kind == TIMESTAMP or kind == TIME:
        return put_temporal(out, kind, p) if n == 8 else JSON_MALFORMED
    return put_base64(out, kind, p, n)


cdef inline bint look_at(Walk* walk, size_t n) noexcept nogil:
    """Count n more bytes; false if they exceed the limit."""
    if walk.visits < n:
        return False
    walk.visits -= n
    return True


cdef int put_value(Walk* walk, int kind, const uint8_t* p, size_t n,
                   int depth) noexcept nogil:
    """Write the value at p, which has at most n bytes."""
    cdef size_t length = scalar_size(kind)
    cdef int head
    if kind <= LARGE_ARRAY:
        return put_container(walk, kind, p, n, depth + 1)
    if length:
        if length > n or not look_at(walk, length):
            return JSON_MALFORMED
        return put_scalar(walk.out, kind, p)
    if kind == STRING:
        head = read_length(p, n, &length)
        if head == 0 or not look_at(walk, head + length):
            return JSON_MALFORMED
        return put_quoted(walk.out, p + head, length)
    if kind == OPAQUE and n:
        head = read_length(p + 1, n - 1, &length)
        if head == 0 or not look_at(walk, 1 + head + length):
            return JSON_MALFORMED
        return put_opaque(walk.out, p[0], p + 1 + head, length)
    return JSON_MALFORMED


cdef int put_container(Walk* walk, int kind, const uint8_t* p, size_t n,
                       int depth) noexcept nogil:
    """Write an object or array.

    Count and size, then per key its offset and length (2 bytes), then per value its
    type and offset, or the value itself if it is short; offsets count from p.
    """
    cdef bint large = kind & 1
    cdef bint is_object = kind <= LARGE_OBJECT
    cdef int width = 4 if large else 2
    cdef size_t count, size, head, at
    cdef const uint8_t* key = p + 2 * width
    cdef const uint8_t* value
    cdef int status, scalar
    cdef size_t i
    if depth > DEPTH_MAX or n < <size_t>(2 * width):
        return JSON_MALFORMED
    count = read_size(p, large)
    size = read_size(p + width, large)
    head = 2 * width + count * ((width + 2 if is_object else 0) + 1 + width)
    if size > n or head > size or not look_at(walk, head):
        return JSON_MALFORMED
    value = key + (count * (width + 2) if is_object else 0)
    if put_text(walk.out, b"{" if is_object else b"[", 1) != 0:
        return -1
    for i in range(count):
        if i and put_text(walk.out, b", ", 2) != 0:
            return -1
        if is_object:
            status = put_key(walk, p, size, key, width)
            if status != 0:
                return status
            key += width + 2
        scalar = scalar_size(value[0])
        if 0 < scalar <= width:
            status = put_scalar(walk.out, value[0], value + 1)
        else:
            at = read_size(value + 1, large)
            if at > size:
                return JSON_MALFORMED
            status = put_value(walk, value[0], p + at, size - at, depth)
        if status != 0:
            return status
        value += 1 + width
    return put_text(walk.out, b"}" if is_object else b"]", 1)


cdef int put_key(Walk* walk, const uint8_t* p, size_t size, const uint8_t* entry,
                 int width) noexcept nogil:
    """Write the key of an entry of the object at p."""
    cdef size_t at = read_size(entry, width == 4)
    cdef size_t n = read_size(entry + width, False)
    if at > size or n > size - at or not look_at(walk, n):
        return JSON_MALFORMED
    if put_quoted(walk.out, p + at, n) != 0:
        return -1
    return put_text(walk.out, b": ", 2)


cdef int put_document(Output* out, const uint8_t* p, size_t n) noexcept nogil:
    """Write a document; a malformed one leaves a partial output."""
    cdef Walk walk
    if n == 0:
        return put_text(out, b"null", 4)
    walk.out = out
    walk.visits = VISITS_MAX * n + 64
    return put_value(&walk, p[0], p + 1, n - 1, 0)


cdef int put_json(Output* out, const uint8_t* p, size_t n) noexcept nogil:
    """Write the text of a document of n bytes; 0 bytes are `null`."""
    cdef size_t before = out.p - out.start
    cdef int status = put_document(out, p, n)
    if status != 0:
        out.p = out.start + before
    return status


def json_text(const uint8_t[::1] value):
    """Return the text of a binary document; ValueError if it is malformed."""
    cdef Output out
    out.start = out.p = out.end = NULL
    out.grow = grow_heap
    try:
        return finished(&out, put_json(&out, &value[0] if len(value) else NULL,
                                       len(value)))
    finally:
        free(out.start)


cdef str finished(Output* out, int status):
    if status < 0:
        raise MemoryError("no memory for the text of a JSON value")
    if status:
        raise ValueError("malformed binary JSON")
    return out.start[:out.p - out.start].decode("utf-8") if out.p != out.start else ""
