# cython: language_level=3
"""GTID events with a tag (MySQL 8.3 and later); see gtid_tagged.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    TAG_BYTES_MAX = 32

cdef struct TaggedGtid:
    uint8_t[16] sid
    uint8_t[32] tag
    size_t tag_n
    uint64_t number
    uint64_t last_committed
    uint64_t sequence_number

cdef int read_tagged(const uint8_t* body, size_t n, TaggedGtid* found) noexcept nogil
