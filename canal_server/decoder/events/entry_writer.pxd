# cython: language_level=3
"""Appends finished records to blocks; see entry_writer.pyx."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from canal_server.core.blocks cimport Block, BlockPool
from canal_server.core.wire cimport Output, varint_size
from canal_server.decoder.rows.row_layout cimport Piece

cdef struct Envelope:
    # The fields of an entry's header; the same for all kinds of entries.
    uint64_t offset
    uint64_t event_length
    uint32_t server_id
    uint32_t time
    uint32_t rows
    uint32_t table_ordinal
    uint32_t ordinal
    uint8_t event_type   # 0: the header has none
    uint8_t kind         # Kind of core.blocks
    uint8_t entry_type   # EntryType
    uint8_t store_tag    # tag of the content: storeValue or relayedRows
    bint open            # inside a transaction
    Piece names          # header fields 8 and 9
    Piece gtid_props     # header field 12, curtGtid and its companions
    Piece gtid           # header field 13

cdef enum:
    SHARED_BYTES_MAX = 32

cdef class RecordWriter:
    cdef Output out
    cdef readonly BlockPool pool
    cdef Block block
    cdef object source              # the binlog's source; None: unknown
    cdef str file
    cdef uint64_t file_number
    cdef bytes file_field           # header fields 1 and 2
    cdef const uint8_t* file_p
    cdef uint32_t file_n
    cdef uint8_t[SHARED_BYTES_MAX] shared  # header fields 4 to 7, for:
    cdef uint32_t shared_n          # 0: for nothing yet
    cdef uint32_t shared_server_id
    cdef uint32_t shared_time
    cdef uint32_t fetched           # records of the block that take() has returned
    cdef list spans
    cdef readonly uint64_t pending_bytes  # written since the last take()
    cdef uint64_t entry_bytes_max   # of one record
    cdef uint64_t too_large         # bytes of a rejected record, 0: none

    cdef void point(self, size_t used)
    cdef void share(self, const Envelope* e) noexcept nogil
    cdef uint64_t header_size(self, const Envelope* e) noexcept nogil
    cdef int begin(self) noexcept nogil
    cdef void put_front(self, const Envelope* e, uint64_t header, uint64_t store,
                        uint8_t* p) noexcept nogil
    cdef int finish(self, const Envelope* e) noexcept nogil
    cdef int put_entry(self, const Envelope* e, const uint8_t* store,
                       uint64_t store_n) noexcept nogil


cdef inline uint64_t front_size(uint64_t header, uint64_t store) noexcept nogil:
    """Return the size of the front of a storeValue of `store` bytes."""
    cdef uint64_t front = 1 + varint_size(header) + header + 2
    if store:
        front += 1 + varint_size(store)
    return 1 + varint_size(front + store) + front
