# cython: language_level=3
"""Reads GTID_TAGGED events, written in MySQL's serialization of fields.

    body      version, size, last field that may not be ignored; then fields
    field     number, value: 0 flags, 1 source uuid (16 numbers), 2 gno, 3 tag (length
              and bytes), 4 last committed, 5 sequence number, others not needed here
    number    as many bytes as the first has trailing one bits, plus one; little-endian
              after those bits and a zero bit. Signed numbers have the sign in bit 0.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from canal_server.core.wire cimport Input, need


cdef uint64_t take_number(Input* source) noexcept nogil:
    cdef const uint8_t* p = need(source, 1)
    cdef uint64_t value = 0
    cdef uint8_t first
    cdef int extra = 0
    cdef int i
    if p == NULL:
        return 0
    first = p[0]
    while extra < 8 and first >> extra & 1:
        extra += 1
    p = need(source, extra)
    if p == NULL:
        return 0
    for i in range(extra):
        value |= <uint64_t>p[i] << (8 * i)
    if extra >= 7:  # the first byte holds no bit of the value
        return value
    return value << (7 - extra) | first >> (extra + 1)


cdef uint64_t take_signed(Input* source) noexcept nogil:
    cdef uint64_t value = take_number(source)
    return value >> 1 if value & 1 == 0 else ~(value >> 1)


cdef bint is_tag(const uint8_t* p, size_t n) noexcept nogil:
    """Check whether the server allows all bytes: a-z, 0-9 and _."""
    cdef size_t i
    for i in range(n):
        if not (97 <= p[i] <= 122 or p[i] == 95 or (i and 48 <= p[i] <= 57)):
            return False
    return True


cdef int read_tagged(const uint8_t* body, size_t n, TaggedGtid* found) noexcept nogil:
    """Read the fields up to the sequence number; -1 if they violate the format."""
    cdef Input source
    cdef uint64_t field, size
    cdef const uint8_t* p
    cdef int i
    source.p = body
    source.end = body + n
    source.short = False
    memset(found, 0, sizeof(TaggedGtid))
    take_number(&source)
    take_number(&source)
    take_number(&source)
    while source.p < source.end:
        field = take_number(&source)
        if field == 0:
            take_number(&source)
        elif field == 1:
            for i in range(16):
                found.sid[i] = <uint8_t>take_number(&source)
        elif field == 2:
            found.number = take_signed(&source)
        elif field == 3:
            size = take_number(&source)
            if size > TAG_BYTES_MAX:
                return -1
            p = need(&source, size)
            if p != NULL:
                if not is_tag(p, size):
                    return -1
                memcpy(found.tag, p, size)
                found.tag_n = size
        elif field == 4:
            found.last_committed = take_signed(&source)
        elif field == 5:
            found.sequence_number = take_signed(&source)
            break
        else:
            break
        if source.short:
            return -1
    return 0 if found.number and not source.short else -1
