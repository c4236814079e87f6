# cython: language_level=3
"""Text of UUIDs. Inlined, without a terminator."""

from libc.stdint cimport uint8_t


cdef inline uint8_t* put_uuid(uint8_t* p, const uint8_t* raw) noexcept nogil:
    """Write 16 bytes as 36 characters; returns a pointer past them."""
    cdef const char* digits = b"0123456789abcdef"
    cdef int i
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            p[0] = 45
            p += 1
        p[0] = <uint8_t>digits[raw[i] >> 4]
        p[1] = <uint8_t>digits[raw[i] & 15]
        p += 2
    return p
