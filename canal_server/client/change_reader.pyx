# cython: language_level=3, cdivision=True
"""Changes out of the entries of a batch, one for each row, decoded when looked at.

    body        any number of 0x12 length Entry; other fields of Messages are skipped

A `Change` holds the bytes of its batch and where its row lies in them. What columns say
of themselves in each row (names, types) is parsed once for each table and recognized
by its bytes from then on; a value becomes an object of Python when it is asked for.
Leaves out what values become (`value_reader`) and where bodies come from.
"""

import cython
from datetime import datetime, timezone

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_SetItem
from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from canal_server.arrow.column_buffers cimport NO_ROOM, OK
from canal_server.arrow.entry_shapes cimport (
    UNRESOLVED, ColumnText, Shape, free_shape, is_shape_of, name_shape, read_column,
)
from canal_server.client.value_reader cimport (
    ColumnPlan, ValueOptions, read_value, text_of,
)
from canal_server.core.entry_wire cimport (
    ENTRY_BEGIN, ENTRY_END, ENTRY_ROWDATA, EVENT_DELETE, EVENT_INSERT, EVENT_QUERY,
    EVENT_TRUNCATE, EVENT_UPDATE, EVENT_XACOMMIT, EVENT_XAROLLBACK, TAG_AFTER, TAG_BEFORE,
    TAG_ROW, Change as RowsHead, EntryHead, Slice, input_of, next_field, open_entry,
    read_change, read_entry,
)
from canal_server.core.wire cimport Input

from canal_server.errors import ProtocolError

cdef object UTC = timezone.utc
cdef object from_timestamp = datetime.fromtimestamp
cdef object TIME_MIN = datetime.min.replace(tzinfo=UTC)
cdef object TIME_MAX = datetime.max.replace(tzinfo=UTC)

TABLES_MAX = 4096  # that are remembered; beyond, all are learned again

cdef extern from *:
    # Cython's own, for all versions of Python: a dictionary with room for n keys.
    dict new_row "__Pyx_PyDict_NewPresized"(Py_ssize_t n)


@cython.final
cdef class Body:
    """The bytes of one batch, held for as long as a change of it lives."""

    cdef Py_buffer view

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


