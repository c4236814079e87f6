# cython: language_level=3
"""Python values of columns, read from the texts in which entries carry them."""

from libc.stdint cimport uint32_t

from canal_server.core.entry_wire cimport Slice

cdef enum ValueKind:
    VALUE_TEXT = 0
    VALUE_INTEGER
    VALUE_DECIMAL
    VALUE_FLOAT
    VALUE_BYTES
    VALUE_DATE
    VALUE_DATETIME
    VALUE_TIMESTAMP
    VALUE_TIME
    VALUE_ENUM
    VALUE_SET
    VALUE_JSON


cdef class ValueOptions:
    """How values are made; shared by all tables of a client."""
    cdef bint as_texts       # all values stay canal's texts
    cdef object zone         # in which TIMESTAMP texts are meant; None: UTC
    cdef object load_json    # None: JSON stays text


cdef class ColumnPlan:
    """One column of a table: its name, and how its values are read."""
    cdef readonly str name
    cdef readonly str mysql_type
    cdef ValueKind kind
    cdef int scale           # of a DECIMAL; -1: unknown
    cdef uint32_t filled     # bytes of each BINARY value at least
    cdef tuple labels        # of an ENUM or SET


cdef object read_value(ColumnPlan plan, Slice value, ValueOptions options)
cdef str text_of(Slice slice)
