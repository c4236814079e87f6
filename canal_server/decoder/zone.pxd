# cython: language_level=3
"""Offset of this process's time zone; see zone.pyx."""

from libc.stdint cimport int64_t

cdef int64_t zone_offset(int64_t when) noexcept nogil
