# cython: language_level=3
"""Tracks the executed GTID set outside GTID mode, where entries do not have it.

The set is as of the start of the last GTID's event, or as of the end of that
transaction. Consecutive numbers, which nearly all are, are added as one run when the
set is requested: faster than one by one, as benchmarks with one row per transaction
showed.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from canal_server.core.gtid.mysql_sets cimport GtidSet
from canal_server.core.gtid.mariadb_sets cimport MariaGtidSet
from canal_server.decoder.rows.event_constants cimport (
    EV_ANONYMOUS_GTID, EV_GTID, EV_GTID_TAGGED, Event, read32, read64,
)
from canal_server.decoder.events.gtid_tagged cimport TaggedGtid, read_tagged

cdef uint64_t GNO_MAX = 0x7FFFFFFFFFFFFFFE


cdef class FollowedSet:
    """A set of MySQL's or MariaDB's GTIDs that grows with the events."""

    def follow(self, gtids):
        """Take ownership of an executed set to extend; None: unknown."""
        if gtids is not None and not isinstance(gtids, (GtidSet, MariaGtidSet)):
            raise TypeError(f"gtids: {gtids!r} is not a GTID set")
        self.active = True
        self.lost = False
        self.last = self.before = 0
        self.mysql = gtids if isinstance(gtids, GtidSet) else None
        self.maria = gtids if isinstance(gtids, MariaGtidSet) else None

    def executed(self, *, bint whole):
        """Return the set's text, "" if it is unknown.

        As of the start of the last GTID's event or, with `whole`, as of that
        transaction's end: valid only after it.
        """
        if self.lost:
            return ""
        if self.settle(whole) != 0:
            raise MemoryError("no memory for a GTID set")
        gtids = self.mysql if self.mysql is not None else self.maria
        return "" if gtids is None else str(gtids)

    cdef int enter(self, const Event* event) noexcept nogil:
        """GTID: 1 flags, 16 source uuid, 8 number, …"""
        cdef const uint8_t* body = event.body
        cdef TaggedGtid found
        cdef uint64_t number
        if event.type == EV_GTID:
            if event.body_n < 25:
                return -1
            number = read64(body + 17)
            if (number == self.last + 1 and self.last and self.tag_n == 0
                    and read64(body + 1) == self.sid[0]
                    and read64(body + 9) == self.sid[1]):
                self.last = number
                return 0
            return self.begin_run(body + 1, body, 0, number)
        if event.type == EV_GTID_TAGGED:
            if read_tagged(body, event.body_n, &found) != 0:
                return -1
            return self.begin_run(found.sid, found.tag, found.tag_n, found.number)
        if event.type == EV_ANONYMOUS_GTID:
            self.lost = True  # an anonymous transaction makes the set incomplete
        return 0

    cdef int begin_run(self, const uint8_t* sid, const uint8_t* tag, size_t tag_n,
                       uint64_t number) noexcept nogil:
        if not 0 < number <= GNO_MAX or tag_n > sizeof(self.tag):
            return -1
        if self.mysql is None or self.lost:
            return 0
        if self.settle(True) != 0:
            return -2
        self.sid[0], self.sid[1] = read64(sid), read64(sid + 8)
        memcpy(self.tag, tag, tag_n)
        self.tag_n = tag_n
        self.first = self.last = number
        return 0

    cdef int enter_maria(self, const Event* event) noexcept nogil:
        """GTID of MariaDB: 8 sequence, 4 domain, …"""
        cdef uint64_t sequence
        cdef uint32_t domain
        if event.body_n < 12:
            return -1
        sequence, domain = read64(event.body), read32(event.body + 8)
        if self.last and domain == self.domain:
            self.before, self.server_before = self.last, self.server
        elif self.settle(True) != 0:
            return -2
        self.domain, self.server, self.last = domain, event.server_id, sequence
        return 0

    cdef int settle(self, bint whole) noexcept nogil:
        cdef int status = 0
        cdef uint64_t first = self.first
        cdef uint64_t stop = self.last + whole
        if self.last == 0:
            return 0
        if self.mysql is not None and first < stop:
            status = self.mysql.add_run(<const uint8_t*>self.sid, self.tag, self.tag_n,
                                        <int64_t>first, <int64_t>stop)
        elif self.maria is not None and whole:
            status = self.maria.update_c(self.domain, self.server, self.last)
        elif self.maria is not None and self.before:
            status = self.maria.update_c(self.domain, self.server_before, self.before)
        self.first = self.last
        self.before = 0
        if whole:
            self.last = 0
        return 0 if status == 0 else -2
