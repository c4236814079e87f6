# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Turns the events of a binlog file into the packets in which a server sends them.

    event     4 time, 1 type, 4 server id, 4 length, 4 log position of the event's
              end, 2 flags, body
    packet    3 length, 1 sequence, payload; a payload of 0xffffff bytes continues in
              the next packet, which may be empty
    payload   0, then the event

Transactions of a GTID set are left out, as a server does in a dump by GTID. Leaves out
checksums and the meaning of events, which the decoder of the packets checks.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from canal_server.core.gtid.mariadb_sets cimport MariaGtidSet
from canal_server.core.gtid.mysql_sets cimport GtidSet
from canal_server.decoder.events.gtid_tagged cimport TaggedGtid, read_tagged
from canal_server.decoder.rows.event_constants cimport (
    EV_ANONYMOUS_GTID, EV_FORMAT_DESCRIPTION, EV_GTID, EV_GTID_TAGGED, EV_INCIDENT,
    EV_MARIA_GTID, EV_MARIA_GTID_LIST, EV_PREVIOUS_GTIDS, EV_ROTATE,
    EV_START_ENCRYPTION, EV_STOP, read32, read64,
)

from canal_server.errors import DecodeError

cdef enum:
    HEADER_BYTES = 19
    PACKET_MAX = 0xFFFFFF
    PACKET_HEADER = 4
    # Of a GTID event, as much as its GTID needs.
    GTID_BYTES = HEADER_BYTES + 25
    MARIA_GTID_BYTES = HEADER_BYTES + 12
    TAGGED_BYTES_MAX = 512


