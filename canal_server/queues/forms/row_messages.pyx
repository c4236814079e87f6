# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Messages with one row each, straight from the bytes of entries.

What all forms share: which entries there are, the images of a row side by side, the key
of a row, where it goes, and what is sent for it:

    INSERT            value
    UPDATE            value; if the key changes: tombstone of the old key, value,
                      or, with `splits_moves`: deletion, its tombstone, insertion
    DELETE            value, tombstone

A tombstone is a message without a value, which makes a compacted topic forget a key; it
is sent with `has_tombstones`. How a value looks is left to the forms, which extend the
class. Each message is (topic, partition, value, key, headers); what is not there, None.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memset

from canal_server.arrow.text_values cimport is_utf8
from canal_server.core.entry_wire cimport (
    ENTRY_BEGIN, ENTRY_END, ENTRY_ROWDATA, EVENT_DELETE, EVENT_INSERT, EVENT_UPDATE,
    TAG_AFTER, TAG_BEFORE, TAG_ROW, gtid_field, input_of, next_field, read_change,
    read_entry, read_transaction_id, same,
)
from canal_server.core.json_text cimport put
from canal_server.core.wire cimport Input
from canal_server.queues.batch_rows cimport COLUMNS_MAX, check, read_column
from canal_server.queues.forms.rendered_values cimport put_text
from canal_server.queues.table_routes cimport (
    HASH_TABLE, NO_HASH, java_hash, partition_of,
)

from canal_server.decoder.text.time_zone import PACKED, zone_here
from canal_server.errors import ProtocolError

cdef enum:
    TABLES_MAX = 2_000      # whose columns are kept
    NAME_BYTES_MAX = 256    # of a name or a type in an error


