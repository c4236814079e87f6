# cython: language_level=3
"""Writes the content of the entries of BEGIN, END and the XA statements.

    TransactionBegin  0x1a props, 0x20 threadId
    TransactionEnd    0x12 transactionId, 0x1a props
    RowChange         0x10 eventType, 0x5a sql, 0x6a props      (XA COMMIT, ROLLBACK)
    Pair              0x0a key, 0x12 value
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcmp

from canal_server.core.digits cimport put_u64
from canal_server.core.wire cimport put_bytes, put_varint, varint_size
from canal_server.decoder.events.transaction_statements cimport (
    ST_XA_COMMIT, ST_XA_END, ST_XA_ROLLBACK, ST_XA_START,
)


cdef uint8_t* put_begin_value(uint8_t* p, uint64_t thread_id) noexcept nogil:
    if thread_id == 0:
        return p
    p[0] = 0x20
    return put_varint(p + 1, thread_id)


cdef uint8_t* put_end_value(uint8_t* p, uint64_t xid) noexcept nogil:
    cdef uint8_t* end = put_u64(p + 2, xid)
    p[0] = 0x12
    p[1] = <uint8_t>(end - p - 2)
    return end


cdef uint8_t* put_xa_value(uint8_t* p, int kind, const uint8_t* sql, size_t n,
                           uint64_t thread_id) noexcept nogil:
    """Write properties XA_TYPE and XA_XID, the rest of the statement.

    n is at most XA_STATEMENT_BYTES_MAX.
    """
    cdef uint8_t[700] props
    cdef uint8_t* q
    cdef const char* word = "XA START"
    cdef size_t word_n = 8
    cdef size_t xid_n, props_n
    cdef uint8_t tag = 0x1A
    if kind == ST_XA_END:
        word, word_n = "XA END", 6
    elif kind == ST_XA_COMMIT:
        word, word_n = "XA COMMIT", 9
    elif kind == ST_XA_ROLLBACK:
        word, word_n = "XA ROLLBACK", 11
    # The text after the keyword as the server writes it; empty for other texts.
    xid_n = n - word_n if n > word_n and memcmp(sql, word, word_n) == 0 else 0
    if kind == ST_XA_COMMIT or kind == ST_XA_ROLLBACK:
        tag = 0x6A
    q = put_pair_field(props, tag, <const uint8_t*>"XA_TYPE", 7,
                       <const uint8_t*>word, word_n)
    q = put_pair_field(q, tag, <const uint8_t*>"XA_XID", 6, sql + n - xid_n, xid_n)
    props_n = q - props
    if kind == ST_XA_START:
        p = put_bytes(p, props, props_n)
        return put_begin_value(p, thread_id)
    if kind == ST_XA_END:
        p = put_bytes(p, b"\x12\x010", 3)
        return put_bytes(p, props, props_n)
    p[0], p[1], p[2] = 0x10, 13 if kind == ST_XA_COMMIT else 14, 0x5A
    p = put_varint(p + 3, n)
    p = put_bytes(p, sql, n)
    return put_bytes(p, props, props_n)


cdef uint8_t* put_pair_field(uint8_t* p, uint8_t tag, const uint8_t* key, size_t key_n,
                             const uint8_t* value, size_t value_n) noexcept nogil:
    """Write a Pair{key, value} as a field; both below 700 bytes, value may be empty."""
    cdef size_t n = 2 + key_n
    if value_n:
        n += 1 + varint_size(value_n) + value_n
    p[0] = tag
    p = put_varint(p + 1, n)
    p[0], p[1] = 0x0A, <uint8_t>key_n
    p = put_bytes(p + 2, key, key_n)
    if value_n:
        p[0] = 0x12
        p = put_varint(p + 1, value_n)
        p = put_bytes(p, value, value_n)
    return p
