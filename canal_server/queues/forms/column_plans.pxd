# cython: language_level=3
"""How the values of a column are written; see column_plans.pyx."""

from libc.stdint cimport int32_t, uint32_t

from canal_server.arrow.label_texts cimport ColumnLabels, Labels
from canal_server.core.entry_wire cimport Slice
from canal_server.queues.batch_rows cimport Column
from canal_server.queues.table_routes cimport Route

cdef enum:
    KIND_INTEGER = 1    # a: bits, b: unsigned
    KIND_DECIMAL        # a: digits, b: those after the point
    KIND_FLOAT          # a: digits, b: whether those after the point are given
    KIND_DOUBLE
    KIND_BIT            # a: how many
    KIND_YEAR
    KIND_DATE
    KIND_DATETIME       # a: digits of a second
    KIND_TIMESTAMP
    KIND_TIME
    KIND_ENUM
    KIND_SET
    KIND_JSON
    KIND_GEOMETRY       # a: whether it is a point
    KIND_VECTOR
    KIND_BYTES
    KIND_TEXT

cdef struct Plan:
    Slice name
    Slice mysql_type
    Slice label         # the name in JSON, and a colon
    Slice key_label     # the same of a key: "pk.name":
    int kind
    int a
    int b
    uint32_t filled     # the least bytes of a value: trailing zeros are left out
    bint is_key
    bint hashed         # its value decides about the partition
    const Labels* labels

cdef class ColumnPlan:
    cdef Plan plan
    cdef readonly str name
    cdef readonly str mysql_type
    cdef readonly str kind
    cdef readonly bint is_key
    cdef readonly int a, b
    cdef ColumnLabels labels
    cdef tuple owned    # what slices point to

cdef class TablePlans:
    # All plans of a table, also of its earlier columns.
    cdef Route route
    cdef dict known
    cdef dict schemas   # of forms that have them
    cdef Plan** plans   # by number of the column, or NULL
    cdef size_t room
    # The plan of a column; found by its number, else by its name and type.
    cdef Plan* find(self, const Column* column) except NULL
    cdef Plan* look_up(self, const Column* column) except NULL
    cdef ColumnPlan object_of(self, const Plan* plan)
