# cython: language_level=3
"""Messages that depend on which columns a row has; see shaped_rows.pyx."""

from canal_server.queues.forms.column_plans cimport Plan, TablePlans
from canal_server.queues.forms.row_messages cimport RowMessages

cdef class ShapedRows(RowMessages):
    cdef TablePlans shaped      # the table of the last shape,
    cdef const Plan** shape     # its columns,
    cdef size_t shape_n

    # Have the shape of the current row in use.
    cdef int find_shape(self) except -1
    # What a form decides: what it makes of some columns, and to use that.
    cdef object made_shape(self, list columns)
    cdef int use_shape(self, made) except -1
    # The name of the source, the database and the table of the current entry.
    cdef tuple names(self, str source)
