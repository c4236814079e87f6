# cython: language_level=3
"""Text of MySQL's character sets as UTF-8; see charset_text.pyx."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from canal_server.core.wire cimport Output

cdef enum CharsetKind:
    CHARSET_BINARY = 0   # a byte is the code point of the same number
    CHARSET_UTF8
    CHARSET_BYTES        # one byte per character, by table
    CHARSET_MULTIBYTE    # one or two bytes, three with prefix 0x8F, four in GB 18030
    CHARSET_UTF16
    CHARSET_UTF16LE
    CHARSET_UCS2
    CHARSET_UTF32

cdef struct CharsetC:
    int kind             # CharsetKind
    bint ascii           # a byte below 0x80 at the start of a character is ASCII
    # UTF-8 of the characters of one byte: up to 3 bytes, the first one lowest, and
    # their number in the top byte; 0 where more bytes follow.
    uint32_t[256] singles
    const uint16_t* pairs    # code point by both bytes, 0: undefined
    const uint16_t* triples  # the same after 0x8F; NULL: none
    const uint16_t* fours    # GB 18030, the first FOURS_COUNT; NULL: none

cdef class Charset:
    cdef CharsetC c
    cdef readonly str name
    cdef object tables   # owns the memory of pairs, triples, fours

cdef int put_text(Output* out, const uint8_t* p, size_t n,
                  const CharsetC* cs) noexcept nogil
cdef int grow_heap(Output* out, size_t room) noexcept nogil
cdef int put_utf8(Output* out, const uint8_t* p, size_t n) noexcept nogil
# The length of the valid sequence at p (n >= 1 bytes), or minus the bytes to skip.
cdef int utf8_sequence(const uint8_t* p, size_t n) noexcept nogil
cdef size_t valid_utf8(const uint8_t* p, size_t n) noexcept nogil


cdef inline bint is_ascii(const uint8_t* p, size_t n) noexcept nogil:
    """Check whether no byte is above 0x7F."""
    cdef uint64_t word
    cdef uint64_t seen = 0
    cdef size_t i = 0
    while i + 8 <= n:
        memcpy(&word, p + i, 8)
        seen |= word
        i += 8
    if i < n:
        if n >= 8:  # the last eight again: faster than one by one
            memcpy(&word, p + n - 8, 8)
            seen |= word
        else:
            while i < n:
                seen |= p[i]
                i += 1
    return (seen & 0x8080808080808080ULL) == 0


cdef inline bint is_plain_ascii(const uint8_t* p, size_t n,
                                const CharsetC* cs) noexcept nogil:
    """Check whether the bytes are the same text in this character set and in ASCII."""
    return cs.ascii and is_ascii(p, n)


cdef inline uint8_t* put_char(uint8_t* p, uint32_t c) noexcept nogil:
    """Write a code point, U+FFFD for an invalid one; at most 4 bytes."""
    if c < 0x80:
        p[0] = <uint8_t>c
        return p + 1
    if c < 0x800:
        p[0] = <uint8_t>(0xC0 | c >> 6)
        p[1] = <uint8_t>(0x80 | c & 0x3F)
        return p + 2
    if c > 0x10FFFF or 0xD800 <= c < 0xE000:
        c = 0xFFFD
    if c < 0x10000:
        p[0] = <uint8_t>(0xE0 | c >> 12)
        p[1] = <uint8_t>(0x80 | c >> 6 & 0x3F)
        p[2] = <uint8_t>(0x80 | c & 0x3F)
        return p + 3
    p[0] = <uint8_t>(0xF0 | c >> 18)
    p[1] = <uint8_t>(0x80 | c >> 12 & 0x3F)
    p[2] = <uint8_t>(0x80 | c >> 6 & 0x3F)
    p[3] = <uint8_t>(0x80 | c & 0x3F)
    return p + 4
