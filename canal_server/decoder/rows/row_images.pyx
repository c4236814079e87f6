# cython: language_level=3
"""The row loop: one row image of the binlog becomes the columns of a RowData.

Bytes in, bytes out, without the GIL. Values of fixed types are first converted to text
in a small buffer, so all lengths are known when the column is written and nothing is
moved. The output is canonical protobuf.

    Column, as written:
      0x12 length          field 2 (or 1, before) of RowData; one byte tag
      head                 index, sqlType, name, isKey, updated, isNull, tag of value
      varint n, n bytes    value
      tail                 mysqlType
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from canal_server.core.gtid.uuid_text cimport put_uuid
from canal_server.core.wire cimport Input, Output, ensure, need, put_varint
from canal_server.core.wire cimport take_be, take_le, varint_size
from canal_server.decoder.text.charset_text cimport CHARSET_UTF8, CharsetC, is_plain_ascii
from canal_server.decoder.text.charset_text cimport put_text, valid_utf8
from canal_server.decoder.rows.row_layout cimport *
from canal_server.decoder.text.json_diff cimport put_json_diff
from canal_server.decoder.text.json_text cimport put_json
from canal_server.decoder.text.address_text cimport put_inet4, put_inet6
from canal_server.decoder.text.number_text cimport decimal_size, put_decimal, put_double
from canal_server.decoder.text.number_text cimport put_float, put_i64, put_u64

from canal_server.decoder.text.temporal_text cimport (
    put_date, put_fraction, put_hires_datetime, put_hires_time, put_old_datetime,
    put_old_time, put_packed_datetime, put_time2, put_timestamp, put_year,
)

import zlib

# Bytes of MariaDB's old types with fraction, by digits.
cdef int[7] HIRES_DATETIME_BYTES = [5, 6, 6, 7, 7, 7, 8]
cdef int[7] HIRES_TIME_BYTES = [3, 4, 4, 5, 5, 5, 6]
cdef int[7] HIRES_SECOND_BYTES = [0, 1, 1, 2, 2, 3, 3]


# --- memory -----------------------------------------------------------------------

cdef int grow_rows(Output* out, size_t room) noexcept nogil:
    """Output.grow for memory from malloc, followed by SLACK."""
    cdef size_t used = out.p - out.start
    cdef size_t size = (out.end - out.start) * 2
    cdef uint8_t* data
    if size < used + room:
        size = used + room
    data = <uint8_t*>realloc(out.start, size + SLACK)
    if data == NULL:
        return -1
    out.start, out.p, out.end = data, data + used, data + size
    return 0


cdef int grow_scratch(Output* out, size_t room) noexcept nogil:
    """Like grow_rows, up to the limit of one value's text."""
    cdef RowContext* context = <RowContext*>out.owner
    cdef uint64_t needed = out.p - out.start + room
    if needed > context.text_bytes_max + SLACK:
        context.too_large = needed
        return -1
    return grow_rows(out, room)


cdef int init_context(RowContext* context, uint64_t value_bytes_max) except -1:
    """Allocate little memory; `inflated_max` limits a compressed value."""
    memset(context, 0, sizeof(RowContext))
    context.inflated_max = context.text_bytes_max = value_bytes_max
    context.scratch.start = <uint8_t*>malloc(4096 + SLACK)
    if context.scratch.start == NULL:
        raise MemoryError("no memory for a decoder")
    context.scratch.p = context.scratch.start
    context.scratch.end = context.scratch.start + 4096
    context.scratch.grow = grow_scratch
    context.scratch.owner = context
    return 0


cdef void free_context(RowContext* context) noexcept nogil:
    free(context.before)
    free(context.scratch.start)
    context.before = NULL
    context.scratch.start = NULL


cdef inline void copy_piece(uint8_t* to, const uint8_t* data, size_t n) noexcept nogil:
    """Copy n bytes in steps; both sides are followed by SLACK."""
    memcpy(to, data, 32)
    if n > 32:
        memcpy(to + 32, data + 32, n - 32)


# --- columns ----------------------------------------------------------------------

