# cython: language_level=3
"""Assigns rows to tasks by the hash of their keys; see key_hashes.pyx."""

from libc.stdint cimport uint32_t, uint64_t

from canal_server.arrow.entry_shapes cimport Shape
from canal_server.core.entry_wire cimport Slice

cdef struct RowKeys:
    # Of the images of one row.
    uint64_t before   # hashes; without such an image, that of the other one
    uint64_t after
    bint changed      # an update changes a column of the key

# MALFORMED for a row that cannot be read.
cdef int read_keys(Shape* shape, Slice row, RowKeys* keys) noexcept nogil
# The number of the part, out of `count`, of a hash.
cdef uint32_t part_of(uint64_t hashed, uint32_t count) noexcept nogil
