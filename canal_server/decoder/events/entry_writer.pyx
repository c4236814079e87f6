# cython: language_level=3
"""Writes entries into blocks: the envelope around the content of a row or event.

    record:  0x12 length Entry                       field 2 of Messages
    Entry:   0x0a length Header, 0x10 entryType, 0x1a length storeValue
             (relayed rows: 0x22 length relayedRows instead of storeValue)
    Header:  0x08 version, 0x12 logfileName, 0x18 logfileOffset, 0x20 serverId,
             0x2a serverenCode, 0x30 executeTime, 0x38 sourceType, 0x42 schemaName,
             0x4a tableName, 0x50 eventLength, 0x58 eventType, 0x62 props, 0x6a gtid

Everything before storeValue's content is the "front". Its size depends on the size of
the content, so row entries estimate it, write the rows, and move them only if the
estimate was wrong.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memmove

from canal_server.core.blocks cimport Block, BlockPool, Record, FLAG_GTID, FLAG_OPEN
from canal_server.core.wire cimport (
    Output, ensure, put_bytes, put_short, put_varint, varint_size,
)

from canal_server.model.positions import binlog_file_number

cdef enum:
    SLACK = 64  # room after a record's bytes, see row_images.pxd


cdef int grow_block(Output* out, size_t room) noexcept with gil:
    """Move the unfinished record to a new block with room for it."""
    cdef RecordWriter writer = <RecordWriter>out.owner
    cdef size_t used = out.p - out.start
    cdef size_t needed = used + room + SLACK
    cdef Block block
    if used + room > writer.entry_bytes_max + SLACK:
        writer.too_large = used + room
        return -1
    if used > writer.pool.block_size // 2:
        # So that a long record is moved only a few times.
        needed = max(needed, min(2 * needed, writer.entry_bytes_max))
    try:
        block = writer.pool.open(
            writer.file, writer.file_number, needed, writer.source
        )
    except MemoryError:
        return -1
    if used:
        memcpy(block.data, out.start, used)
    writer.close_block()
    writer.block = block
    writer.point(used)
    return 0


cdef class RecordWriter:
    """Appends records to the pool's blocks; one writer, on the pump's thread."""

    def __init__(self, BlockPool pool, source=None):
        self.pool = pool
        self.source = source
        self.spans = []
        self.entry_bytes_max = 0x7FFFFFFF
        self.out.owner = <void*>self
        self.out.grow = grow_block
        self.set_file("")

    def set_file(self, str file):
        """Set the binlog file of the next records."""
        if self.file == file and self.block is not None:
            return
        self.close_block()
        self.file = file
        self.file_number = binlog_file_number(file)
        name = file.encode()
        self.file_field = b"\x08\x01" + (
            b"\x12" + varint(len(name)) + name if name else b""
        )
        self.file_p = self.file_field
        self.file_n = <uint32_t>len(self.file_field)
        # Without memory, until there is a record for it.
        self.block = Block.__new__(Block)
        self.point(0)

    def take(self):
        """Return the spans of the records written since the last call."""
        cdef Block block = self.block
        spans = self.spans
        self.spans = []
        if block.count > self.fetched:
            spans.append((block, self.fetched, block.count))
            self.fetched = block.count
        self.pending_bytes = 0
        return spans

    def close_block(self):
        """Release the current block; its records can still be fetched."""
        cdef Block block = self.block
        if block is None:
            return
        if block.count > self.fetched:
            self.spans.append((block, self.fetched, block.count))
        self.fetched = 0
        self.block = None

    cdef void point(self, size_t used):
        """Point `out` into the current block, after `used` unfinished bytes."""
        cdef Block block = self.block
        self.out.start = block.data + block.used
        self.out.p = self.out.start + used
        self.out.end = block.data + block.capacity
        if block.data != NULL:
            self.out.end -= SLACK

    cdef int begin(self) noexcept nogil:
        """Start a record; -1 without memory."""
        self.out.start = self.out.p = self.block.data + self.block.used
        if self.block.count == self.block.record_capacity:
            return grow_block(&self.out, SLACK)
        return 0

    cdef void share(self, const Envelope* e) noexcept nogil:
        """Render the fields that the entries of many events have in common."""
        cdef uint8_t* p = self.shared
        if e.server_id:
            p[0] = 0x20
            p = put_varint(p + 1, e.server_id)
        p = put_bytes(p, b"\x2a\x05UTF-8", 7)
        if e.time:
            p[0] = 0x30
            p = put_varint(p + 1, <uint64_t>e.time * 1000)
        p[0] = 0x38
        p[1] = 2
        self.shared_n = <uint32_t>(p + 2 - self.shared)
        self.shared_server_id, self.shared_time = e.server_id, e.time

    cdef uint64_t header_size(self, const Envelope* e) noexcept nogil:
        """Return the size of the header; call it before `put_front`."""
        cdef uint64_t n
        if (not self.shared_n or e.time != self.shared_time
                or e.server_id != self.shared_server_id):
            self.share(e)
        n = self.file_n + self.shared_n + e.names.n + e.gtid_props.n + e.gtid.n
        if e.offset:
            n += 1 + varint_size(e.offset)
        if e.event_length:
            n += 1 + varint_size(e.event_length)
        if e.event_type:
            n += 2
        if e.rows:
            n += 15 + digits_of(e.rows)
        return n

    cdef void put_front(self, const Envelope* e, uint64_t header, uint64_t store,
                        uint8_t* p) noexcept nogil:
        """Write the front, which has exactly front_size bytes."""
        cdef uint64_t entry = 1 + varint_size(header) + header + 2 + store
        cdef int digits
        cdef uint32_t rows = e.rows
        if store:
            entry += 1 + varint_size(store)
        p[0] = 0x12
        p = put_varint(p + 1, entry)
        p[0] = 0x0A
        p = put_varint(p + 1, header)
        p = put_short(p, self.file_p, self.file_n)
        if e.offset:
            p[0] = 0x18
            p = put_varint(p + 1, e.offset)
        p = put_short(p, self.shared, self.shared_n)
        p = put_short(p, e.names.p, e.names.n)
        if e.event_length:
            p[0] = 0x50
            p = put_varint(p + 1, e.event_length)
        if e.event_type:
            p[0] = 0x58
            p[1] = e.event_type
            p += 2
        p = put_bytes(p, e.gtid_props.p, e.gtid_props.n)
        if e.rows:
            digits = digits_of(rows)
            p[0] = 0x62
            p[1] = <uint8_t>(13 + digits)
            p = put_bytes(p + 2, b"\x0a\x09rowsCount\x12", 12)
            p[0] = <uint8_t>digits
            while digits:
                p[digits] = <uint8_t>(48 + rows % 10)
                rows //= 10
                digits -= 1
            p += p[0] + 1
        p = put_bytes(p, e.gtid.p, e.gtid.n)
        p[0] = 0x10
        p[1] = e.entry_type
        p += 2
        if store:
            p[0] = e.store_tag
            put_varint(p + 1, store)

    cdef int finish(self, const Envelope* e) noexcept nogil:
        """Make the bytes from out.start to out.p a record of the block."""
        cdef Record* r = &self.block.records[self.block.count]
        self.block.used = self.out.p - self.block.data
        self.pending_bytes += self.out.p - self.out.start
        r.end = self.block.used
        r.offset = e.offset
        r.ordinal = e.ordinal
        r.time = e.time
        r.table_ordinal = e.table_ordinal
        r.rows = e.rows
        r.event_length = <uint32_t>e.event_length
        r.kind = e.kind
        r.event_type = e.event_type
        r.flags = (FLAG_GTID if e.gtid.n else 0) | (FLAG_OPEN if e.open else 0)
        self.block.count += 1
        self.out.start = self.out.p
        return 0

    cdef int put_entry(self, const Envelope* e, const uint8_t* store,
                       uint64_t store_n) noexcept nogil:
        """Write a whole record around a finished storeValue; -1 without memory."""
        cdef uint64_t header = self.header_size(e)
        cdef uint64_t front = front_size(header, store_n)
        if self.begin() != 0 or ensure(&self.out, front + store_n + SLACK) != 0:
            return -1
        self.put_front(e, header, store_n, self.out.p)
        self.out.p = put_short(self.out.p + front, store, store_n)
        return self.finish(e)


cdef inline int digits_of(uint32_t v) noexcept nogil:
    cdef int n = 1
    while v > 9:
        v //= 10
        n += 1
    return n


cdef bytes varint(uint64_t value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
