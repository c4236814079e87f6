# cython: language_level=3
"""The transaction ring buffer: gathers entries until their transaction is whole.

::

    flush_sequence <= whole_sequence <= put_sequence <= flush_sequence + size
         | whole transactions | one still open  |  free slots
         | and single entries |                 |

What is whole is delivered once per call of `put`, many transactions at a time. When
the ring is full, in slots or in bytes, what is whole goes first; if nothing is, the
open transaction goes on in parts, its entries still next to each other.

Leaves out which entries are wanted (the sink) and all waiting. Used by the pump's
thread only.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from canal_server.core.blocks cimport KIND_BEGIN, KIND_ROWS, Block, Record
from canal_server.core.runs cimport Runs


cdef struct Slot:
    PyObject* block  # a reference of its own while the slot is in use
    uint32_t index   # of the record in the block


cdef class TransactionBuffer:
    """A ring of `size` entries (a power of two) of at most `memory_bytes_max` bytes.

    `deliver` receives spans and tells whether they were accepted; a single entry
    above the limit of bytes is delivered alone.
    """

    cdef Slot* slots
    cdef readonly uint64_t size
    cdef readonly uint64_t memory_bytes_max
    cdef readonly uint64_t put_sequence    # the next slot to fill
    cdef readonly uint64_t whole_sequence  # what lies before it may be delivered
    cdef readonly uint64_t flush_sequence  # the next slot to deliver
    cdef readonly uint64_t pending_bytes
    cdef object deliver
    cdef Runs runs

    def __cinit__(self, uint64_t size, uint64_t memory_bytes_max, deliver):
        if size == 0 or size & (size - 1):
            raise ValueError(f"transaction buffer of {size} entries: not a power of two")
        self.slots = <Slot*>calloc(size, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError(f"no memory for {size} slots")
        self.size = size
        self.memory_bytes_max = memory_bytes_max
        self.deliver = deliver
        self.runs = Runs()

    def __dealloc__(self):
        if self.slots != NULL:
            self.release(self.put_sequence)
            free(self.slots)

    @property
    def pending(self):
        """Entries that were put and not delivered."""
        return self.put_sequence - self.flush_sequence

    def put(self, spans):
        """Take entries and deliver what became whole; false when that was refused.

        After a refusal the undelivered entries are still pending, and those of
        `spans` that did not fit are not: only `reset` leads on from there.
        """
        cdef Block block
        cdef uint32_t first, stop
        for block, first, stop in spans:
            if stop > block.count:
                raise IndexError(f"record {stop} of {block!r}")
            if not self.put_run(block, first, stop):
                return False
        if self.whole_sequence > self.flush_sequence:
            return self.flush(self.whole_sequence)
        return True

    def reset(self):
        """Forget what is pending; the source is read again from before it."""
        self.release(self.put_sequence)
        self.whole_sequence = self.put_sequence
        self.check()

    cdef bint put_run(self, Block block, uint32_t first, uint32_t stop) except -1:
        cdef uint64_t begin = block.begin_of(first)
        cdef uint64_t mask = self.size - 1
        cdef uint64_t bytes_
        cdef uint32_t i
        cdef Record* record
        cdef Slot* slot
        for i in range(first, stop):
            record = &block.records[i]
            bytes_ = record.end - begin
            begin = record.end
            if not self.has_room(bytes_) and not self.make_room(bytes_):
                return False
            if record.kind == KIND_BEGIN:
                self.whole_sequence = self.put_sequence
            slot = &self.slots[self.put_sequence & mask]
            Py_INCREF(block)
            slot.block, slot.index = <PyObject*>block, i
            self.put_sequence += 1
            self.pending_bytes += bytes_
            # An END, a DDL, a heartbeat: nothing that follows belongs to it.
            if record.kind != KIND_BEGIN and record.kind != KIND_ROWS:
                self.whole_sequence = self.put_sequence
        return True

    cdef inline bint has_room(self, uint64_t bytes_) noexcept:
        """Tell whether an entry fits; an empty ring takes one of any length."""
        cdef uint64_t pending = self.put_sequence - self.flush_sequence
        return pending == 0 or (
            pending < self.size
            and self.pending_bytes + bytes_ <= self.memory_bytes_max
        )

    cdef bint make_room(self, uint64_t bytes_) except -1:
        """Deliver whole transactions, and parts of the open one if that is too little."""
        if self.whole_sequence > self.flush_sequence:
            if not self.flush(self.whole_sequence):
                return False
        if not self.has_room(bytes_):
            return self.flush(self.put_sequence)
        return True

    cdef bint flush(self, uint64_t stop) except -1:
        """Deliver up to a sequence; the flush sequence moves when it was accepted."""
        cdef uint64_t mask = self.size - 1
        cdef uint64_t sequence
        cdef Slot* slot
        for sequence in range(self.flush_sequence, stop):
            slot = &self.slots[sequence & mask]
            self.runs.add(slot.block, slot.index)
        spans = self.runs.spans()
        self.runs.clear()
        if not self.deliver(spans):
            return False
        self.release(stop)
        self.check()
        return True

    cdef void release(self, uint64_t stop) noexcept:
        """Free the slots before a sequence."""
        cdef uint64_t mask = self.size - 1
        cdef Slot* slot
        cdef Block block
        while self.flush_sequence < stop:
            slot = &self.slots[self.flush_sequence & mask]
            block = <Block>slot.block
            self.pending_bytes -= (
                block.records[slot.index].end - block.begin_of(slot.index)
            )
            self.flush_sequence += 1
            slot.block = NULL
            Py_DECREF(block)
        if self.whole_sequence < self.flush_sequence:
            self.whole_sequence = self.flush_sequence

    cpdef check(self):
        """Assert what always holds between two calls."""
        cdef uint64_t pending = self.put_sequence - self.flush_sequence
        assert self.flush_sequence <= self.whole_sequence <= self.put_sequence
        assert pending <= self.size
        assert pending <= 1 or self.pending_bytes <= self.memory_bytes_max
        assert pending > 0 or self.pending_bytes == 0