cdef class RowMessages:
    """Makes messages of batches; for one thread at a time.

    `route_of(schema, table)` returns a Route; it is asked once for each table.
    """

    def __cinit__(self):
        self.cells = <Cell*>calloc(COLUMNS_MAX, sizeof(Cell))
        if self.cells == NULL:
            raise MemoryError("no memory for the columns of messages")

    def __init__(self, route_of, *, bint has_keys=False, bint has_tombstones=False,
                 bint has_headers=False):
        """Set the function that knows the routes, and what messages have."""
        self.routes = Routes(route_of)
        self.tables = {}
        self.has_keys, self.has_tombstones = has_keys, has_tombstones
        self.has_headers = self.looks_ahead = has_headers
        self.set_zone()

    def __dealloc__(self):
        free(self.cells)
        free(self.ends)
        free(self.out.p)
        free(self.key.p)
        free(self.old_key.p)
        free(self.scratch.p)
        free(self.zone.steps)

    cdef int set_zone(self) except -1:
        """Note when the offset of this process's zone changes, in local time."""
        cdef list changes = list(PACKED.iter_unpack(zone_here().pack()))
        cdef size_t at
        cdef int64_t before
        if changes == [(0, 0)]:
            return 0
        self.zone.steps = <int64_t*>calloc(2 * len(changes), sizeof(int64_t))
        if self.zone.steps == NULL:
            raise MemoryError("no memory for the time zone")
        before = changes[0][1]
        for at, (since, offset) in enumerate(changes):
            # Of an hour that occurs twice, the first one counts.
            self.zone.steps[2 * at] = since + max(before, <int64_t>offset)
            self.zone.steps[2 * at + 1] = before = offset
        self.zone.count = len(changes)
        return 0

    def convert(self, int64_t batch_id, data, int64_t now_ms):
        """Return the messages of a body of Messages.

        Raises ProtocolError for malformed entries, and for values that the form cannot
        have; it names the column, or the table, and where the event is.
        """
        cdef Py_buffer view
        cdef Input entries
        cdef Slice slice
        cdef list made = []
        self.batch_id, self.now_ms, self.made = batch_id, now_ms, made
        self.ends_n = self.ends_at = 0
        # A batch for which there was no memory does not affect later ones.
        self.out.failed = self.key.failed = False
        self.old_key.failed = self.scratch.failed = False
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            entries.p = <const uint8_t*>view.buf
            entries.end, entries.short = entries.p + view.len, False
            if self.looks_ahead:
                self.find_ends(entries)
            while next_field(&entries, 0x12, &slice):
                check(read_entry(slice.p, slice.n, &self.head))
                if self.head.kind == ENTRY_ROWDATA:
                    try:
                        self.entry(slice)
                    except ProtocolError as error:
                        raise self.located(error) from None
            check(not entries.short)
        finally:
            PyBuffer_Release(&view)
            self.made = None
        return made

    # --- transactions -----------------------------------------------------------------

    cdef int find_ends(self, Input entries) except -1:
        """Find the transactions that end in the batch."""
        cdef Slice slice
        cdef Ends* found
        cdef Change change
        cdef const uint8_t* begin = NULL
        cdef const uint8_t* last = NULL
        while next_field(&entries, 0x12, &slice):
            check(read_entry(slice.p, slice.n, &self.head))
            if begin == NULL or self.head.kind == ENTRY_BEGIN:
                begin, last = slice.p, NULL
            if self.head.kind == ENTRY_ROWDATA:
                check(read_change(self.head.store, &change))
                if has_rows(&change):
                    last = slice.p
            elif self.head.kind == ENTRY_END:
                found = self.next_end()
                found.begin, found.last, found.end = begin, last, slice.p
                check(read_transaction_id(self.head.store, &found.xid))
                begin = NULL
        return 0

    cdef Ends* next_end(self) except NULL:
        cdef void* grown
        if self.ends_n == self.ends_room:
            grown = realloc(self.ends, (2 * self.ends_room + 64) * sizeof(Ends))
            if grown == NULL:
                raise MemoryError("no memory for the transactions of messages")
            self.ends, self.ends_room = <Ends*>grown, 2 * self.ends_room + 64
        self.ends_n += 1
        return &self.ends[self.ends_n - 1]

    cdef void look_ahead(self, const uint8_t* entry) noexcept:
        """Set what is known of the transaction of an entry."""
        cdef Ends* ends
        self.xid.n = 0
        self.is_last = False
        while self.ends_at < self.ends_n and self.ends[self.ends_at].end < entry:
            self.ends_at += 1
        if self.ends_at == self.ends_n or entry < self.ends[self.ends_at].begin:
            return
        ends = &self.ends[self.ends_at]
        self.is_last = entry == ends.last
        # 0 is of those that did not end with an XID event.
        if not same(ends.xid, b"0", 1):
            self.xid = ends.xid

    # --- entries ----------------------------------------------------------------------

    cdef int entry(self, Slice entry) except -1:
        cdef Input source
        cdef Slice row
        self.out.bad = self.key.bad = self.old_key.bad = False
        check(read_change(self.head.store, &self.change))
        self.gtids = gtid_field(entry)
        self.headers = None
        self.look_ahead(entry.p)
        self.find_table()
        if not has_rows(&self.change):
            self.out.n = self.key.n = 0
            return self.put_statement()
        self.begin_rows()
        self.row = 0
        source = input_of(self.head.store)
        while next_field(&source, TAG_ROW, &row):
            check(self.read_row(row))
            self.put_row()
            self.row += 1
        check(not source.short)
        return 0

    cdef int find_table(self) except -1:
        cdef Slice schema = self.head.schema
        cdef Slice table = self.head.table
        cdef bytes key = schema.p[:schema.n] + b"\0" if schema.n else b"\0"
        cdef TablePlans found
        if table.n:
            key += table.p[:table.n]
        found = self.tables.get(key)
        if found is None or found.is_full:
            if len(self.tables) >= TABLES_MAX:
                self.tables.clear()
            found = self.tables[key] = TablePlans(self.routes.find(schema, table))
        self.table = found
        return 0

    # --- rows -------------------------------------------------------------------------

    cdef bint read_row(self, Slice row) except? False:
        """Read both images of a row; columns are in the order of the table."""
        cdef size_t after
        self.cells_n = 0
        if not self.read_image(row, TAG_AFTER):
            return False
        after = self.cells_n
        if not self.read_image(row, TAG_BEFORE):
            return False
        if 0 < after < self.cells_n:
            self.sort_cells()
        return True

    cdef void sort_cells(self) noexcept nogil:
        """Sort the columns of a row whose later image does not have all of them."""
        cdef Cell cell
        cdef size_t at, to
        for at in range(1, self.cells_n):
            cell = self.cells[at]
            to = at
            while to > 0 and self.cells[to - 1].index > cell.index:
                self.cells[to] = self.cells[to - 1]
                to -= 1
            self.cells[to] = cell

    cdef bint read_image(self, Slice row, uint64_t image) except? False:
        cdef Input source = input_of(row)
        cdef Slice field
        cdef Column column
        cdef Value* value
        cdef Cell* cell
        cdef size_t at = 0
        while next_field(&source, image, &field):
            if not read_column(field, &column):
                return False
            cell = self.cell_of(&column, at)
            at += 1
            value = &cell.before if image == TAG_BEFORE else &cell.after
            value.text, value.sql_type = column.value, column.sql_type
            value.present, value.is_null = True, column.is_null
            value.updated = column.updated
        return not source.short

    cdef Cell* cell_of(self, const Column* column, size_t guess) except NULL:
        """Return the cell of a column, a new one if there is none."""
        cdef size_t at = guess
        cdef Cell* cell
        if guess >= self.cells_n or not same(
                column.name, self.cells[guess].plan.name.p, self.cells[guess].plan.name.n):
            for at in range(self.cells_n):
                if same(column.name, self.cells[at].plan.name.p,
                        self.cells[at].plan.name.n):
                    break
            else:
                at = self.cells_n
        if at < self.cells_n:
            return &self.cells[at]
        if at == COLUMNS_MAX:
            raise ProtocolError(f"a row has more than {COLUMNS_MAX} columns")
        cell = &self.cells[at]
        memset(cell, 0, sizeof(Cell))
        cell.plan, cell.index = self.table.find(column), column.index
        self.cells_n += 1
        return cell

    cdef int put_row(self) except -1:
        """Send what a row needs."""
        cdef uint32_t event = self.change.event
        cdef bint keyed = self.has_keys or self.splits_moves
        cdef bint moved = False
        self.key.n = self.old_key.n = 0
        if keyed:
            keyed = self.put_key(&self.key, event == EVENT_DELETE)
            if keyed and event == EVENT_UPDATE:
                self.put_key(&self.old_key, True)
                moved = self.key.n != self.old_key.n or (
                    memcmp(self.key.p, self.old_key.p, self.key.n) != 0)
        if moved and self.splits_moves:
            return self.put_move()
        if moved and self.has_tombstones:
            self.add(self.partition(True), False, &self.old_key)
        self.out.n = 0
        self.put_value(event)
        self.add(self.partition(event == EVENT_DELETE), True, &self.key if keyed else NULL)
        if keyed and event == EVENT_DELETE and self.has_tombstones:
            self.add(self.partition(True), False, &self.key)
        return 0

    cdef int put_move(self) except -1:
        """Send a change of the key as a deletion and an insertion."""
        cdef uint32_t before = self.partition(True)
        cdef bytes old_key = self.old_key.p[:self.old_key.n]
        cdef bytes key = self.key.p[:self.key.n]
        self.out.n = 0
        self.put_value(EVENT_DELETE)
        self.add(before, True, &self.old_key, ("__debezium.newkey", key))
        if self.has_tombstones:
            self.add(before, False, &self.old_key)
        self.out.n = 0
        self.put_value(EVENT_INSERT)
        self.add(self.partition(False), True, &self.key, ("__debezium.oldkey", old_key))
        return 0

    cdef uint32_t partition(self, bint of_before) except? 0:
        """Return where a row goes, by one of its images."""
        cdef size_t at
        cdef const Value* value
        cdef int32_t hashed = self.table.route.begin
        if self.table.route.mode == NO_HASH:
            return self.table.route.partition
        if self.table.route.mode != HASH_TABLE:
            for at in range(self.cells_n):
                if not self.cells[at].plan.hashed:
                    continue
                value = value_of(&self.cells[at], of_before)
                if not value.is_null:
                    # Java's hash is one of characters.
                    if not is_utf8(value.text.p, value.text.n):
                        raise self.refused(self.cells[at].plan)
                    hashed ^= java_hash(value.text)
        return partition_of(hashed, self.table.route.partitions)

    cdef uint32_t statement_partition(self) noexcept:
        """Return where a statement goes."""
        return 0 if self.table.route.mode != NO_HASH else self.table.route.partition

    cdef int put_shared_key(self, Text* text, bint of_before) except -1:
        """Append the key of a row: its table, and the columns of the primary key.

        Returns whether there is a primary key.
        """
        cdef size_t at
        cdef const Value* value
        cdef bint found = False
        text.n = 0
        put(text, b'{"database":', 12)
        put_text(text, self.head.schema)
        put(text, b',"table":', 9)
        put_text(text, self.head.table)
        for at in range(self.cells_n):
            if not self.cells[at].plan.is_key:
                continue
            found = True
            value = value_of(&self.cells[at], of_before)
            put(text, b",", 1)
            put(text, self.cells[at].plan.key_label.p, self.cells[at].plan.key_label.n)
            if value.is_null:
                put(text, b"null", 4)
            else:
                self.put_cell(text, self.cells[at].plan, value)
        put(text, b"}", 1)
        return found

    # --- messages ---------------------------------------------------------------------

    cdef int add(self, uint32_t partition, bint has_value, Text* key,
                 object more=None) except -1:
        """Add a message with the text of `out`; `more` is a header of it alone."""
        cdef object value = None
        cdef object found = None
        cdef object headers = None
        if self.out.bad or self.key.bad or self.old_key.bad:
            raise self.problem()
        if self.out.failed or self.key.failed or self.old_key.failed or (
                self.scratch.failed):
            raise MemoryError("no memory for messages")
        if has_value:
            value = PyBytes_FromStringAndSize(<char*>self.out.p, self.out.n)
        if key != NULL and self.has_keys:
            found = PyBytes_FromStringAndSize(<char*>key.p, key.n)
        if self.has_headers:
            if self.headers is None:
                self.headers = self.made_headers()
            headers = self.headers
        if more is not None and self.has_keys:
            headers = [*(headers or ()), more]
        self.made.append((self.table.route.topic, partition, value, found, headers))
        return 0

    cdef object problem(self):
        """Return the error of the current row, which has texts that are `bad`."""
        cdef Text* text = &self.out
        cdef Cell* cell
        cdef size_t at
        for at in range(self.cells_n):
            cell = &self.cells[at]
            text.n = 0
            text.bad = False
            if cell.after.present and not cell.after.is_null:
                self.put_cell(text, cell.plan, &cell.after)
            if cell.before.present and not cell.before.is_null:
                self.put_cell(text, cell.plan, &cell.before)
            if text.bad:
                return self.refused(cell.plan)
        return ProtocolError("malformed entry in a batch")

    cdef object refused(self, const Plan* plan):
        """Return an error that names a column; its values may be secret."""
        return ProtocolError(
            f"column {text_of(self.head.schema)}.{text_of(self.head.table)}."
            f"{text_of(plan.name)} of type {text_of(plan.mysql_type) or 'unknown'}:"
            " its messages cannot have a value that does not match the type"
        )

    cdef object located(self, error):
        """Return an error with where the event of the current entry is."""
        return ProtocolError(
            f"{error} (at {text_of(self.head.file)}:{self.head.offset})")

    cdef list made_headers(self):
        """Return what messages of an entry have in addition."""
        cdef Slice file = self.head.file
        cdef Slice gtid = self.head.gtid
        cdef Slice xid = self.xid
        cdef list found = [
            ("canal.position", b"%b:%d" % (
                file.p[:file.n] if file.n else b"", self.head.offset)),
            ("canal.server_id", b"%d" % self.head.server_id),
        ]
        if gtid.n:
            found.append(("canal.gtid", gtid.p[:gtid.n]))
        if xid.n:
            found.append(("canal.xid", xid.p[:xid.n]))
        return found

    # --- what a form decides ----------------------------------------------------------

    cdef int begin_rows(self) except -1:
        """Prepare for the rows of an entry."""
        return 0

    cdef int put_value(self, uint32_t event) except -1:
        return 0

    cdef int put_key(self, Text* text, bint of_before) except -1:
        """Write the key of a row; returns whether it has one."""
        return self.put_shared_key(text, of_before)

    cdef int put_statement(self) except -1:
        return 0

    cdef void put_cell(self, Text* text, const Plan* plan, const Value* value) noexcept:
        put_text(text, value.text)


cdef str text_of(Slice text):
    """Return a name, however malformed it is; its begin if it is long."""
    found = text.p[:min(text.n, <size_t>NAME_BYTES_MAX)] if text.n else b""
    return found.decode("utf-8", "replace")


cdef bint has_rows(const Change* change) noexcept nogil:
    return change.rows > 0 and not change.is_ddl and (
        EVENT_INSERT <= change.event <= EVENT_DELETE)
