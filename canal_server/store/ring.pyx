# cython: language_level=3
"""The slots of the event store: entries by sequence, none copied.

A slot names a record and keeps its block alive. Sequences count entries from 0; the
slot of one is its lowest bits. Entries are put at one end and freed at the other:

::

    free_sequence <= every cursor's ack <= its get <= put_sequence
    put_sequence - free_sequence <= size

Leaves out cursors (`cursor`), limits and waiting (`event_store`), and any lock: the
caller holds the store's.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint32_t, uint64_t
from posix.mman cimport (
    MAP_ANONYMOUS,
    MAP_FAILED,
    MAP_PRIVATE,
    PROT_READ,
    PROT_WRITE,
    mmap,
    munmap,
)

from canal_server.core.blocks cimport (
    FLAG_OPEN,
    KIND_END,
    KIND_OTHER,
    Block,
    BlockPool,
    Record,
)
from canal_server.errors import EntryTooLarge


cdef class Ring:
    """Slots for `size` entries, a power of two.

    An entry of more than `entry_bytes_max` bytes fits in no frame and is refused.
    With `grouped`, the entries are those of a group's sources.
    """

    def __cinit__(self, uint64_t size, bint raw_entry, uint64_t entry_bytes_max,
                  bint grouped=False):
        if size == 0 or size & (size - 1):
            raise ValueError(f"store of {size} entries: the size must be a power of two")
        # Mapped, not from the heap: slots that were never used then take no memory.
        cdef void* slots = mmap(
            NULL, size * sizeof(Slot), PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if slots == MAP_FAILED:
            raise MemoryError(f"no memory for {size} slots")
        self.slots = <Slot*>slots
        self.size = size
        self.raw_entry = raw_entry
        self.entry_bytes_max = entry_bytes_max
        self.grouped = grouped
        self.freed_boundaries = {}

    def __dealloc__(self):
        if self.slots != NULL:
            self.release(self.put_sequence)
            munmap(self.slots, self.size * sizeof(Slot))

    def append(self, spans, uint32_t now_ms):
        """Put entries; there must be room. Raises EntryTooLarge, naming the entry.

        Entries before one that is too large stay in the ring.
        """
        cdef Block block
        cdef uint32_t i, first, stop
        for block, first, stop in spans:
            if stop > block.count:
                raise IndexError(f"record {stop} of {block!r}")
            assert self.put_sequence + stop - first <= self.free_sequence + self.size
            for i in range(first, stop):
                self.append_one(block, i, now_ms)

    cdef int append_one(self, Block block, uint32_t i, uint32_t now_ms) except -1:
        cdef Record* record = &block.records[i]
        cdef uint64_t size = record.end - block.begin_of(i)
        cdef Slot* slot = self.slot(self.put_sequence)
        if size > self.entry_bytes_max:
            raise EntryTooLarge(
                f"entry of {size} bytes at {block.file}:{record.offset} is larger "
                f"than the {self.entry_bytes_max} bytes that a frame can hold; "
                "filter the table or its large columns out"
            )
        Py_INCREF(block)
        slot.block, slot.index, slot.put_ms = <PyObject*>block, i, now_ms
        self.put_sequence += 1
        self.put_bytes += self.weight(<PyObject*>block, i)
        self.put_rows += record.rows
        self.put_time = record.time
        return 0

    def free_before(self, uint64_t sequence):
        """Free the entries before a sequence; no effect if they are free already."""
        assert sequence <= self.put_sequence
        boundary = self.boundary_before(sequence)
        if sequence > self.free_sequence:
            self.freed_file_number = (
                <Block>self.slot(sequence - 1).block
            ).file_number
            self.freed_offset = self.record(sequence - 1).offset
        if self.grouped:
            self.freed_boundaries = self.boundaries_before(sequence)
        self.release(sequence)
        self.freed_boundary = boundary

    cpdef boundary_before(self, uint64_t sequence):
        """Return the position of the last transaction boundary before a sequence.

        That is an END or a statement outside of transactions, even one that was freed;
        None when none was put so far. Checks each entry at most once before it is
        freed, when called with the free sequence and later ones.
        """
        cdef Record* record
        while sequence > self.free_sequence:
            sequence -= 1
            if self.is_boundary(sequence):
                return self.position(sequence)
        return self.freed_boundary

    cdef bint is_boundary(self, uint64_t sequence) noexcept:
        cdef Record* record = self.record(sequence)
        return record.kind == KIND_END or (
            record.kind == KIND_OTHER and not record.flags & FLAG_OPEN
        )

    cpdef dict boundaries_between(self, uint64_t first, uint64_t stop):
        """Return the last boundary of each source among first <= sequence < stop.

        By the number of the group's source, which is at most 64.
        """
        cdef uint64_t seen = 0
        cdef uint64_t bit
        cdef Block block
        cdef dict found = {}
        while stop > first:
            stop -= 1
            block = <Block>self.slot(stop).block
            bit = <uint64_t>1 << ((block.source_number - 1) & 63)
            if not seen & bit and self.is_boundary(stop):
                seen |= bit
                found[block.source_number] = self.position(stop)
        return found

    cpdef dict boundaries_before(self, uint64_t sequence):
        """Return the last boundary of each source before a sequence, even if freed."""
        return {
            **self.freed_boundaries, **self.boundaries_between(self.free_sequence, sequence)
        }

    cdef void release(self, uint64_t stop) noexcept:
        cdef Slot* slot
        cdef Record* record
        while self.free_sequence < stop:
            slot = self.slot(self.free_sequence)
            record = self.record(self.free_sequence)
            self.free_bytes += self.weight(slot.block, slot.index)
            self.free_rows += record.rows
            self.free_time = record.time
            self.free_sequence += 1
            Py_DECREF(<object>slot.block)
            slot.block = NULL

    @property
    def held(self):
        """Entries in the ring."""
        return self.put_sequence - self.free_sequence

    @property
    def held_bytes(self):
        """Weight of the entries in the ring."""
        return self.put_bytes - self.free_bytes

    def position(self, uint64_t sequence):
        """Return the position of an entry in the ring, as `Block.position` does."""
        assert self.free_sequence <= sequence < self.put_sequence
        cdef Slot* slot = self.slot(sequence)
        return (<Block>slot.block).position(slot.index)


def bytes_in_use(BlockPool pool):
    """Return the bytes of all blocks that hold records, without the spare ones."""
    return pool.held - len(pool.spare) * pool.block_size
