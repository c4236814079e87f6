# cython: language_level=3
"""Messages with one row each: what all forms share; see row_messages.pyx."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t

from canal_server.core.entry_wire cimport Change, EntryHead, Slice
from canal_server.core.json_text cimport Text
from canal_server.core.wire cimport Input
from canal_server.queues.batch_rows cimport Column
from canal_server.queues.forms.column_plans cimport Plan, TablePlans
from canal_server.queues.forms.rendered_values cimport LocalZone
from canal_server.queues.table_routes cimport Routes

cdef struct Value:
    Slice text
    int32_t sql_type
    bint present        # in this image
    bint is_null
    bint updated

cdef struct Cell:
    # A column of a row: as it was, and as it is.
    Plan* plan
    uint32_t index      # of the column in its table
    Value before
    Value after

cdef struct Ends:
    # Of a transaction whose end is in the batch.
    const uint8_t* begin    # its first entry there
    const uint8_t* last     # its last entry with rows, or NULL
    const uint8_t* end
    Slice xid

cdef class RowMessages:
    cdef Routes routes
    cdef dict tables
    cdef bint has_keys          # a message has the key of its row
    cdef bint has_tombstones
    cdef bint has_headers
    cdef bint splits_moves      # a change of the key is a delete and an insert
    cdef bint looks_ahead       # for the ends of transactions
    cdef LocalZone zone

    # The batch.
    cdef int64_t batch_id
    cdef int64_t now_ms
    cdef list made
    cdef Ends* ends
    cdef size_t ends_n
    cdef size_t ends_room
    cdef size_t ends_at

    # The current entry.
    cdef EntryHead head
    cdef Change change
    cdef Slice gtids            # the executed set, in GTID mode
    cdef Slice xid              # of its transaction; empty: not known
    cdef bint is_last           # of its transaction, as far as rows are concerned
    cdef TablePlans table
    cdef list headers           # None: not made yet

    # The current row.
    cdef Cell* cells
    cdef size_t cells_n
    cdef uint32_t row           # its number in the entry
    cdef Text out
    cdef Text key
    cdef Text old_key
    cdef Text scratch

    cdef int set_zone(self) except -1
    cdef int find_ends(self, Input entries) except -1
    cdef Ends* next_end(self) except NULL
    cdef void look_ahead(self, const uint8_t* entry) noexcept
    cdef int entry(self, Slice entry) except -1
    cdef int find_table(self) except -1
    cdef bint read_row(self, Slice row) except? False
    cdef bint read_image(self, Slice row, uint64_t image) except? False
    cdef Cell* cell_of(self, const Column* column, size_t guess) except NULL
    cdef void sort_cells(self) noexcept nogil
    cdef int put_row(self) except -1
    cdef int put_move(self) except -1
    cdef uint32_t partition(self, bint of_before) except? 0
    cdef list made_headers(self)

    # What a form decides.
    cdef int begin_rows(self) except -1
    # Append the value of a row that was inserted, updated or deleted (EventKind).
    cdef int put_value(self, uint32_t event) except -1
    cdef int put_key(self, Text* text, bint of_before) except -1
    # Send the message of a statement, if the form has one.
    cdef int put_statement(self) except -1
    cdef void put_cell(self, Text* text, const Plan* plan, const Value* value) noexcept

    cdef int put_shared_key(self, Text* text, bint of_before) except -1
    cdef int add(self, uint32_t partition, bint has_value, Text* key,
                 object more=*) except -1
    # The error of a row, of a column, and the same with the position of the event.
    cdef object problem(self)
    cdef object refused(self, const Plan* plan)
    cdef object located(self, error)
    cdef uint32_t statement_partition(self) noexcept


cdef inline const Value* value_of(const Cell* cell, bint of_before) noexcept nogil:
    """Return the value of an image, else that of the other one."""
    if of_before:
        return &cell.before if cell.before.present else &cell.after
    return &cell.after if cell.after.present else &cell.before
