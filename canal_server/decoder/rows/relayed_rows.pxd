# cython: language_level=3
"""Row events inside entries, to be rendered elsewhere.

    relayedRows   field 4 of Entry, instead of storeValue:
                  0x08 event type, 0x10 number of the table's shape,
                  0x1a length shape (with its first use), 0x22 length body

`event type` is the binlog's code; the body is the event's, without header and checksum.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from canal_server.core.wire cimport put_bytes, put_varint, varint_size
from canal_server.decoder.rows.row_layout cimport ShapeC

cdef enum:
    SHAPES_MAX = 4096  # numbers; after the last one they restart


cdef inline uint64_t relayed_size(uint8_t code, const ShapeC* shape,
                                  const ShapeC* new_shape, size_t body_n) noexcept nogil:
    """Return the bytes of relayedRows; `new_shape` is the shape or NULL."""
    cdef uint64_t n = (1 + varint_size(code) + 1 + varint_size(shape.number)
                       + 1 + varint_size(body_n) + body_n)
    if new_shape != NULL:
        n += 1 + varint_size(new_shape.n) + new_shape.n
    return n


cdef inline uint8_t* put_relayed(uint8_t* p, uint8_t code, const ShapeC* shape,
                                 const ShapeC* new_shape, const uint8_t* head,
                                 size_t head_n, const uint8_t* rows,
                                 size_t rows_n) noexcept nogil:
    """Write relayedRows; the body consists of the part before the rows, and the rows."""
    p[0] = 0x08
    p = put_varint(p + 1, code)
    p[0] = 0x10
    p = put_varint(p + 1, shape.number)
    if new_shape != NULL:
        p[0] = 0x1A
        p = put_bytes(put_varint(p + 1, new_shape.n), new_shape.p, new_shape.n)
    p[0] = 0x22
    p = put_bytes(put_varint(p + 1, head_n + rows_n), head, head_n)
    return put_bytes(p, rows, rows_n)
