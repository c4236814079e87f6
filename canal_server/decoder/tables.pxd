# cython: language_level=3
"""Table maps that were seen, with their images; see tables.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from canal_server.decoder.image cimport Image, TableImage

cdef struct TableSlot:
    uint64_t table_id
    uint8_t* body          # the table map's body as it was when the image was made
    size_t body_n
    Image* image           # NULL: its rows are not wanted
    bint used
    bint stale             # the next table map asks again, whatever its body

cdef class TableCache:
    cdef TableSlot* slots
    cdef uint32_t count
    cdef dict images      # slot number -> TableImage, which keeps it alive

    # The slot of a table id, or the free one where it would be.
    cdef TableSlot* slot_of(self, uint64_t table_id) noexcept nogil
    cdef bint knows(self, const uint8_t* body, size_t n) noexcept nogil
    # Called between transactions: lets go of everything when there is too much.
    cdef void trim(self) noexcept nogil
    cdef void clear(self) noexcept nogil
    cdef int install(self, const uint8_t* body, size_t n, TableImage image) except -1
    cdef object meta_of(self, TableSlot* slot)
