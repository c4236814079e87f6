# cython: language_level=3
"""Table layouts: what the row loop needs of a table, as plain memory."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from canal_server.decoder.text.charset_text cimport CharsetC
from canal_server.decoder.text.time_zone cimport ZoneC

cdef enum Op:
    # How a column's bytes become text; `a` and `b` are its parameters.
    OP_I8 = 1
    OP_U8
    OP_I16
    OP_U16
    OP_I24
    OP_U24
    OP_I32
    OP_U32
    OP_I64
    OP_U64
    OP_FLOAT
    OP_DOUBLE
    OP_DECIMAL           # a: precision, b: scale
    OP_BIT               # a: bytes
    OP_TIMESTAMP         # 4 bytes
    OP_TIMESTAMP2        # a: fraction digits
    OP_TIMESTAMP_HIRES   # MariaDB's before 10.1.2; a: fraction digits
    OP_DATETIME
    OP_DATETIME2
    OP_DATETIME_HIRES
    OP_TIME
    OP_TIME2
    OP_TIME_HIRES
    OP_DATE
    OP_YEAR
    OP_ENUM              # a: bytes
    OP_SET               # a: bytes
    OP_STRING            # a: bytes of the preceding length
    OP_JSON              # a: bytes of the preceding length
    OP_COMPRESSED        # MariaDB; a: bytes of the preceding length
    OP_UUID              # MariaDB; a: bytes of the preceding length, as the next two
    OP_INET4
    OP_INET6

cdef struct Piece:
    const uint8_t* p
    uint32_t n

cdef struct ColumnPlan:
    uint8_t op
    uint8_t emitted      # false: the column filter excludes it
    uint16_t a
    uint16_t b
    uint16_t raw_n       # bytes of a value; 0: a length of `a` bytes precedes
    Piece head           # field tag and fields 1-6, and the tag of field 8
    Piece head_updated   # the same with `updated`
    Piece head_promoted  # unsigned value that does not fit the signed SQL type
    Piece head_promoted_updated
    Piece null_whole     # a whole column that is NULL, length included
    Piece null_whole_updated
    Piece tail           # field 10, mysqlType
    Piece name           # for expressions of partial JSON
    const CharsetC* charset
    const ZoneC* zone    # of TIMESTAMPs

cdef struct ShapeC:
    # What a remote reader needs to read rows of a table; see table_shapes.py.
    const uint8_t* p
    size_t n
    uint32_t number      # under which it was sent
    uint32_t generation  # of the numbers; 0: it was not sent

cdef class Shape:
    cdef ShapeC c
    cdef bytes data

cdef struct LayoutC:
    ColumnPlan* columns
    uint32_t width
    uint32_t table_ordinal
    Piece names          # header fields 8 and 9
    uint32_t last_rows   # of the previous event: they predict the size of
    uint64_t last_bytes  # the next event's envelope
    ShapeC* shape        # NULL: its rows are not relayed

cdef class TableLayout:
    cdef LayoutC layout
    cdef uint8_t* arena
    cdef list kept       # owns what the plans point to
    cdef readonly object meta
