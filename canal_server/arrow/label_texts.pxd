# cython: language_level=3
"""The labels of ENUM and SET columns; see label_texts.pyx."""

from libc.stdint cimport uint64_t

from canal_server.arrow.column_buffers cimport ArrowColumn
from canal_server.core.entry_wire cimport Slice

cdef struct Labels:
    Slice* labels
    size_t count

# Append the labels of a number in an entry; BAD_VALUE if it has none.
cdef int put_enum(ArrowColumn* column, const Labels* labels,
                  uint64_t number) noexcept nogil
cdef int put_set(ArrowColumn* column, const Labels* labels, uint64_t bits) noexcept nogil

cdef class ColumnLabels:
    cdef Labels labels
    cdef list texts       # owns what the labels point to
