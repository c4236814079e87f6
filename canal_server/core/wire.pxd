# cython: language_level=3
"""Checked reading of binlog bytes and growing writing of protobuf bytes.

Every read goes through `need`, which knows where the input ends. Every write follows an
`ensure`, which knows where the memory ends. Both are inlined.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove


cdef struct Input:
    const uint8_t* p    # next byte to read
    const uint8_t* end  # one past the last byte
    bint short          # a read went past the end; all later reads fail as well


cdef struct Output:
    uint8_t* start  # first byte of the unfinished record
    uint8_t* p      # next byte to write
    uint8_t* end    # one past the last writable byte
    void* owner     # of the memory
    # Moves the unfinished record to where `room` more bytes fit and sets start, p
    # and end; -1 when there is no memory. Pointers into the record become invalid:
    # keep offsets from `start` across a call that may grow.
    int (*grow)(Output* out, size_t room) noexcept nogil


cdef inline const uint8_t* need(Input* source, size_t n) noexcept nogil:
    """Consume n bytes; NULL (and `short` set) when the input has fewer."""
    cdef const uint8_t* p = source.p
    if <size_t>(source.end - p) < n:
        source.short = True
        source.p = source.end
        return NULL
    source.p = p + n
    return p


cdef inline uint64_t take_le(Input* source, int n) noexcept nogil:
    """Read an unsigned little-endian number of n <= 8 bytes; 0 when short."""
    cdef const uint8_t* p = need(source, n)
    cdef uint64_t value = 0
    cdef int i
    if p == NULL:
        return 0
    for i in range(n):
        value |= <uint64_t>p[i] << (8 * i)
    return value


cdef inline uint64_t take_be(Input* source, int n) noexcept nogil:
    """Read an unsigned big-endian number of n <= 8 bytes; 0 when short."""
    cdef const uint8_t* p = need(source, n)
    cdef uint64_t value = 0
    cdef int i
    if p == NULL:
        return 0
    for i in range(n):
        value = value << 8 | p[i]
    return value


cdef inline uint64_t take_packed(Input* source) noexcept nogil:
    """Read a length-encoded integer of MySQL; 0 when short or NULL (251)."""
    cdef const uint8_t* p = need(source, 1)
    if p == NULL:
        return 0
    if p[0] < 251:
        return p[0]
    if p[0] == 252:
        return take_le(source, 2)
    if p[0] == 253:
        return take_le(source, 3)
    if p[0] == 254:
        return take_le(source, 8)
    source.short = True
    return 0


cdef inline int ensure(Output* out, size_t n) noexcept nogil:
    """Make room for n more bytes; -1 when there is no memory."""
    if <size_t>(out.end - out.p) >= n:
        return 0
    return out.grow(out, n)


cdef inline int varint_size(uint64_t value) noexcept nogil:
    """Return the bytes of a varint."""
    cdef int n = 1
    while value > 127:
        value >>= 7
        n += 1
    return n


cdef inline uint8_t* put_varint(uint8_t* p, uint64_t value) noexcept nogil:
    """Write a varint (at most 10 bytes); returns a pointer past it."""
    while value > 127:
        p[0] = <uint8_t>(value & 127 | 128)
        value >>= 7
        p += 1
    p[0] = <uint8_t>value
    return p + 1


cdef inline uint8_t* put_short(uint8_t* p, const void* data, size_t n) noexcept nogil:
    """Write n bytes, inlined for up to 32; returns a pointer past them.

    Two moves of one size, which may overlap, replace a call.
    """
    cdef const uint8_t* d = <const uint8_t*>data
    if n > 32:
        memcpy(p, d, n)
    elif n >= 16:
        memcpy(p, d, 16)
        memcpy(p + n - 16, d + n - 16, 16)
    elif n >= 8:
        memcpy(p, d, 8)
        memcpy(p + n - 8, d + n - 8, 8)
    elif n >= 4:
        memcpy(p, d, 4)
        memcpy(p + n - 4, d + n - 4, 4)
    elif n:
        p[0] = d[0]
        p[n >> 1] = d[n >> 1]
        p[n - 1] = d[n - 1]
    return p + n


cdef inline uint8_t* put_bytes(uint8_t* p, const void* data, size_t n) noexcept nogil:
    """Write n bytes; returns a pointer past them. Without any, data may be NULL."""
    if n:
        memcpy(p, data, n)
    return p + n
