# cython: language_level=3
"""Packs the plan of a table into memory that the row loop reads without the GIL."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from canal_server.decoder.charsets cimport Charset

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


cdef class TableImage:
    """A table's columns in the form of the row loop; immutable but for its guesses.

    `plans`: per column (op, emitted, a, b, head, head_updated, head_promoted,
    head_promoted_updated, null_whole, null_whole_updated, tail, name, Charset or
    None), the bytes as `image.pxd` describes them. `names`: the header's fields 8
    and 9. `subject`: the table's number for filters.
    """

    def __init__(self, object meta, bytes names, uint32_t subject, list plans):
        cdef size_t size = len(names) + SLACK
        cdef uint8_t* p
        cdef ColumnPlan* column
        cdef tuple plan
        cdef Charset charset
        for plan in plans:
            if len(plan) != 13:
                raise ValueError(f"a plan of {len(plan)} parts for a column of {meta}")
            for piece in plan[4:12]:
                size += len(piece) + SLACK
        self.meta = meta
        self.charsets = []
        self.image.width = len(plans)
        self.image.subject = subject
        self.image.last_rows = 1
        self.image.last_bytes = 300
        self.arena = <uint8_t*>calloc(size + SLACK, 1)
        self.image.columns = <ColumnPlan*>calloc(len(plans) + 1, sizeof(ColumnPlan))
        if self.arena == NULL or self.image.columns == NULL:
            raise MemoryError(f"no memory for the image of {meta}")
        p = pack(self.arena, names, &self.image.names)
        for i, plan in enumerate(plans):
            column = &self.image.columns[i]
            column.op, column.emitted, column.a, column.b = plan[:4]
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
                self.charsets.append(charset)
                column.charset = &charset.c

    def __dealloc__(self):
        free(self.arena)
        free(self.image.columns)

    @property
    def subject(self):
        """Return the table's number in Subjects."""
        return self.image.subject

    def __repr__(self):
        return f"<TableImage {self.meta} {self.image.width} columns>"


cdef uint8_t* pack(uint8_t* p, bytes data, Piece* piece):
    memcpy(p, <const uint8_t*>data, len(data))
    piece.p = p
    piece.n = <uint32_t>len(data)
    return p + len(data) + SLACK
