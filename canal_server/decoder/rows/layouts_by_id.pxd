# cython: language_level=3
"""Table maps that were seen, with their images; see tables.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from canal_server.decoder.rows.row_layout cimport Image, TableImage

cdef enum:
    TABLES_MAX = 65536       # of one statement
    TABLES_BYTES_MAX = 256 * 1024 * 1024  # of their table maps

cdef struct TableSlot:
    uint64_t table_id
    uint8_t* body          # the table map's body as it was when the image was made
    size_t body_n
    Image* image           # NULL: its rows are not wanted
    bint used
    bint stale             # the next table map asks again, whatever its body
    bint lost              # the table map could not be read

cdef class TableCache:
    cdef TableSlot* slots
    cdef uint32_t size    # of the slots, a power of two
    cdef uint32_t count
    cdef size_t bytes     # of all bodies
    cdef bint rows_done   # no more rows come for the table maps seen so far
    cdef bint map_lost    # one of the table maps since then could not be read
    cdef dict images      # table id -> TableImage, which keeps it alive

    # The slot of a table id, or the free one where it would be.
    cdef TableSlot* slot_of(self, uint64_t table_id) noexcept nogil
    # Called for each table map, before `knows`; where a statement begins it lets go
    # of everything when there is too much.
    cdef void expect_rows(self) noexcept nogil
    cdef bint knows(self, const uint8_t* body, size_t n) noexcept nogil
    # Called where a statement or a transaction ends.
    cdef void end_rows(self) noexcept nogil
    cdef void clear(self) noexcept nogil
    cdef bint is_full(self) noexcept nogil
    cdef int install(self, const uint8_t* body, size_t n, TableImage image) except -1
    cdef int resize(self, uint32_t size) except -1
    cdef int lose(self, const uint8_t* body, size_t n) except -1
    cdef object meta_of(self, TableSlot* slot)
