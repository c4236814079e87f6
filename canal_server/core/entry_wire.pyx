# cython: language_level=3, cdivision=True
"""The envelope of entries, read from their bytes.

    Entry        0x0a Header, 0x10 entryType, 0x1a storeValue
    Header       0x12 logfileName, 0x18 logfileOffset, 0x20 serverId, 0x30 executeTime,
                 0x42 schemaName, 0x4a tableName, 0x50 eventLength, 0x58 eventType,
                 0x62 props, 0x6a gtid
    RowChange    0x10 eventType, 0x50 isDdl, 0x5a sql, 0x62 rowDatas, 0x72 ddlSchemaName
    TransactionEnd  0x12 transactionId
    Pair         0x0a key, 0x12 value
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from canal_server.core.wire cimport Input, need


cdef uint64_t take_long_varint(Input* source) noexcept nogil:
    cdef const uint8_t* p = source.p
    cdef uint64_t value = 0
    cdef int shift = 0
    while p < source.end and shift < 70:
        if shift < 64:
            value |= <uint64_t>(p[0] & 127) << shift
        p += 1
        if p[-1] < 128:
            source.p = p
            return value
        shift += 7
    source.short = True
    source.p = source.end
    return 0


cdef void skip_field(Input* source, uint64_t tag) noexcept nogil:
    """Skip the content of a field whose tag was read before."""
    if tag < 8:
        source.short = True  # field 0
    elif tag & 7 == 0:
        take_varint(source)
    elif tag & 7 == 2:
        take_slice(source)
    elif tag & 7 == 1:
        need(source, 8)
    elif tag & 7 == 5:
        need(source, 4)
    else:
        source.short = True
    if source.short:
        source.p = source.end


cdef bint open_entry(Slice entry, uint32_t* kind, Slice* header,
                     Slice* store) noexcept nogil:
    cdef Input source = input_of(entry)
    cdef uint64_t tag
    kind[0] = ENTRY_ROWDATA  # the protocol's default
    header.p = store.p = NULL
    header.n = store.n = 0
    while source.p < source.end:
        tag = take_varint(&source)
        if tag == 0x0A:
            header[0] = take_slice(&source)
        elif tag == 0x10:
            kind[0] = <uint32_t>take_varint(&source)
        elif tag == 0x1A:
            store[0] = take_slice(&source)
        else:
            skip_field(&source, tag)
    return not source.short


cdef bint read_entry(const uint8_t* p, size_t n, EntryHead* head) noexcept nogil:
    cdef Slice entry, header
    entry.p, entry.n = p, n
    memset(head, 0, sizeof(EntryHead))
    return open_entry(entry, &head.kind, &header, &head.store) and (
        read_header(header, head))


cdef bint read_header(Slice header, EntryHead* head) noexcept nogil:
    cdef Input source = input_of(header)
    cdef uint64_t tag
    cdef bint own_gtid = False
    cdef Slice pair
    while source.p < source.end:
        tag = take_varint(&source)
        if tag == 0x12:
            head.file = take_slice(&source)
        elif tag == 0x18:
            head.offset = take_varint(&source)
        elif tag == 0x20:
            head.server_id = <int64_t>take_varint(&source)
        elif tag == 0x30:
            head.time_ms = <int64_t>take_varint(&source)
        elif tag == 0x42:
            head.schema = take_slice(&source)
        elif tag == 0x4A:
            head.table = take_slice(&source)
        elif tag == 0x50:
            head.length = take_varint(&source)
        elif tag == 0x58:
            head.event = <uint32_t>take_varint(&source)
        elif tag == 0x62:
            pair = take_slice(&source)
            if not source.short and not read_pair(pair, head, &own_gtid):
                return False
        elif tag == 0x6A:
            pair = take_slice(&source)
            if not own_gtid:
                head.gtid = pair
        else:
            skip_field(&source, tag)
    return not source.short


cdef bint read_pair(Slice pair, EntryHead* head, bint* own_gtid) noexcept nogil:
    """Read the transaction's own GTID if the property is one."""
    cdef Input source = input_of(pair)
    cdef Slice key, value
    cdef uint64_t tag
    key.p = value.p = NULL
    key.n = value.n = 0
    while source.p < source.end:
        tag = take_varint(&source)
        if tag == 0x0A:
            key = take_slice(&source)
        elif tag == 0x12:
            value = take_slice(&source)
        else:
            skip_field(&source, tag)
    if source.short:
        return False
    if same(key, b"curtGtid", 8):
        head.gtid = value
        own_gtid[0] = True
    return True


cdef bint read_change(Slice store, Change* change) noexcept nogil:
    cdef Input source = input_of(store)
    cdef uint64_t tag
    memset(change, 0, sizeof(Change))
    while source.p < source.end:
        tag = take_varint(&source)
        if tag == 0x62:
            take_slice(&source)
            change.rows += 1
        elif tag == 0x10:
            change.event = <uint32_t>take_varint(&source)
        elif tag == 0x50:
            change.is_ddl = take_varint(&source) != 0
        elif tag == 0x5A:
            change.sql = take_slice(&source)
        elif tag == 0x72:
            change.schema = take_slice(&source)
        else:
            skip_field(&source, tag)
    return not source.short


cdef bint read_xa_xid(Slice store, Slice* xid) noexcept nogil:
    cdef Input source = input_of(store)
    cdef Input pair
    cdef Slice key
    cdef uint64_t tag
    xid.p, xid.n = NULL, 0
    while source.p < source.end:
        tag = take_varint(&source)
        if tag != 0x1A:
            skip_field(&source, tag)
            continue
        pair = input_of(take_slice(&source))
        key.p, key.n = NULL, 0
        while pair.p < pair.end and not source.short:
            tag = take_varint(&pair)
            if tag == 0x0A:
                key = take_slice(&pair)
            elif tag == 0x12 and same(key, b"XA_XID", 6):
                xid[0] = take_slice(&pair)
            else:
                skip_field(&pair, tag)
        source.short |= pair.short
    return not source.short


cdef bint read_transaction_id(Slice store, Slice* xid) noexcept nogil:
    cdef Input source = input_of(store)
    cdef uint64_t tag
    xid.p, xid.n = NULL, 0
    while source.p < source.end:
        tag = take_varint(&source)
        if tag == 0x12:
            xid[0] = take_slice(&source)
        else:
            skip_field(&source, tag)
    return not source.short
