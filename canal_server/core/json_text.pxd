# cython: language_level=3
"""Text of JSON that grows. All inlined; strings are UTF-8, which callers check."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from canal_server.core.digits cimport put_u64
from canal_server.core.entry_wire cimport Slice

cdef enum:
    NUMBER_BYTES_MAX = 24


cdef struct Text:
    # `failed` when there is no memory; then nothing more is written. `bad` is of callers,
    # for what is not UTF-8.
    uint8_t* p
    size_t n
    size_t room
    bint failed
    bint bad


cdef inline bint reserve(Text* text, size_t n) noexcept nogil:
    """Make room for n more bytes."""
    cdef size_t room = text.room
    cdef uint8_t* p
    if text.n + n <= room:
        return True
    while room < text.n + n:
        room = 2 * room + 4096
    p = <uint8_t*>realloc(text.p, room)
    if p == NULL:
        text.failed = True
        return False
    text.p, text.room = p, room
    return True


cdef inline void put(Text* text, const void* p, size_t n) noexcept nogil:
    """Append bytes as they are."""
    if n and reserve(text, n):
        memcpy(text.p + text.n, p, n)
        text.n += n


cdef inline void put_number(Text* text, int64_t value) noexcept nogil:
    cdef uint8_t* end
    if not reserve(text, NUMBER_BYTES_MAX):
        return
    if value < 0:
        text.p[text.n] = 45
        text.n += 1
        end = put_u64(text.p + text.n, -<uint64_t>value)
    else:
        end = put_u64(text.p + text.n, <uint64_t>value)
    text.n = end - text.p


cdef inline void put_string(Text* text, Slice value) noexcept nogil:
    """Append a string in quotes; characters beyond ASCII stay as they are."""
    cdef const char* hex_digits = b"0123456789abcdef"
    cdef const uint8_t* p = value.p
    cdef const uint8_t* stop = p + value.n
    cdef const uint8_t* clean = p
    cdef uint8_t* to
    cdef uint8_t c
    if not reserve(text, 6 * value.n + 2):
        return
    to = text.p + text.n
    to[0] = 34
    to += 1
    while p < stop:
        c = p[0]
        if c >= 32 and c != 34 and c != 92:
            p += 1
            continue
        memcpy(to, clean, p - clean)
        to += p - clean
        to[0] = 92
        if c == 34 or c == 92:
            to[1] = c
        elif c == 8:
            to[1] = 98
        elif c == 9:
            to[1] = 116
        elif c == 10:
            to[1] = 110
        elif c == 12:
            to[1] = 102
        elif c == 13:
            to[1] = 114
        else:
            to[1], to[2], to[3] = 117, 48, 48
            to[4], to[5] = hex_digits[c >> 4], hex_digits[c & 15]
            to += 4
        to += 2
        p += 1
        clean = p
    if p > clean:
        memcpy(to, clean, p - clean)
        to += p - clean
    to[0] = 34
    text.n = to + 1 - text.p