@cython.final
cdef class Table:
    """The columns of a table, as its rows describe them."""

    cdef Shape shape
    cdef readonly str schema
    cdef readonly str name
    cdef size_t columns      # of the last image
    cdef list plans          # of columns, by `target` of their text
    cdef dict targets        # by name, type and number of the SQL type
    cdef ValueOptions options

    def __cinit__(self):
        memset(&self.shape, 0, sizeof(Shape))

    def __dealloc__(self):
        free_shape(&self.shape)

    cdef int begin(self, Slice schema, Slice name, ValueOptions options) except -1:
        self.schema, self.name = text_of(schema), text_of(name)
        self.plans, self.targets, self.options = [], {}, options
        if name_shape(&self.shape, schema, name) != OK:
            raise MemoryError("no memory for the columns of a table")
        return 0

    cdef inline int column(self, size_t at, Slice field, ColumnText** text,
                           Slice* value) except -1:
        cdef int status = read_column(&self.shape, at, field, text, value)
        if status == OK and text[0].target != UNRESOLVED:
            return 0
        return self.meet_column(at, field, text, value, status)

    cdef int meet_column(self, size_t at, Slice field, ColumnText** text,
                         Slice* value, int status) except -1:
        """Find how the values of a column are read that was not met before."""
        cdef int target
        self.check_column(at, status)
        target = self.target_of(text[0])
        # Meanwhile another thread may have moved the text: changes of one table may be
        # looked at in several.
        self.check_column(at, read_column(&self.shape, at, field, text, value))
        text[0].target = target
        return 0

    cdef int target_of(self, ColumnText* text) except -1:
        cdef tuple key = (text_of(text.name), text_of(text.mysql_type), text.sql_type)
        cdef ColumnPlan plan
        if key not in self.targets:
            plan = ColumnPlan(*key)
            self.targets[key] = len(self.plans)
            self.plans.append(plan)
        return self.targets[key]

    cdef int check_column(self, size_t at, int status) except -1:
        if status == NO_ROOM:
            raise MemoryError("no memory for the columns of a table")
        if status != OK:
            raise ProtocolError(
                f"malformed column {at} in a row of {self.schema}.{self.name}"
            )
        return 0

    cdef dict image(self, Slice row, uint64_t tag):
        """Return the values of one side of a row, by column name."""
        cdef Input source = input_of(row)
        cdef Slice field, value
        cdef ColumnText* text
        cdef ColumnPlan plan
        cdef size_t at = 0
        cdef dict found = new_row(self.columns)
        while next_field(&source, tag, &field):
            self.column(at, field, &text, &value)
            at += 1
            plan = <ColumnPlan>PyList_GET_ITEM(self.plans, text.target)
            PyDict_SetItem(found, plan.name, (
                None if text.is_null else read_value(plan, value, self.options)
            ))
        self.columns = at
        self.check(source.short)
        return found

    cdef dict keys(self, Slice row, uint64_t tag):
        """Return the values of the key's columns of one side, by column name."""
        cdef Input source = input_of(row)
        cdef Slice field, value
        cdef ColumnText* text
        cdef ColumnPlan plan
        cdef size_t at = 0
        cdef dict found = {}
        while next_field(&source, tag, &field):
            self.column(at, field, &text, &value)
            at += 1
            if text.is_key:
                plan = <ColumnPlan>PyList_GET_ITEM(self.plans, text.target)
                found[plan.name] = (
                    None if text.is_null else read_value(plan, value, self.options)
                )
        self.check(source.short)
        return found

    cdef list updated(self, Slice row):
        """Return the names of the columns that an update changed."""
        cdef Input source = input_of(row)
        cdef Slice field, value
        cdef ColumnText* text
        cdef size_t at = 0
        cdef list found = []
        while next_field(&source, TAG_AFTER, &field):
            self.column(at, field, &text, &value)
            at += 1
            if text.updated:
                found.append((<ColumnPlan>self.plans[text.target]).name)
        self.check(source.short)
        return found

    cdef int check(self, bint short) except -1:
        if short:
            raise ProtocolError(f"malformed row of {self.schema}.{self.name}")
        return 0

    cdef int add_types(self, dict found, Slice row, uint64_t tag) except -1:
        """Add the MySQL type of each column of one side of a row, by name."""
        cdef Input source = input_of(row)
        cdef Slice field, value
        cdef ColumnText* text
        cdef ColumnPlan plan
        cdef size_t at = 0
        while next_field(&source, tag, &field):
            self.column(at, field, &text, &value)
            at += 1
            plan = <ColumnPlan>self.plans[text.target]
            found[plan.name] = plan.mysql_type
        self.check(source.short)
        return 0


@cython.final
@cython.freelist(64)
cdef class Origin:
    """Where an entry comes from, shared by its changes."""

    cdef Table table
    cdef Body body
    cdef Slice file, gtid, sql, statement_schema
    cdef uint64_t offset, length
    cdef int64_t time_ms, server_id
    cdef uint32_t event
    cdef uint64_t transaction
    cdef str kind
    cdef str file_text, gtid_text


