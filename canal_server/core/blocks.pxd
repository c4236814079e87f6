# cython: language_level=3
"""Blocks of finished records; see blocks.pyx."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum Kind:
    KIND_BEGIN = 1      # TRANSACTIONBEGIN
    KIND_ROWS = 2       # ROWDATA of INSERT, UPDATE, DELETE
    KIND_END = 3        # TRANSACTIONEND
    KIND_HEARTBEAT = 4
    KIND_OTHER = 5      # ROWDATA of any other event type: DDL, QUERY, XA

cdef enum Flag:
    FLAG_GTID = 1       # the entry has a gtid (a BEGIN is then not an ack point)
    FLAG_OPEN = 2       # inside a transaction that continues after it

cdef struct Record:
    # One finished Entry, wrapped as field 2 of Messages. It begins where the record
    # before it in the block ends.
    uint64_t end           # offset in the block, one past the last byte
    uint64_t offset        # of the event's start in its binlog file
    uint32_t ordinal       # among the events of one offset (compressed payloads)
    uint32_t time          # of the event, s
    uint32_t table_ordinal       # in TableIds: whose filter decides; 0: passes all
    uint32_t rows          # rows of a KIND_ROWS entry
    uint32_t event_length  # bytes in the binlog
    uint8_t kind           # Kind
    uint8_t event_type     # EventType of a ROWDATA entry
    uint8_t flags          # Flag

cdef class Block:
    cdef uint8_t* data
    cdef size_t used           # bytes of finished records
    cdef size_t capacity
    cdef Record* records
    cdef uint32_t count        # finished records
    cdef uint32_t record_capacity
    cdef readonly str file     # binlog file that all records come from
    cdef readonly uint64_t file_number
    cdef readonly object source  # whose binlog that is, if the writer knew it
    cdef readonly uint32_t source_number  # in a group; 0: no group
    cdef BlockPool pool
    cdef Py_ssize_t exports

    cdef inline uint64_t begin_of(self, uint32_t i) noexcept nogil:
        return self.records[i - 1].end if i else 0

cdef class BlockPool:
    cdef readonly size_t block_size     # bytes of an ordinary block
    cdef readonly size_t held           # bytes of all blocks alive, free ones included
    cdef readonly size_t spare_max      # bytes of free memory kept for reuse
    cdef list spare
    cdef BlockPool root         # whose memory it hands out; None: its own
    cdef uint32_t source_number  # of the blocks
    cdef Block open(self, str file, uint64_t file_number, size_t at_least,
                    object source=*)
    cdef void give_back(self, uint8_t* data, Record* records, size_t capacity,
                        uint32_t record_capacity)
