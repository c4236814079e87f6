# cython: language_level=3
"""The GTID fields in the headers of entries; see gtid_headers.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from canal_server.core.gtid.mysql_sets cimport GtidSet
from canal_server.core.gtid.mariadb_sets cimport MariaGtidSet
from canal_server.decoder.rows.event_constants cimport Event
from canal_server.decoder.rows.row_layout cimport Piece

cdef class GtidHeaders:
    cdef GtidSet mysql
    cdef MariaGtidSet maria
    cdef Piece props        # header field 12: curtGtid and its companions
    cdef Piece field        # header field 13: the executed set
    cdef uint8_t[320] props_memory
    cdef uint8_t* field_memory
    cdef uint32_t capacity

    cdef void clear(self) noexcept nogil
    # Each returns 0, -1 for a broken event, -2 without memory.
    cdef int enter(self, const Event* event) noexcept nogil
    cdef int enter_tagged(self, const Event* event) noexcept nogil
    cdef int enter_maria(self, const Event* event) noexcept nogil
    cdef int enter_number(self, const uint8_t* sid, const uint8_t* tag, size_t tag_n,
                          uint64_t gno, uint64_t committed,
                          uint64_t number) noexcept nogil
    cdef int set_field(self, const char* text, size_t n) noexcept nogil
