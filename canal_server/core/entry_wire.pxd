# cython: language_level=3
"""Reading of the entry protocol: the envelope of entries, and fields of messages.

All reads go through `need` of core.wire. Malformed input sets `short`. Unknown fields
are skipped, as are known ones of another wire type.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from canal_server.core.wire cimport Input, need

cdef struct Slice:
    const uint8_t* p
    size_t n

cdef enum EntryKind:
    ENTRY_BEGIN = 1
    ENTRY_ROWDATA = 2
    ENTRY_END = 3

cdef enum EventKind:
    # EventType of the entry protocol; those that are distinguished here.
    EVENT_INSERT = 1
    EVENT_UPDATE = 2
    EVENT_DELETE = 3
    EVENT_QUERY = 7
    EVENT_TRUNCATE = 8
    EVENT_XACOMMIT = 13
    EVENT_XAROLLBACK = 14
    EVENT_XA_ROWS = 1000  # not in the protocol: XA rows (arrow_router)

cdef enum:
    # Fields that hold messages: of RowData, and of RowChange.
    TAG_BEFORE = 0x0A
    TAG_AFTER = 0x12
    TAG_ROW = 0x62

cdef struct EntryHead:
    Slice file
    Slice schema
    Slice table
    Slice gtid         # of the transaction, else the executed set, else empty
    Slice store        # the entry's content
    uint64_t offset
    uint64_t length    # of the event
    int64_t server_id
    int64_t time_ms
    uint32_t kind      # EntryKind
    uint32_t event     # EventKind

cdef struct Change:
    # Of a RowChange, all but the rows.
    Slice sql
    Slice schema       # in which a statement was given
    uint32_t event
    bint is_ddl
    uint32_t rows

# Each returns false for malformed bytes.
cdef bint open_entry(Slice entry, uint32_t* kind, Slice* header,
                     Slice* store) noexcept nogil  # the header is not looked at
cdef bint read_entry(const uint8_t* p, size_t n, EntryHead* head) noexcept nogil
cdef bint read_change(Slice store, Change* change) noexcept nogil
cdef bint read_transaction_id(Slice store, Slice* xid) noexcept nogil
# `xid.p` is NULL unless it is the begin or the end of an XA transaction.
cdef bint read_xa_xid(Slice store, Slice* xid) noexcept nogil
cdef void skip_field(Input* source, uint64_t tag) noexcept nogil
cdef uint64_t take_long_varint(Input* source) noexcept nogil


cdef inline Input input_of(Slice slice) noexcept nogil:
    cdef Input source
    source.p = slice.p
    source.end = slice.p + slice.n
    source.short = False
    return source


cdef inline uint64_t take_varint(Input* source) noexcept nogil:
    """Read a varint; 0 when it is truncated or longer than ten bytes."""
    cdef uint8_t byte
    if source.p < source.end and source.p[0] < 128:
        byte = source.p[0]
        source.p += 1
        return byte
    return take_long_varint(source)


cdef inline Slice take_slice(Input* source) noexcept nogil:
    """Read a length and so many bytes; none when there are fewer."""
    cdef Slice slice
    cdef uint64_t n = take_varint(source)
    slice.p = need(source, n)
    slice.n = n if slice.p != NULL else 0
    return slice


cdef inline bint next_field(Input* source, uint64_t tag, Slice* field) noexcept nogil:
    """Read the next field that has this tag; false after the last one, or if short."""
    cdef uint64_t found
    while source.p < source.end:
        found = take_varint(source)
        if found == tag:
            field[0] = take_slice(source)
            return not source.short
        skip_field(source, found)
    return False


cdef inline bint same(Slice slice, const uint8_t* p, size_t n) noexcept nogil:
    return slice.n == n and (n == 0 or memcmp(slice.p, p, n) == 0)


cdef inline Slice gtid_field(Slice entry) noexcept nogil:
    """Return the field `gtid` of an entry's header; EntryHead has the transaction's."""
    cdef Slice header, found
    cdef Input source = input_of(entry)
    found.p, found.n = b"", 0
    if next_field(&source, 0x0A, &header):
        source = input_of(header)
        while next_field(&source, 0x6A, &found):
            pass
    return found
