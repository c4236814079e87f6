# cython: language_level=3
"""The layout of each table id: a small hash table that the row loop reads.

A layout is used as long as its table map arrives with the same bytes. A server reuses
table ids after a restart, so an id alone identifies nothing. All table maps of a
statement precede its rows: excess ones are discarded between statements.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from canal_server.decoder.rows.event_constants cimport read48
from canal_server.decoder.rows.row_layout cimport TableLayout

cdef enum:
    SLOTS_MIN = 256         # a power of two
    TABLES_KEPT = 2048       # with more, the next statement starts empty
    BYTES_KEPT = 64 * 1024 * 1024  # the same for bytes of table maps


cdef class TableCache:
    """Table maps by their id, with their layouts."""

    def __cinit__(self):
        self.layouts = {}
        self.resize(SLOTS_MIN)

    def __dealloc__(self):
        self.clear()
        free(self.slots)

    def forget(self):
        """Make every table map request its layout again.

        Rows whose table map was received already still use its layout.
        """
        cdef uint32_t i
        for i in range(self.size):
            self.slots[i].stale = True

    cdef int install(self, const uint8_t* body, size_t n, TableLayout layout) except -1:
        """Store a table map's body (6 bytes id first) and layout; None: skip its rows."""
        cdef uint64_t table_id = read48(body)
        cdef TableSlot* slot
        cdef uint8_t* copy
        if self.count == 0:
            self.layouts.clear()
            if self.size > SLOTS_MIN:
                self.resize(SLOTS_MIN)
        if self.count >= self.size // 2:
            self.resize(2 * self.size)
        copy = <uint8_t*>malloc(n + 1)
        if copy == NULL:
            raise MemoryError("no memory for a table map")
        memcpy(copy, body, n)
        slot = self.slot_of(table_id)
        if slot.used:
            self.bytes -= slot.body_n
        else:
            self.count += 1
        self.bytes += n
        free(slot.body)
        slot.body = copy
        slot.body_n = n
        slot.table_id = table_id
        slot.used = True
        slot.stale = slot.lost = False
        slot.layout = NULL if layout is None else &layout.layout
        self.layouts[table_id] = layout
        return 0

    cdef int lose(self, const uint8_t* body, size_t n) except -1:
        """Record a table map that cannot be read: its rows cannot be read either."""
        cdef TableSlot* slot
        self.expect_rows()
        self.map_lost = True
        if n >= 6:
            # The slot of its id has another table map.
            self.install(body, n, None)
            slot = self.slot_of(read48(body))
            slot.stale = slot.lost = True
        return 0

    cdef int resize(self, uint32_t size) except -1:
        """Move all table maps to a table of `size` slots."""
        cdef TableSlot* old = self.slots
        cdef uint32_t old_size = self.size
        cdef uint32_t i
        cdef TableSlot* slots = <TableSlot*>calloc(size, sizeof(TableSlot))
        if slots == NULL:
            raise MemoryError("no memory for a decoder's tables")
        self.slots, self.size = slots, size
        for i in range(old_size):
            if old[i].used:
                self.slot_of(old[i].table_id)[0] = old[i]
        free(old)
        return 0

    cdef object meta_of(self, TableSlot* slot):
        """Return the TableMeta of a slot with a layout."""
        return self.layouts[slot.table_id].meta

    cdef TableSlot* slot_of(self, uint64_t table_id) noexcept nogil:
        cdef uint32_t i = <uint32_t>(table_id * 0x9E3779B1u >> 7) & (self.size - 1)
        while self.slots[i].used and self.slots[i].table_id != table_id:
            i = (i + 1) & (self.size - 1)
        return &self.slots[i]

    cdef bint knows(self, const uint8_t* body, size_t n) noexcept nogil:
        """Check whether this table map was received and its layout is still valid."""
        cdef TableSlot* slot = self.slot_of(read48(body))
        return (slot.used and not slot.stale and slot.body_n == n
                and memcmp(slot.body, body, n) == 0)

    cdef void expect_rows(self) noexcept nogil:
        if self.rows_done and (self.count > TABLES_KEPT or self.bytes > BYTES_KEPT):
            self.clear()
        if self.rows_done:
            self.map_lost = False
        self.rows_done = False

    cdef void end_rows(self) noexcept nogil:
        self.rows_done = True

    cdef bint is_full(self) noexcept nogil:
        """Check whether a statement has the maximum of tables."""
        return self.count >= TABLES_MAX

    cdef void clear(self) noexcept nogil:
        """Discard all table maps; layouts stay until the next one is stored."""
        cdef uint32_t i
        for i in range(self.size):
            free(self.slots[i].body)
            self.slots[i].body = NULL
            self.slots[i].used = False
        self.count = 0
        self.bytes = 0
