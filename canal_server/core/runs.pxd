# cython: language_level=3
"""Runs of neighbouring records; see runs.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from canal_server.core.blocks cimport (
    FLAG_OPEN,
    KIND_BEGIN,
    KIND_END,
    KIND_OTHER,
    KIND_ROWS,
    Block,
    Record,
)

cdef struct Run:
    PyObject* block  # an owned reference, which keeps the block alive
    uint32_t first   # records first <= i < stop
    uint32_t stop

cdef class Runs:
    cdef Run* runs
    cdef size_t count     # runs in use
    cdef size_t capacity  # runs that there is memory for

    cdef int begin_run(self, PyObject* block, uint32_t i) except -1
    cdef void clear(self) noexcept
    cdef list spans(self)
    cdef tuple slices(self)
    cdef uint64_t bytes_of(self, size_t i)
    cdef bytes join(self, size_t first, size_t stop)

    cdef inline int add(self, PyObject* block, uint32_t i) except -1:
        """Append record i of a block, to the last run if it is adjacent to it."""
        cdef Run* last
        if self.count:
            last = &self.runs[self.count - 1]
            if last.block == block and last.stop == i:
                last.stop += 1
                return 0
        return self.begin_run(block, i)


# EventTypes that change table structures: CREATE 4, ALTER 5, ERASE 6, TRUNCATE 8,
# RENAME 9, CINDEX 10, DINDEX 11.
cdef inline bint is_ddl(const Record* record) noexcept nogil:
    """Return whether an entry is a DDL, after which a client may resume."""
    cdef uint8_t t = record.event_type
    return record.kind == KIND_OTHER and (4 <= t <= 6 or 8 <= t <= 11)


cdef inline bint continues_after(const Record* record) noexcept nogil:
    """Return whether the transaction continues after a record (no heartbeat)."""
    if record.kind == KIND_BEGIN or record.kind == KIND_ROWS:
        return True
    return record.kind != KIND_END and record.flags & FLAG_OPEN != 0