cdef inline int put_column(Output* out, uint8_t tag, const Piece* head,
                           const uint8_t* value, uint64_t n,
                           const Piece* tail, bint padded) noexcept nogil:
    """Write one column; `padded`: SLACK readable bytes follow the value."""
    cdef uint64_t body = head.n + tail.n
    cdef uint8_t* p
    if n:
        body += varint_size(n) + n
    else:
        body -= 1  # no value field; the head ends with its tag
    if ensure(out, body + n + SLACK * 2 + 24) != 0:
        return ROW_MEMORY
    p = out.p
    p[0] = tag
    p = put_varint(p + 1, body)
    copy_piece(p, head.p, head.n)
    p += head.n
    if n:
        p = put_varint(p, n)
        if padded:
            copy_piece(p, value, n)
        else:
            memcpy(p, value, n)
        p += n
    else:
        p -= 1
    copy_piece(p, tail.p, tail.n)
    out.p = p + tail.n
    return ROW_OK


cdef int put_null(Output* out, uint8_t tag, const Piece* whole) noexcept nogil:
    if ensure(out, whole.n + SLACK) != 0:
        return ROW_MEMORY
    copy_piece(out.p, whole.p, whole.n)
    out.p[0] = tag
    out.p += whole.n
    return ROW_OK


cdef bytes inflated(const uint8_t* p, size_t n, uint64_t bytes_max):
    """Return a value without MariaDB's column compression.

    One byte: algorithm (8: zlib) in the high half; low half: bit 3 says that the zlib
    wrapper is missing, bits 0-2 how many bytes (big-endian) hold the length. A first
    byte of 0: the rest is the value itself. Raises ValueError, zlib.error or
    OverflowError for an inconsistent value.
    """
    if n == 0 or p[0] == 0:
        return p[1:n] if n else b""
    if p[0] >> 4 != 8 or n < 1 + (p[0] & 7):
        raise ValueError("not a compressed value")
    size = int.from_bytes(p[1:1 + (p[0] & 7)], "big")
    if size > bytes_max:
        raise TooLargeError(size)
    inflater = zlib.decompressobj(-15 if p[0] & 8 else 15)
    data = inflater.decompress(p[1 + (p[0] & 7):n], size + 1)
    if len(data) != size or not inflater.eof:
        raise ValueError("a compressed value of another length")
    return data


class TooLargeError(Exception):
    """A compressed value that exceeds the limit; its argument is the size."""


cdef int inflate(RowContext* context, const uint8_t* p, size_t n) noexcept with gil:
    """Undo MariaDB's column compression into the scratch memory."""
    cdef Output* scratch = &context.scratch
    cdef bytes data
    try:
        data = inflated(p, n, context.inflated_max)
    except TooLargeError as error:
        context.inflates_to = min(error.args[0], 1 << 62)
        return ROW_MEMORY
    except MemoryError:
        return ROW_MEMORY
    except (ValueError, OverflowError, zlib.error):
        return ROW_VALUE
    if ensure(scratch, len(data) + SLACK) != 0:
        return ROW_MEMORY
    memcpy(scratch.p, <const uint8_t*>data, len(data))
    scratch.p += len(data)
    return ROW_OK


cdef inline bint same_text(const Before* before, const uint8_t* text, uint64_t n,
                           const Output* out) noexcept nogil:
    """Check whether a before image had this text."""
    return (before.size >= 0 and before.text_n == n
            and memcmp(out.start + before.text_at, text, n) == 0)


cdef inline const Piece* head_of(const ColumnPlan* column, bint updated,
                                 bint promoted) noexcept nogil:
    if promoted:
        return &column.head_promoted_updated if updated else &column.head_promoted
    return &column.head_updated if updated else &column.head


cdef int write_text(RowContext* context, const ColumnPlan* column, Output* out,
                    uint8_t tag, Role role, Before* before, const uint8_t* text,
                    uint64_t n, bint padded) noexcept nogil:
    """Write a column whose text is compared as text, and store its offset."""
    cdef bint updated = role == ROLE_INSERT
    cdef int status
    if role == ROLE_AFTER:
        updated = not same_text(before, text, n, out)
    status = put_column(out, tag, head_of(column, updated, False), text, n,
                        &column.tail, padded)
    if role == ROLE_BEFORE and status == ROW_OK:
        before.text_n = n
        before.text_at = out.p - out.start - column.tail.n - n
    return status


