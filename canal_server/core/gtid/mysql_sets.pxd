# cython: language_level=3
"""GTID sets of MySQL and MariaDB; see mysql_sets.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from canal_server.core.gtid.gtid_text cimport GtidText
from canal_server.core.gtid.mariadb_sets cimport MariaGtidSet

cdef enum:
    SID_BYTES = 16
    TAG_BYTES_MAX = 32

cdef struct Interval:
    int64_t start
    int64_t stop  # one past the last number

cdef struct Group:
    # The numbers of one server uuid and tag.
    uint8_t[SID_BYTES] sid
    uint8_t[TAG_BYTES_MAX] tag
    uint32_t tag_n
    Interval* intervals    # ascending, never touching
    uint32_t count
    uint32_t capacity
    size_t number_offset   # in the rendered text: of the last number
    int number_n           # and its digits; 0: it is single, without a first one

cdef class GtidSet(GtidText):
    cdef Group* groups      # by uuid, then tag
    cdef uint32_t capacity
    cdef uint32_t recent    # the group that grew last

    # Adds one number; one below 1 changes nothing. -1 when there is no memory, or
    # the tag is invalid.
    cdef int add_c(self, const uint8_t* sid, const uint8_t* tag, size_t tag_n,
                   int64_t gno) noexcept nogil

    # Adds start <= n < stop, all of them numbers; -1 as above.
    cdef int add_run(self, const uint8_t* sid, const uint8_t* tag, size_t tag_n,
                     int64_t start, int64_t stop) noexcept nogil

    cdef Group* group_of(self, const uint8_t* sid, const uint8_t* tag, size_t tag_n,
                         bint create) noexcept nogil
    cdef Group* new_group(self, uint32_t at, const uint8_t* sid, const uint8_t* tag,
                          size_t tag_n) noexcept nogil
    cdef int append_range(self, const uint8_t* sid, const uint8_t* tag, size_t tag_n,
                          int64_t start, int64_t stop) except -1
    cdef GtidSet sorted_up(self)
    cdef int sort_groups(self) except -1
    cdef int append_both(self, Group* one, Group* other) except -1
    cdef int append_without(self, Group* group, Group* other) except -1
