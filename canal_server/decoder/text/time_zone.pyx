# cython: language_level=3
"""The offset of a time zone from UTC at a moment.

Calling localtime() cost a fifth of the time of an update whose images are days apart
(benchmark `updates`). So all changes of this process's zone are found once, at import,
and looked up later. Other zones consist of the changes that another process found.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, realloc

import struct

from canal_server.errors import DecodeError

cdef extern from "time.h" nogil:
    ctypedef long time_t
    struct tm:
        long tm_gmtoff
    tm* localtime_r(const time_t* when, tm* result)
    void tzset()

cdef int64_t STEP_S = 12 * 3600  # no zone changes twice within it
cdef int64_t END_S = <int64_t>1 << 32  # a TIMESTAMP has 32 bits
cdef int64_t OFFSET_MAX_S = 26 * 3600  # above that of any zone, past or present

PACKED = struct.Struct("<qi")  # a change: since, offset
CHANGES_MAX = 4096


cdef class Zone:
    """The changes of a time zone from 1970 to 2106; immutable except for `read_zone`."""

    def __dealloc__(self):
        free(self.c.changes)

    cdef int add(self, int64_t since, int64_t offset) except -1:
        cdef ZoneChange* more = <ZoneChange*>realloc(
            self.c.changes, (self.c.n + 1) * sizeof(ZoneChange))
        if more == NULL:
            raise MemoryError("no memory for the time zone")
        self.c.changes = more
        more[self.c.n].since = since
        more[self.c.n].offset = offset
        self.c.n += 1
        return 0

    def pack(self):
        """Return the changes as bytes, 12 each: since and offset, little-endian."""
        return b"".join([
            PACKED.pack(self.c.changes[i].since, self.c.changes[i].offset)
            for i in range(self.c.n)
        ])

    @staticmethod
    def unpack(bytes data):
        """Parse the bytes of `pack`. Raises DecodeError if they are invalid."""
        cdef Zone zone = Zone()
        cdef int64_t before = -1
        if not data or len(data) % PACKED.size or len(data) // PACKED.size > CHANGES_MAX:
            raise DecodeError(f"a time zone of {len(data)} bytes")
        for since, offset in PACKED.iter_unpack(data):
            if not before < since < END_S or abs(offset) > OFFSET_MAX_S or (
                    before < 0 and since != 0):
                raise DecodeError(f"a time zone that is {offset} s from UTC since {since}")
            zone.add(since, offset)
            before = since
        return zone

    def offset_at(self, int64_t when):
        """Return the seconds east of UTC at a moment."""
        return zone_offset(&self.c, when)


cdef Zone LOCAL = Zone()


cdef Zone local_zone():
    """Return the zone of this process."""
    return LOCAL


def zone_here():
    """Return the zone of this process."""
    return LOCAL


cdef int64_t offset_at(int64_t when) noexcept nogil:
    cdef tm parts
    cdef time_t t = when
    if localtime_r(&t, &parts) is NULL:
        return 0
    return parts.tm_gmtoff


def read_zone():
    """Read the process's zone (TZ) again; returns the number of its changes.

    Called at import. After a change of TZ, call it before anything is decoded.
    """
    cdef int64_t at, low, high, middle
    cdef int64_t offset, following
    tzset()
    LOCAL.c.n = 0
    offset = offset_at(0)
    LOCAL.add(0, offset)
    at = 0
    while at < END_S:
        at += STEP_S
        following = offset_at(at)
        if following == offset:
            continue
        low, high = at - STEP_S, at
        while high - low > 1:
            middle = (low + high) // 2
            if offset_at(middle) == offset:
                low = middle
            else:
                high = middle
        LOCAL.add(high, following)
        offset = following
    return LOCAL.c.n - 1


cdef int64_t zone_offset(const ZoneC* zone, int64_t when) noexcept nogil:
    """Return the seconds east of UTC at a moment from 1970 to 2106."""
    cdef uint32_t low = 0
    cdef uint32_t high = zone.n
    cdef uint32_t middle
    while high - low > 1:
        middle = (low + high) // 2
        if zone.changes[middle].since <= when:
            low = middle
        else:
            high = middle
    return zone.changes[low].offset


def offset_of(int64_t when):
    """Return the offset of this process's zone; for tests."""
    return zone_offset(&LOCAL.c, when)


read_zone()
