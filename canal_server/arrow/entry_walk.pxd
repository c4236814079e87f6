# cython: language_level=3
"""Turns entries into rows of columns: the part that all kinds of columns share."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from canal_server.arrow.column_buffers cimport ArrowColumn
from canal_server.arrow.key_hashes cimport part_of
from canal_server.core.entry_wire cimport Change, EntryHead, Slice

cdef enum:
    FILE_NAME_MAX = 512    # bytes

cdef class EntryColumns:
    cdef size_t rows_max
    cdef size_t bytes_max
    cdef uint64_t epoch
    cdef EntryHead head            # of the current entry
    cdef Change change             # the same, if it is ROWDATA

    # Of the rows so far.
    cdef readonly size_t rows
    cdef size_t committed          # rows whose commit is known; they precede the others
    cdef size_t bytes_measured
    cdef size_t bytes_unmeasured   # input since then
    cdef ArrowColumn version
    cdef ArrowColumn time
    cdef ArrowColumn seq
    cdef ArrowColumn row

    # Of the current transaction.
    cdef bint open                 # it began and has not ended
    cdef bint expected             # the caller has set its commit
    cdef uint64_t expected_version
    cdef int64_t expected_time_ms
    cdef bytes expected_xid        # owns what the next one points to
    cdef Slice expected_text

    # Of the current event: the number in the file's name, and that of the next row.
    cdef uint8_t[FILE_NAME_MAX] file
    cdef size_t file_n
    cdef uint64_t file_version     # of the epoch and the file
    cdef uint64_t seq_now
    cdef uint32_t row_now

    # The selected rows: those whose keys belong to this part of `key_parts`.
    cdef uint32_t key_part
    cdef uint32_t key_parts        # 1: all

    cdef list statements           # found and not yet fetched
    cdef bint stop_here            # after the current entry
    cdef str problem               # the full error message of the current entry
    cdef tuple broken              # the parts of the error that ended the reading

    cdef int run(self, const uint8_t* p, size_t n, size_t* consumed) noexcept nogil
    cdef int entry(self, Slice slice) noexcept nogil
    cdef int rowdata(self) noexcept nogil
    cdef int on_begin(self) noexcept nogil
    cdef int end_transaction(self) noexcept nogil
    cdef int commit(self, uint64_t version, int64_t time_ms, Slice xid) noexcept nogil
    cdef int version_of(self, uint64_t offset, uint64_t* version) noexcept nogil
    cdef int put_order(self, uint32_t numbers) noexcept nogil
    cdef inline bint takes(self, uint64_t hashed) noexcept nogil:
        """Check whether a row with this hash is selected; skipped rows are numbered."""
        if self.key_parts == 1 or part_of(hashed, self.key_parts) == self.key_part:
            return True
        self.row_now += 1
        return False

    cdef bint is_full(self) noexcept nogil
    cdef size_t measured(self) noexcept nogil
    cdef int fail_expected(self, uint64_t version) noexcept with gil
    cdef int fail(self, str problem) except -1
    cdef int keep_statement(self) except -1
    # For a router that passes entries to several columns.
    cdef int put_routed(self, const EntryHead* head, const Change* change,
                        uint64_t seq) noexcept nogil
    cdef inline bint waits(self) noexcept nogil:
        """Check whether rows wait for their commit."""
        return self.rows > self.committed

    # Decided by the kind of columns: append the rows of the current entry, with
    # `put_order` for each; a row for a statement, or none; the xid of committed rows.
    # `look` checks whether the rows have the known columns: OK or HELD.
    cdef int look(self) noexcept nogil
    cdef int put_change(self) noexcept nogil
    cdef int put_statement(self) noexcept nogil
    cdef int put_commit(self, size_t count, Slice xid) noexcept nogil
    cdef size_t measure(self) noexcept nogil
    cdef list take_columns(self)
