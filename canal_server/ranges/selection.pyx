# cython: language_level=3
"""Walks over records in the order of the binlog, for readers of a range.

It picks what passes a filter: for a transaction without such entries, BEGIN and END are
left out as well, and so are texts of statements whose rows follow. It finds how far a
range may go within limits, and where a range can be cut. The same records give the same
result wherever they come from: the pump's blocks, or blocks that were read again.

A *boundary* is the offset after an END, or after a statement that is a transaction by
itself.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from cpython.object cimport PyObject

from canal_server.core.blocks cimport (
    FLAG_OPEN,
    KIND_BEGIN,
    KIND_END,
    KIND_HEARTBEAT,
    KIND_OTHER,
    KIND_ROWS,
    Block,
    Record,
)
from canal_server.core.runs cimport Runs

from canal_server.errors import StoreError
from canal_server.store.cursor import mask_of

# Of one walk; more than a plan can have at its distance between cuts.
CUTS_MAX = 1 << 16

cdef enum:
    FIRST_EVENT = 4  # offset of the first event in every binlog file
    QUERY = 7  # EventType


cdef inline bint is_text(const Record* record) noexcept nogil:
    """Return whether an entry is the text of the statement whose rows follow.

    It names no table, so it would select every transaction.
    """
    return (
        record.kind == KIND_OTHER and record.event_type == QUERY
        and record.table_ordinal == 0 and record.flags & FLAG_OPEN
    )


cdef class RangeWalk:
    """One walk; used by one thread. It starts at a boundary.

    That is `begin`, or `start`. Both and `end` are a binlog file's number and an offset;
    events that begin at or after `start` count, up to `end` (None: no end). `max_rows`,
    `max_bytes`: limits of the range (0: none). Every `cut_rows` rows it records where
    the range could be cut (0: never). `picks`: `take` returns what passes the filter.
    """

    cdef object table_filter
    cdef object table_ids
    cdef bytes mask           # of the table ids from `mask_first` on
    cdef uint64_t mask_first
    cdef uint64_t start_file, start_offset
    cdef bint has_end
    cdef uint64_t end_file, end_offset
    cdef uint64_t max_rows, max_bytes, cut_rows
    cdef bint picks
    cdef Runs runs
    cdef readonly uint64_t size  # bytes in `runs`

    # The current transaction.
    cdef Block begin_block    # of a BEGIN that is not picked yet; None: none
    cdef uint32_t begin_index
    cdef bint is_selected       # something in it passes the filter
    cdef uint64_t begin_file, begin_at  # its start: after the previous boundary

    # So far, after `start`. Entries that are not rows count as one; bytes are those of
    # events, so that a walk over records without rows counts the same.
    cdef uint64_t walked_rows, walked_bytes

    # Of the last entry that passed the filter: where a cut could be.
    cdef uint64_t event_offset, event_stop
    cdef uint64_t cut_at_rows
    cdef list cuts
    cdef Py_ssize_t uncommitted   # of the cuts, the first whose transaction has not ended

    # Up to the last boundary that is within the limits.
    cdef readonly str file
    cdef readonly uint64_t offset
    cdef readonly uint64_t rows
    cdef readonly uint64_t bytes
    cdef readonly uint32_t time     # s, of the last boundary
    # The walk is over: the end was passed, or a limit was reached.
    cdef readonly bint is_over

    def __init__(self, table_filter, table_ids, start, end=None, *, begin=None, max_rows=0,
                 max_bytes=0, cut_rows=0, picks=False):
        self.table_filter, self.table_ids = table_filter, table_ids
        self.mask_first, self.mask = 1, b""
        self.start_file, self.start_offset = start
        self.begin_file, self.begin_at = begin or start
        self.has_end = end is not None
        if end is not None:
            self.end_file, self.end_offset = end
        self.max_rows, self.max_bytes, self.cut_rows = max_rows, max_bytes, cut_rows
        self.picks = picks
        self.runs = Runs()
        self.cuts = []
        self.file = ""

    def walk(self, spans):
        """Walk over spans, the next ones of the binlog; false when it is over."""
        cdef Block block
        cdef uint32_t i, first, stop
        for block, first, stop in spans:
            if self.is_over:
                return False
            if stop > block.count:
                raise IndexError(f"record {stop} of {block!r}")
            for i in range(first, stop):
                self.step(block, i)
                if self.is_over:
                    return False
        return True

    def take(self):
        """Return what was picked since the last call, as slices, and its size."""
        slices, size = self.runs.slices(), self.size
        self.runs.clear()
        self.size = 0
        return slices, size

    @property
    def has_found(self):
        """Whether something passes the filter before the last good boundary."""
        return self.bytes > 0

    @property
    def pending(self):
        """Whether something passed the filter after the last good boundary."""
        return self.walked_bytes > self.bytes

    def found_cuts(self):
        """Return where the range up to the last good boundary can be cut.

        Each as (file, offset, start of its transaction or 0 at a boundary, rows and
        bytes before it, and inside a transaction its end and the time of that, s).
        """
        return [
            cut for cut in self.cuts
            if cut[3] < self.rows and (not cut[2] or cut[5])
        ]

    cdef int step(self, Block block, uint32_t i) except -1:
        cdef Record* record = &block.records[i]
        cdef bint counts
        if self.has_end and (
                block.file_number > self.end_file
                or (block.file_number == self.end_file
                    and record.offset >= self.end_offset)):
            self.is_over = True
            return 0
        counts = block.file_number > self.start_file or (
            block.file_number == self.start_file and record.offset >= self.start_offset)
        if record.kind == KIND_HEARTBEAT or is_text(record):
            return 0
        if record.kind == KIND_BEGIN:
            self.begin_block, self.begin_index = block, i
            self.is_selected = False
        elif record.kind == KIND_END:
            if self.is_selected:
                self.pick(block, i, counts)
            self.end_transaction(block, record, counts)
        else:
            if self.selects(block, record):
                if self.cut_rows and counts:
                    self.cut_before(block, record)
                self.pick_begin()
                self.is_selected = True
                self.pick(block, i, counts)
                if counts:
                    self.walked_rows += record.rows if record.kind == KIND_ROWS else 1
                    self.event_offset = record.offset
                    self.event_stop = record.offset + record.event_length
                    if self.exceeds() and self.bytes:
                        self.is_over = True  # it ends at the previous boundary
                        return 0
            if record.kind != KIND_ROWS and not record.flags & FLAG_OPEN:
                self.end_transaction(block, record, counts)
        return 0

    cdef bint selects(self, Block block, const Record* record) except -1:
        cdef uint64_t lowest
        cdef uint64_t table_ordinal = record.table_ordinal
        if table_ordinal == 0:
            return True
        if table_ordinal >= self.mask_first + <uint64_t>len(self.mask):
            lowest, more = mask_of(
                self.table_filter, self.table_ids,
                self.mask_first + <uint64_t>len(self.mask),
            )
            if lowest > self.mask_first:
                self.mask = self.mask[lowest - self.mask_first:]
                self.mask_first = lowest
            self.mask += more
        if not self.mask_first <= table_ordinal < self.mask_first + <uint64_t>len(self.mask):
            raise StoreError(
                f"the table of an entry at {block.file}:{record.offset} is forgotten"
            )
        return <uint8_t>self.mask[table_ordinal - self.mask_first]

    cdef int pick_begin(self) except -1:
        """Pick the BEGIN of the transaction: something in it passes the filter."""
        cdef Block block = self.begin_block
        cdef Record* record
        if block is None:
            return 0
        self.begin_block = None
        record = &block.records[self.begin_index]
        self.pick(block, self.begin_index, block.file_number > self.start_file or (
            block.file_number == self.start_file and record.offset >= self.start_offset))
        return 0

    cdef int pick(self, Block block, uint32_t i, bint counts) except -1:
        if not counts:
            return 0
        self.walked_bytes += block.records[i].event_length
        if self.picks:
            self.runs.add(<PyObject*>block, i)
            self.size += block.records[i].end - block.begin_of(i)
        return 0

    cdef bint exceeds(self) noexcept:
        return (self.max_rows and self.walked_rows > self.max_rows) or (
            self.max_bytes and self.walked_bytes > self.max_bytes)

    cdef int end_transaction(self, Block block, const Record* record,
                             bint counts) except -1:
        """Record the boundary after a record."""
        cdef uint64_t stop = record.offset + record.event_length
        cdef Py_ssize_t i
        self.begin_block = None
        self.is_selected = False
        self.begin_file, self.begin_at = block.file_number, stop
        if not counts:
            return 0
        for i in range(self.uncommitted, len(self.cuts)):
            self.cuts[i] = (*self.cuts[i][:5], stop, record.time)
        self.uncommitted = len(self.cuts)
        if self.exceeds() and self.bytes:
            self.is_over = True  # it ends at the previous boundary
            return 0
        self.file, self.offset, self.time = block.file, stop, record.time
        self.rows, self.bytes = self.walked_rows, self.walked_bytes
        if (self.max_rows and self.rows >= self.max_rows) or (
                self.max_bytes and self.bytes >= self.max_bytes):
            self.is_over = True
        return 0

    cdef int cut_before(self, Block block, const Record* record) except -1:
        """Record a cut before an entry that passes the filter, if one is due.

        Events that share an offset, those of a compressed transaction, stay together.
        """
        cdef bint is_inside = self.is_selected
        if (
            self.walked_rows - self.cut_at_rows < self.cut_rows
            or len(self.cuts) >= CUTS_MAX
        ):
            return 0
        if is_inside:
            if record.offset == self.event_offset:
                return 0
            self.cuts.append((
                block.file, self.event_stop,
                self.begin_at if self.begin_file == block.file_number else FIRST_EVENT,
                self.walked_rows, self.walked_bytes, 0, 0,
            ))
        elif self.file:
            self.cuts.append((
                self.file, self.offset, 0, self.walked_rows, self.walked_bytes, 0, 0,
            ))
            self.uncommitted = len(self.cuts)
        else:
            return 0
        self.cut_at_rows = self.walked_rows
        return 0
