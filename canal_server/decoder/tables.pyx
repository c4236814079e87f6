# cython: language_level=3
"""Which image belongs to a table id: a small hash table that the row loop reads.

An image is used as long as its table map arrives with the same bytes. Table ids are
given anew when a server restarts, so that an id alone says nothing.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from canal_server.decoder.events cimport read48
from canal_server.decoder.image cimport TableImage

cdef enum:
    TABLE_SLOTS = 4096       # a power of two
    TABLES_KEPT = 2048       # with more, a transaction's end empties the cache
    TABLES_MAX = 4000        # with more, a table map does


cdef class TableCache:
    """Table maps by their id, and the image of each."""

    def __cinit__(self):
        self.images = {}
        self.slots = <TableSlot*>calloc(TABLE_SLOTS, sizeof(TableSlot))
        if self.slots == NULL:
            raise MemoryError("no memory for a decoder's tables")

    def __dealloc__(self):
        self.clear()
        free(self.slots)

    def forget(self):
        """Let every table map ask again.

        Rows whose table map was seen already are still read with its image.
        """
        cdef uint32_t i
        for i in range(TABLE_SLOTS):
            self.slots[i].stale = True

    cdef int install(self, const uint8_t* body, size_t n, TableImage image) except -1:
        """Keep a table map's body (6 bytes id first) and its image, None: unwanted."""
        cdef uint64_t table_id = read48(body)
        cdef TableSlot* slot
        cdef uint8_t* copy
        if self.count >= TABLES_MAX:
            self.clear()
        copy = <uint8_t*>malloc(n + 1)
        if copy == NULL:
            raise MemoryError("no memory for a table map")
        memcpy(copy, body, n)
        slot = self.slot_of(table_id)
        if not slot.used:
            self.count += 1
        free(slot.body)
        slot.body = copy
        slot.body_n = n
        slot.table_id = table_id
        slot.used = True
        slot.stale = False
        slot.image = NULL if image is None else &image.image
        self.images[slot - self.slots] = image
        return 0

    cdef object meta_of(self, TableSlot* slot):
        """Return the TableMeta of a slot with an image."""
        return self.images[slot - self.slots].meta

    cdef TableSlot* slot_of(self, uint64_t table_id) noexcept nogil:
        cdef uint32_t i = <uint32_t>(table_id * 0x9E3779B1u >> 7) & (TABLE_SLOTS - 1)
        while self.slots[i].used and self.slots[i].table_id != table_id:
            i = (i + 1) & (TABLE_SLOTS - 1)
        return &self.slots[i]

    cdef bint knows(self, const uint8_t* body, size_t n) noexcept nogil:
        """Tell whether this very table map was seen, and nothing changed since."""
        cdef TableSlot* slot = self.slot_of(read48(body))
        return (slot.used and not slot.stale and slot.body_n == n
                and memcmp(slot.body, body, n) == 0)

    cdef void trim(self) noexcept nogil:
        if self.count > TABLES_KEPT:
            self.clear()

    cdef void clear(self) noexcept nogil:
        """Forget all table maps; their images stay until others take their place."""
        cdef uint32_t i
        if self.slots == NULL:
            return
        for i in range(TABLE_SLOTS):
            free(self.slots[i].body)
            self.slots[i].body = NULL
            self.slots[i].used = False
        self.count = 0
