# cython: language_level=3
"""Text of MariaDB's INET4 and INET6; see address_text.pyx."""

from libc.stdint cimport uint8_t

# Each writes at most 45 bytes and returns the end of them.
cdef uint8_t* put_inet4(uint8_t* p, const uint8_t* raw) noexcept nogil   # 4 bytes
cdef uint8_t* put_inet6(uint8_t* p, const uint8_t* raw) noexcept nogil   # 16 bytes
