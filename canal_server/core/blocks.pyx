# cython: language_level=3
"""Blocks of finished records, and the pool that their memory comes from.

A record is one `Entry`, serialized and wrapped as the field that it will be in a
`Messages` body. Records lie end to end in `data`, so that neighbours leave the
process as one slice; small index records describe them. One thread, the pump,
appends to a block; all others read only what they received as a `Span`:
(block, first record, one past the last record). The memory of a block returns to its
pool when the last span, cursor and memoryview on it is released.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

# The smallest record is a BEGIN or END of about this size.
cdef size_t RECORD_BYTES_MIN = 56


# The pool must still exist when a block in a garbage cycle is released.
@cython.no_gc_clear
cdef class Block:
    """Memory for finished records of one binlog file."""

    def __dealloc__(self):
        if self.data != NULL:
            self.pool.give_back(
                self.data, self.records, self.capacity, self.record_capacity
            )

    def __len__(self):
        return self.count

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.used, 1, flags)

    def __repr__(self):
        return f"<Block {self.file} {self.count} records {self.used} bytes>"

    def size_of(self, uint32_t first, uint32_t stop):
        """Return the bytes of the records first <= i < stop."""
        if first >= stop:
            return 0
        if stop > self.count:
            raise IndexError(f"record {stop} of {self.count}")
        return self.records[stop - 1].end - self.begin_of(first)

    def slice(self, uint32_t first, uint32_t stop):
        """Return the records first <= i < stop as a memoryview of their bytes."""
        if first > stop or stop > self.count:
            raise IndexError(f"records {first}..{stop} of {self.count}")
        end = self.records[stop - 1].end if stop else 0
        return memoryview(self)[self.begin_of(first):end]

    def record(self, uint32_t i):
        """Return the index record i as a dict, for tests and diagnosis."""
        if i >= self.count:
            raise IndexError(f"record {i} of {self.count}")
        cdef Record* r = &self.records[i]
        return {
            "begin": self.begin_of(i), "end": r.end, "offset": r.offset,
            "ordinal": r.ordinal, "time": r.time, "table_ordinal": r.table_ordinal,
            "rows": r.rows, "event_length": r.event_length, "kind": r.kind,
            "event_type": r.event_type, "flags": r.flags,
        }

    def key(self, uint32_t i):
        """Return (offset, ordinal) of record i; its event begins at the offset."""
        if i >= self.count:
            raise IndexError(f"record {i} of {self.count}")
        return self.records[i].offset, self.records[i].ordinal

    def end_offset(self, uint32_t i):
        """Return the offset after the event of record i."""
        if i >= self.count:
            raise IndexError(f"record {i} of {self.count}")
        return self.records[i].offset + self.records[i].event_length

    def last_boundary(self, uint32_t first, uint32_t stop):
        """Return the last record first <= i < stop that ends a transaction or is one.

        -1 when there is none. Such a record is an END, a DDL or the like. A position
        inside a transaction does not count: its GTID is in the executed set already.
        """
        cdef uint32_t i = min(stop, self.count)
        while i > first:
            i -= 1
            if self.records[i].kind == KIND_END or (
                    self.records[i].kind == KIND_OTHER
                    and not self.records[i].flags & FLAG_OPEN):
                return <int64_t>i
        return -1

    def first_boundary(self, uint32_t first, uint32_t stop):
        """Return the first such record first <= i < stop, -1 when there is none."""
        cdef uint32_t i
        for i in range(first, min(stop, self.count)):
            if self.records[i].kind == KIND_END or (
                    self.records[i].kind == KIND_OTHER
                    and not self.records[i].flags & FLAG_OPEN):
                return <int64_t>i
        return -1

    def first_after(self, uint32_t first, uint32_t stop, uint64_t offset,
                     uint32_t ordinal):
        """Return the first record first <= i < stop after a position in the file.

        `stop` when there is none.
        """
        cdef uint32_t i
        for i in range(first, min(stop, self.count)):
            if (self.records[i].offset > offset or (
                    self.records[i].offset == offset
                    and self.records[i].ordinal > ordinal)):
                return i
        return stop

    def first_since(self, uint32_t first, uint32_t stop, int64_t time):
        """Return the first record first <= i < stop of this time (s) or later.

        `stop` when there is none.
        """
        cdef uint32_t i
        for i in range(first, min(stop, self.count)):
            if self.records[i].time >= time:
                return i
        return stop

    def totals(self, uint32_t first, uint32_t stop):
        """Return the totals of records first <= i < stop.

        These are the transactions (ends, and statements that are one by themselves),
        the
        rows, and the latest time (s), 0 without any.
        """
        cdef uint32_t i
        cdef uint32_t transactions = 0
        cdef uint64_t rows = 0
        cdef uint32_t youngest = 0
        cdef Record* r
        for i in range(first, min(stop, self.count)):
            r = &self.records[i]
            transactions += r.kind == KIND_END or (
                r.kind == KIND_OTHER and not r.flags & FLAG_OPEN)
            rows += r.rows
            youngest = max(youngest, r.time)
        return transactions, rows, youngest

    def position(self, uint32_t i):
        """Return (file, offset, timestamp in ms, server id, gtid, source) of record i.

        Read from the entry's own header; gtid is "" when the entry has none, and
        source None when it is not known whose binlog is read.
        """
        if i >= self.count:
            raise IndexError(f"record {i} of {self.count}")
        cdef const uint8_t* p = self.data + self.begin_of(i)
        cdef const uint8_t* end
        cdef uint64_t n, tag
        cdef uint64_t server_id = 0
        gtid = ""
        # 0x12 length, then the Entry; its first field is 0x0a length, the Header.
        p = skip_varint(p + 1)
        p = read_varint(p + 1, &n)
        end = p + n
        while p < end:
            p = read_varint(p, &tag)
            p = read_varint(p, &n)
            if tag == (4 << 3):
                server_id = n
            elif tag & 7 == 2:
                if tag == (13 << 3 | 2):
                    gtid = p[:n].decode("utf-8")
                p += n
        return (
            self.file, self.records[i].offset,
            <uint64_t>self.records[i].time * 1000, server_id, gtid, self.source,
        )

    def count_until(
        self, uint32_t first, uint32_t stop, uint64_t time, uint64_t open_rows
    ):
        """Count the transactions that end at first <= i < stop, not after a time in s.

        `open_rows` are those of a transaction that began before `first`. Returns
        (transactions, their rows, rows of the transaction open at the end, latest end).
        """
        cdef uint32_t i
        cdef uint64_t ends = 0, rows = 0, youngest = 0
        for i in range(first, min(stop, self.count)):
            if self.records[i].kind == KIND_ROWS:
                open_rows += self.records[i].rows
            elif self.records[i].kind == KIND_END:
                if self.records[i].time <= time:
                    ends += 1
                    rows += open_rows
                open_rows = 0
                youngest = max(youngest, <uint64_t>self.records[i].time)
        return ends, rows, open_rows, youngest


cdef const uint8_t* read_varint(const uint8_t* p, uint64_t* value) noexcept nogil:
    """Read a varint that this process wrote, therefore without a check."""
    cdef int shift = 0
    value[0] = 0
    while True:
        value[0] |= <uint64_t>(p[0] & 127) << shift
        shift += 7
        p += 1
        if p[-1] < 128:
            return p


cdef const uint8_t* skip_varint(const uint8_t* p) noexcept nogil:
    while p[0] > 127:
        p += 1
    return p + 1


cdef class Chunk:
    """Free memory of the pool."""

    cdef uint8_t* data
    cdef Record* records
    cdef uint32_t record_capacity

    def __dealloc__(self):
        free(self.data)
        free(self.records)


# It holds free memory only, so it is part of no garbage cycle. But a cycle may hold it,
# and then its blocks are still returned.
@cython.no_gc
cdef class BlockPool:
    """Hands out blocks and keeps freed memory for the next ones.

    Fresh memory costs a page fault per 4 KiB, so it is reused. `held` counts the bytes
    of
    all live and spare blocks; memory limits are checked against it.
    """

    def __init__(self, size_t block_size=256 * 1024, size_t spare_max=8 * 1024 * 1024):
        self.block_size = block_size
        self.spare_max = spare_max
        self.held = 0
        self.spare = []

    def of_source(self, uint32_t number):
        """Return a pool of the same memory for one source of a group.

        Its blocks have the source's number, and their memory counts here.
        """
        cdef BlockPool pool = BlockPool(self.block_size, 0)
        pool.root, pool.source_number = self, number
        return pool

    cdef Block open(self, str file, uint64_t file_number, size_t at_least,
                    object source=None):
        """Return an empty block for at least so many bytes; MemoryError if none."""
        cdef Block block
        cdef Chunk chunk
        if self.root is not None:
            block = self.root.open(file, file_number, at_least, source)
            block.source_number = self.source_number
            return block
        block = Block.__new__(Block)
        cdef size_t capacity = self.block_size
        block.pool = self
        block.file = file
        block.file_number = file_number
        block.source = source
        if at_least <= capacity and self.spare:
            chunk = self.spare.pop()
            block.data, block.records = chunk.data, chunk.records
            block.record_capacity = chunk.record_capacity
            chunk.data, chunk.records = NULL, NULL
        else:
            if at_least > capacity:
                capacity = at_least
            block.record_capacity = <uint32_t>(
                min(capacity, self.block_size) // RECORD_BYTES_MIN + 1
            )
            block.records = <Record*>malloc(block.record_capacity * sizeof(Record))
            block.data = <uint8_t*>malloc(capacity) if block.records != NULL else NULL
            if block.data == NULL:
                free(block.records)
                raise MemoryError(f"no memory for a block of {capacity} bytes")
            self.held += capacity
        block.capacity = capacity
        return block

    cdef void give_back(self, uint8_t* data, Record* records, size_t capacity,
                        uint32_t record_capacity):
        cdef Chunk chunk
        if (
            capacity == self.block_size
            and len(self.spare) * self.block_size < self.spare_max
        ):
            chunk = Chunk.__new__(Chunk)
            chunk.data, chunk.records = data, records
            chunk.record_capacity = record_capacity
            self.spare.append(chunk)
        else:
            self.held -= capacity
            free(data)
            free(records)


class BlockWriter:
    """Appends records given as Python values; for tests and for single entries.

    The pump's entries come from the decoder, which writes into blocks itself.
    """

    def __init__(self, pool: BlockPool, file: str, file_number: int) -> None:
        self.block = _open(pool, file, file_number)

    def append(self, bytes entry, int kind, *, uint64_t offset=0, uint32_t ordinal=0,
               uint32_t time=0, uint32_t table_ordinal=0, uint32_t rows=0,
               uint32_t event_length=0, int event_type=0, int flags=0):
        """Append a serialized Entry; ValueError when the block has no room for it.

        Returns the record's index.
        """
        cdef Block block = self.block
        cdef uint64_t n = len(entry)
        prefix = bytearray(b"\x12")
        while n > 127:
            prefix.append(n & 127 | 128)
            n >>= 7
        prefix.append(n)
        cdef bytes field = bytes(prefix) + entry
        cdef size_t size = len(field)
        if (block.capacity - block.used < size
                or block.count == block.record_capacity):
            raise ValueError(f"no room for {size} bytes in {block!r}")
        cdef const uint8_t* source = field
        cdef size_t i
        for i in range(size):
            block.data[block.used + i] = source[i]
        block.used += size
        cdef Record* r = &block.records[block.count]
        r.end, r.offset, r.ordinal, r.time = block.used, offset, ordinal, time
        r.table_ordinal, r.rows, r.event_length = table_ordinal, rows, event_length
        r.kind, r.event_type, r.flags = kind, event_type, flags
        block.count += 1
        return block.count - 1


def _open(BlockPool pool, str file, uint64_t file_number):
    return pool.open(file, file_number, 0)
