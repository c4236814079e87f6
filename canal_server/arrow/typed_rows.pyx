# cython: language_level=3, cdivision=True
"""Rows of one table as columns of its own types.

The selected columns are given as kinds (`put_values`); an entry's columns are matched
to them by name. Rows of other tables are skipped. `feed` returns after a statement, so
that the caller can act before rows of another shape follow.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from canal_server.core.digits cimport put_u64
from canal_server.core.wire cimport Input
from canal_server.arrow.column_buffers cimport (
    BAD_IMAGE, BAD_VALUE, FAILED, HELD, LAYOUT_STRUCT, LAYOUT_TEXT, MALFORMED, NO_ROOM, OK,
    ArrowColumn, column_bytes, free_column, init_column, put_null, put_text,
    put_texts, put_valid, take_column,
)
from canal_server.arrow.entry_walk cimport FILE_NAME_MAX, EntryColumns
from canal_server.arrow.conversions cimport READ_ENUM, READ_SET
from canal_server.arrow.key_hashes cimport RowKeys, read_keys
from canal_server.arrow.label_texts cimport ColumnLabels
from canal_server.arrow.put_values cimport (
    KIND_BINARY, KIND_TEXT, Field, Zone, layout_of_kind, put_value, width_of_kind,
)
from canal_server.arrow.entry_shapes cimport (
    IGNORED, UNRESOLVED, ColumnText, Shape, free_shape, name_shape, read_column,
)
from canal_server.core.entry_wire cimport (
    EVENT_DELETE, EVENT_INSERT, TAG_AFTER, TAG_BEFORE, TAG_ROW, Slice, input_of,
    next_field, same,
)

from canal_server.arrow.type_pairs import filled_bytes, reading_of
from canal_server.arrow.column_problems import (
    not_logged, unreadable, without_labels,
)
from canal_server.arrow.put_values import KINDS

cdef enum:
    LABELS_KEPT = 256    # types whose labels are remembered
    VALUE_SHOWN_MAX = 60  # bytes of a value in a message

cdef enum Updates:
    # How an update is delivered.
    POSTIMAGE = 0         # one row: the new values
    BOTH = 1              # two rows: the old and the new values
    ENVELOPE = 2          # one row with both

UPDATES = {"postimage": POSTIMAGE, "both": BOTH, "envelope": ENVELOPE}


cdef class TypedColumns(EntryColumns):
    """The columns of spark's typed mode, for one table.

    `take` returns the selected columns, in an envelope a struct with the columns before
    the change and a struct with those after it; then the change's type and `_position`,
    and the four of EntryColumns.
    """

    cdef str schema
    cdef str table
    cdef bytes schema_bytes
    cdef bytes table_bytes
    cdef Slice schema_text
    cdef Slice table_text
    cdef Field* fields
    cdef size_t field_n
    cdef dict numbers          # of a selected column by its name in lower case
    cdef int updates
    cdef bint split_keys
    cdef RowKeys keys          # of the current row, if rows are split by key
    cdef Zone zone
    cdef ArrowColumn* images   # before and after, or only one
    cdef ArrowColumn[2] structs
    cdef ArrowColumn change_type
    cdef ArrowColumn position
    cdef Shape shape
    cdef dict labels          # by the type's text
    cdef size_t labels_known
    cdef list known            # type, and whether it is of the key; None: not compared
    cdef bint unlike           # a column differs from the known one

    def __cinit__(self, *args, **options):
        memset(&self.shape, 0, sizeof(Shape))
        init_column(&self.structs[0], LAYOUT_STRUCT, 0)
        init_column(&self.structs[1], LAYOUT_STRUCT, 0)
        init_column(&self.change_type, LAYOUT_TEXT, 0)
        init_column(&self.position, LAYOUT_TEXT, 0)
        self.labels = {}

    def __init__(self, str schema, str table, fields, *, str updates="postimage",
                 bint split_keys=False, bint zero_is_null=True, zone=(), missing=(),
                 epoch=0, rows_max=65536, bytes_max=32 << 20):
        """Set the selected columns: each (name, kind, precision or 0, scale or 0).

        `split_keys`: an update of the primary key is a delete and an insert.
        `zero_is_null`: invalid dates are NULL, else an error. `zone`: steps (from which
        local second on, seconds east of UTC) of the zone of TIMESTAMP in entries; none:
        UTC. `missing`: selected columns that the table does not have.
        """
        EntryColumns.__init__(self, epoch=epoch, rows_max=rows_max, bytes_max=bytes_max)
        if self.fields != NULL:
            raise ValueError("initialized twice")
        self.schema, self.table = schema, table
        self.schema_bytes, self.table_bytes = schema.encode(), table.encode()
        self.schema_text.p = self.schema_bytes
        self.schema_text.n = len(self.schema_bytes)
        self.table_text.p = self.table_bytes
        self.table_text.n = len(self.table_bytes)
        self.updates = UPDATES[updates]
        self.split_keys = split_keys
        self.zone.zero_is_null = zero_is_null
        self.set_zone(zone)
        self.set_fields(tuple(fields))
        self.set_missing(missing)
        if name_shape(&self.shape, self.schema_text, self.table_text) != OK:
            raise MemoryError("no memory for the columns of a table")

    def __dealloc__(self):
        cdef size_t i
        if self.images != NULL:
            for i in range(self.field_n * 2):
                free_column(&self.images[i])
        free(self.images)
        free(self.fields)
        free(self.zone.steps)
        free_column(&self.structs[0])
        free_column(&self.structs[1])
        free_column(&self.change_type)
        free_column(&self.position)
        free_shape(&self.shape)

    # --- selected columns -------------------------------------------------------------

    cdef int set_fields(self, tuple fields) except -1:
        cdef Field* field
        cdef size_t i
        self.numbers = {}
        self.fields = <Field*>calloc(len(fields) + 1, sizeof(Field))
        self.images = <ArrowColumn*>calloc(2 * len(fields) + 1, sizeof(ArrowColumn))
        if self.fields == NULL or self.images == NULL:
            raise MemoryError("no memory for the columns of a table")
        self.field_n = len(fields)
        for i in range(self.field_n):
            name, kind, a, b = fields[i]
            field = &self.fields[i]
            field.kind, field.a, field.b = KINDS[kind], a, b
            if name.lower() in self.numbers:
                raise ValueError(f"column {name} is selected twice")
            self.numbers[name.lower()] = i
            for image in range(2):
                init_column(&self.images[i + image * self.field_n],
                            layout_of_kind(field.kind), width_of_kind(field.kind))
        return 0

    cdef int set_zone(self, zone) except -1:
        cdef size_t i
        zone = tuple(zone)
        self.zone.steps = <int64_t*>calloc(2 * len(zone) + 1, sizeof(int64_t))
        if self.zone.steps == NULL:
            raise MemoryError("no memory for a time zone")
        self.zone.count = len(zone)
        for i in range(self.zone.count):
            self.zone.steps[2 * i], self.zone.steps[2 * i + 1] = zone[i]
        return 0

    def set_missing(self, names):
        """Set which selected columns the table lacks from here on: they are NULL."""
        cdef size_t i
        names = {name.lower() for name in names}
        unknown = names - self.numbers.keys()
        if unknown:
            raise ValueError(f"columns not selected: {', '.join(sorted(unknown))}")
        for name, i in self.numbers.items():
            self.fields[i].missing = name in names

    def compare(self, known):
        """Set the table's known columns: (type, whether it is part of the key) of each.

        Only for `TableRouter`, which requests them again for rows that differ.
        """
        self.known = None if known is None else list(known)
        if known is not None and len(self.known) != self.field_n:
            raise ValueError(f"{len(self.known)} types of {self.field_n} columns")

    # --- rows -------------------------------------------------------------------------

    cdef int look(self) noexcept nogil:
        """Compare the columns of the entry's first row with the known ones."""
        cdef Input source
        cdef Slice row, field, value
        cdef ColumnText* text
        cdef uint64_t requested = (
            TAG_BEFORE if self.change.event == EVENT_DELETE else TAG_AFTER)
        cdef size_t at = 0
        cdef int status
        if self.known is None:
            return OK
        source = input_of(self.head.store)
        if not next_field(&source, TAG_ROW, &row):
            return MALFORMED if source.short else OK
        self.unlike = False
        source = input_of(row)
        while next_field(&source, requested, &field):
            status = read_column(&self.shape, at, field, &text, &value)
            at += 1
            if status == OK and text.target == UNRESOLVED:
                status = self.resolve(text)
            if status != OK:
                return status
        if source.short:
            return MALFORMED
        return HELD if self.unlike or at != self.field_n else OK

    cdef bint is_own_table(self) noexcept nogil:
        return (same(self.head.table, self.table_text.p, self.table_text.n)
                and same(self.head.schema, self.schema_text.p, self.schema_text.n))

    cdef int put_change(self) noexcept nogil:
        cdef Input source
        cdef Slice row
        cdef size_t before = self.rows
        cdef int status = OK
        if not self.is_own_table():
            return OK
        if self.labels_known >= LABELS_KEPT and not self.forget_labels():
            return NO_ROOM
        source = input_of(self.head.store)
        while status == OK and next_field(&source, TAG_ROW, &row):
            status = self.put_row(row)
        if source.short:
            return MALFORMED
        return self.put_positions(self.rows - before) if status == OK else status

    cdef int put_row(self, Slice row) noexcept nogil:
        """Append the rows of a change; an update that may be two rows has two numbers."""
        cdef uint32_t event = self.change.event
        cdef bint two = self.updates == BOTH or self.split_keys
        cdef bint split = False
        cdef int status = OK
        if self.key_parts > 1:
            status = read_keys(&self.shape, row, &self.keys)
            split = self.keys.changed
            if status != OK:
                return status
        if event == EVENT_INSERT:
            return self.put(row, b"insert", 6, False, True)
        if event == EVENT_DELETE:
            return self.put(row, b"delete", 6, True, False)
        if self.split_keys and self.key_parts == 1:
            status = self.changes_key(row, &split)
        if status == OK and split and self.split_keys:
            status = self.put(row, b"delete", 6, True, False)
            return self.put(row, b"insert", 6, False, True) if status == OK else status
        if status == OK and self.updates == BOTH:
            status = self.put(row, b"update_preimage", 15, True, False)
        elif two:
            self.row_now += 1
        if status != OK:
            return status
        return self.put(row, b"update_postimage", 16, self.updates == ENVELOPE, True)

    cdef int put(self, Slice row, const char* change, size_t change_n, bint before,
                 bint after) noexcept nogil:
        """Append one row with the image before, the one after, or both."""
        cdef const uint8_t* op
        cdef int status
        if not self.takes(self.keys.after if after else self.keys.before):
            return OK
        status = self.put_order(1)
        if status != OK:
            return status
        if self.updates != ENVELOPE:
            status = put_text(&self.change_type, <const uint8_t*>change, change_n)
            if status == OK:
                status = self.put_image(row, TAG_BEFORE if before else TAG_AFTER, 0)
            return status
        op = <const uint8_t*>b"u" if before and after else (
            <const uint8_t*>b"d" if before else <const uint8_t*>b"c")
        status = put_text(&self.change_type, op, 1)
        if status == OK:
            status = self.put_struct(row, TAG_BEFORE, 0, before)
        if status == OK:
            status = self.put_struct(row, TAG_AFTER, 1, after)
        return status

    cdef int put_struct(self, Slice row, uint64_t requested, int image,
                        bint there) noexcept nogil:
        cdef size_t i
        cdef int status = OK
        if there:
            status = self.put_image(row, requested, image)
            return put_valid(&self.structs[image]) if status == OK else status
        for i in range(self.field_n):
            if status == OK:
                status = put_null(&self.images[image * self.field_n + i])
        return put_null(&self.structs[image]) if status == OK else status

    cdef int put_image(self, Slice row, uint64_t requested, int image) noexcept nogil:
        """Append one image of a row to the columns of an image."""
        cdef Input source = input_of(row)
        cdef ArrowColumn* columns = self.images + image * self.field_n
        cdef ArrowColumn* column
        cdef Slice field, value
        cdef ColumnText* text
        cdef size_t at = 0
        cdef size_t found = 0
        cdef size_t length = self.rows - 1  # of each column, before this row
        cdef const uint8_t* end = self.head.store.p + self.head.store.n
        cdef int status
        while next_field(&source, requested, &field):
            status = read_column(&self.shape, at, field, &text, &value)
            at += 1
            if status != OK:
                return status
            if text.target == UNRESOLVED:
                status = self.resolve(text)
                if status != OK:
                    return status
            if text.target == IGNORED:
                continue
            column = &columns[text.target]
            if column.length != length:
                return self.fail_column(text, value, BAD_IMAGE)
            if text.is_null:
                status = put_null(column)
            else:
                status = put_value(column, &self.fields[text.target], text, value, end,
                                   &self.zone)
                if status == BAD_VALUE:
                    return self.fail_column(text, value, status)
            if status != OK:
                return status
            found += 1
        if source.short:
            return MALFORMED
        return OK if found == self.field_n else self.put_missing(columns, length)

    cdef int put_missing(self, ArrowColumn* columns, size_t length) noexcept nogil:
        """Append NULL if an image has no value and the column may be missing."""
        cdef size_t i
        cdef int status
        for i in range(self.field_n):
            if columns[i].length > length:
                continue
            if not self.fields[i].missing:
                return self.fail_missing(i)
            status = put_null(&columns[i])
            if status != OK:
                return status
        return OK

    cdef int changes_key(self, Slice row, bint* changed) noexcept nogil:
        """Check whether an update changes a column of the primary key."""
        cdef Input source = input_of(row)
        cdef Slice field, value
        cdef ColumnText* text
        cdef size_t at = 0
        cdef int status
        while next_field(&source, TAG_AFTER, &field):
            status = read_column(&self.shape, at, field, &text, &value)
            if status != OK:
                return status
            at += 1
            if text.is_key and text.updated:
                changed[0] = True
        return MALFORMED if source.short else OK

    cdef int put_positions(self, size_t count) noexcept nogil:
        """Append file:offset to the rows of an entry."""
        cdef uint8_t[FILE_NAME_MAX + 24] text
        cdef uint8_t* p = text
        cdef Slice file = self.head.file
        memcpy(p, file.p, file.n)
        p[file.n] = 58
        p = put_u64(p + file.n + 1, self.head.offset)
        return put_texts(&self.position, text, p - text, count)

    cdef int put_statement(self) noexcept with gil:
        try:
            self.keep_statement()
        except MemoryError:
            return NO_ROOM
        self.stop_here = True
        return OK

    # --- names and types --------------------------------------------------------------

    cdef bint forget_labels(self) noexcept with gil:
        """Discard labels and the columns that point to them; false without memory."""
        self.labels.clear()
        self.labels_known = 0
        return name_shape(&self.shape, self.schema_text, self.table_text) == OK

    cdef int resolve(self, ColumnText* text) noexcept with gil:
        """Determine the target of a column, and how to read its values."""
        cdef ColumnLabels labels
        try:
            name = text.name.p[:text.name.n].decode()
            number = self.numbers.get(name.lower())
            if self.known is not None and not self.is_known(text, number):
                self.unlike = True
            if number is None:
                text.target = IGNORED
                return OK
            mysql_type = text.mysql_type.p[:text.mysql_type.n].decode()
            text.reading = reading_of(mysql_type, self.fields[<int>number].kind)
            text.labels = NULL
            text.filled = 0
            if self.fields[<int>number].kind == KIND_BINARY:
                text.filled = filled_bytes(mysql_type)
            if self.fields[<int>number].kind == KIND_TEXT:
                base = mysql_type[:5].partition("(")[0].strip().lower()
                if base in ("enum", "set"):
                    labels = self.labels.setdefault(mysql_type, None)
                    if labels is None:
                        labels = self.labels[mysql_type] = ColumnLabels(mysql_type)
                        self.labels_known += 1
                    if len(labels) == 0:
                        column = f"column {name} of {self.schema}.{self.table}"
                        self.fail(without_labels(column, mysql_type))
                        return FAILED
                    text.labels = &labels.labels
                    text.reading = READ_ENUM if base == "enum" else READ_SET
            text.target = number
        except MemoryError:
            return NO_ROOM
        return OK

    cdef bint is_known(self, ColumnText* text, object number) except -1:
        """Check whether a column has the known type and key attribute."""
        if number is None:
            return False
        mysql_type = text.mysql_type.p[:text.mysql_type.n].decode()
        return self.known[number] == (mysql_type, bool(text.is_key))

    cdef int fail_column(self, ColumnText* text, Slice value, int status) noexcept with gil:
        """Set the error of a column with an invalid value."""
        cdef size_t n = min(value.n, <size_t>VALUE_SHOWN_MAX)
        cdef const Field* field
        try:
            name = text.name.p[:text.name.n].decode()
            mysql_type = text.mysql_type.p[:text.mysql_type.n].decode()
            column = f"column {name} of {self.schema}.{self.table}"
            if status == BAD_IMAGE:
                self.fail(f"{column}: twice in one row")
            else:
                shown = value.p[:n].decode("utf-8", "replace") if n else ""
                field = &self.fields[text.target]
                self.fail(unreadable(column, mysql_type, (field.kind, field.a, field.b),
                                     shown))
        except MemoryError:
            return NO_ROOM
        return FAILED

    cdef int fail_missing(self, size_t number) noexcept with gil:
        try:
            name = next(n for n, i in self.numbers.items() if i == number)
            self.fail(not_logged(f"column {name} of {self.schema}.{self.table}"))
        except MemoryError:
            return NO_ROOM
        return FAILED

    # --- all rows ---------------------------------------------------------------------

    cdef int put_commit(self, size_t count, Slice xid) noexcept nogil:
        return OK

    cdef size_t measure(self) noexcept nogil:
        cdef size_t total = column_bytes(&self.change_type) + column_bytes(&self.position)
        cdef size_t i
        for i in range(self.field_n * 2):
            total += column_bytes(&self.images[i])
        return total

    cdef list take_columns(self):
        cdef size_t i
        columns = []
        for image in range(2 if self.updates == ENVELOPE else 1):
            if self.updates == ENVELOPE:
                columns.append(take_column(&self.structs[image]))
            for i in range(self.field_n):
                columns.append(take_column(&self.images[image * self.field_n + i]))
        columns.append(take_column(&self.change_type))
        columns.append(take_column(&self.position))
        return columns
