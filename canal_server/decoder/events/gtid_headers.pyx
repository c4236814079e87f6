# cython: language_level=3
"""Tracks the executed GTID set and renders it for the headers of entries.

In GTID mode each entry has the whole set, including its own transaction. The text is
rendered once per transaction.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from canal_server.core.digits cimport put_u64
from canal_server.core.gtid.mysql_sets cimport GtidSet
from canal_server.core.gtid.mariadb_sets cimport MariaGtidSet
from canal_server.core.gtid.uuid_text cimport put_uuid
from canal_server.core.wire cimport put_bytes, put_varint
from canal_server.decoder.rows.event_constants cimport (
    EV_GTID, EV_GTID_TAGGED, EV_MARIA_GTID, Event, read32, read64,
)
from canal_server.decoder.events.markers cimport put_pair_field
from canal_server.decoder.events.gtid_tagged cimport TaggedGtid, read_tagged

cdef uint64_t GNO_MAX = 0x7FFFFFFFFFFFFFFE


cdef class GtidHeaders:
    """The executed set (none outside GTID mode) and its current text."""

    def __dealloc__(self):
        free(self.field_memory)

    def set_gtids(self, gtids):
        """Set the executed set (GtidSet, MariaGtidSet; None: no GTID mode)."""
        if gtids is not None and not isinstance(gtids, (GtidSet, MariaGtidSet)):
            raise TypeError(f"gtids: {gtids!r} is not a GTID set")
        self.mysql = gtids if isinstance(gtids, GtidSet) else None
        self.maria = gtids if isinstance(gtids, MariaGtidSet) else None

    cdef void clear(self) noexcept nogil:
        """Forget the transaction; entries outside one have neither props nor set."""
        self.props.n = self.field.n = 0

    cdef int enter(self, const Event* event) noexcept nogil:
        """GTID: 1 flags, 16 source uuid, 8 number, 1 kind of clock, 8 last committed,
        8 sequence number, …"""
        cdef const uint8_t* body = event.body
        cdef uint64_t committed = 0
        cdef uint64_t number = 0
        if self.mysql is None:
            return 0
        if event.body_n < 25:
            return -1
        if event.body_n >= 42 and body[25] == 2:
            committed, number = read64(body + 26), read64(body + 34)
        return self.enter_number(body + 1, body, 0, read64(body + 17), committed, number)

    cdef int enter_tagged(self, const Event* event) noexcept nogil:
        cdef TaggedGtid found
        if self.mysql is None:
            return 0
        if read_tagged(event.body, event.body_n, &found) != 0:
            return -1
        return self.enter_number(found.sid, found.tag, found.tag_n, found.number,
                                 found.last_committed, found.sequence_number)

    cdef int enter_maria(self, const Event* event) noexcept nogil:
        """GTID of MariaDB: 8 sequence, 4 domain, 1 flags, …"""
        if self.maria is None:
            return 0
        if self.maria.update_c(read32(event.body + 8), event.server_id,
                               read64(event.body)) != 0:
            return -2
        if self.maria.render() != 0:
            return -2
        return self.set_field(self.maria.text, self.maria.text_n)

    cdef int enter_number(self, const uint8_t* sid, const uint8_t* tag, size_t tag_n,
                          uint64_t gno, uint64_t committed,
                          uint64_t number) noexcept nogil:
        """Add to the executed set and render the fields of the transaction's headers."""
        cdef uint8_t[160] text
        cdef uint8_t[24] digits
        cdef uint8_t* p = put_uuid(text, sid)
        cdef uint8_t* q = self.props_memory
        if not 0 < gno <= GNO_MAX:
            return -1
        p[0] = 58
        if tag_n:
            p = put_bytes(p + 1, tag, tag_n)
            p[0] = 58
        p = put_u64(p + 1, gno)
        q = put_pair_field(q, 0x62, <const uint8_t*>"curtGtid", 8, text, p - text)
        p = put_u64(digits, number)
        q = put_pair_field(q, 0x62, <const uint8_t*>"curtGtidSn", 10, digits, p - digits)
        p = put_u64(digits, committed)
        q = put_pair_field(q, 0x62, <const uint8_t*>"curtGtidLct", 11, digits,
                           p - digits)
        self.props.p = self.props_memory
        self.props.n = <uint32_t>(q - self.props_memory)
        if self.mysql.add_c(sid, tag, tag_n, <int64_t>gno) != 0:
            return -2
        if self.mysql.render() != 0:
            return -2
        return self.set_field(self.mysql.text, self.mysql.text_n)

    cdef int set_field(self, const char* text, size_t n) noexcept nogil:
        cdef uint8_t* memory
        if n + 16 > self.capacity:
            memory = <uint8_t*>malloc(2 * n + 64)
            if memory == NULL:
                return -2
            free(self.field_memory)
            self.field_memory = memory
            self.capacity = <uint32_t>(2 * n + 64)
        self.field_memory[0] = 0x6A
        memory = put_varint(self.field_memory + 1, n)
        memory = put_bytes(memory, text, n)
        self.field.p = self.field_memory
        self.field.n = <uint32_t>(memory - self.field_memory)
        return 0


def gtid_text(int event_type, uint32_t server_id, const uint8_t[::1] body not None):
    """Return the GTID that an event gives its transaction; "" if it gives none.

    `server_id` is that of the event's header, part of MariaDB's GTIDs.
    """
    cdef uint8_t[40] text
    cdef TaggedGtid found
    cdef str tag
    if event_type == EV_MARIA_GTID and body.shape[0] >= 12:
        return f"{read32(&body[8])}-{server_id}-{read64(&body[0])}"
    if event_type == EV_GTID and body.shape[0] >= 25:
        put_uuid(text, &body[1])
        return f"{text[:36].decode()}:{read64(&body[17])}"
    if (event_type == EV_GTID_TAGGED and body.shape[0]
            and read_tagged(&body[0], body.shape[0], &found) == 0):
        put_uuid(text, found.sid)
        tag = f"{found.tag[:found.tag_n].decode()}:" if found.tag_n else ""
        return f"{text[:36].decode()}:{tag}{found.number}"
    return ""


def is_unfinished_alter(int event_type, const uint8_t[::1] body not None):
    """Check whether a MariaDB GTID is that of an unfinished or failed ALTER.

    With binlog_alter_two_phase an ALTER TABLE is logged twice, at its start and at its
    end, as rows of other sessions may be in between; only the last one counts, unless
    it failed. Body: 8 sequence, 4 domain, 1 flags, 8 number of a commit if flag 2, 1
    more flags: 2 begins, 4 is committed, 8 is rolled back.
    """
    cdef Py_ssize_t at = 13
    if event_type != EV_MARIA_GTID or body.shape[0] < at:
        return False
    if body[12] & (64 | 128):  # of XA, with an XID between the two
        return False
    if body[12] & 2:
        at += 8
    return at < body.shape[0] and body[at] & (2 | 8) != 0
