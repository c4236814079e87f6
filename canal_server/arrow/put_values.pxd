# cython: language_level=3
"""Appends a column's value to a column of Arrow of its kind."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from canal_server.arrow.column_buffers cimport ArrowColumn, Layout
from canal_server.arrow.entry_shapes cimport ColumnText
from canal_server.core.entry_wire cimport Slice

cdef enum:
    KIND_I8 = 1
    KIND_I16
    KIND_I32
    KIND_I64
    KIND_U8
    KIND_U16
    KIND_U32
    KIND_BITS         # the 64 bits of an unsigned number; the last of the integers
    KIND_DECIMAL      # 128 bits; a: precision, b: scale
    KIND_WIDE         # text of a decimal; b: scale
    KIND_FLOAT
    KIND_DOUBLE
    KIND_DATE         # days since 1970
    KIND_DATETIME     # microseconds, no zone
    KIND_TIMESTAMP    # microseconds, UTC
    KIND_TEXT
    KIND_BINARY

cdef struct Field:
    int kind
    int a
    int b
    bint missing      # the table has no such column

cdef struct Zone:
    # For texts of TIMESTAMP: pairs of a local second and the seconds east of UTC from
    # then on. Without pairs: UTC.
    int64_t* steps
    size_t count
    bint zero_is_null

cdef Layout layout_of_kind(int kind) noexcept
cdef uint32_t width_of_kind(int kind) noexcept
# BAD_VALUE for a text that is not a value of the kind. Up to `end` may be read.
cdef int put_value(ArrowColumn* column, const Field* field, const ColumnText* text,
                   Slice value, const uint8_t* end, const Zone* zone) noexcept nogil
