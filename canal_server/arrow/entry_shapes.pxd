# cython: language_level=3
"""What the columns of a table say of themselves, told once; see arrow_shapes.pyx."""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcmp

from canal_server.core.wire cimport Input
from canal_server.arrow.column_buffers cimport OK
from canal_server.core.entry_wire cimport Slice, take_varint

cdef enum:
    WAYS = 4            # updated or not, NULL or not
    COLUMNS_MAX = 4096  # of a table, as in the servers
    SPARE = 32          # bytes that may be read behind a name or a type
    UNRESOLVED = -2     # `target` of a text that nobody has looked at
    IGNORED = -1        # `target` of a column that nobody wants

cdef struct ColumnText:
    Slice name
    Slice mysql_type
    uint32_t index
    int32_t sql_type
    bint is_key
    bint updated
    bint is_null
    int32_t target      # for the reader's use: where the value goes
    int32_t reading     # and how
    const void* labels # and by which labels
    uint32_t filled     # bytes of each value at least: zeros at its end are not told

cdef struct Pattern:
    ColumnText text
    uint8_t* data       # the bytes before the value, then those behind it
    size_t size
    size_t head_n       # with the tag of the value, if there is one
    size_t tail_n
    bint has_value

cdef struct Position:
    # The k-th column of an image.
    Pattern[WAYS] ways
    uint8_t last        # the way that fitted last
    uint8_t count       # ways in use

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


cdef inline bint fits(const Pattern* pattern, Slice column, Slice* value) noexcept nogil:
    """Tell whether a column differs from the pattern in its value alone."""
    cdef Input source
    cdef size_t head = pattern.head_n
    if column.n < head + pattern.tail_n:
        return False
    if memcmp(column.p, pattern.data, head) != 0:
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
            and memcmp(source.end, pattern.data + head, pattern.tail_n) == 0)


cdef inline int read_column(Shape* shape, size_t at, Slice column, ColumnText** text,
                            Slice* value) noexcept nogil:
    """Read the column that stands at a place of an image.

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
