# cython: language_level=3
"""How far this process's time zone is from UTC at a moment.

localtime() took a fifth of the time of an update whose images are days apart (benchmark
`updates`). So all changes of the zone are found once, at import, and looked up from
then on.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc, realloc

cdef extern from "time.h" nogil:
    ctypedef long time_t
    struct tm:
        long tm_gmtoff
    tm* localtime_r(const time_t* when, tm* result)
    void tzset()

cdef int64_t STEP_S = 12 * 3600  # no zone changes twice within it
cdef int64_t END_S = <int64_t>1 << 32  # a TIMESTAMP has 32 bits

cdef struct Change:
    int64_t since   # seconds since 1970
    int64_t offset  # seconds east of UTC from then on

cdef Change* changes = NULL
cdef uint32_t change_n = 0


cdef int64_t offset_at(int64_t when) noexcept nogil:
    cdef tm parts
    cdef time_t t = when
    if localtime_r(&t, &parts) is NULL:
        return 0
    return parts.tm_gmtoff


cdef int add_change(int64_t since, int64_t offset) except -1:
    global changes, change_n
    cdef Change* more = <Change*>realloc(changes, (change_n + 1) * sizeof(Change))
    if more == NULL:
        raise MemoryError("no memory for the time zone")
    changes = more
    changes[change_n].since = since
    changes[change_n].offset = offset
    change_n += 1
    return 0


def read_zone():
    """Read the zone of the process (TZ) anew; returns how many changes it has.

    Called at import. Whoever changes TZ later calls it before anything is decoded.
    """
    global change_n
    cdef int64_t at, low, high, middle
    cdef int64_t offset, following
    tzset()
    change_n = 0
    offset = offset_at(0)
    add_change(0, offset)
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
        add_change(high, following)
        offset = following
    return change_n - 1


cdef int64_t zone_offset(int64_t when) noexcept nogil:
    """Return the seconds east of UTC at a moment from 1970 to 2106."""
    cdef uint32_t low = 0
    cdef uint32_t high = change_n
    cdef uint32_t middle
    while high - low > 1:
        middle = (low + high) // 2
        if changes[middle].since <= when:
            low = middle
        else:
            high = middle
    return changes[low].offset


def offset_of(int64_t when):
    """Return `zone_offset`; for tests."""
    return zone_offset(when)


read_zone()
