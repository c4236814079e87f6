# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Converts the text of a JSON document in a SELECT to the text in entries.

Both have the same layout. They differ in numbers with a fraction or an exponent, which
entries write as Java does, and in the escapes of control characters (`json_text`).

SELECT writes a DOUBLE and a DECIMAL in a document in the same way, entries do not:
1.00000005E7 and 10000000.5. A number is treated as a DECIMAL only if no DOUBLE has this
text: with more than 17 digits, with trailing zeros, or with so many digits before the
point, or zeros after it, that a DOUBLE would have an exponent. Only SQL functions put
DECIMALs into documents; numbers in a JSON text become DOUBLEs.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free

from canal_server.core.wire cimport Output, ensure, put_bytes
from canal_server.arrow.text_values cimport read_double
from canal_server.decoder.text.charset_text cimport grow_heap, put_char
from canal_server.decoder.text.json_text cimport JSON_MALFORMED, finished
from canal_server.decoder.text.number_text cimport FLOAT_TEXT_MAX, put_double

cdef enum:
    DOUBLE_DIGITS_MAX = 17  # that the server writes
    DOUBLE_WHOLE_MAX = 16   # digits before the point without an exponent,
    DOUBLE_ZEROS_MAX = 14   # and zeros after it
    NUMBER_BYTES_MAX = 400
    GROUP = 9               # digits in a group of the binary form of a DECIMAL
    STEP_ROOM = 16          # most bytes that one step in a string writes


cdef bint is_styled(const uint8_t* p, size_t n) noexcept nogil:
    cdef bint inside = False  # inside a string
    cdef size_t i = 0
    while i < n:
        if p[i] == 34:
            inside = not inside
        elif p[i] == 92 and inside:
            i += 1
            if i == n or p[i] in (98, 102, 117, 47):  # b, f, u, /
                return False
        elif p[i] == 0x7F or (p[i] == 0xC2 and i + 1 < n and p[i + 1] <= 0xA0):
            return False
        elif p[i] == 46 and not inside:
            return False
        elif p[i] in (101, 69) and not inside and i and 48 <= p[i - 1] <= 57:
            return False
        i += 1
    return True


cdef int put_restyled(Output* out, const uint8_t* p, size_t n) noexcept nogil:
    cdef size_t i = 0
    cdef size_t end
    cdef int status = 0
    while i < n and status == 0:
        end = i + 1
        if p[i] == 34:
            while end < n and p[end] != 34:
                end += 2 if p[end] == 92 else 1
            if end >= n:
                return JSON_MALFORMED
            end += 1
            status = put_string(out, p + i, end - i)
        elif p[i] == 45 or 48 <= p[i] <= 57:
            while end < n and (48 <= p[end] <= 57 or p[end] in (43, 45, 46, 69, 101)):
                end += 1
            status = put_number(out, p + i, end - i)
        else:
            status = ensure(out, 1)
            if status == 0:
                out.p[0] = p[i]
                out.p += 1
        i = end
    return status


# --- strings ----------------------------------------------------------------------

cdef int put_string(Output* out, const uint8_t* p, size_t n) noexcept nogil:
    """Write a string, given with its quotes."""
    cdef size_t i = 0
    cdef size_t start
    cdef uint32_t code
    while i < n:
        start = i
        while i < n and p[i] not in (92, 0x7F, 0xC2):
            i += 1
        if ensure(out, i - start + STEP_ROOM) != 0:
            return -1
        out.p = put_bytes(out.p, p + start, i - start)
        if i == n:
            return 0
        if p[i] == 0x7F:
            put_control(out, 0x7F)
            i += 1
        elif p[i] == 0xC2:
            if i + 1 < n and 0x80 <= p[i + 1] <= 0xA0:
                put_control(out, p[i + 1])
            else:
                out.p = put_bytes(out.p, p + i, 2 if i + 1 < n else 1)
            i += 2
        elif p[i + 1] == 117:  # \u; the closing quote follows
            if not read_hex(p + i + 2, n - i - 2, &code):
                return JSON_MALFORMED
            put_code(out, code)
            i += 6
        else:
            if p[i + 1] == 98:
                put_control(out, 8)
            elif p[i + 1] == 102:
                put_control(out, 12)
            elif p[i + 1] == 47:
                out.p = put_bytes(out.p, b"/", 1)
            else:
                out.p = put_bytes(out.p, p + i, 2)
            i += 2
    return 0