cdef int put_bytes_column(RowContext* context, const ColumnPlan* column,
                          const uint8_t* raw, uint64_t n, Output* out, uint8_t tag,
                          Role role, Before* before, bint diff) noexcept nogil:
    """Write a column whose text's length is known only after the conversion."""
    cdef Output* scratch = &context.scratch
    cdef size_t inflated
    cdef int status = ROW_OK
    if column.op == OP_STRING and (is_plain_ascii(raw, n, column.charset) or (
            column.charset.kind == CHARSET_UTF8 and valid_utf8(raw, n) == n)):
        return write_text(context, column, out, tag, role, before, raw, n, True)
    scratch.p = scratch.start
    if column.op == OP_JSON:
        if n == 0 and diff and before.size >= 0:
            # An update that did not change the document.
            status = ensure(scratch, before.text_n + SLACK)
            if status == 0:
                memcpy(scratch.p, out.start + before.text_at, before.text_n)
                scratch.p += before.text_n
        elif n == 0:
            status = 0
        elif diff:
            status = put_json_diff(scratch, raw, n, column.name.p, column.name.n)
        else:
            status = put_json(scratch, raw, n)
        if status != 0:
            return ROW_VALUE if status > 0 else ROW_MEMORY
    elif column.op == OP_COMPRESSED:
        status = inflate(context, raw, n)
        if status != ROW_OK:
            return status
        inflated = scratch.p - scratch.start
        if not is_plain_ascii(scratch.start, inflated, column.charset):
            status = recode(scratch, inflated, column.charset)
            if status != ROW_OK:
                return status
    else:
        if put_text(scratch, raw, n, column.charset) != 0:
            return ROW_MEMORY
    return write_text(context, column, out, tag, role, before, scratch.start,
                      scratch.p - scratch.start, True)


cdef int recode(Output* scratch, size_t n, const CharsetC* charset) noexcept nogil:
    """Replace the scratch's bytes by their UTF-8 text."""
    cdef uint8_t* raw = <uint8_t*>malloc(n + SLACK)
    cdef int status
    if raw == NULL:
        return ROW_MEMORY
    memcpy(raw, scratch.start, n)
    scratch.p = scratch.start
    status = put_text(scratch, raw, n, charset)
    free(raw)
    return ROW_OK if status == 0 else ROW_MEMORY


cdef inline bint has_bit(const uint8_t* bits, uint32_t i) noexcept nogil:
    return bits[i >> 3] >> (i & 7) & 1


# --- values -----------------------------------------------------------------------

# Each of these is called once and inlined there: faster, benchmark `inserts`.

cdef inline uint8_t* put_integer(uint8_t* text, Input* source, int op,
                                 bint* promoted) noexcept nogil:
    """Write an integer; `promoted`: it is too large for the signed type."""
    cdef uint64_t v
    if op == OP_I32:
        return put_i64(text, <int32_t>take_le(source, 4))
    if op == OP_U64:
        v = take_le(source, 8)
        promoted[0] = v >> 63
        return put_u64(text, v)
    if op == OP_I64:
        return put_i64(text, <int64_t>take_le(source, 8))
    if op == OP_I8:
        return put_i64(text, <int8_t>take_le(source, 1))
    if op == OP_U8:
        v = take_le(source, 1)
        promoted[0] = v >> 7
        return put_u64(text, v)
    if op == OP_I16:
        return put_i64(text, <int16_t>take_le(source, 2))
    if op == OP_U16:
        v = take_le(source, 2)
        promoted[0] = v >> 15
        return put_u64(text, v)
    if op == OP_I24:
        return put_i64(text, <int32_t>(<uint32_t>take_le(source, 3) << 8) >> 8)
    if op == OP_U24:
        v = take_le(source, 3)
        promoted[0] = v >> 23
        return put_u64(text, v)
    v = take_le(source, 4)
    promoted[0] = v >> 31
    return put_u64(text, v)


