# cython: language_level=3
"""Text of dates and times; see temporal_text.pyx.

Each writes at most 40 bytes and returns the end of them.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from canal_server.core.wire cimport Input
from canal_server.decoder.text.time_zone cimport ZoneC

cdef uint8_t* put_date(uint8_t* p, uint32_t year, uint32_t month,
                       uint32_t day) noexcept nogil
cdef uint8_t* put_fraction(uint8_t* p, uint64_t fraction, int stored,
                           int digits) noexcept nogil
cdef uint8_t* put_timestamp(uint8_t* p, uint32_t when,
                            const ZoneC* zone) noexcept nogil
cdef uint8_t* put_packed_datetime(uint8_t* p, uint64_t v) noexcept nogil
cdef uint8_t* put_hires_datetime(uint8_t* p, uint64_t v, int digits) noexcept nogil
cdef uint8_t* put_old_datetime(uint8_t* p, uint64_t v) noexcept nogil
cdef uint8_t* put_time2(uint8_t* p, Input* source, int digits) noexcept nogil
cdef uint8_t* put_old_time(uint8_t* p, uint32_t raw) noexcept nogil
cdef uint8_t* put_hires_time(uint8_t* p, uint64_t raw, int digits) noexcept nogil
cdef uint8_t* put_year(uint8_t* p, uint32_t raw) noexcept nogil
