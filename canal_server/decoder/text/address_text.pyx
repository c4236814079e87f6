# cython: language_level=3
"""Text of MariaDB's INET4 and INET6, from their fixed bytes."""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from canal_server.core.digits cimport put_u64

cdef const char* HEX = b"0123456789abcdef"


cdef uint8_t* put_inet4(uint8_t* p, const uint8_t* raw) noexcept nogil:
    cdef int i
    for i in range(4):
        if i:
            p[0] = 46
            p += 1
        p = put_u64(p, raw[i])
    return p


cdef uint8_t* put_inet6(uint8_t* p, const uint8_t* raw) noexcept nogil:
    """Write the shortest form; like MariaDB, shorten even a single group of zeros."""
    cdef uint32_t[8] group
    cdef int i, k
    cdef int best = -1
    cdef int best_n = 0
    cdef int run = 0
    cdef int shift
    cdef bint some
    for i in range(8):
        group[i] = raw[2 * i] << 8 | raw[2 * i + 1]
        run = run + 1 if group[i] == 0 else 0
        if run > best_n:
            best, best_n = i - run + 1, run
    if best == 0 and (best_n == 6 or (best_n == 5 and group[5] == 0xFFFF)):
        memcpy(p, b"::ffff:", 7)
        return put_inet4(p + (2 if best_n == 6 else 7), raw + 12)
    i = 0
    while i < 8:
        if i == best:
            p[0] = p[1] = 58
            p += 2
            i += best_n
            continue
        if i and i != best + best_n:
            p[0] = 58
            p += 1
        some = False
        for k in range(4):
            shift = 12 - 4 * k
            if some or group[i] >> shift & 15 or k == 3:
                p[0] = <uint8_t>HEX[group[i] >> shift & 15]
                p += 1
                some = True
        i += 1
    return p
