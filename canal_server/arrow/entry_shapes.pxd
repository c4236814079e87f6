# cython: language_level=3
"""The fields that all values of a column share; see entry_shapes.pyx."""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from canal_server.core.wire cimport Input
from canal_server.arrow.column_buffers cimport OK
from canal_server.core.entry_wire cimport Slice, take_varint

cdef enum:
    WAYS = 4            # updated or not, NULL or not
    COLUMNS_MAX = 4096  # per table, as in the servers
    SPARE = 32          # bytes that may be read after a name or a type
    UNRESOLVED = -2     # `target` of a text that is not resolved yet
    IGNORED = -1        # `target` of a column that is not selected

cdef struct ColumnText:
    Slice name
    Slice mysql_type
    uint32_t index
    int32_t sql_type
    bint is_key
    bint updated
    bint is_null
    int32_t target      # for the reader: where the value goes
    int32_t reading     # and how to read it
    const void* labels # and its labels
    uint32_t filled     # minimum size of a value: trailing zeros are omitted

cdef struct Pattern:
    ColumnText text
    uint8_t* data       # the bytes before the value, then those after it
    size_t size
    size_t head_n       # includes the value's tag, if any
    size_t tail_n
    bint has_value

cdef struct Position:
    # The k-th column of an image.
    Pattern[WAYS] ways
    uint8_t last        # the way that matched last
    uint8_t count       # used ways

cdef struct Shape:
    uint8_t* names      # schema and table
    size_t schema_n
    size_t table_n
    Position* positions
    size_t width

cdef void free_shape(Shape* shape) noexcept nogil
cdef bint is_shape_of(const Shape* shape, Slice schema, Slice table) noexcept nogil
cdef int name_shape(Shape* shape, Slice schema, Slice table) noexcept nogil
cdef int learn(Shape* shape, size_t at, Slice column, ColumnText** text,
               Slice* value) noexcept nogil


cdef inline bint equal(const uint8_t* a, const uint8_t* b, size_t n) noexcept nogil:
    """Compare a few bytes; faster than a call of memcmp, benchmark `arrow_columns`."""
    cdef uint64_t x, y
    cdef uint32_t short_x, short_y
    cdef size_t at = 0
    if n >= 8:
        while at + 8 < n:
            memcpy(&x, a + at, 8)
            memcpy(&y, b + at, 8)
            if x != y:
                return False
            at += 8
        memcpy(&x, a + n - 8, 8)  # with some that were compared before
        memcpy(&y, b + n - 8, 8)
        return x == y
    if n >= 4:
        memcpy(&short_x, a, 4)
        memcpy(&short_y, b, 4)
        if short_x != short_y:
            return False
        memcpy(&short_x, a + n - 4, 4)
        memcpy(&short_y, b + n - 4, 4)
        return short_x == short_y
    for at in range(n):
        if a[at] != b[at]:
            return False
    return True


cdef inline bint fits(const Pattern* pattern, Slice column, Slice* value) noexcept nogil:
    """Check whether a column differs from the pattern only in its value."""
    cdef Input source
    cdef size_t head = pattern.head_n
    if column.n < head + pattern.tail_n:
        return False
    if not equal(column.p, pattern.data, head):
        return False
    if not pattern.has_value:
        value.p, value.n = NULL, 0
        return column.n == head
    source.p = column.p + head
    source.end = column.p + column.n - pattern.tail_n
    source.short = False
    value.n = take_varint(&source)
    value.p = source.p
    return (not source.short and value.n == <size_t>(source.end - source.p)
            and equal(source.end, pattern.data + head, pattern.tail_n))


cdef inline int read_column(Shape* shape, size_t at, Slice column, ColumnText** text,
                            Slice* value) noexcept nogil:
    """Read the column at an index of an image.

    `text` is valid until the shape learns another column there.
    """
    cdef Position* position
    cdef uint8_t way
    if at < shape.width:
        position = &shape.positions[at]
        if position.count and fits(&position.ways[position.last], column, value):
            text[0] = &position.ways[position.last].text
            return OK
        for way in range(position.count):
            if way != position.last and fits(&position.ways[way], column, value):
                position.last = way
                text[0] = &position.ways[way].text
                return OK
    return learn(shape, at, column, text, value)
