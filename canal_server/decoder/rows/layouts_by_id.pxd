# cython: language_level=3
"""Received table maps with their layouts; see layouts_by_id.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from canal_server.decoder.rows.row_layout cimport LayoutC, TableLayout

cdef enum:
    TABLES_MAX = 65536       # of one statement
    TABLES_BYTES_MAX = 256 * 1024 * 1024  # of their table maps

cdef struct TableSlot:
    uint64_t table_id
    uint8_t* body          # the table map's body from which the layout was made
    size_t body_n
    LayoutC* layout           # NULL: its rows are skipped
    bint used
    bint stale             # the next table map requests a layout, for any body
    bint lost              # the table map could not be read

cdef class TableCache:
    cdef TableSlot* slots
    cdef uint32_t size    # of the slots, a power of two
    cdef uint32_t count
    cdef size_t bytes     # of all bodies
    cdef bint rows_done   # the table maps received so far have no further rows
    cdef bint map_lost    # one of the later table maps could not be read
    cdef dict layouts      # table id -> TableLayout, which keeps it alive

    # The slot of a table id, or the free slot for it.
    cdef TableSlot* slot_of(self, uint64_t table_id) noexcept nogil
    # Called for each table map, before `knows`; at the start of a statement it discards
    # everything if there is too much.
    cdef void expect_rows(self) noexcept nogil
    cdef bint knows(self, const uint8_t* body, size_t n) noexcept nogil
    # Called at the end of a statement or transaction.
    cdef void end_rows(self) noexcept nogil
    cdef void clear(self) noexcept nogil
    cdef bint is_full(self) noexcept nogil
    cdef int install(self, const uint8_t* body, size_t n, TableLayout layout) except -1
    cdef int resize(self, uint32_t size) except -1
    cdef int lose(self, const uint8_t* body, size_t n) except -1
    cdef object meta_of(self, TableSlot* slot)
