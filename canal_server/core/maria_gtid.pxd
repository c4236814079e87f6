# cython: language_level=3
"""GTID sets of MariaDB; see maria_gtid.pyx."""

from libc.stdint cimport uint32_t, uint64_t

cdef struct Domain:
    uint32_t domain
    uint32_t server
    uint64_t sequence

cdef class MariaGtidSet:
    cdef Domain* domains    # by domain
    cdef uint32_t count
    cdef uint32_t capacity
    cdef const char* text   # valid after `render` until the next change
    cdef size_t text_n
    cdef char* memory
    cdef size_t memory_n
    cdef bint rendered

    # Sets where a domain stands, whatever it was. -1 when there is no memory.
    cdef int update_c(self, uint32_t domain, uint32_t server,
                      uint64_t sequence) noexcept nogil
    # Brings `text` and `text_n` up to date; -1 when there is no memory.
    cdef int render(self) noexcept nogil

    cdef uint32_t place_of(self, uint32_t domain) noexcept nogil
    cdef bint reaches(self, const Domain* one) noexcept nogil
