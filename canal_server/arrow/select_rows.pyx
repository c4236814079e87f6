# cython: language_level=3, cdivision=True
"""The rows of a SELECT as columns of Arrow: the same values as those of `TypedColumns`.

Bytes in, columns out: the answer of a server to COM_QUERY, from its first byte.

    packet   3 bytes length, 1 byte number, payload; one of 0xFFFFFF bytes continues
             in the next packet
    answer   number of columns | their definitions | EOF | rows | EOF; or an error
    definition   6 texts, the last are names | 0x0C | 2 bytes collation | …
    row      for each column a length and a text of that length, or 0xFB for NULL

The text of a value depends on the SELECT; `FORMS` lists the possible forms.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from canal_server.core.wire cimport Input, Output, need, take_be, take_packed
from canal_server.arrow.column_buffers cimport (
    BAD_VALUE, MALFORMED, NO_ROOM, OFFSET_MAX, OK, TOO_LARGE, ArrowColumn,
    Memory, free_column, init_column, put_i64, put_null, put_piece,
    put_short_text, put_text, take_column,
)
from canal_server.arrow.label_texts cimport ColumnLabels
from canal_server.arrow.conversions cimport READ_ENUM, READ_PLAIN, READ_SET
from canal_server.arrow.put_values cimport (
    KIND_I64, KIND_WIDE, Field,
    Zone, layout_of_kind, put_value, width_of_kind,
)
from canal_server.arrow.entry_shapes cimport ColumnText
from canal_server.arrow.text_values cimport is_utf8
from canal_server.core.entry_wire cimport Slice
from canal_server.decoder.text.charset_text cimport (
    CHARSET_UTF8, Charset, CharsetC, grow_heap, is_plain_ascii,
)
from canal_server.decoder.text.charset_text cimport put_text as put_charset_text
from canal_server.core.byte_buffer cimport Feed
from canal_server.arrow.json_restyle cimport is_styled, put_restyled

from canal_server.arrow.column_problems import without_labels
from canal_server.arrow.put_values import KINDS
from canal_server.decoder.text.charset_names import charset_of_collation
from canal_server.decoder.text.charset_text import charset as charset_named
from canal_server.errors import DecodeError

cdef enum Form:
    FORM_PLAIN = 0    # as in entries, except leading zeros
    FORM_TEXT = 1     # text in the column's character set
    FORM_JSON = 2
    FORM_LABELS = 3  # the number of an ENUM, the bits of a SET
    FORM_BYTES = 4
    FORM_BITS = 5     # BIT: its bytes, highest first
    FORM_FLOATING = 6 # with `e` before the exponent

FORMS = {
    "plain": FORM_PLAIN, "text": FORM_TEXT, "json": FORM_JSON, "labels": FORM_LABELS,
    "bytes": FORM_BYTES, "bits": FORM_BITS, "floating": FORM_FLOATING,
}

cdef enum Stage:
    STAGE_COUNT = 0   # expects the number of columns
    STAGE_FIELDS = 1
    STAGE_FIELDS_END = 2
    STAGE_ROWS = 3
    STAGE_DONE = 4
    STAGE_REFUSED = 5  # received an error packet

cdef enum:
    HEADER_BYTES = 4
    SPLIT = 0xFFFFFF      # a packet of this length continues in the next one
    END_BYTES_MAX = 9     # of an EOF packet; a row with this first byte is longer
    NUMBER_BYTES_MAX = 400
    BIT_BYTES_MAX = 8
    VALUE_SHOWN_MAX = 60  # bytes of a value in a message
    DEFINITION_TEXTS = 6  # catalog, schema, table, its own name, name, its own name
    OTHER_CHARSET = 100   # a status in addition to those of `column_buffers`

cdef struct Target:
    Field field
    ColumnText text
    int form
    const CharsetC* charset
    bint has_charset  # false for columns without a character set


cdef class ResultColumns:
    """The columns of one answer; `take` returns them in the order of the fields."""

    cdef Target* targets
    cdef ArrowColumn* columns
    cdef size_t width
    cdef tuple names
    cdef tuple types       # MySQL's types
    cdef tuple charsets    # their names, None if it is not text
    cdef list kept         # owns what the targets point to
    cdef Zone zone
    cdef Output scratch
    cdef Memory large      # a payload of several packets
    cdef bint in_large
    cdef int stage
    cdef uint64_t fields_left
    cdef uint8_t number    # of the next packet
    cdef size_t failed_at  # the column with an invalid value
    cdef Slice failed_value
    cdef str failed_charset
    cdef readonly bytes refusal  # payload of the error packet
    cdef readonly size_t rows
    cdef size_t bytes_read
    cdef size_t rows_max
    cdef size_t bytes_max
    cdef size_t row_bytes_max

    def __cinit__(self, *args, **options):
        memset(&self.zone, 0, sizeof(Zone))
        self.zone.zero_is_null = True
        self.scratch.start = self.scratch.p = self.scratch.end = NULL
        self.scratch.grow = grow_heap
        self.number = 1

    def __init__(self, fields, *, rows_max=65536, bytes_max=32 << 20,
                 row_bytes_max=OFFSET_MAX):
        """Set the columns: (name, kind, precision, scale, form, type, charset).

        `type` is MySQL's, for the labels of ENUM and SET and for messages; `charset` is
        that of a text column. A text without one (a TIME, a UUID) is ASCII.
        """
        cdef size_t i
        if self.targets != NULL:
            raise ValueError("initialized twice")
        fields = tuple(fields)
        self.rows_max, self.bytes_max = rows_max, bytes_max
        self.row_bytes_max = row_bytes_max
        self.names = tuple(field[0] for field in fields)
        self.types = tuple(field[5] for field in fields)
        self.charsets = tuple(field[6] and field[6].name for field in fields)
        self.kept = []
        self.targets = <Target*>calloc(len(fields) + 1, sizeof(Target))
        self.columns = <ArrowColumn*>calloc(len(fields) + 1, sizeof(ArrowColumn))
        if self.targets == NULL or self.columns == NULL:
            raise MemoryError("no memory for the columns of a result")
        self.width = len(fields)
        for i in range(self.width):
            self.set_target(&self.targets[i], fields[i])
            init_column(&self.columns[i], layout_of_kind(self.targets[i].field.kind),
                        width_of_kind(self.targets[i].field.kind))

    def __dealloc__(self):
        cdef size_t i
        if self.columns != NULL:
            for i in range(self.width):
                free_column(&self.columns[i])
        free(self.columns)
        free(self.targets)
        free(self.scratch.start)
        free(self.large.data)

    cdef int set_target(self, Target* target, tuple field) except -1:
        cdef ColumnLabels labels
        name, kind, a, b, form, mysql_type, charset = field
        target.field.kind, target.field.a, target.field.b = KINDS[kind], a, b
        target.form = FORMS[form]
        target.text.reading = READ_PLAIN
        if target.form == FORM_LABELS:
            labels = ColumnLabels(mysql_type)
            if len(labels) == 0:
                raise DecodeError(without_labels(f"column {name}", mysql_type))
            self.kept.append(labels)
            target.text.labels = &labels.labels
            is_enum = mysql_type.lower().startswith("enum")
            target.text.reading = READ_ENUM if is_enum else READ_SET
        elif target.form == FORM_TEXT:
            target.has_charset = charset is not None
            charset = charset or charset_named("utf8mb4")
            self.kept.append(charset)
            target.charset = &(<Charset?>charset).c
        return 0

    # --- packets ----------------------------------------------------------------------

    @property
    def full(self):
        """Whether the batch has reached its limit of rows or bytes."""
        return self.rows >= self.rows_max or self.bytes_read >= self.bytes_max

    @property
    def done(self):
        """Whether all rows were received."""
        return self.stage == STAGE_DONE

    def read(self, Feed feed):
        """Process the input in the feed, until the columns are full.

        Returns how many bytes of room the feed should have after its remaining input.
        Raises DecodeError.
        """
        cdef size_t needed = 0
        cdef size_t used = 0
        cdef int status
        if self.full or self.stage >= STAGE_DONE:
            return 0
        with nogil:
            status = self.read_packets(feed.data + feed.begin, feed.end - feed.begin,
                                       &used, &needed)
        if status != OK:
            self.raise_error(status)
        feed.begin += used
        return needed

    cdef int read_packets(self, const uint8_t* p, size_t n, size_t* used,
                          size_t* needed) noexcept nogil:
        cdef const uint8_t* end = p + n
        cdef size_t size
        cdef int status
        while self.stage < STAGE_DONE:
            if self.rows >= self.rows_max or self.bytes_read >= self.bytes_max:
                return OK
            n = end - p
            if n < HEADER_BYTES:
                return OK
            size = p[0] | <size_t>p[1] << 8 | <size_t>p[2] << 16
            if n - HEADER_BYTES < size:
                needed[0] = size + HEADER_BYTES - n
                return OK
            if p[3] != self.number:
                return MALFORMED
            self.number += 1
            p += HEADER_BYTES
            if size == SPLIT or self.in_large:
                status = self.put_large(p, size)
            else:
                status = self.put_payload(p, size, end)
            if status != OK:
                return status
            p += size
            used[0] += HEADER_BYTES + size
        # Nothing may follow the last packet.
        return OK if p == end else MALFORMED

    cdef int put_large(self, const uint8_t* p, size_t n) noexcept nogil:
        """Collect a payload of several packets."""
        cdef int status
        if n > self.row_bytes_max or self.large.used > self.row_bytes_max - n:
            return TOO_LARGE
        if put_piece(&self.large, p, n) != OK:
            return NO_ROOM
        self.in_large = n == SPLIT
        if self.in_large:
            return OK
        status = self.put_payload(self.large.data, self.large.used,
                                  self.large.data + self.large.used)
        if status == OK or status == NO_ROOM:
            # Its memory is freed, as such rows are rare.
            free(self.large.data)
            memset(&self.large, 0, sizeof(Memory))
        return status

    cdef int put_payload(self, const uint8_t* p, size_t n,
                         const uint8_t* end) noexcept nogil:
        """Process a payload; bytes after it, up to `end`, may be read."""
        cdef Input source
        if n == 0:
            return MALFORMED
        if p[0] == 0xFF:
            return self.keep_refusal(p, n)
        if self.stage == STAGE_ROWS:
            if p[0] == 0xFE and n < END_BYTES_MAX:
                self.stage = STAGE_DONE
                return OK
            return self.put_row(p, n, end)
        if self.stage == STAGE_FIELDS:
            if self.check_definition(p, n) != OK:
                return OTHER_CHARSET
            self.fields_left -= 1
            self.stage = STAGE_FIELDS if self.fields_left else STAGE_FIELDS_END
            return OK
        if self.stage == STAGE_FIELDS_END:
            self.stage = STAGE_ROWS
            return OK if p[0] == 0xFE and n < END_BYTES_MAX else MALFORMED
        source.p, source.end, source.short = p, p + n, False
        self.fields_left = take_packed(&source)
        self.stage = STAGE_FIELDS
        if source.short or source.p != source.end or self.fields_left != self.width:
            return MALFORMED
        return OK if self.width else MALFORMED

    cdef int keep_refusal(self, const uint8_t* p, size_t n) noexcept with gil:
        try:
            self.refusal = p[:n]
        except MemoryError:
            return NO_ROOM
        self.stage = STAGE_REFUSED
        return OK

    cdef int check_definition(self, const uint8_t* p, size_t n) noexcept nogil:
        """Check that a text arrives in its column's character set, if it has one."""
        cdef size_t at = self.width - self.fields_left
        cdef Input source
        cdef uint16_t collation
        cdef const uint8_t* fixed
        cdef int i
        if not self.targets[at].has_charset:
            return OK
        source.p, source.end, source.short = p, p + n, False
        for i in range(DEFINITION_TEXTS):
            need(&source, take_packed(&source))
        fixed = need(&source, 3)
        if source.short:
            return OK
        collation = fixed[1] | <uint16_t>(fixed[2]) << 8
        return self.check_charset(at, collation)

    cdef int check_charset(self, size_t at, uint16_t collation) noexcept with gil:
        """Compare character sets, if the collation is known."""
        found_charset = charset_of_collation(collation)
        if found_charset in (None, self.charsets[at]):
            return OK
        self.failed_at, self.failed_charset = at, found_charset
        return OTHER_CHARSET

    # --- rows -------------------------------------------------------------------------

    cdef int put_row(self, const uint8_t* p, size_t n, const uint8_t* end) noexcept nogil:
        cdef Input source
        cdef Slice value
        cdef size_t i
        cdef int status
        source.p, source.end, source.short = p, p + n, False
        for i in range(self.width):
            if source.p < source.end and source.p[0] == 0xFB:
                source.p += 1
                status = put_null(&self.columns[i])
            else:
                value.n = take_packed(&source)
                value.p = need(&source, value.n)
                if source.short:
                    return MALFORMED
                status = self.put(&self.targets[i], &self.columns[i], value, end)
            if status != OK:
                self.failed_at, self.failed_value = i, value
                return status
        if source.p != source.end:
            return MALFORMED
        self.rows += 1
        self.bytes_read += n
        return OK

    cdef inline int put(self, Target* target, ArrowColumn* column, Slice value,
                        const uint8_t* end) noexcept nogil:
        cdef int form = target.form
        if form == FORM_TEXT:
            return self.put_string(target, column, value, end)
        if form == FORM_PLAIN:
            if value.n > 1 and value.p[0] == 48 and (
                    target.field.kind <= KIND_I64 or target.field.kind == KIND_WIDE):
                value = without_zeros(value)  # ZEROFILL
            return put_value(column, &target.field, &target.text, value, end, &self.zone)
        if form == FORM_LABELS:
            return put_value(column, &target.field, &target.text, value, end, &self.zone)
        if form == FORM_BITS:
            return put_bits(column, value)
        if form == FORM_FLOATING:
            return self.put_floating(target, column, value)
        if form == FORM_JSON:
            return self.put_json(column, value, end)
        return put_text(column, value.p, value.n)

    cdef inline int put_string(self, Target* target, ArrowColumn* column, Slice value,
                               const uint8_t* end) noexcept nogil:
        if is_plain_ascii(value.p, value.n, target.charset) or (
                target.charset.kind == CHARSET_UTF8 and is_utf8(value.p, value.n)):
            return put_short_text(column, value.p, value.n, end)
        self.scratch.p = self.scratch.start
        if put_charset_text(&self.scratch, value.p, value.n, target.charset) != 0:
            return NO_ROOM
        return put_text(column, self.scratch.start, self.scratch.p - self.scratch.start)

    cdef int put_json(self, ArrowColumn* column, Slice value,
                      const uint8_t* end) noexcept nogil:
        cdef int status
        if not is_utf8(value.p, value.n):
            return BAD_VALUE
        if is_styled(value.p, value.n):
            return put_short_text(column, value.p, value.n, end)
        self.scratch.p = self.scratch.start
        status = put_restyled(&self.scratch, value.p, value.n)
        if status != 0:
            return NO_ROOM if status < 0 else BAD_VALUE
        return put_text(column, self.scratch.start, self.scratch.p - self.scratch.start)

    cdef int put_floating(self, Target* target, ArrowColumn* column,
                          Slice value) noexcept nogil:
        cdef uint8_t[NUMBER_BYTES_MAX] text
        cdef size_t i
        if value.n > NUMBER_BYTES_MAX:
            return BAD_VALUE
        for i in range(value.n):
            text[i] = 69 if value.p[i] == 101 else value.p[i]
        value.p = text
        return put_value(column, &target.field, &target.text, value, text + value.n,
                         &self.zone)

    # --- out --------------------------------------------------------------------------

    def take(self):
        """Return the columns of the rows so far, as buffers, and start empty ones."""
        cdef size_t i
        fetched = [take_column(&self.columns[i]) for i in range(self.width)]
        self.rows = self.bytes_read = 0
        return fetched

    def raise_error(self, int status):
        """Raise the error of a status."""
        cdef size_t n
        self.stage = STAGE_REFUSED
        if status == NO_ROOM:
            raise MemoryError("no memory for the columns of a result")
        if status == TOO_LARGE:
            raise DecodeError(
                f"a row has more than {self.row_bytes_max} bytes: exclude its largest "
                "columns")
        if status == OTHER_CHARSET:
            raise DecodeError(
                f"column {self.names[self.failed_at]} "
                f"({self.types[self.failed_at]}): its character set in the server is "
                f"{self.failed_charset}, not {self.charsets[self.failed_at]}: the column "
                "was changed, copy the table again")
        if status != BAD_VALUE:
            raise DecodeError("the server's answer is not a valid result of a SELECT")
        column = f"column {self.names[self.failed_at]}"
        n = min(self.failed_value.n, <size_t>VALUE_SHOWN_MAX)
        shown = self.failed_value.p[:n].decode("utf-8", "replace") if n else ""
        raise DecodeError(
            f"{column} ({self.types[self.failed_at]}): the server's value {shown!r} is "
            "not of that type: if the column was changed, copy the table again")


cdef inline Slice without_zeros(Slice value) noexcept nogil:
    while value.n > 1 and value.p[0] == 48 and value.p[1] != 46:
        value.p += 1
        value.n -= 1
    return value


cdef int put_bits(ArrowColumn* column, Slice value) noexcept nogil:
    cdef Input source
    if value.n > BIT_BYTES_MAX:
        return BAD_VALUE
    source.p, source.end, source.short = value.p, value.p + value.n, False
    return put_i64(column, <int64_t>take_be(&source, <int>value.n))
