# cython: language_level=3
"""Row events as they travel inside of entries, to be rendered elsewhere.

    relayedRows   field 4 of Entry, in the place of storeValue:
                  0x08 event type, 0x10 number of the table's shape,
                  0x1a length shape (where it is told first), 0x22 length body

`event type` is the binlog's code; the body is the event's, without header and checksum.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from canal_server.core.wire cimport put_bytes, put_varint, varint_size
from canal_server.decoder.rows.row_layout cimport ShapeC

cdef enum:
    SHAPES_MAX = 4096  # numbers; behind the last one they begin anew


cdef inline uint64_t relayed_size(uint8_t code, const ShapeC* shape,
                                  const ShapeC* told, size_t body_n) noexcept nogil:
    """Return the bytes of relayedRows; `told` is the shape or NULL."""
    cdef uint64_t n = (1 + varint_size(code) + 1 + varint_size(shape.number)
                       + 1 + varint_size(body_n) + body_n)
    if told != NULL:
        n += 1 + varint_size(told.n) + told.n
    return n


cdef inline uint8_t* put_relayed(uint8_t* p, uint8_t code, const ShapeC* shape,
                                 const ShapeC* told, const uint8_t* head,
                                 size_t head_n, const uint8_t* rows,
                                 size_t rows_n) noexcept nogil:
    """Write relayedRows; the body is what is in front of the rows, and the rows."""
    p[0] = 0x08
    p = put_varint(p + 1, code)
    p[0] = 0x10
    p = put_varint(p + 1, shape.number)
    if told != NULL:
        p[0] = 0x1A
        p = put_bytes(put_varint(p + 1, told.n), told.p, told.n)
    p[0] = 0x22
    p = put_bytes(put_varint(p + 1, head_n + rows_n), head, head_n)
    return put_bytes(p, rows, rows_n)
