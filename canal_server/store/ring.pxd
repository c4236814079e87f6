# cython: language_level=3
"""The slots of the event store; see ring.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from canal_server.core.blocks cimport Block, Record

cdef struct Slot:
    PyObject* block  # an owned reference while the slot is in use
    uint32_t index   # of the record in the block
    uint32_t put_ms  # when it was put, on a clock that wraps

cdef class Ring:
    cdef Slot* slots
    cdef readonly uint64_t size
    cdef readonly bint raw_entry
    cdef readonly uint64_t entry_bytes_max
    cdef readonly uint64_t put_sequence   # of the next entry to put
    cdef readonly uint64_t free_sequence  # entries before it are freed
    cdef readonly uint64_t put_bytes      # weight of all entries put
    cdef readonly uint64_t free_bytes     # weight of all entries freed
    cdef readonly uint64_t put_rows
    cdef readonly uint64_t free_rows
    cdef readonly uint32_t put_time       # of the last entry put, s
    cdef readonly uint32_t free_time      # of the last entry freed, s
    cdef object freed_boundary            # position of the last boundary freed, or None
    cdef readonly uint64_t freed_file_number  # of the last entry freed, 0: none
    cdef readonly uint64_t freed_offset
    cdef readonly bint grouped            # entries of several sources, mixed
    cdef dict freed_boundaries                # in a group: last boundary freed, by source

    cdef int append_one(self, Block block, uint32_t i, uint32_t now_ms) except -1
    cdef bint is_boundary(self, uint64_t sequence) noexcept
    cdef void release(self, uint64_t stop) noexcept
    cpdef boundary_before(self, uint64_t sequence)
    cpdef dict boundaries_between(self, uint64_t first, uint64_t stop)
    cpdef dict boundaries_before(self, uint64_t sequence)

    cdef inline Slot* slot(self, uint64_t sequence) noexcept:
        return &self.slots[sequence & (self.size - 1)]

    cdef inline Record* record(self, uint64_t sequence) noexcept:
        cdef Slot* slot = self.slot(sequence)
        return &(<Block>slot.block).records[slot.index]

    cdef inline uint64_t weight(self, PyObject* block, uint32_t index) noexcept:
        """Return an entry's weight against the limits: its bytes, or an estimate.

        Without raw entries: six times its event's length in the binlog.
        """
        cdef Record* record = &(<Block>block).records[index]
        if not self.raw_entry:
            return <uint64_t>record.event_length * 6
        return record.end - (<Block>block).begin_of(index)

    cdef inline uint64_t weight_at(self, uint64_t sequence) noexcept:
        cdef Slot* slot = self.slot(sequence)
        return self.weight(slot.block, slot.index)