cdef class EventPackets:
    """Packs the events of one file from an offset on; for one thread.

    `position` is the offset of the current event; the last one has the type `last_type`
    (0: there was none) and the time `last_time`. `seen` grows by the GTIDs of the
    transactions, unless it is None; those in `excluded` are left out.
    """

    cdef public uint64_t position
    cdef readonly uint8_t last_type
    cdef readonly uint32_t last_time
    cdef public object seen
    cdef public object excluded
    cdef uint32_t length  # of the current event
    cdef uint64_t left  # of the current event, bytes that were not read yet
    cdef uint64_t unsent  # of the current payload
    cdef uint32_t packet_left
    cdef bint marks  # the payload's first byte is due
    cdef bint ends_empty  # an empty packet is due after the current one
    cdef bint skips  # the current event
    cdef bint skips_transaction
    cdef uint8_t sequence

    def __init__(self, uint64_t position):
        self.position = position

    @property
    def is_between(self):
        """Whether all of the last event was packed."""
        return not self.left and not self.unsent and not self.ends_empty

    def pack(self, const uint8_t[::1] source, uint8_t[::1] target):
        """Pack what follows; return how much was read, and how much was written.

        Nothing is read when `source` is empty or ends inside of what has to be there
        at once, such as a header. Raises DecodeError for bytes that are no event.
        """
        cdef size_t at = 0
        cdef size_t to = 0
        cdef size_t stop = source.shape[0]
        cdef size_t room = target.shape[0]
        cdef size_t n
        while True:
            if self.is_done():
                n = self.begin(source, at, stop)
                if n == 0:
                    break
                continue
            if self.skips:
                n = min(self.left, <uint64_t>(stop - at))
                at += n
                self.left -= n
                if self.left:
                    break
                self.position += self.length
                continue
            if self.packet_left == 0:
                if room - to < PACKET_HEADER:
                    break
                self.put_header(&target[to])
                to += PACKET_HEADER
                continue
            if self.marks:
                if to == room:
                    break
                target[to] = 0
                to += 1
                self.marks = False
                self.packet_left -= 1
                self.unsent -= 1
                continue
            n = min(<uint64_t>self.packet_left, <uint64_t>(stop - at))
            n = min(n, room - to)
            if n == 0:
                break
            memcpy(&target[to], &source[at], n)
            at += n
            to += n
            self.left -= n
            self.unsent -= n
            self.packet_left -= n
            if self.is_done():
                self.position += self.length
        return at, to

    cdef bint is_done(self) noexcept nogil:
        return not self.left and not self.unsent and not self.ends_empty

    cdef void put_header(self, uint8_t* p) noexcept nogil:
        cdef uint32_t size = <uint32_t>min(self.unsent, <uint64_t>PACKET_MAX)
        p[0], p[1], p[2] = size & 0xFF, size >> 8 & 0xFF, size >> 16
        p[3] = self.sequence
        self.sequence += 1
        if size == 0:
            self.position += self.length
        self.packet_left = size
        self.ends_empty = size == PACKET_MAX and self.unsent == PACKET_MAX

    cdef size_t begin(self, const uint8_t[::1] source, size_t at, size_t stop) except? 0:
        """Begin the event at an offset of the source; return 0 when more is needed."""
        cdef const uint8_t* p
        cdef size_t waiting = stop - at
        cdef uint32_t length, end
        cdef uint8_t kind
        if waiting < HEADER_BYTES:
            return 0
        p = &source[at]
        kind, length, end = p[4], read32(p + 9), read32(p + 13)
        if length < HEADER_BYTES:
            raise DecodeError(f"an event of type {kind} with a length of {length}",
                              position=self.position)
        # The field has 32 bits and wraps around in files of 4 GiB and more.
        if end != <uint32_t>(self.position + length):
            raise DecodeError(
                f"an event of type {kind} with a length of {length} that names {end}"
                f" as its end instead of {<uint32_t>(self.position + length)}",
                position=self.position)
        if waiting < min(length, self.needed(kind)):
            return 0
        if kind in (EV_GTID, EV_GTID_TAGGED, EV_MARIA_GTID, EV_ANONYMOUS_GTID):
            self.enter(p, kind, length)
        elif kind in (EV_ROTATE, EV_STOP, EV_FORMAT_DESCRIPTION, EV_PREVIOUS_GTIDS,
                      EV_MARIA_GTID_LIST, EV_INCIDENT):
            self.skips_transaction = False
        elif kind == EV_START_ENCRYPTION:
            raise DecodeError("the file is encrypted from here on (encrypt_binlog)",
                              position=self.position)
        self.last_type = kind
        self.last_time = read32(p)
        self.length = length
        self.left = length
        self.skips = self.skips_transaction
        if not self.skips:
            self.unsent = <uint64_t>length + 1
            self.marks = True
            self.packet_left = 0
        return 1

    cdef uint32_t needed(self, uint8_t kind) noexcept nogil:
        """Return how many bytes of an event of this type have to be there at once."""
        if kind == EV_GTID:
            return GTID_BYTES
        if kind == EV_MARIA_GTID:
            return MARIA_GTID_BYTES
        return TAGGED_BYTES_MAX if kind == EV_GTID_TAGGED else HEADER_BYTES

    cdef int enter(self, const uint8_t* p, uint8_t kind, uint32_t length) except -1:
        """Note a transaction, and whether it is left out."""
        cdef TaggedGtid tagged
        cdef const uint8_t* body = p + HEADER_BYTES
        self.skips_transaction = False
        if self.seen is None and self.excluded is None:
            return 0
        if kind == EV_ANONYMOUS_GTID:
            return 0
        if kind == EV_MARIA_GTID and length >= MARIA_GTID_BYTES:
            gtid = (read32(body + 8), read32(p + 5), read64(body))
            if self.excluded is not None:
                one = MariaGtidSet()
                one.update(*gtid)
                self.skips_transaction = self.excluded.contains(one)
            if self.seen is not None:
                self.seen.update(*gtid)
            return 0
        if kind == EV_GTID and length >= GTID_BYTES:
            gtid = (body[1:17], read64(body + 17))
        elif kind == EV_GTID_TAGGED and read_tagged(
                body, min(length, <uint32_t>TAGGED_BYTES_MAX) - HEADER_BYTES,
                &tagged) == 0:
            gtid = (tagged.sid[:16], tagged.number,
                    tagged.tag[:tagged.tag_n].decode())
        else:
            raise DecodeError(f"a GTID event of {length} bytes without a GTID",
                              position=self.position)
        if self.excluded is not None:
            one = GtidSet()
            one.add(*gtid)
            self.skips_transaction = self.excluded.contains(one)
        if self.seen is not None:
            self.seen.add(*gtid)
        return 0
