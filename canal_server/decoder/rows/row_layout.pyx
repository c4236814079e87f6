# cython: language_level=3
"""Packs the plan of a table into memory that the row loop reads without the GIL."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from canal_server.decoder.text.charset_text cimport Charset
from canal_server.decoder.text.number_text cimport decimal_size
from canal_server.decoder.text.time_zone cimport Zone, local_zone

from canal_server.errors import DecodeError

OPS = {
    "I8": OP_I8, "U8": OP_U8, "I16": OP_I16, "U16": OP_U16, "I24": OP_I24,
    "U24": OP_U24, "I32": OP_I32, "U32": OP_U32, "I64": OP_I64, "U64": OP_U64,
    "FLOAT": OP_FLOAT, "DOUBLE": OP_DOUBLE, "DECIMAL": OP_DECIMAL, "BIT": OP_BIT,
    "TIMESTAMP": OP_TIMESTAMP, "TIMESTAMP2": OP_TIMESTAMP2,
    "TIMESTAMP_HIRES": OP_TIMESTAMP_HIRES, "DATETIME": OP_DATETIME,
    "DATETIME2": OP_DATETIME2, "DATETIME_HIRES": OP_DATETIME_HIRES, "TIME": OP_TIME,
    "TIME2": OP_TIME2, "TIME_HIRES": OP_TIME_HIRES, "DATE": OP_DATE, "YEAR": OP_YEAR,
    "ENUM": OP_ENUM, "SET": OP_SET, "STRING": OP_STRING, "JSON": OP_JSON,
    "COMPRESSED": OP_COMPRESSED, "UUID": OP_UUID, "INET4": OP_INET4,
    "INET6": OP_INET6,
}

# The row loop copies pieces in steps of this many bytes and may read past a piece.
cdef size_t SLACK = 64

# Bytes of the types whose size does not depend on parameters.
cdef dict SIZES = {
    OP_I8: 1, OP_U8: 1, OP_I16: 2, OP_U16: 2, OP_I24: 3, OP_U24: 3, OP_I32: 4,
    OP_U32: 4, OP_I64: 8, OP_U64: 8, OP_FLOAT: 4, OP_DOUBLE: 8, OP_TIMESTAMP: 4,
    OP_DATETIME: 8, OP_TIME: 3, OP_DATE: 3, OP_YEAR: 1,
}
# Types whose first parameter is the number of bytes.
cdef frozenset SIZED = frozenset((OP_BIT, OP_ENUM, OP_SET))
# Bytes before the fraction, which has two digits per byte.
cdef dict WHOLE_SIZES = {OP_TIMESTAMP2: 4, OP_DATETIME2: 5, OP_TIME2: 3}
# MariaDB's old types, by digits of the fraction.
cdef dict HIRES_SIZES = {
    OP_TIMESTAMP_HIRES: (4, 5, 5, 6, 6, 7, 7),
    OP_DATETIME_HIRES: (5, 6, 6, 7, 7, 7, 8),
    OP_TIME_HIRES: (3, 4, 4, 5, 5, 5, 6),
}


cdef class Shape:
    """A table's shape as bytes, and whether a decoder has sent it already."""

    def __init__(self, bytes data):
        self.data = data
        self.c.p, self.c.n = self.data, len(data)


cdef class TableLayout:
    """A table's columns in the form of the row loop; immutable except its estimates.

    `plans`: per column (op, emitted, a, b, head, head_updated, head_promoted,
    head_promoted_updated, null_whole, null_whole_updated, tail, name, Charset or
    None), the bytes as `row_layout.pxd` describes them. `names`: the header's fields 8
    and 9. `table_ordinal`: the table's number for filters. `shape`: with which rows are
    relayed. `zone`: the zone of TIMESTAMPs, None: this process's.
    """

    def __init__(self, object meta, bytes names, uint32_t table_ordinal, list plans,
                 Shape shape=None, Zone zone=None):
        cdef size_t size = len(names) + SLACK
        cdef uint8_t* p
        cdef ColumnPlan* column
        cdef tuple plan
        cdef Charset charset
        cdef int raw_n
        for plan in plans:
            if len(plan) != 13:
                raise ValueError(f"a plan of {len(plan)} parts for a column of {meta}")
            for piece in plan[4:12]:
                size += len(piece) + SLACK
        self.meta = meta
        zone = zone or local_zone()
        self.kept = [shape, zone]
        self.layout.shape = NULL if shape is None else &shape.c
        self.layout.width = len(plans)
        self.layout.table_ordinal = table_ordinal
        self.layout.last_rows = 1
        self.layout.last_bytes = 300
        self.arena = <uint8_t*>calloc(size + SLACK, 1)
        self.layout.columns = <ColumnPlan*>calloc(len(plans) + 1, sizeof(ColumnPlan))
        if self.arena == NULL or self.layout.columns == NULL:
            raise MemoryError(f"no memory for the layout of {meta}")
        p = pack(self.arena, names, &self.layout.names)
        for i, plan in enumerate(plans):
            column = &self.layout.columns[i]
            column.op, column.emitted, column.a, column.b = plan[:4]
            raw_n = raw_size(column.op, column.a, column.b)
            if raw_n < 0:
                raise DecodeError(f"a column of table {meta} is a DECIMAL({column.a},"
                                  f"{column.b}), which no server has")
            column.raw_n = raw_n
            column.zone = &zone.c
            p = pack(p, plan[4], &column.head)
            p = pack(p, plan[5], &column.head_updated)
            p = pack(p, plan[6], &column.head_promoted)
            p = pack(p, plan[7], &column.head_promoted_updated)
            p = pack(p, plan[8], &column.null_whole)
            p = pack(p, plan[9], &column.null_whole_updated)
            p = pack(p, plan[10], &column.tail)
            p = pack(p, plan[11], &column.name)
            if plan[12] is not None:
                charset = plan[12]
                self.kept.append(charset)
                column.charset = &charset.c

    def __dealloc__(self):
        free(self.arena)
        free(self.layout.columns)

    @property
    def table_ordinal(self):
        """Return the table's number in Subjects."""
        return self.layout.table_ordinal

    def __repr__(self):
        return f"<TableLayout {self.meta} {self.layout.width} columns>"


cdef uint8_t* pack(uint8_t* p, bytes data, Piece* piece):
    memcpy(p, <const uint8_t*>data, len(data))
    piece.p = p
    piece.n = <uint32_t>len(data)
    return p + len(data) + SLACK


cdef int raw_size(int op, int a, int b) except -2:
    """Return the size of a value; 0 if a length precedes it, -1 if there is no such."""
    if op in SIZES:
        return SIZES[op]
    if op in SIZED:
        return a
    if op in WHOLE_SIZES:
        return WHOLE_SIZES[op] + (a + 1) // 2
    if op in HIRES_SIZES:
        return HIRES_SIZES[op][a]
    if op == OP_DECIMAL:
        return decimal_size(a, b)
    return 0