@cython.final
@cython.freelist(256)
cdef class Change:
    """One row that was inserted, updated or deleted, or one statement.

    All attributes are read-only. `before` and `after` are decoded when they are first
    asked for; the dictionaries are the change's own and may be kept or altered.
    """

    cdef Origin origin
    cdef Slice row
    cdef dict before_values, after_values
    cdef bint ends

    @property
    def is_last(self):
        """Whether the transaction ends with this change; also False if its end comes in
        another message."""
        return self.ends

    @property
    def schema(self):
        """The name of the table's schema; of a statement, the one that it changes."""
        return self.origin.table.schema

    @property
    def table(self):
        """The table's name; empty for a statement that is not about one table."""
        return self.origin.table.name

    @property
    def kind(self):
        """`insert`, `update`, `delete`, `ddl`, `truncate`; of XA transactions also
        `xa_commit`, `xa_rollback`; `statement` for rows changed by a logged statement."""
        return self.origin.kind

    @property
    def before(self):
        """The row before an update or delete, by column name; None for all others."""
        if self.before_values is None and self.has_row() and (
                self.origin.event != EVENT_INSERT):
            self.before_values = self.origin.table.image(self.row, TAG_BEFORE)
        return self.before_values

    @property
    def after(self):
        """The row after an insert or update, by column name; None for all others."""
        if self.after_values is None and self.has_row() and (
                self.origin.event != EVENT_DELETE):
            self.after_values = self.origin.table.image(self.row, TAG_AFTER)
        return self.after_values

    @property
    def key(self):
        """The values of the primary key, by column name: those by which the row is found
        that this change is about. Empty without a primary key, and for statements."""
        if not self.has_row():
            return {}
        return self.origin.table.keys(
            self.row, TAG_AFTER if self.origin.event == EVENT_INSERT else TAG_BEFORE
        )

    @property
    def updated(self):
        """The names of the columns that an update changed; all for an insert."""
        if not self.has_row() or self.origin.event == EVENT_DELETE:
            return ()
        return tuple(self.origin.table.updated(self.row))

    @property
    def sql(self):
        """The text of a statement; None for a row."""
        return None if self.has_row() else text_of(self.origin.sql)

    @property
    def statement_schema(self):
        """The schema in which a statement was executed; empty for a row."""
        return text_of(self.origin.statement_schema)

    @property
    def file(self):
        """The binlog file of the change's event."""
        if self.origin.file_text is None:
            self.origin.file_text = text_of(self.origin.file)
        return self.origin.file_text

    @property
    def position(self):
        """The binlog file and the offset in bytes at which the change's event begins."""
        return self.file, self.origin.offset

    @property
    def end_position(self):
        """The binlog file and the offset in bytes at which the change's event ends."""
        return self.file, self.origin.offset + self.origin.length

    @property
    def server_id(self):
        """The server id of the source that first executed the change."""
        return self.origin.server_id

    @property
    def gtid(self):
        """The GTID of the transaction, or the executed set; empty without GTIDs."""
        if self.origin.gtid_text is None:
            self.origin.gtid_text = text_of(self.origin.gtid)
        return self.origin.gtid_text

    @property
    def commit_time(self):
        """When the source executed the change: a datetime in UTC, of whole seconds.

        A time that a datetime cannot hold is its first or last one.
        """
        try:
            return from_timestamp(self.origin.time_ms / 1000, UTC)
        except (ValueError, OverflowError, OSError):
            return TIME_MAX if self.origin.time_ms > 0 else TIME_MIN

    @property
    def commit_time_ms(self):
        """The same in ms since 1970."""
        return self.origin.time_ms

    @property
    def transaction(self):
        """The number of the transaction, counted by this client from 1."""
        return self.origin.transaction

    @property
    def mysql_types(self):
        """The MySQL types of the row's columns, by name; empty for a statement."""
        cdef dict found = {}
        if self.has_row():
            if self.origin.event != EVENT_INSERT:
                self.origin.table.add_types(found, self.row, TAG_BEFORE)
            if self.origin.event != EVENT_DELETE:
                self.origin.table.add_types(found, self.row, TAG_AFTER)
        return found

    cdef inline bint has_row(self):
        return self.row.p != NULL

    def __reduce__(self):
        raise TypeError(
            "a Change cannot be copied or pickled, as it refers to the bytes of its"
            " message; copy what is needed of it, such as its kind, key and after"
        )

    def __repr__(self):
        name = f"{self.schema}.{self.table}" if self.table else self.schema
        if not self.has_row():
            what = self.sql
            what = what if len(what) <= 60 else what[:59] + "…"
        else:
            what = self.key or ""
        return f"<{self.kind} {name} {what} at {self.file}:{self.origin.offset}>"


@cython.final
cdef class ChangeReader:
    """Reads the batches of one subscription; for one thread at a time.

    `read` is given them in their order, as transactions continue from batch to batch.
    """

    cdef dict tables         # by schema and name
    cdef Table last
    cdef ValueOptions options
    cdef uint64_t transaction
    cdef bint is_open        # a transaction continues

    def __init__(self, ValueOptions options):
        self.tables = {}
        self.options = options

    def reset(self):
        """Forget an open transaction: what was not acked comes again."""
        self.is_open = False

    def read(self, data):
        """Return an iterator of the changes in a body of Messages, of any buffer.

        Iterating raises ProtocolError for malformed bytes. One iterator has to be used
        up before the next body is read.
        """
        return ChangeIterator(self, Body(data))

    cdef Table table_of(self, Slice schema, Slice name):
        cdef Table found = self.last
        if found is not None and is_shape_of(&found.shape, schema, name):
            return found
        key = schema.p[:schema.n] if schema.n else b"", name.p[:name.n] if name.n else b""
        found = self.tables.get(key)
        if found is None:
            if len(self.tables) >= TABLES_MAX:
                self.tables.clear()
            found = Table()
            found.begin(schema, name, self.options)
            self.tables[key] = found
        self.last = found
        return found


