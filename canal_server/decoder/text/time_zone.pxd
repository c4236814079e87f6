# cython: language_level=3
"""Offsets of time zones; see time_zone.pyx."""

from libc.stdint cimport int64_t, uint32_t

cdef struct ZoneChange:
    int64_t since   # seconds since 1970
    int64_t offset  # seconds east of UTC from then on

cdef struct ZoneC:
    ZoneChange* changes  # the first is since 0
    uint32_t n

cdef class Zone:
    cdef ZoneC c
    cdef int add(self, int64_t since, int64_t offset) except -1

# The zone of this process, always the same object.
cdef Zone local_zone()
# Seconds east of UTC at a moment from 1970 to 2106.
cdef int64_t zone_offset(const ZoneC* zone, int64_t when) noexcept nogil