cdef inline uint8_t* put_number_or_moment(uint8_t* text, Input* source,
                                          const ColumnPlan* column) noexcept nogil:
    """Write a value of a fixed type other than a plain integer."""
    cdef const uint8_t* raw
    cdef uint64_t v, n
    if column.op == OP_DATETIME2:
        v = take_be(source, 5)
        n = take_be(source, (column.a + 1) // 2)
        text = put_packed_datetime(text, v - (<uint64_t>1 << 39))
        return put_fraction(text, n, (column.a + 1) // 2 * 2, column.a)
    if column.op == OP_TIMESTAMP2:
        v = take_be(source, 4)
        n = take_be(source, (column.a + 1) // 2)
        text = put_timestamp(text, <uint32_t>v, column.zone)
        return put_fraction(text, n, (column.a + 1) // 2 * 2, column.a)
    if column.op == OP_DECIMAL:
        raw = need(source, decimal_size(column.a, column.b))
        return text if raw == NULL else text + put_decimal(text, raw, column.a, column.b)
    if column.op == OP_BIT:
        return put_u64(text, take_be(source, column.a))
    return put_rarer(text, source, column)


cdef uint8_t* put_rarer(uint8_t* text, Input* source,
                        const ColumnPlan* column) noexcept nogil:
    """Write a value of a rare type."""
    cdef uint64_t v, n
    cdef int op = column.op
    if op == OP_FLOAT:
        v = take_le(source, 4)
        return text + put_float(text, (<float*>&v)[0])
    if op == OP_DOUBLE:
        v = take_le(source, 8)
        return text + put_double(text, (<double*>&v)[0])
    if op == OP_DATE:
        v = take_le(source, 3)
        return put_date(text, v >> 9, v >> 5 & 15, v & 31)
    if op == OP_TIME2:
        return put_time2(text, source, column.a)
    if op == OP_YEAR:
        return put_year(text, <uint32_t>take_le(source, 1))
    if op == OP_ENUM or op == OP_SET:
        return put_u64(text, take_le(source, column.a))
    if op == OP_TIMESTAMP:
        return put_timestamp(text, <uint32_t>take_le(source, 4), column.zone)
    if op == OP_DATETIME:
        return put_old_datetime(text, take_le(source, 8))
    if op == OP_TIME:
        return put_old_time(text, <uint32_t>take_le(source, 3))
    if op == OP_TIMESTAMP_HIRES:
        v = take_be(source, 4)
        n = take_be(source, HIRES_SECOND_BYTES[column.a])
        text = put_timestamp(text, <uint32_t>v, column.zone)
        return put_fraction(text, n, column.a, column.a)
    if op == OP_DATETIME_HIRES:
        v = take_be(source, HIRES_DATETIME_BYTES[column.a])
        return put_hires_datetime(text, v, column.a)
    v = take_be(source, HIRES_TIME_BYTES[column.a])  # OP_TIME_HIRES
    return put_hires_time(text, v, column.a)


cdef uint8_t* put_address(uint8_t* text, const uint8_t* raw, uint64_t n,
                          int op) noexcept nogil:
    """Write a UUID, an INET4 or an INET6 of n <= 16 bytes."""
    cdef uint8_t[16] whole
    # Trailing zero bytes are stripped as of any fixed binary column.
    memset(whole, 0, 16)
    memcpy(whole, raw, n)
    if op == OP_UUID:
        # Tables store some with their last group first, the binlog never does.
        return put_uuid(text, whole)
    if op == OP_INET4:
        return put_inet4(text, whole)
    return put_inet6(text, whole)


# --- columns by kind ----------------------------------------------------------------

cdef inline int put_null_column(const ColumnPlan* column, Output* out, uint8_t tag,
                                Role role, Before* before) noexcept nogil:
    """Write a NULL, and record it in a before image."""
    cdef bint updated = role == ROLE_INSERT or (
        role == ROLE_AFTER and before.size != -1)
    if role == ROLE_BEFORE:
        before.size = -1
    if not column.emitted:
        return ROW_OK
    return put_null(out, tag, &column.null_whole_updated if updated
                    else &column.null_whole)


cdef inline int put_fixed_column(Input* source, const ColumnPlan* column, Output* out,
                                 uint8_t tag, Role role,
                                 Before* before) noexcept nogil:
    """Write a value whose text fits in a small buffer.

    Equal bytes of such values mean equal texts, and vice versa.
    """
    cdef uint8_t[128] text
    cdef const uint8_t* raw = source.p
    cdef uint8_t* p
    cdef uint64_t n
    cdef int size
    cdef bint updated
    cdef bint promoted = False
    if column.op <= OP_U64:
        p = put_integer(text, source, column.op, &promoted)
    elif column.op >= OP_STRING:
        n = take_le(source, column.a)
        raw = need(source, n)
        if raw == NULL:
            return ROW_SHORT
        if n > 16:
            return ROW_VALUE
        p = put_address(text, raw, n, column.op)
    else:
        p = put_number_or_moment(text, source, column)
    if source.short:
        return ROW_SHORT
    size = <int>(source.p - raw)
    if role == ROLE_BEFORE:
        before.raw, before.size = raw, size
        updated = False
    elif role == ROLE_INSERT:
        updated = True
    else:
        updated = before.size != size or memcmp(before.raw, raw, size) != 0
    if not column.emitted:
        return ROW_OK
    return put_column(out, tag, head_of(column, updated, promoted), text, p - text,
                      &column.tail, True)


cdef inline int put_long_column(RowContext* context, Input* source,
                                const ColumnPlan* column, Output* out, uint8_t tag,
                                Role role, Before* before, bint diff) noexcept nogil:
    """Write a value that is preceded by its length: characters, bytes, JSON."""
    cdef uint64_t n = take_le(source, column.a)
    cdef const uint8_t* raw = need(source, n)
    if raw == NULL or source.short:  # without its length, none of a text is there
        return ROW_SHORT
    if role == ROLE_BEFORE:
        before.raw, before.size = raw, <int64_t>n
    if not column.emitted:
        return ROW_OK
    return put_bytes_column(context, column, raw, n, out, tag, role, before, diff)


# --- the row ------------------------------------------------------------------------

cdef inline int begin_image(RowContext* context, Input* source, const uint8_t* present,
                            uint32_t width, const uint8_t** nulls) noexcept nogil:
    """Make room for a before image and read the NULL bits of the columns present."""
    cdef uint32_t in_image = 0
    cdef uint32_t i
    cdef Before* before
    if context.before_n < width:
        before = <Before*>realloc(context.before, width * sizeof(Before))
        if before == NULL:
            return ROW_MEMORY
        context.before, context.before_n = before, width
    for i in range(width):
        in_image += has_bit(present, i)
    nulls[0] = need(source, (in_image + 7) // 8)
    if nulls[0] == NULL:
        context.column = 0
        return ROW_SHORT
    return ROW_OK


cdef int encode_image(RowContext* context, Input* source, const LayoutC* layout,
                      const uint8_t* present, uint32_t width, Output* out, Role role,
                      const uint8_t* partial, uint32_t partial_n) noexcept nogil:
    """Append the columns of one row image to `out` as fields of RowData.

    `present` has a bit per column of the table (the event's column bitmap, width
    bits); the image's own NULL bits follow at `source`. `partial` has a bit per JSON
    column, set if the value is a diff; NULL if none is. Returns a RowError;
    `context.column` then is the column's index.
    """
    cdef uint32_t i
    cdef uint32_t bit = 0
    cdef uint32_t json_bit = 0
    cdef const uint8_t* nulls
    cdef const ColumnPlan* column
    cdef Before* before
    cdef uint8_t tag = 0x0A if role == ROLE_BEFORE else 0x12
    cdef int status = begin_image(context, source, present, width, &nulls)
    cdef bint is_null, diff
    if status != ROW_OK:
        return status
    for i in range(width):
        column = &layout.columns[i]
        before = &context.before[i]
        diff = False
        if column.op == OP_JSON and partial_n:
            diff = (json_bit >> 3) < partial_n and has_bit(partial, json_bit)
            json_bit += 1
        if not has_bit(present, i):
            if role == ROLE_BEFORE:
                before.size = -2
            continue
        is_null = has_bit(nulls, bit)
        bit += 1
        if is_null:
            status = put_null_column(column, out, tag, role, before)
        elif OP_STRING <= column.op <= OP_COMPRESSED:
            status = put_long_column(context, source, column, out, tag, role, before,
                                     diff)
        else:
            status = put_fixed_column(source, column, out, tag, role, before)
        if status != ROW_OK:
            context.column = i
            return status
    return ROW_OK
