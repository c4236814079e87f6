# cython: language_level=3
"""The transaction ring buffer: gathers entries until their transaction is whole.

::

    flush_sequence <= whole_sequence <= put_sequence <= flush_sequence + size
         | whole transactions | one still open  |  free slots
         | and single entries |                 |

`put` returns what is ready to be delivered, many transactions at a time; `commit` frees
it once it is delivered. When the ring is full, in slots or in bytes, complete
transactions are ready first; without any, the open transaction is delivered in parts,
with its entries still next to each other. `put` then also returns the spans that did not
fit, to be put again after the commit.

Transactions that arrive whole take no slots: their spans are ready at once, up to
`passed_max` entries. What they cost then does not depend on how many they are.

It does not decide which entries to deliver (the sink does) and never waits. Used by the
pump's thread only.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from canal_server.core.blocks cimport (
    FLAG_OPEN,
    KIND_BEGIN,
    KIND_OTHER,
    KIND_ROWS,
    Block,
    Record,
)
from canal_server.core.runs cimport Runs


cdef struct Slot:
    PyObject* block  # an owned reference while the slot is in use
    uint32_t index   # of the record in the block


cdef class TransactionBuffer:
    """A ring of `size` entries (a power of two) of at most `memory_bytes_max` bytes.

    A single entry above the limit of bytes is delivered alone. `passed_max`: how many
    entries of whole transactions are ready at a time without a slot; None: `size`.
    """

    cdef Slot* slots
    cdef readonly uint64_t size
    cdef readonly uint64_t memory_bytes_max
    cdef readonly uint64_t passed_max
    cdef uint64_t passing                  # entries without a slot, being delivered
    cdef readonly uint64_t put_sequence    # the next slot to fill
    cdef readonly uint64_t whole_sequence  # entries before it may be delivered
    cdef readonly uint64_t flush_sequence  # the next slot to deliver
    cdef uint64_t ready_sequence           # entries before it are being delivered
    cdef readonly uint64_t pending_bytes
    cdef Runs runs

    def __cinit__(self, uint64_t size, uint64_t memory_bytes_max, passed_max=None):
        if size == 0 or size & (size - 1):
            raise ValueError(f"transaction buffer of {size} entries: not a power of two")
        self.slots = <Slot*>calloc(size, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError(f"no memory for {size} slots")
        self.size = size
        self.memory_bytes_max = memory_bytes_max
        self.passed_max = size if passed_max is None else passed_max
        self.runs = Runs()

    def __dealloc__(self):
        if self.slots != NULL:
            self.release(self.put_sequence)
            free(self.slots)

    @property
    def pending(self):
        """Entries that were put and not committed."""
        return self.put_sequence - self.flush_sequence + self.passing

    def put(self, spans):
        """Store entries; return the spans to deliver now, and those that did not fit.

        Deliver the first ones, call `commit`, then put the others, until none are left.
        When delivery fails, call `reset`.
        """
        cdef Block block
        cdef uint32_t first, stop, index
        cdef list ready, rest
        cdef bint continues = self.put_sequence > self.flush_sequence
        assert self.ready_sequence == self.flush_sequence, "put before the commit"
        assert not self.passing, "put before the commit"
        rest = list(spans)
        if not continues:
            ready, rest = self.split_whole(rest)
            if ready:
                return ready, rest
        for number, (block, first, stop) in enumerate(rest):
            if stop > block.count:
                raise IndexError(f"record {stop} of {block!r}")
            index = self.put_run(block, first, stop, continues)
            if continues and self.whole_sequence == self.put_sequence:
                # The open transaction is complete; what follows needs no slots.
                ready = self.make_ready(self.whole_sequence)
                rest = rest[number + 1:]
                if index < stop:
                    rest.insert(0, (block, index, stop))
                passed, rest = self.split_whole(rest)
                return joined(ready, passed), rest
            if index < stop:
                # Complete transactions first, parts of the open one if there are none.
                if self.whole_sequence > self.flush_sequence:
                    ready = self.make_ready(self.whole_sequence)
                else:
                    ready = self.make_ready(self.put_sequence)
                return ready, [(block, index, stop), *rest[number + 1:]]
        return self.make_ready(self.whole_sequence), []

    def commit(self):
        """Free what the last `put` returned; it is delivered."""
        self.passing = 0
        self.release(self.ready_sequence)
        self.check()

    def reset(self):
        """Drop what is pending; the source is read again from before it."""
        self.passing = 0
        self.release(self.put_sequence)
        self.ready_sequence = self.whole_sequence = self.put_sequence
        self.check()

    cdef tuple split_whole(self, list spans):
        """Split spans after their last whole transaction, if there is one.

        The first part has at most `passed_max` entries, and no more bytes than the ring
        may have; else it is empty.
        """
        cdef Block block
        cdef uint32_t first, stop, end
        cdef int64_t cut
        cdef Py_ssize_t number = 0
        cdef uint64_t count = 0
        for block, first, stop in spans:
            if stop > block.count:
                raise IndexError(f"record {stop} of {block!r}")
            if count >= self.passed_max:
                break
            count += stop - first
            number += 1
        while number:
            number -= 1
            block, first, stop = spans[number]
            end = stop
            if count > self.passed_max:
                end -= <uint32_t>(count - self.passed_max)
            count -= stop - first
            cut = last_end(block, first, end)
            if cut < 0:
                continue
            ready = spans[:number]
            if cut > first:
                ready.append((block, first, cut))
            if sum([part.size_of(*records) for part, *records in ready]) > (
                self.memory_bytes_max
            ):
                break
            self.passing = count + <uint64_t>(cut - first)
            rest = spans[number + 1:]
            if cut < stop:
                rest.insert(0, (block, cut, stop))
            return ready, rest
        return [], spans

    cdef int64_t put_run(self, Block block, uint32_t first, uint32_t stop,
                         bint one) except -1:
        """Store records while they fit; return the index of the first that does not.

        With `one`, only those up to the end of a transaction.
        """
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
            if not self.has_room(bytes_):
                return i
            if record.kind == KIND_BEGIN:
                self.whole_sequence = self.put_sequence
            slot = &self.slots[self.put_sequence & mask]
            Py_INCREF(block)
            slot.block, slot.index = <PyObject*>block, i
            self.put_sequence += 1
            self.pending_bytes += bytes_
            if is_end(record):
                self.whole_sequence = self.put_sequence
                if one:
                    return i + 1
        return stop

    cdef inline bint has_room(self, uint64_t bytes_) noexcept:
        """Return whether an entry fits; an empty ring accepts one of any length."""
        cdef uint64_t pending = self.put_sequence - self.flush_sequence
        return pending == 0 or (
            pending < self.size
            and self.pending_bytes + bytes_ <= self.memory_bytes_max
        )

    cdef list make_ready(self, uint64_t stop):
        """Return the spans of the entries before a sequence."""
        cdef uint64_t mask = self.size - 1
        cdef uint64_t sequence
        cdef Slot* slot
        if stop == self.flush_sequence:
            return []
        for sequence in range(self.flush_sequence, stop):
            slot = &self.slots[sequence & mask]
            self.runs.add(slot.block, slot.index)
        spans = self.runs.spans()
        self.runs.clear()
        self.ready_sequence = stop
        return spans

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
        if self.ready_sequence < self.flush_sequence:
            self.ready_sequence = self.flush_sequence

    cpdef check(self):
        """Assert the invariants that hold between two calls."""
        cdef uint64_t pending = self.put_sequence - self.flush_sequence
        assert self.flush_sequence <= self.whole_sequence <= self.put_sequence
        assert pending <= self.size
        assert pending <= 1 or self.pending_bytes <= self.memory_bytes_max
        assert pending > 0 or self.pending_bytes == 0


cdef inline bint is_end(const Record* record) noexcept:
    """Return whether nothing that follows belongs to it: an END, a DDL, a heartbeat.

    The text of a statement inside a transaction belongs to what follows.
    """
    return record.kind != KIND_BEGIN and record.kind != KIND_ROWS and not (
        record.kind == KIND_OTHER and record.flags & FLAG_OPEN
    )


cdef int64_t last_end(Block block, uint32_t first, uint32_t stop) noexcept:
    """Return where the last transaction among the records ends, -1: it is unknown."""
    cdef uint32_t i = stop
    while i > first:
        i -= 1
        if is_end(&block.records[i]):
            return <int64_t>i + 1
        if block.records[i].kind == KIND_BEGIN:
            return i
    return -1


cdef list joined(list spans, list following):
    """Return two lists of spans as one, with neighbours merged."""
    if spans and following:
        (block, first, stop), (next_block, begin, end) = spans[-1], following[0]
        if block is next_block and stop == begin:
            return [*spans[:-1], (block, first, end), *following[1:]]
    return spans + following
