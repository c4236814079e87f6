# cython: language_level=3
"""Topics and partitions of tables, and the hashes that choose a partition."""

from libc.stdint cimport int32_t, uint32_t

from canal_server.core.entry_wire cimport Slice

cdef enum:
    NO_HASH = 0             # how rows find their partition: all to one
    HASH_TABLE = 1          # by the name of the table
    HASH_KEY = 2            # by the values of the primary key
    HASH_COLUMNS = 3        # by the values of named columns


cdef class Route:
    cdef readonly str topic
    cdef readonly uint32_t partitions
    cdef readonly int mode
    cdef readonly uint32_t partition
    cdef readonly tuple columns
    cdef int32_t begin      # the hash before any value

    # Whether HASH_COLUMNS names this column, in any case.
    cdef bint names(self, Slice column) except -1


cdef class Routes:
    cdef object route_of
    cdef dict known
    cdef Route find(self, Slice schema, Slice table)


cdef int32_t java_hash(Slice text) noexcept nogil   # of UTF-8, which callers check
cdef uint32_t partition_of(int32_t hashed, uint32_t count) noexcept nogil
