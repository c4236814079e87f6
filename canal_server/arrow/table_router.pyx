# cython: language_level=3, cdivision=True
"""Distributes entries to the columns of many tables in one pass.

Each entry is passed to the columns of its table, and the end of a transaction to all
columns with rows of it. Python is asked about an unknown table, and about rows whose
columns differ from the known ones: `feed` returns before that entry. It also returns
after a statement, and where the rows of a table cannot be read.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc

from canal_server.arrow.column_buffers cimport FAILED, HELD, MALFORMED, NO_ROOM, OK
from canal_server.arrow.entry_walk cimport EntryColumns
from canal_server.arrow.text_values cimport is_utf8
from canal_server.core.entry_wire cimport (
    EVENT_DELETE, EVENT_INSERT, EVENT_QUERY, EVENT_XA_ROWS, Slice, read_change,
    read_xa_xid, same,
)

from typing import NamedTuple

cdef uint64_t FNV_BASIS = 0xCBF29CE484222325
cdef uint64_t FNV_PRIME = 0x100000001B3

cdef enum:
    LOOK_EACH = 256 * 1024  # bytes of input between two checks of all tables' size
    SLOTS_FIRST = 64

cdef enum XaState:
    XA_UNKNOWN  # no begin: in an earlier part, or MariaDB's, whose end shows it
    XA_NONE
    XA_OPEN     # in an XA transaction


class Held(NamedTuple):
    """A table whose columns must be set before its entry is fed again."""

    schema: str
    table: str
    journal: str
    position: int    # of the entry
    is_unlike: bool  # the entry differs from the known columns


class FoundStatement(NamedTuple):
    """A statement among the changes, with its position."""

    number: int      # its number in `committed_statements`
    journal: str
    position: int
    end: int         # the offset after it
    schema: str
    table: str
    event_type: int
    is_ddl: bool
    sql: str
    default_schema: str  # for names without a schema
    seq: int
    time_ms: int


class Refused(NamedTuple):
    """Unreadable rows of a table: the first one that is not delivered."""

    schema: str
    table: str
    problem: str
    journal: str
    position: int
    seq: int
    row: int
    time_ms: int


cdef struct Slot:
    # A table in the hash map; a slot without `used` is free.
    uint64_t hash
    Slice schema
    Slice table
    void* columns   # an EntryColumns that `columns_of` owns; NULL: skipped
    bint used


cdef class TableRouter(EntryColumns):
    """Passes entries to the columns of their tables; for one thread at a time.

    It has no rows itself: they are read from the columns that have no rows waiting for
    their commit (`pending`), when the router is `full` and at the end.
    """

    cdef dict columns_of       # by (schema, table) in bytes; None: skipped
    cdef Slot* slots
    cdef size_t slot_n         # a power of two, larger than the number of tables
    cdef Slot* last            # found last
    cdef void** touched        # columns with rows that wait for their commit
    cdef size_t touched_n
    cdef size_t touched_size
    cdef list replaced         # touched columns that were replaced
    cdef size_t replaced_n
    cdef bint filled
    cdef object hold           # the value of `held`
    cdef list found_statements
    cdef list open_statements  # numbers of those in the current transaction
    cdef size_t open_n
    cdef list done_statements
    cdef int64_t statement_number
    cdef list problems
    cdef XaState xa
    cdef set xa_tables         # of the current transaction, while it may be XA
    cdef bint xa_noted         # the set is not empty
    cdef Slot* xa_last         # noted last, if it still exists
    cdef str xa_xid

    def __cinit__(self, *args, **options):
        self.columns_of = {}
        self.replaced = []
        self.found_statements = []
        self.open_statements = []
        self.done_statements = []
        self.problems = []
        self.xa_tables = set()
        self.xa_xid = ""
        self.xa = XA_UNKNOWN

    def __init__(self, *, epoch=0, bytes_max=32 << 20):
        """Set the limit in bytes of all tables together."""
        EntryColumns.__init__(self, epoch=epoch, rows_max=1, bytes_max=bytes_max)
        self.rebuild()

    def __dealloc__(self):
        free(self.slots)
        free(self.touched)

    # --- tables -----------------------------------------------------------------------

    def set_table(self, str schema, str table, EntryColumns columns):
        """Set a table's columns, replacing earlier ones; None: skip its rows.

        Rows in the earlier columns that wait for their commit get it.
        """
        cdef tuple key = (schema.encode(), table.encode())
        cdef EntryColumns old = self.columns_of.get(key)
        if old is not None:
            self.retire(old)
            if columns is not None:
                columns.seq_now, columns.row_now = old.seq_now, old.row_now
        self.columns_of[key] = columns
        self.rebuild()

    def forget(self, str schema, str table):
        """Request the columns of a table again at its next entry."""
        cdef EntryColumns old = self.columns_of.pop((schema.encode(), table.encode()), None)
        if old is not None:
            self.retire(old)
        self.rebuild()

    cdef int retire(self, EntryColumns columns) except -1:
        if columns.rows > columns.committed:
            self.replaced.append(columns)
            self.replaced_n += 1
        return 0

    cdef int rebuild(self) except -1:
        """Rebuild the map of all tables."""
        cdef size_t size = SLOTS_FIRST
        cdef Slot* slots
        cdef Slot* slot
        cdef Slice schema, table
        cdef bytes name
        cdef object columns
        while size < 2 * len(self.columns_of):
            size *= 2
        slots = <Slot*>calloc(size, sizeof(Slot))
        if slots == NULL:
            raise MemoryError("no memory for the tables of a range")
        free(self.slots)
        self.slots, self.slot_n, self.last, self.xa_last = slots, size, NULL, NULL
        for key, columns in self.columns_of.items():
            name = key[0]
            schema.p, schema.n = name, len(name)
            name = key[1]
            table.p, table.n = name, len(name)
            slot = self.slot_of(schema, table, hash_of(schema, table))
            slot.hash, slot.schema, slot.table = hash_of(schema, table), schema, table
            slot.columns = <void*>columns if columns is not None else NULL
            slot.used = True
        return 0

    cdef Slot* slot_of(self, Slice schema, Slice table, uint64_t hashed) noexcept nogil:
        """Return the slot of a table, or the free slot for it."""
        cdef size_t at = hashed & (self.slot_n - 1)
        cdef Slot* slot = &self.slots[at]
        while slot.used and not (
                slot.hash == hashed and same(table, slot.table.p, slot.table.n)
                and same(schema, slot.schema.p, slot.schema.n)):
            at = (at + 1) & (self.slot_n - 1)
            slot = &self.slots[at]
        return slot

    cdef Slot* find(self) noexcept nogil:
        """Return the slot of the entry's table."""
        cdef Slice schema = self.head.schema
        cdef Slice table = self.head.table
        cdef Slot* last = self.last
        if (last != NULL and same(table, last.table.p, last.table.n)
                and same(schema, last.schema.p, last.schema.n)):
            return last
        last = self.slot_of(schema, table, hash_of(schema, table))
        if last.used:
            self.last = last
        return last

    # --- the caller's side ------------------------------------------------------------

    @property
    def waiting(self):
        """How many tables have rows that wait for the end of their transaction."""
        return self.touched_n

    @property
    def tables(self):
        """How many tables are known."""
        return len(self.columns_of)

    def held(self):
        """Return the table that made `feed` return before its entry."""
        hold, self.hold = self.hold, None
        return hold

    def room_made(self):
        """Continue after the full columns were fetched."""
        self.filled = False
        self.bytes_unmeasured = 0

    def met(self):
        """Return the statements found since the last call."""
        found, self.found_statements = self.found_statements, []
        return found

    def committed_statements(self):
        """Return (number, version, time in ms) of committed statements."""
        found, self.done_statements = self.done_statements, []
        return found

    def refused(self):
        """Return the tables that became unreadable; they are skipped from now on."""
        found, self.problems = self.problems, []
        return found

    # --- entries ----------------------------------------------------------------------

    cdef int rowdata(self) noexcept nogil:
        cdef uint64_t version
        cdef Slot* slot
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
        self.seq_now = version
        if (not EVENT_INSERT <= self.change.event <= EVENT_DELETE
                or self.change.sql.n):
            self.open |= EVENT_INSERT <= self.change.event <= EVENT_DELETE
            return self.put_statement()
        slot = self.find()
        if not slot.used:
            # Python has names as text: it could not pass others back.
            if not (is_utf8(self.head.schema.p, self.head.schema.n)
                    and is_utf8(self.head.table.p, self.head.table.n)):
                return MALFORMED
            return self.hold_entry(False)
        if slot.columns == NULL:
            self.open = True
            return OK
        return self.put_rows(slot)

    cdef int put_rows(self, Slot* slot) noexcept nogil:
        """Append the current entry's rows to the columns of its table."""
        cdef void* columns = slot.columns
        cdef bint is_touched = (<EntryColumns>columns).waits()
        cdef int status = (<EntryColumns>columns).put_routed(
            &self.head, &self.change, self.seq_now)
        if status == HELD:
            return self.hold_entry(True)
        self.open = True
        if status == FAILED:
            return self.skip_table(columns)
        if status == OK and not is_touched and (<EntryColumns>columns).waits():
            status = self.touch(columns)
        if status == OK and self.xa != XA_NONE and slot != self.xa_last:
            self.xa_last = slot
            status = self.note_xa()
        if status == OK and self.expected:
            status = self.commit(self.expected_version, self.expected_time_ms,
                                 self.expected_text)
        return status

    cdef int on_begin(self) noexcept nogil:
        cdef Slice xid
        if not read_xa_xid(self.head.store, &xid):
            return MALFORMED
        self.xa = XA_NONE
        return self.begin_xa(xid) if xid.p != NULL or self.xa_noted else OK

    cdef int end_transaction(self) noexcept nogil:
        cdef Slice xid
        cdef int status = OK
        if self.xa_noted:
            if not read_xa_xid(self.head.store, &xid):
                return MALFORMED
            status = self.end_xa(xid)
        self.xa = XA_UNKNOWN
        return EntryColumns.end_transaction(self) if status == OK else status

    cdef int touch(self, void* columns) noexcept nogil:
        """Pass the end of the transaction to the columns."""
        cdef size_t size = 2 * self.touched_size + 16
        cdef void** touched
        if self.touched_n == self.touched_size:
            touched = <void**>realloc(self.touched, size * sizeof(void*))
            if touched == NULL:
                return NO_ROOM
            self.touched, self.touched_size = touched, size
        self.touched[self.touched_n] = columns
        self.touched_n += 1
        return OK

    cdef int commit(self, uint64_t version, int64_t time_ms, Slice xid) noexcept nogil:
        """Pass the commit to all columns with rows of the transaction."""
        cdef size_t i
        cdef int status
        for i in range(self.touched_n):
            status = (<EntryColumns>self.touched[i]).commit(version, time_ms, xid)
            if status != OK:
                return status
            self.filled |= (<EntryColumns>self.touched[i]).is_full()
        self.touched_n = 0
        if self.open_n or self.replaced_n:
            return self.commit_statements(version, time_ms)
        return OK

    cdef bint is_full(self) noexcept nogil:
        """Check whether a table, or all tables together, have reached a limit."""
        if (not self.filled and self.touched_n == 0
                and self.bytes_unmeasured >= LOOK_EACH):
            self.filled = self.measured() >= self.bytes_max
        return self.filled

    cdef size_t measured(self) noexcept nogil:
        cdef size_t total = 0
        cdef size_t i
        self.bytes_unmeasured = 0
        for i in range(self.slot_n):
            if self.slots[i].used and self.slots[i].columns != NULL:
                total += (<EntryColumns>self.slots[i].columns).measured()
        return total

    # --- with Python ------------------------------------------------------------------

    cdef int hold_entry(self, bint is_unlike) noexcept with gil:
        try:
            self.hold = Held(
                text_of(self.head.schema), text_of(self.head.table),
                text_of(self.head.file), self.head.offset, bool(is_unlike),
            )
        except MemoryError:
            return NO_ROOM
        return HELD

    cdef int put_statement(self) noexcept with gil:
        cdef uint64_t version
        cdef Slice xid
        cdef int status = OK
        try:
            self.statement_number += 1
            self.found_statements.append(FoundStatement(
                self.statement_number, text_of(self.head.file), self.head.offset,
                self.head.offset + self.head.length, text_of(self.head.schema),
                text_of(self.head.table), self.change.event, bool(self.change.is_ddl),
                text_of(self.change.sql), text_of(self.change.schema),
                self.seq_now, self.head.time_ms,
            ))
            self.open_statements.append(self.statement_number)
            self.open_n += 1
        except MemoryError:
            return NO_ROOM
        self.stop_here = True
        xid.p, xid.n = NULL, 0
        if not self.open:
            status = self.version_of(self.head.offset + self.head.length, &version)
            if status == OK:
                status = self.commit(version, self.head.time_ms, xid)
        elif self.expected:
            status = self.commit(self.expected_version, self.expected_time_ms,
                                 self.expected_text)
        return status

    cdef int begin_xa(self, Slice xid) noexcept with gil:
        """Record the begin of a transaction: an XA transaction unless `p` is NULL."""
        self.xa = XA_OPEN if xid.p != NULL else XA_NONE
        try:
            self.xa_xid = text_of(xid)
            self.xa_clear()
        except MemoryError:
            return NO_ROOM
        return OK

    cdef int note_xa(self) noexcept with gil:
        """Report or record that the current table has rows of the current transaction."""
        try:
            name = text_of(self.head.schema), text_of(self.head.table)
            if name in self.xa_tables:
                return OK
            self.xa_tables.add(name)
            self.xa_noted = True
            if self.xa == XA_OPEN:
                self.put_xa_rows(name)
        except MemoryError:
            return NO_ROOM
        return OK

    cdef int end_xa(self, Slice xid) noexcept with gil:
        """Report the recorded tables, if it was an XA transaction."""
        try:
            if self.xa == XA_UNKNOWN and xid.p != NULL:
                self.xa_xid = text_of(xid)
                for name in self.xa_tables:
                    self.put_xa_rows(name)
            self.xa_clear()
        except MemoryError:
            return NO_ROOM
        return OK

    cdef object xa_clear(self):
        self.xa_tables.clear()
        self.xa_noted, self.xa_last = False, NULL

    cdef object put_xa_rows(self, tuple name):
        """Report it as a statement of the transaction whose text is the xid."""
        self.statement_number += 1
        self.found_statements.append(FoundStatement(
            self.statement_number, text_of(self.head.file), self.head.offset,
            self.head.offset + self.head.length, name[0], name[1], EVENT_XA_ROWS,
            False, self.xa_xid.strip(), "", self.seq_now, self.head.time_ms,
        ))
        self.open_statements.append(self.statement_number)
        self.open_n += 1
        self.stop_here = True

    cdef int commit_statements(self, uint64_t version, int64_t time_ms) noexcept with gil:
        try:
            for number in self.open_statements:
                self.done_statements.append((number, version, time_ms))
            self.open_statements.clear()
            self.replaced.clear()
            self.open_n = self.replaced_n = 0
        except MemoryError:
            return NO_ROOM
        return OK

    cdef int skip_table(self, void* skipped) noexcept with gil:
        """Skip a table from here on, with all its rows that were not fetched."""
        cdef EntryColumns columns = <EntryColumns>skipped
        cdef uint64_t seq = columns.seq_now
        cdef uint32_t row = columns.row_now
        cdef size_t i
        try:
            if columns.seq.values.used:
                seq = (<uint64_t*>columns.seq.values.data)[0]
                row = (<uint32_t*>columns.row.values.data)[0]
            self.problems.append(Refused(
                text_of(self.head.schema), text_of(self.head.table), columns.problem,
                text_of(self.head.file), self.head.offset, seq, row, self.head.time_ms,
            ))
            for i in range(self.touched_n):
                if self.touched[i] == skipped:
                    self.touched_n -= 1
                    self.touched[i] = self.touched[self.touched_n]
                    break
            self.set_table(text_of(self.head.schema), text_of(self.head.table), None)
        except MemoryError:
            return NO_ROOM
        self.stop_here = True
        return OK


cdef uint64_t hash_of(Slice schema, Slice table) noexcept nogil:
    cdef uint64_t hashed = FNV_BASIS
    cdef size_t i
    for i in range(schema.n):
        hashed = (hashed ^ schema.p[i]) * FNV_PRIME
    hashed = (hashed ^ 255) * FNV_PRIME  # in no name, as names are UTF-8
    for i in range(table.n):
        hashed = (hashed ^ table.p[i]) * FNV_PRIME
    return hashed ^ hashed >> 29


cdef str text_of(Slice slice):
    return slice.p[:slice.n].decode("utf-8", "replace") if slice.n else ""