@cython.final
cdef class ChangeIterator:
    """The changes of one batch."""

    cdef ChangeReader reader
    cdef Body body
    cdef Input entries
    cdef Origin origin        # of the rows at hand
    cdef Input rows
    cdef Slice row            # the next one to hand out
    cdef bint has_row
    cdef uint32_t kind        # of the next entry that is looked at
    cdef EntryHead head       # of it, if it has changes
    cdef RowsHead change
    cdef bint has_entry

    def __init__(self, ChangeReader reader, Body body):
        self.reader, self.body = reader, body
        self.entries.p = <const uint8_t*>body.view.buf
        self.entries.end = self.entries.p + body.view.len
        self.entries.short = False
        self.advance()

    def __iter__(self):
        return self

    def __next__(self):
        cdef Change change
        while not self.has_row:
            if not self.has_entry:
                raise StopIteration
            change = self.begin_entry()
            if change is not None:
                return change
        change = Change.__new__(Change)
        change.origin, change.row = self.origin, self.row
        self.has_row = next_field(&self.rows, TAG_ROW, &self.row)
        if not self.has_row:
            self.check(not self.rows.short)
            self.advance()
            change.ends = self.ends_here()
        return change

    cdef Change begin_entry(self):
        """Go to the entry that was found; returns a change that is a statement."""
        cdef ChangeReader reader = self.reader
        cdef Change change
        cdef bint is_change
        if self.kind == ENTRY_END:
            reader.is_open = False
            self.advance()
            return None
        if self.kind == ENTRY_BEGIN:
            reader.is_open = True
            reader.transaction += 1
            self.advance()
            return None
        is_change = EVENT_INSERT <= self.change.event <= EVENT_DELETE
        if not reader.is_open:
            # MariaDB's transactions have no begin; other statements stand alone.
            reader.transaction += 1
            reader.is_open = is_change
        self.origin = self.make_origin()
        if is_change and self.change.sql.n == 0:
            self.rows = input_of(self.head.store)
            self.has_row = next_field(&self.rows, TAG_ROW, &self.row)
            if not self.has_row:
                self.check(not self.rows.short)
                self.advance()
            return None
        change = Change.__new__(Change)
        change.origin = self.origin
        change.row.p, change.row.n = NULL, 0
        self.advance()
        change.ends = self.ends_here() if reader.is_open else True
        return change

    cdef Origin make_origin(self):
        cdef Origin origin = Origin.__new__(Origin)
        origin.body = self.body
        origin.table = self.reader.table_of(self.head.schema, self.head.table)
        origin.file, origin.gtid = self.head.file, self.head.gtid
        origin.offset, origin.length = self.head.offset, self.head.length
        origin.time_ms, origin.server_id = self.head.time_ms, self.head.server_id
        origin.sql, origin.statement_schema = self.change.sql, self.change.schema
        origin.event = self.change.event
        origin.kind = kind_of(self.change.event, self.change.is_ddl, self.change.sql.n)
        origin.transaction = self.reader.transaction
        return origin

    cdef bint ends_here(self):
        """Return whether the open transaction ends before the next change."""
        return self.has_entry and self.kind == ENTRY_END

    cdef int advance(self) except -1:
        """Find the next entry that begins or ends something, or has changes."""
        cdef Slice slice, header, store
        self.has_entry = False
        while next_field(&self.entries, 0x12, &slice):
            self.check(open_entry(slice, &self.kind, &header, &store))
            if self.kind == ENTRY_ROWDATA:
                self.check(read_entry(slice.p, slice.n, &self.head))
                self.check(read_change(store, &self.change))
                if self.change.event == 0:
                    self.change.event = self.head.event
                if self.change.event == EVENT_QUERY and not self.change.is_ddl:
                    continue  # a note on the statement whose rows follow
            elif self.kind != ENTRY_BEGIN and self.kind != ENTRY_END:
                continue  # a heartbeat or the like
            self.has_entry = True
            return 0
        self.check(not self.entries.short)
        return 0

    cdef int check(self, bint is_right) except -1:
        if not is_right:
            self.has_entry = self.has_row = False
            self.entries.p = self.entries.end
            raise ProtocolError("malformed entry in a batch")
        return 0


cdef str kind_of(uint32_t event, bint is_ddl, size_t sql_n):
    if EVENT_INSERT <= event <= EVENT_DELETE and sql_n:
        return "statement"
    if event == EVENT_INSERT:
        return "insert"
    if event == EVENT_UPDATE:
        return "update"
    if event == EVENT_DELETE:
        return "delete"
    if event == EVENT_TRUNCATE:
        return "truncate"
    if event == EVENT_XACOMMIT:
        return "xa_commit"
    if event == EVENT_XAROLLBACK:
        return "xa_rollback"
    return "ddl"
