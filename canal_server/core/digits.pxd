# cython: language_level=3
"""Decimal text of integers. All inlined, none with a terminator.

Writers return a pointer past the text; a number below 2^64 has up to 20 digits.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef inline uint8_t* put_pair(uint8_t* p, uint32_t v) noexcept nogil:
    """Write v < 100 as two digits."""
    # A table of pairs halves the divisions: faster, benchmark `inserts`.
    cdef const char* pairs = (
        b"00010203040506070809101112131415161718192021222324"
        b"25262728293031323334353637383940414243444546474849"
        b"50515253545556575859606162636465666768697071727374"
        b"75767778798081828384858687888990919293949596979899"
    )
    p[0] = <uint8_t>pairs[2 * v]
    p[1] = <uint8_t>pairs[2 * v + 1]
    return p + 2


cdef inline uint8_t* put_u32(uint8_t* p, uint32_t v) noexcept nogil:
    """Write a number below 2^32: at most 10 digits."""
    cdef uint32_t rest
    cdef uint8_t* end
    if v < 100:
        if v < 10:
            p[0] = <uint8_t>(48 + v)
            return p + 1
        return put_pair(p, v)
    if v < 10000:
        end = p + (3 if v < 1000 else 4)
    elif v < 1000000:
        end = p + (5 if v < 100000 else 6)
    elif v < 100000000:
        end = p + (7 if v < 10000000 else 8)
    else:
        end = p + (9 if v < 1000000000 else 10)
    p = end
    while v >= 100:
        rest = v // 100
        p -= 2
        put_pair(p, v - rest * 100)
        v = rest
    if v >= 10:
        put_pair(p - 2, v)
    else:
        p[-1] = <uint8_t>(48 + v)
    return end


cdef inline uint8_t* put_fixed(uint8_t* p, uint32_t v, int digits) noexcept nogil:
    """Write the last `digits` <= 9 digits of v, leading zeros kept."""
    cdef int i
    for i in range(digits - 1, -1, -1):
        p[i] = <uint8_t>(48 + v % 10)
        v //= 10
    return p + digits


cdef inline uint8_t* put_fixed8(uint8_t* p, uint32_t v) noexcept nogil:
    """Write v < 10^8 as eight digits."""
    cdef uint32_t high = v // 10000
    cdef uint32_t low = v - high * 10000
    put_pair(p, high // 100)
    put_pair(p + 2, high % 100)
    put_pair(p + 4, low // 100)
    put_pair(p + 6, low % 100)
    return p + 8


cdef inline uint8_t* put_u64(uint8_t* p, uint64_t v) noexcept nogil:
    """Write an unsigned number: at most 20 digits."""
    cdef uint64_t high
    if v < 0x100000000ULL:
        return put_u32(p, <uint32_t>v)
    high = v // 100000000
    if high >= 100000000:
        p = put_u32(p, <uint32_t>(high // 100000000))
        p = put_fixed8(p, <uint32_t>(high % 100000000))
    else:
        p = put_u32(p, <uint32_t>high)
    return put_fixed8(p, <uint32_t>(v - high * 100000000))


cdef inline uint8_t* put_i64(uint8_t* p, int64_t v) noexcept nogil:
    """Write a signed number: at most 19 digits and a sign."""
    if v < 0:
        p[0] = 45
        return put_u64(p + 1, 0 - <uint64_t>v)
    return put_u64(p, <uint64_t>v)
