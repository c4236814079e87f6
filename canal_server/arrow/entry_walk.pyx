# cython: language_level=3, cdivision=True
"""Turns entries into columns: entries, transactions, order, limits.

    body        any number of 0x12 length Entry; other fields of Messages are skipped

`GenericColumns` and `TypedColumns` decide the columns of a row. Every row has

    _commit_version, _commit_timestamp   position and time of its transaction's end
    _seq                                 number of the position where its event begins
    _row                                 number of the row among those of the event

The first two are known when the transaction ends, and are then filled in for all of its
rows; nothing is returned before. A transaction without an end, which MySQL writes for a
rollback that had changed non-transactional tables, ends where the next one begins.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from canal_server.core.wire cimport Input
from canal_server.arrow.column_buffers cimport (
    BAD_POSITION, FAILED, HELD, LAYOUT_FIXED, MALFORMED, NO_ROOM, OK, TOO_LARGE, column_bytes,
    free_column, init_column, put_fixed_times, put_i32, put_i64, take_column,
)
from canal_server.arrow.text_values cimport is_utf8
from canal_server.core.entry_wire cimport (
    ENTRY_BEGIN, ENTRY_END, ENTRY_ROWDATA, EVENT_DELETE, EVENT_INSERT, EVENT_QUERY,
    read_change, read_entry, read_transaction_id, skip_field, take_slice, take_varint,
)

from canal_server.errors import DecodeError
from canal_server.model.versions import (
    EPOCH_MAX, EXACT_OFFSETS, FILE_NUMBER_MAX, OFFSET_MAX, STEP_BYTES,
)

cdef uint64_t EXACT = EXACT_OFFSETS
cdef uint64_t STEP = STEP_BYTES
cdef uint64_t OFFSETS = OFFSET_MAX
cdef uint64_t FILES = FILE_NUMBER_MAX

# The years 1 to 9999, which Python, Arrow's readers and Spark have.
cdef int64_t LEAST_MS = -62_135_596_800_000
cdef int64_t GREATEST_MS = 253_402_300_799_999

cdef enum:
    MEASURED_EACH = 32 * 1024  # bytes of input between two checks of the columns' size


cdef inline bint is_time(int64_t time_ms) noexcept nogil:
    """Check whether a time can be shown."""
    return LEAST_MS <= time_ms <= GREATEST_MS


def check_time(int64_t time_ms):
    """Raise DecodeError for a time in ms that cannot be shown."""
    if not is_time(time_ms):
        raise DecodeError(f"a commit at {time_ms} ms is not within the years 1 to 9999")


cdef class EntryColumns:
    """Turns entries into rows. Base of the kinds of columns; for one thread at a time."""

    def __cinit__(self, *args, **options):
        init_column(&self.version, LAYOUT_FIXED, 8)
        init_column(&self.time, LAYOUT_FIXED, 8)
        init_column(&self.seq, LAYOUT_FIXED, 8)
        init_column(&self.row, LAYOUT_FIXED, 4)
        self.statements = []
        self.seq_now = <uint64_t>-1
        self.key_parts = 1

    def __init__(self, *, epoch, rows_max, bytes_max):
        if not 0 <= epoch <= EPOCH_MAX:
            raise ValueError(f"epoch {epoch} is not within 0..{EPOCH_MAX}")
        if rows_max < 1 or bytes_max < 1:
            raise ValueError(f"limits of {rows_max} rows, {bytes_max} bytes")
        self.epoch = epoch
        self.rows_max = rows_max
        self.bytes_max = bytes_max

    def __dealloc__(self):
        free_column(&self.version)
        free_column(&self.time)
        free_column(&self.seq)
        free_column(&self.row)

    # --- the caller's side ------------------------------------------------------------

    def feed(self, data):
        """Turn whole entries into rows; returns the number of processed bytes.

        `data` is a body of Messages, or any part of it between two entries. All of it
        is processed, unless the columns are `full`, or there is a statement that the
        caller must see first (`take_statements`). Raises DecodeError for unreadable
        bytes; the input of that call is lost then.
        """
        cdef Py_buffer view
        cdef size_t consumed = 0
        cdef int status
        if self.broken is not None:
            raise self.error_of(*self.broken)
        self.stop_here = False
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                status = self.run(<const uint8_t*>view.buf, view.len, &consumed)
            if status != OK:
                self.raise_error(status)  # its message refers to the buffer
        finally:
            PyBuffer_Release(&view)
            self.head.file.n = 0
        return consumed

    def take_part(self, uint32_t number, uint32_t count):
        """Select only rows whose keys belong to one of `count` parts; call before `feed`.

        The hash of the key decides (`key_hashes`). Updates of a key become a delete and
        an insert. Entries that do not concern a single row belong to the first part.
        """
        if not number < count:
            raise ValueError(f"part {number} of {count}")
        self.key_part, self.key_parts = number, count

    def expect(self, uint64_t version, int64_t time_ms, str xid=""):
        """Set the commit of the current transaction, else of the next one.

        For a part of a transaction: its rows can be fetched before its end was fed.
        Raises DecodeError for a time in no year from 1 to 9999.
        """
        cdef Slice text
        check_time(time_ms)
        self.expected = True
        self.expected_version = version
        self.expected_time_ms = time_ms
        self.expected_xid = xid.encode()
        text.p, text.n = self.expected_xid, len(self.expected_xid)
        self.expected_text = text
        self.check(self.commit(version, time_ms, text))

    def finish(self, uint64_t version, int64_t time_ms, str xid=""):
        """Set the commit of the rows whose transaction has not ended.

        Raises DecodeError for a time in no year from 1 to 9999.
        """
        cdef bytes kept = xid.encode()
        cdef Slice text
        check_time(time_ms)
        text.p, text.n = kept, len(kept)
        self.check(self.commit(version, time_ms, text))
        self.open = self.expected = False

    def take(self):
        """Return the columns of the rows so far, and release them.

        Each is (length, nulls, (validity, offsets, values)); their order is that of the
        class. Raises ValueError while `pending` rows wait for their commit.
        """
        if self.pending:
            raise ValueError(f"{self.pending} of {self.rows} rows wait for their commit")
        columns = self.take_columns()
        columns += [
            take_column(&self.version), take_column(&self.time),
            take_column(&self.seq), take_column(&self.row),
        ]
        self.rows = self.committed = 0
        self.bytes_measured = self.bytes_unmeasured = 0
        return columns

    def take_statements(self):
        """Return the statements found since the last call.

        Each is (file, offset, offset after it, schema, table, event type, whether it is
        DDL, sql, default schema of its names).
        """
        statements = self.statements
        self.statements = []
        return statements

    @property
    def pending(self):
        """How many rows wait for the end of their transaction."""
        return self.rows - self.committed

    @property
    def full(self):
        """Whether the rows must be fetched before further input."""
        return self.is_full()

    @property
    def bytes_held(self):
        """The memory that the rows so far need."""
        return self.measured()

    # --- entries ----------------------------------------------------------------------

    cdef int run(self, const uint8_t* p, size_t n, size_t* consumed) noexcept nogil:
        cdef Input source
        cdef Slice slice
        cdef uint64_t tag
        cdef int status
        source.p, source.end, source.short = p, p + n, False
        while source.p < source.end and not self.stop_here and not self.is_full():
            self.head.file.n = 0
            tag = take_varint(&source)
            if tag == 0x12:
                slice = take_slice(&source)
                if source.short:
                    return MALFORMED
                status = self.entry(slice)
                if status == HELD:
                    return OK
                if status != OK:
                    return status
                self.bytes_unmeasured += slice.n
            else:
                skip_field(&source, tag)
                if source.short:
                    return MALFORMED
            consumed[0] = source.p - p
        return OK

    cdef bint is_full(self) noexcept nogil:
        """Check whether a limit is reached and all rows can be fetched."""
        if self.rows == 0 or self.rows > self.committed:
            return False
        if self.rows >= self.rows_max:
            return True
        if self.bytes_unmeasured >= MEASURED_EACH:
            self.measured()
        return self.bytes_measured >= self.bytes_max

    cdef size_t measured(self) noexcept nogil:
        self.bytes_unmeasured = 0
        self.bytes_measured = (
            column_bytes(&self.version) + column_bytes(&self.time)
            + column_bytes(&self.seq) + column_bytes(&self.row) + self.measure()
        )
        return self.bytes_measured

    cdef int entry(self, Slice slice) noexcept nogil:
        cdef uint64_t version = 0
        cdef Slice nothing
        cdef int status
        if not read_entry(slice.p, slice.n, &self.head) or not is_time(self.head.time_ms):
            return MALFORMED
        if self.head.kind == ENTRY_ROWDATA:
            return self.rowdata()
        if self.head.kind == ENTRY_END:
            return self.end_transaction()
        if self.head.kind != ENTRY_BEGIN:
            return OK  # a heartbeat or the like
        if self.open:
            nothing.p, nothing.n = NULL, 0
            status = self.version_of(self.head.offset, &version)
            if status == OK:
                status = self.commit(version, self.head.time_ms, nothing)
            if status != OK:
                return status
            self.expected = False
        self.open = True
        return self.on_begin()

    cdef int on_begin(self) noexcept nogil:
        """Handle the begin of a transaction."""
        return OK

    cdef int rowdata(self) noexcept nogil:
        cdef uint64_t version
        cdef Slice xid
        cdef int status
        if not read_change(self.head.store, &self.change):
            return MALFORMED
        if self.change.event == 0:
            self.change.event = self.head.event
        if self.change.event == EVENT_QUERY and not self.change.is_ddl:
            return OK  # the text of the statement whose rows follow
        status = self.version_of(self.head.offset, &version)
        if status != OK:
            return status
        if version != self.seq_now:
            self.seq_now, self.row_now = version, 0

        if (EVENT_INSERT <= self.change.event <= EVENT_DELETE
                and self.change.sql.n == 0):
            self.open = True
            status = self.put_change()
        else:
            # A row change logged as a statement belongs to a transaction, even without
            # a begin; other statements are single transactions.
            self.open |= EVENT_INSERT <= self.change.event <= EVENT_DELETE
            status = self.put_statement()
        if status != OK or self.rows == self.committed:
            return status
        xid.p, xid.n = NULL, 0
        if not self.open:
            status = self.version_of(self.head.offset + self.head.length, &version)
            if status == OK:
                status = self.commit(version, self.head.time_ms, xid)
        elif self.expected:
            status = self.commit(self.expected_version, self.expected_time_ms,
                                 self.expected_text)
        return status

    cdef int end_transaction(self) noexcept nogil:
        cdef uint64_t version
        cdef Slice xid
        cdef int status = self.version_of(self.head.offset + self.head.length, &version)
        if status != OK:
            return status
        if not read_transaction_id(self.head.store, &xid):
            return MALFORMED
        if self.expected and self.expected_version != version:
            return self.fail_expected(version)
        self.open = self.expected = False
        return self.commit(version, self.head.time_ms, xid)

    cdef int fail_expected(self, uint64_t version) noexcept with gil:
        try:
            self.fail(f"the transaction ends at version {version}, not at "
                      f"{self.expected_version} as set before")
        except MemoryError:
            return NO_ROOM
        return FAILED

    cdef int commit(self, uint64_t version, int64_t time_ms, Slice xid) noexcept nogil:
        """Fill in the commit of all rows that wait for it."""
        cdef size_t count = self.rows - self.committed
        cdef int64_t time_us = <int64_t>(<uint64_t>time_ms * 1000)
        cdef int status
        if count == 0:
            return OK
        status = put_fixed_times(&self.version, &version, count)
        if status == OK:
            status = put_fixed_times(&self.time, &time_us, count)
        if status == OK:
            status = self.put_commit(count, xid)
        self.committed = self.rows
        return status

    # --- order ------------------------------------------------------------------------

    cdef int version_of(self, uint64_t offset, uint64_t* version) noexcept nogil:
        """Return the version of an offset in the current entry's file."""
        cdef Slice file = self.head.file
        cdef uint64_t number = 0
        cdef uint64_t factor = 1
        cdef size_t i = file.n
        if file.n == 0:
            return BAD_POSITION
        if file.n != self.file_n or memcmp(file.p, self.file, file.n) != 0:
            if file.n > FILE_NAME_MAX or not is_utf8(file.p, file.n):
                return BAD_POSITION
            while i > 0 and 48 <= file.p[i - 1] <= 57:
                i -= 1
                if file.p[i] != 48 and factor > FILES:
                    return BAD_POSITION
                number += factor * (file.p[i] - 48)
                if factor <= FILES:
                    factor *= 10
            if number > FILES:
                return BAD_POSITION
            memcpy(self.file, file.p, file.n)
            self.file_n = file.n
            self.file_version = self.epoch << 56 | number << 32
        if offset > OFFSETS:
            return BAD_POSITION
        if offset >= EXACT:
            offset = EXACT + (offset - EXACT) // STEP
        version[0] = self.file_version | offset
        return OK

    cdef int put_order(self, uint32_t numbers) noexcept nogil:
        """Append the order of a row that uses `count` numbers of its event."""
        cdef int status = put_i64(&self.seq, <int64_t>self.seq_now)
        if status == OK:
            status = put_i32(&self.row, <int32_t>self.row_now)
        self.row_now += numbers
        self.rows += 1
        return status

    cdef int put_routed(self, const EntryHead* head, const Change* change,
                        uint64_t seq) noexcept nogil:
        """Append the rows of an entry that another reader has parsed.

        HELD if it must be passed again, FAILED if reading cannot continue.
        """
        cdef int status
        self.head, self.change = head[0], change[0]
        status = self.look()
        if status != OK:
            return status
        if self.seq_now != seq:
            self.seq_now, self.row_now = seq, 0
        self.bytes_unmeasured += head.store.n
        return self.put_change()

    # --- problems ---------------------------------------------------------------------

    cdef int fail(self, str problem) except -1:
        """Set the error of the current entry; returns FAILED."""
        self.problem = problem
        return 0

    cdef int keep_statement(self) except -1:
        """Store the current entry's statement for `take_statements`."""
        self.statements.append((
            text_of(self.head.file), self.head.offset,
            self.head.offset + self.head.length, text_of(self.head.schema),
            text_of(self.head.table), self.change.event, bool(self.change.is_ddl),
            text_of(self.change.sql), text_of(self.change.schema),
        ))
        return 0

    def check(self, int status):
        """Raise the error of a status."""
        if status != OK:
            self.raise_error(status)

    def raise_error(self, int status):
        """Raise the error of a status, with the current entry's position."""
        reasons = {
            MALFORMED: "a truncated or malformed entry",
            TOO_LARGE: "the rows of one batch have more than 2 GiB of text: set smaller "
                       "limits, or set the commit of a long transaction in advance",
            BAD_POSITION: "an entry at a position without a number",
        }
        file, offset = "", 0
        if self.head.file.n:
            file, offset = text_of(self.head.file), self.head.offset
        if status == NO_ROOM:
            self.broken = "no memory for columns", file, offset
            raise MemoryError("no memory for columns")
        # The error itself is not stored: its traceback would keep everything alive.
        reason = reasons.get(status) or self.problem or "an entry of another kind"
        self.broken = reason, file, offset
        raise self.error_of(*self.broken)

    def error_of(self, reason, file, offset):
        """Return the error that ends the reading."""
        return DecodeError(reason, file=file, position=offset)

    # --- what a kind of columns decides -----------------------------------------------

    cdef int look(self) noexcept nogil:
        return OK

    cdef int put_change(self) noexcept nogil:
        return OK

    cdef int put_statement(self) noexcept nogil:
        return OK

    cdef int put_commit(self, size_t count, Slice xid) noexcept nogil:
        return OK

    cdef size_t measure(self) noexcept nogil:
        return 0

    cdef list take_columns(self):
        return []


cdef str text_of(Slice slice):
    return slice.p[:slice.n].decode("utf-8", "replace") if slice.n else ""
