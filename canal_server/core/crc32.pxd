# cython: language_level=3
"""Checksum of binlog events; see crc32.pyx."""

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc32(const uint8_t* p, size_t n, uint32_t start) noexcept nogil