cdef bint read_hex(const uint8_t* p, size_t n, uint32_t* code) noexcept nogil:
    cdef uint32_t value = 0
    cdef uint32_t digit
    cdef int i
    if n < 4:
        return False
    for i in range(4):
        digit = p[i]
        if 48 <= digit <= 57:
            digit -= 48
        elif 97 <= digit | 32 <= 102:
            digit = (digit | 32) - 87
        else:
            return False
        value = value << 4 | digit
    code[0] = value
    return True


cdef void put_code(Output* out, uint32_t code) noexcept nogil:
    """Write a character that was escaped by its code."""
    if code < 0x20 or 0x7F <= code <= 0xA0:
        put_control(out, code)
    elif code == 34 or code == 92:
        out.p[0] = 92
        out.p[1] = <uint8_t>code
        out.p += 2
    else:
        out.p = put_char(out.p, code)


cdef void put_control(Output* out, uint32_t code) noexcept nogil:
    cdef const char* digits = b"0123456789abcdef"
    if code == 10 or code == 13 or code == 9:
        out.p = put_bytes(out.p, b"\\n" if code == 10 else (
            b"\\r" if code == 13 else b"\\t"), 2)
        return
    out.p = put_bytes(out.p, b"\\u00", 4)
    out.p[0] = digits[code >> 4 & 15]
    out.p[1] = digits[code & 15]
    out.p += 2


# --- numbers ----------------------------------------------------------------------

cdef int put_number(Output* out, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint8_t[NUMBER_BYTES_MAX] text
    cdef double value
    cdef size_t point = n
    cdef size_t digits = 0
    cdef size_t zeros = 0  # after the point, before the digits
    cdef size_t length = 0  # of the text without `+`
    cdef size_t i
    cdef bint has_exponent = False
    if n > NUMBER_BYTES_MAX:
        return JSON_MALFORMED
    for i in range(n):
        if p[i] == 43:
            continue
        text[length] = p[i]
        if p[i] == 46:
            point = i
        elif p[i] == 101 or p[i] == 69:
            text[length] = 69
            has_exponent = True
        elif digits or 49 <= p[i] <= 57:
            digits += 1
        elif point < n:
            zeros += 1
        length += 1
    if ensure(out, n + FLOAT_TEXT_MAX) != 0:
        return -1
    if point == n and not has_exponent:
        out.p = put_bytes(out.p, p, n)
        return 0
    if not has_exponent and (digits > DOUBLE_DIGITS_MAX + (p[n - 1] == 48)
                             or point - (p[0] == 45) > DOUBLE_WHOLE_MAX
                             or zeros > DOUBLE_ZEROS_MAX
                             or (p[n - 1] == 48 and point < n - 2)):
        put_decimal(out, p, n, point)
        return 0
    if not read_double(text, length, &value):
        return JSON_MALFORMED
    out.p += put_double(out.p, value)
    return 0


cdef void put_decimal(Output* out, const uint8_t* p, size_t n,
                      size_t point) noexcept nogil:
    """Write a DECIMAL, without the last group of its fraction if that is zero."""
    cdef size_t scale = n - point - 1
    cdef size_t last = scale % GROUP
    cdef size_t i
    for i in range(last):
        if p[n - 1 - i] != 48:
            last = 0
            break
    n -= last
    out.p = put_bytes(out.p, p, n)
    if last and last == scale:
        out.p = put_bytes(out.p, b"0", 1)


# --- for tests --------------------------------------------------------------------

def restyled(const uint8_t[::1] text):
    """Return the text in the form of entries; ValueError if it is not JSON."""
    cdef Output out
    cdef const uint8_t* p = &text[0] if len(text) else NULL
    out.start = out.p = out.end = NULL
    out.grow = grow_heap
    if is_styled(p, len(text)):
        return bytes(text).decode()
    try:
        return finished(&out, put_restyled(&out, p, len(text)))
    finally:
        free(out.start)
