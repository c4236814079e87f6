# cython: language_level=3
"""Runs of neighbouring records: how single records become spans and slices.

Stages that choose records one by one (buffer, sink, store) collect them here; records
that lie end to end in a block become one span, or one slice of bytes.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from canal_server.core.blocks cimport Block

# A run of fewer bytes is copied together with its small neighbours: a separate slice
# costs more than the copy.
cdef uint64_t SLICE_BYTES_MIN = 4096
# At most so many runs are large by the rule in `slices`, so that there are at most
# twice as many slices and one; the system accepts 1024 (IOV_MAX) in one call.
cdef uint64_t LARGE_RUNS_MAX = 128


cdef class Runs:
    """A growing list of runs; reused from call to call by its only owner."""

    def __dealloc__(self):
        self.clear()
        free(self.runs)

    cdef int begin_run(self, PyObject* block, uint32_t i) except -1:
        """Start a new run with record i."""
        cdef size_t capacity
        cdef Run* grown
        if self.count == self.capacity:
            capacity = self.capacity * 2 if self.capacity else 16
            grown = <Run*>realloc(self.runs, capacity * sizeof(Run))
            if grown == NULL:
                raise MemoryError(f"no memory for {capacity} runs of records")
            self.runs, self.capacity = grown, capacity
        Py_INCREF(<object>block)
        self.runs[self.count].block = block
        self.runs[self.count].first = i
        self.runs[self.count].stop = i + 1
        self.count += 1
        return 0

    cdef void clear(self) noexcept:
        """Forget all runs and release their blocks."""
        cdef size_t i
        cdef size_t count = self.count
        self.count = 0
        for i in range(count):
            Py_DECREF(<object>self.runs[i].block)

    cdef list spans(self):
        """Return the runs as (block, first, stop)."""
        cdef size_t i
        return [
            (<object>self.runs[i].block, self.runs[i].first, self.runs[i].stop)
            for i in range(self.count)
        ]

    cdef uint64_t bytes_of(self, size_t i):
        cdef Run* run = &self.runs[i]
        cdef Block block = <Block>run.block
        return block.records[run.stop - 1].end - block.begin_of(run.first)

    cdef tuple slices(self):
        """Return the runs' bytes, in order, as fewer than 512 memoryviews.

        Large runs are views of their blocks; small ones are joined into new bytes.
        """
        cdef uint64_t total = 0
        cdef uint64_t large
        cdef size_t i, j
        cdef list found = []
        for i in range(self.count):
            total += self.bytes_of(i)
        large = max(SLICE_BYTES_MIN, total // LARGE_RUNS_MAX)
        i = 0
        while i < self.count:
            j = i + 1
            if self.bytes_of(i) < large:
                while j < self.count and self.bytes_of(j) < large:
                    j += 1
            if j - i == 1:
                found.append(
                    (<Block>self.runs[i].block).slice(
                        self.runs[i].first, self.runs[i].stop
                    )
                )
            else:
                found.append(memoryview(self.join(i, j)))
            i = j
        return tuple(found)

    cdef bytes join(self, size_t first, size_t stop):
        """Copy the runs first <= i < stop into new bytes."""
        cdef uint64_t size = 0
        cdef uint64_t n
        cdef size_t i
        cdef Block block
        for i in range(first, stop):
            size += self.bytes_of(i)
        cdef bytes joined = PyBytes_FromStringAndSize(NULL, size)
        cdef char* p = PyBytes_AS_STRING(joined)
        for i in range(first, stop):
            block = <Block>self.runs[i].block
            n = self.bytes_of(i)
            memcpy(p, block.data + block.begin_of(self.runs[i].first), n)
            p += n
        return joined


def merge(spans):
    """Return the spans with neighbours merged; for tests and diagnosis."""
    cdef Runs runs = Runs()
    cdef uint32_t i, first, stop
    cdef Block block
    for block, first, stop in spans:
        for i in range(first, stop):
            runs.add(<PyObject*>block, i)
    return runs.spans()


def slices(spans):
    """Return the bytes of the spans as fewer than 512 memoryviews."""
    cdef Runs runs = Runs()
    cdef uint32_t i, first, stop
    cdef Block block
    for block, first, stop in spans:
        for i in range(first, stop):
            runs.add(<PyObject*>block, i)
    return runs.slices()
