# cython: language_level=3
"""Growing columns in Arrow's memory layout; see column_buffers.pyx.

    fixed   validity bits, `width` bytes per value
    bits    validity bits, one bit per value
    text    validity bits, int32 offsets (one more than values), bytes
    list    validity bits, int32 offsets into another column
    struct  validity bits alone

The validity bits exist from the first NULL on. All appends check the available memory;
the appending functions return OK or the reason of a failure.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

cdef enum Outcome:
    OK = 0
    NO_ROOM = 1       # no memory
    TOO_LARGE = 2     # beyond the range of int32 offsets
    MALFORMED = 3     # bytes that are not a message
    BAD_VALUE = 4     # a text that is not a value of its column's kind
    BAD_IMAGE = 5     # required columns are missing, or occur twice
    BAD_POSITION = 6     # an entry without a position, or without its number
    FAILED = 7        # a Python error is stored for the caller
    HELD = 8          # an entry to feed again, after the caller has acted

cdef enum Layout:
    LAYOUT_FIXED = 1
    LAYOUT_BITS = 2
    LAYOUT_TEXT = 3
    LAYOUT_LIST = 4
    LAYOUT_STRUCT = 5

cdef enum:
    OFFSET_MAX = 0x7FFFFFFF
    PADDING = 64      # bytes after `used` that may be written in fixed steps

cdef struct Memory:
    uint8_t* data
    size_t used
    size_t size       # without the padding
    size_t hint       # size of the previous batch

cdef struct ArrowColumn:
    Layout layout
    uint32_t width    # bytes of a fixed value
    size_t length     # appended values
    size_t nulls
    Memory validity
    Memory offsets
    Memory values

cdef int init_column(ArrowColumn* column, Layout layout, uint32_t width) except -1
cdef void free_column(ArrowColumn* column) noexcept nogil
cdef object take_column(ArrowColumn* column)
cdef int grow(Memory* memory, size_t room) noexcept nogil
cdef int begin_validity(ArrowColumn* column) noexcept nogil
cdef int put_texts(ArrowColumn* column, const uint8_t* p, size_t n,
                   size_t count) noexcept nogil
cdef int put_nulls(ArrowColumn* column, size_t count) noexcept nogil
cdef int put_fixed_times(ArrowColumn* column, const void* value,
                         size_t count) noexcept nogil


cdef inline int reserve(Memory* memory, size_t room) noexcept nogil:
    """Make room for `more` further bytes."""
    if memory.size - memory.used >= room:
        return OK
    return grow(memory, room)


cdef inline int put_bit(Memory* memory, size_t at, bint value) noexcept nogil:
    """Append the bit with number `at`."""
    if at & 7 == 0:
        if reserve(memory, 1) != OK:
            return NO_ROOM
        memory.data[memory.used] = 0
        memory.used += 1
    if value:
        memory.data[at >> 3] |= <uint8_t>(1 << (at & 7))
    return OK


cdef inline int put_valid(ArrowColumn* column) noexcept nogil:
    """Count a valid value; its bytes were appended before."""
    if column.nulls and put_bit(&column.validity, column.length, True) != OK:
        return NO_ROOM
    column.length += 1
    return OK


cdef inline int put_invalid(ArrowColumn* column) noexcept nogil:
    """Count a NULL; its placeholder was appended before."""
    if column.nulls == 0 and begin_validity(column) != OK:
        return NO_ROOM
    if put_bit(&column.validity, column.length, False) != OK:
        return NO_ROOM
    column.nulls += 1
    column.length += 1
    return OK


cdef inline int put_offset(ArrowColumn* column, size_t end) noexcept nogil:
    """Append the end of the last value of a text or list column."""
    cdef int32_t offset
    if end > OFFSET_MAX:
        return TOO_LARGE
    if reserve(&column.offsets, 4) != OK:
        return NO_ROOM
    offset = <int32_t>end
    memcpy(column.offsets.data + column.offsets.used, &offset, 4)
    column.offsets.used += 4
    return OK


cdef inline int put_piece(Memory* memory, const uint8_t* p, size_t n) noexcept nogil:
    """Append bytes to the unfinished value of a text column."""
    if reserve(memory, n) != OK:
        return NO_ROOM
    memcpy(memory.data + memory.used, p, n)
    memory.used += n
    return OK


cdef inline int end_value(ArrowColumn* column) noexcept nogil:
    """Count the value of a text column whose bytes were appended."""
    cdef int status = put_offset(column, column.values.used)
    return put_valid(column) if status == OK else status


cdef inline int put_text(ArrowColumn* column, const uint8_t* p, size_t n) noexcept nogil:
    """Append a text."""
    if n > OFFSET_MAX:
        return TOO_LARGE
    if n and put_piece(&column.values, p, n) != OK:
        return NO_ROOM
    return end_value(column)


cdef inline int put_short_text(ArrowColumn* column, const uint8_t* p, size_t n,
                               const uint8_t* end) noexcept nogil:
    """Append a text; bytes after it, up to `end`, may be read.

    Copies in steps of a size that the compiler knows: faster, benchmark
    `arrow_columns`.
    """
    cdef uint8_t* to
    if 0 < n <= 32 and <size_t>(end - p) >= 32:
        if reserve(&column.values, n) != OK:
            return NO_ROOM
        to = column.values.data + column.values.used
        memcpy(to, p, 16)
        if n > 16:
            memcpy(to + 16, p + 16, 16)
        column.values.used += n
        return end_value(column)
    return put_text(column, p, n)


cdef inline int put_null(ArrowColumn* column) noexcept nogil:
    """Append a NULL to a column of any layout."""
    cdef uint32_t width = column.width
    cdef int status = OK
    if column.layout == LAYOUT_FIXED:
        if reserve(&column.values, width) != OK:
            return NO_ROOM
        memset(column.values.data + column.values.used, 0, width)
        column.values.used += width
    elif column.layout == LAYOUT_BITS:
        status = put_bit(&column.values, column.length, False)
    elif column.layout == LAYOUT_TEXT:
        status = put_offset(column, column.values.used)
    elif column.layout == LAYOUT_LIST:
        # The end of the previous value; the first offset is 0.
        if reserve(&column.offsets, 4) != OK:
            return NO_ROOM
        memcpy(column.offsets.data + column.offsets.used,
               column.offsets.data + column.offsets.used - 4, 4)
        column.offsets.used += 4
    return put_invalid(column) if status == OK else status


cdef inline int put_i8(ArrowColumn* column, int64_t value) noexcept nogil:
    if reserve(&column.values, 1) != OK:
        return NO_ROOM
    column.values.data[column.values.used] = <uint8_t>value
    column.values.used += 1
    return put_valid(column)


cdef inline int put_fixed_value(ArrowColumn* column, const void* value,
                                size_t width) noexcept nogil:
    """Append a value of the column's width, which is known to the caller."""
    if reserve(&column.values, width) != OK:
        return NO_ROOM
    memcpy(column.values.data + column.values.used, value, width)
    column.values.used += width
    return put_valid(column)


cdef inline int put_i64(ArrowColumn* column, int64_t value) noexcept nogil:
    return put_fixed_value(column, &value, 8)


cdef inline int put_i32(ArrowColumn* column, int32_t value) noexcept nogil:
    return put_fixed_value(column, &value, 4)


cdef inline int put_bool(ArrowColumn* column, bint value) noexcept nogil:
    if put_bit(&column.values, column.length, value) != OK:
        return NO_ROOM
    return put_valid(column)


cdef inline size_t column_bytes(const ArrowColumn* column) noexcept nogil:
    """Return the size of the column's values."""
    return column.validity.used + column.offsets.used + column.values.used


cdef class ArrowBuffer:
    cdef uint8_t* data
    cdef size_t used
