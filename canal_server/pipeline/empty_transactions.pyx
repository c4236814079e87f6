# cython: language_level=3
"""Which BEGIN, END and heartbeat entries are passed on to the store.

Rows, DDL and the like all pass. A transaction without rows passes about every five
seconds (`core.emptiness`); when markers are thinned, so do the BEGIN and END of those
with rows. A BEGIN is held back until the first row or the END decides about it; the END
of a transaction whose rows passed always passes. The state is kept between calls, since
a large transaction is delivered in parts.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from canal_server.core.blocks cimport (
    KIND_BEGIN,
    KIND_END,
    KIND_HEARTBEAT,
    KIND_ROWS,
    Block,
    Record,
)
from canal_server.core.emptiness cimport (
    SWALLOWED_MAX,
    Emptiness,
    empty_passes,
    is_quiet,
)
from canal_server.core.runs cimport Runs, is_ddl


cdef class EmptyTransactionFilter:
    """Thins the entries of one stream; used by the pump's thread only."""

    cdef readonly bint thin_markers
    cdef readonly uint64_t entries       # that passed
    cdef readonly uint64_t rows          # in entries that passed
    cdef readonly uint64_t transactions  # whose END passed
    cdef readonly uint32_t last_time     # of the last entry seen, s
    cdef Emptiness empties
    cdef Emptiness markers
    cdef Block begin_block     # of the BEGIN that is held back; None: there is none
    cdef uint32_t begin_index
    cdef bint started          # after a BEGIN, before its END
    cdef bint begin_passed     # that BEGIN was passed on
    cdef bint rows_passed      # entries of the open transaction were passed on
    cdef Runs runs

    def __init__(self, *, bint thin_markers=False):
        self.thin_markers = thin_markers
        self.runs = Runs()

    def thin(self, spans):
        """Return the spans of what passes, in order, with neighbours merged."""
        cdef Block block
        cdef uint32_t i, first, stop
        cdef Record* record
        for block, first, stop in spans:
            if stop > block.count:
                raise IndexError(f"record {stop} of {block!r}")
            for i in range(first, stop):
                record = &block.records[i]
                self.last_time = record.time
                if record.kind == KIND_BEGIN:
                    self.begin(block, i)
                elif record.kind == KIND_END:
                    self.end(block, i)
                elif record.kind != KIND_HEARTBEAT:
                    self.release_begin()
                    self.forward(block, i)
                    # A DDL outside of BEGIN and END is complete in itself.
                    if self.started or not is_ddl(record):
                        self.rows_passed = True
        passed = self.runs.spans()
        self.runs.clear()
        return passed

    def reset(self):
        """Drop the open transaction; the source is read again from before it."""
        self.begin_block = None
        self.started = self.begin_passed = self.rows_passed = False

    cdef int forward(self, Block block, uint32_t i) except -1:
        cdef Record* record = &block.records[i]
        self.runs.add(<PyObject*>block, i)
        self.entries += 1
        if record.kind == KIND_ROWS:
            self.rows += record.rows
        elif record.kind == KIND_END:
            self.transactions += 1
        return 0

    cdef int release_begin(self) except -1:
        """Pass on the BEGIN that was held back, if there is one."""
        if self.begin_block is not None:
            self.forward(self.begin_block, self.begin_index)
            self.begin_block = None
            self.begin_passed = True
        return 0

    cdef int begin(self, Block block, uint32_t i) except -1:
        self.started = True
        self.begin_passed = self.rows_passed = False
        if self.marker_passes(&block.records[i]):
            self.begin_block, self.begin_index = block, i
        else:
            self.begin_block = None
        return 0

    cdef int end(self, Block block, uint32_t i) except -1:
        # The rule counts every marker, thus it is asked even where a BEGIN decides.
        cdef bint passes = self.marker_passes(&block.records[i]) or self.begin_passed
        cdef uint32_t time = block.records[i].time
        if not self.rows_passed:
            if self.begin_block is not None:
                time = self.begin_block.records[self.begin_index].time
                passes = True
            passes = passes and empty_passes(&self.empties, time)
        if passes:
            self.release_begin()
            self.forward(block, i)
        self.reset()
        return 0

    cdef bint marker_passes(self, const Record* record) noexcept:
        """Decide on a BEGIN or END by itself; all pass unless markers are thinned."""
        if not self.thin_markers:
            return True
        self.markers.swallowed += 1
        if self.markers.swallowed <= SWALLOWED_MAX and is_quiet(
            &self.markers, record.time
        ):
            return False
        # Only the END starts the next pause, so that its BEGIN passes with it.
        if record.kind == KIND_END:
            self.markers.swallowed, self.markers.time = 0, record.time
        return True
