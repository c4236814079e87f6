# cython: language_level=3
"""Codes of binlog events, the current event, and why decoding halts."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum EventCode:
    # MySQL's binlog_event.h; from 160 on MariaDB's log_event.h.
    EV_QUERY = 2
    EV_STOP = 3
    EV_ROTATE = 4
    EV_INTVAR = 5
    EV_SLAVE = 7
    EV_APPEND_BLOCK = 9
    EV_DELETE_FILE = 11
    EV_RAND = 13
    EV_USER_VAR = 14
    EV_FORMAT_DESCRIPTION = 15
    EV_XID = 16
    EV_BEGIN_LOAD_QUERY = 17
    EV_EXECUTE_LOAD_QUERY = 18
    EV_TABLE_MAP = 19
    EV_WRITE_ROWS_V1 = 23
    EV_UPDATE_ROWS_V1 = 24
    EV_DELETE_ROWS_V1 = 25
    EV_INCIDENT = 26
    EV_HEARTBEAT = 27
    EV_IGNORABLE = 28
    EV_ROWS_QUERY = 29
    EV_WRITE_ROWS = 30
    EV_UPDATE_ROWS = 31
    EV_DELETE_ROWS = 32
    EV_GTID = 33
    EV_ANONYMOUS_GTID = 34
    EV_PREVIOUS_GTIDS = 35
    EV_TRANSACTION_CONTEXT = 36
    EV_VIEW_CHANGE = 37
    EV_XA_PREPARE = 38
    EV_PARTIAL_UPDATE_ROWS = 39
    EV_TRANSACTION_PAYLOAD = 40
    EV_HEARTBEAT_V2 = 41
    EV_GTID_TAGGED = 42
    EV_ANNOTATE_ROWS = 160
    EV_BINLOG_CHECKPOINT = 161
    EV_MARIA_GTID = 162
    EV_MARIA_GTID_LIST = 163
    EV_START_ENCRYPTION = 164
    EV_QUERY_COMPRESSED = 165
    EV_ROWS_COMPRESSED_FIRST = 166
    EV_ROWS_COMPRESSED_LAST = 171
    EV_PARTIAL_ROW_DATA = 172

# Why run() stopped. Positive: Python must act.
cdef enum Halt:
    RUNNING = 0
    NEED_INPUT = 1     # all complete events of the feed are decoded
    PAUSE = 2          # enough was written: publish it, then continue
    TABLE = 3          # a table map without a layout
    QUERY = 4          # a statement other than transaction control
    ROTATE = 5         # another binlog file begins
    EVENT = 6          # a rare event, read in Python
    PAYLOAD = 7        # a compressed transaction: feed its inner events
    SOURCE_ERROR = 8   # the server sent an error packet
    SOURCE_END = 9     # the server ended the stream
    NO_TABLE_MAP = 10  # a row event without a table map
    BROKEN = 11        # an event that cannot be decoded
    NO_MEMORY = 12
    LIMIT = 13         # the position to end at is reached
    LOST_ROWS = 14     # a row event whose table map could not be read

cdef struct Event:
    uint32_t time
    uint32_t server_id
    uint64_t offset        # of its start in the file
    uint64_t length        # as in entries: with header and checksum
    uint16_t flags
    uint8_t type
    const uint8_t* body    # after the 19 bytes of the header
    size_t body_n          # without checksum


cdef inline uint32_t read32(const uint8_t* p) noexcept nogil:
    return p[0] | p[1] << 8 | p[2] << 16 | <uint32_t>p[3] << 24


cdef inline uint64_t read48(const uint8_t* p) noexcept nogil:
    return read32(p) | <uint64_t>(p[4] | p[5] << 8) << 32


cdef inline uint64_t read64(const uint8_t* p) noexcept nogil:
    return read32(p) | <uint64_t>read32(p + 4) << 32


cdef inline bint is_row_event(uint8_t code) noexcept nogil:
    """Check whether an event has readable, that is uncompressed, rows."""
    return (EV_WRITE_ROWS <= code <= EV_DELETE_ROWS or code == EV_PARTIAL_UPDATE_ROWS
            or EV_WRITE_ROWS_V1 <= code <= EV_DELETE_ROWS_V1)
