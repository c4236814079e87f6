# cython: language_level=3
"""Columns of the rows of batches, as the encoders of messages read them."""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memset

from canal_server.core.entry_wire cimport Slice, input_of, skip_field, take_slice, take_varint
from canal_server.core.wire cimport Input

cdef enum:
    COLUMNS_MAX = 4096      # of a table, as in the servers


cdef struct Column:
    Slice name
    Slice value
    Slice mysql_type
    int32_t sql_type
    uint32_t index          # of the column in its table
    bint is_key
    bint is_null
    bint updated


cdef inline bint read_column(Slice field, Column* column) noexcept nogil:
    """Read a column; false if it is malformed."""
    cdef Input source = input_of(field)
    cdef uint64_t tag
    memset(column, 0, sizeof(Column))
    column.name.p = column.value.p = column.mysql_type.p = b""
    while source.p < source.end:
        tag = take_varint(&source)
        if tag == 0x08:
            column.index = <uint32_t>take_varint(&source)
        elif tag == 0x10:
            column.sql_type = <int32_t>take_varint(&source)
        elif tag == 0x1A:
            column.name = take_slice(&source)
        elif tag == 0x20:
            column.is_key = take_varint(&source) != 0
        elif tag == 0x28:
            column.updated = take_varint(&source) != 0
        elif tag == 0x30:
            column.is_null = take_varint(&source) != 0
        elif tag == 0x42:
            column.value = take_slice(&source)
        elif tag == 0x52:
            column.mysql_type = take_slice(&source)
        else:
            skip_field(&source, tag)
    return not source.short


# Raises ProtocolError if the entry is malformed.
cdef int check(bint is_right) except -1
