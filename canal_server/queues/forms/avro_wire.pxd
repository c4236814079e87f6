# cython: language_level=3
"""Values in Avro's binary encoding. All inlined."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from canal_server.core.json_text cimport Text, reserve

cdef enum:
    LONG_BYTES_MAX = 10


cdef inline void put_long(Text* out, int64_t value) noexcept nogil:
    """Append an int or a long: zigzag, seven bits in each byte, the lowest first."""
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    if not reserve(out, LONG_BYTES_MAX):
        return
    while rest > 127:
        out.p[out.n] = <uint8_t>(rest | 128)
        out.n += 1
        rest >>= 7
    out.p[out.n] = <uint8_t>rest
    out.n += 1


cdef inline void put_octets(Text* out, const void* p, size_t n) noexcept nogil:
    """Append bytes or a string: their number, and what they are."""
    if not reserve(out, n + LONG_BYTES_MAX):
        return
    put_long(out, <int64_t>n)
    if n:
        memcpy(out.p + out.n, p, n)
        out.n += n


cdef inline void put_floats(Text* out, const void* p, size_t n) noexcept nogil:
    """Append n bytes of floating-point numbers, as they are on the machines served."""
    if reserve(out, n):
        memcpy(out.p + out.n, p, n)
        out.n += n


cdef inline size_t put_choice(Text* out, uint8_t which) noexcept nogil:
    """Append which type of a union follows, one of the first 64; returns where."""
    if not reserve(out, 1):
        return 0
    out.p[out.n] = 2 * which
    out.n += 1
    return out.n - 1
