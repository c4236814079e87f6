# cython: language_level=3
"""Which of several tasks has a row, by the hash of its key; see arrow_keys.pyx."""

from libc.stdint cimport uint32_t, uint64_t

from canal_server.arrow.entry_shapes cimport Shape
from canal_server.core.entry_wire cimport Slice

cdef struct RowKeys:
    # Of the images of one row.
    uint64_t before   # hashes; where there is no such image, the other one's
    uint64_t after
    bint changed      # an update changes a column of the key

# MALFORMED for a row that cannot be read.
cdef int read_keys(Shape* shape, Slice row, RowKeys* keys) noexcept nogil
# The number of the part, of so many, to which a hash belongs.
cdef uint32_t part_of(uint64_t hashed, uint32_t count) noexcept nogil
