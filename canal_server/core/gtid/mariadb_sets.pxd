# cython: language_level=3
"""GTID sets of MariaDB; see mariadb_sets.pyx."""

from libc.stdint cimport uint32_t, uint64_t

from canal_server.core.gtid.gtid_text cimport GtidText

cdef struct Domain:
    uint32_t domain
    uint32_t server
    uint64_t sequence

cdef class MariaGtidSet(GtidText):
    cdef Domain* domains    # by domain
    cdef uint32_t capacity

    # Sets a domain's position, whatever it was. -1 when there is no memory.
    cdef int update_c(self, uint32_t domain, uint32_t server,
                      uint64_t sequence) noexcept nogil
    cdef uint32_t index_of(self, uint32_t domain) noexcept nogil
    cdef bint reaches(self, const Domain* one) noexcept nogil
