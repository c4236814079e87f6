# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Messages that depend on which columns a row has, as those with schemas do.

What a form makes of some columns is kept for each table, and looked up only if a row has
other columns than the last one.
"""

from libc.stdlib cimport calloc, free

from canal_server.core.entry_wire cimport Slice
from canal_server.queues.batch_rows cimport COLUMNS_MAX
from canal_server.queues.forms.column_plans cimport Plan
from canal_server.queues.forms.row_messages cimport RowMessages

cdef enum:
    SHAPES_MAX = 64             # of a table, that are kept


cdef class ShapedRows(RowMessages):
    """Makes messages of batches; for one thread at a time."""

    def __cinit__(self):
        self.shape = <const Plan**>calloc(COLUMNS_MAX, sizeof(Plan*))
        if self.shape == NULL:
            raise MemoryError("no memory for the columns of messages")

    def __dealloc__(self):
        free(self.shape)

    cdef int find_shape(self) except -1:
        """Use what belongs to the columns of the row, unless it is in use."""
        cdef size_t at
        cdef list columns = []
        if self.shaped is self.table and self.shape_n == self.cells_n:
            for at in range(self.cells_n):
                if self.shape[at] != self.cells[at].plan:
                    break
            else:
                return 0
        for at in range(self.cells_n):
            columns.append(self.table.object_of(self.cells[at].plan))
        made = self.table.schemas.get(tuple(columns))
        if made is None:
            made = self.made_shape(columns)
            if len(self.table.schemas) >= SHAPES_MAX:
                self.table.schemas.clear()
            self.table.schemas[tuple(columns)] = made
        # The shape last: it says that what is in use belongs to these columns.
        self.shape_n = 0
        self.use_shape(made)
        for at in range(self.cells_n):
            self.shape[at] = self.cells[at].plan
        self.shaped, self.shape_n = self.table, self.cells_n
        return 0

    cdef object made_shape(self, list columns):
        return columns

    cdef int use_shape(self, made) except -1:
        return 0

    cdef tuple names(self, str source):
        cdef Slice schema = self.head.schema
        cdef Slice table = self.head.table
        return (source, (schema.p[:schema.n] if schema.n else b"").decode(),
                (table.p[:table.n] if table.n else b"").decode())
