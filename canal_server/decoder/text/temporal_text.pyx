# cython: language_level=3
"""Text of dates and times, from their current and former forms in the binlog.

Zero dates, zero months and days are printed unchanged. A fraction has exactly the
digits that its column declares.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from canal_server.core.digits cimport put_pair
from canal_server.core.wire cimport Input, take_be
from canal_server.decoder.text.time_zone cimport ZoneC, zone_offset

cdef uint64_t[7] POWERS = [1, 10, 100, 1000, 10000, 100000, 1000000]
cdef int64_t TIME_SECONDS_MAX = 838 * 3600 + 59 * 60 + 59


cdef uint8_t* put_date(uint8_t* p, uint32_t year, uint32_t month,
                              uint32_t day) noexcept nogil:
    p = put_pair(p, year // 100 % 100)
    p = put_pair(p, year % 100)
    p[0] = 45
    p = put_pair(p + 1, month % 100)
    p[0] = 45
    return put_pair(p + 1, day % 100)


cdef inline uint8_t* put_clock(uint8_t* p, uint32_t hour, uint32_t minute,
                               uint32_t second) noexcept nogil:
    if hour > 99:
        p[0] = <uint8_t>(48 + hour // 100 % 10)
        p += 1
    p = put_pair(p, hour % 100)
    p[0] = 58
    p = put_pair(p + 1, minute % 100)
    p[0] = 58
    return put_pair(p + 1, second % 100)


cdef uint8_t* put_fraction(uint8_t* p, uint64_t fraction, int stored,
                                  int digits) noexcept nogil:
    """Write `.` and the first `digits` of a fraction of `stored` digits."""
    cdef int i
    if digits == 0:
        return p
    if digits < stored:
        fraction //= POWERS[stored - digits]
    p[0] = 46
    for i in range(digits, 0, -1):
        p[i] = <uint8_t>(48 + fraction % 10)
        fraction //= 10
    return p + digits + 1


cdef uint8_t* put_zero_datetime(uint8_t* p) noexcept nogil:
    memcpy(p, b"0000-00-00 00:00:00", 19)
    return p + 19


cdef uint8_t* put_timestamp(uint8_t* p, uint32_t when,
                            const ZoneC* zone) noexcept nogil:
    """Write seconds since 1970 as date and time in a zone."""
    cdef int64_t t = when
    cdef int64_t days, seconds, era, doe, yoe, doy, mp, year
    if when == 0:
        return put_zero_datetime(p)
    t += zone_offset(zone, t)
    days = t // 86400
    seconds = t - days * 86400
    if seconds < 0:  # C division truncates; west of Greenwich on 1970-01-01
        days -= 1
        seconds += 86400
    # Days since 1970 to a civil date of the Gregorian calendar, by eras of 400
    # years that begin on March 1st.
    days += 719468
    era = days // 146097
    doe = days - era * 146097
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    year = yoe + era * 400 + (1 if mp >= 10 else 0)
    p = put_date(p, <uint32_t>year, <uint32_t>(mp + 3 if mp < 10 else mp - 9),
                 <uint32_t>(doy - (153 * mp + 2) // 5 + 1))
    p[0] = 32
    return put_clock(p + 1, <uint32_t>(seconds // 3600),
                     <uint32_t>(seconds // 60 % 60), <uint32_t>(seconds % 60))


cdef uint8_t* put_packed_datetime(uint8_t* p, uint64_t v) noexcept nogil:
    """Write year*13+month (17 bits), day 5, hour 5, minute 6, second 6 bits."""
    cdef uint32_t ym = <uint32_t>(v >> 22 & 0x1FFFF)
    p = put_date(p, ym // 13, ym % 13, v >> 17 & 31)
    p[0] = 32
    return put_clock(p + 1, v >> 12 & 31, v >> 6 & 63, v & 63)


cdef uint8_t* put_hires_datetime(uint8_t* p, uint64_t v, int digits) noexcept nogil:
    """Write MariaDB's mixed-radix number; its last radix is the fraction."""
    cdef uint64_t fraction = v % POWERS[digits]
    cdef uint32_t second, minute, hour, day, month
    v //= POWERS[digits]
    second = v % 60
    v //= 60
    minute = v % 60
    v //= 60
    hour = v % 24
    v //= 24
    day = v % 32
    v //= 32
    month = v % 13
    p = put_date(p, <uint32_t>(v // 13), month, day)
    p[0] = 32
    p = put_clock(p + 1, hour, minute, second)
    return put_fraction(p, fraction, digits, digits)


cdef uint8_t* put_time2(uint8_t* p, Input* source, int digits) noexcept nogil:
    """Write TIME2: 3 bytes and the fraction's, one number with an offset."""
    cdef int extra = (digits + 1) // 2
    cdef int64_t v = <int64_t>take_be(source, 3 + extra)
    cdef uint64_t whole, fraction
    v -= <int64_t>0x800000 << (8 * extra)
    if v < 0:
        p[0] = 45
        p += 1
        v = -v
    whole = <uint64_t>v >> (8 * extra)
    fraction = <uint64_t>v & ((<uint64_t>1 << (8 * extra)) - 1)
    p = put_clock(p, whole >> 12 & 0x3FF, whole >> 6 & 63, whole & 63)
    return put_fraction(p, fraction, 2 * extra, digits)


cdef uint8_t* put_old_time(uint8_t* p, uint32_t raw) noexcept nogil:
    """Write TIME from before 5.6: a signed decimal number hhmmss of 3 bytes."""
    cdef int32_t v = <int32_t>(raw << 8) >> 8
    if v < 0:
        p[0] = 45
        p += 1
        v = -v
    return put_clock(p, v // 10000, v // 100 % 100, v % 100)


cdef uint8_t* put_year(uint8_t* p, uint32_t raw) noexcept nogil:
    """Write YEAR: 0 is 0000, others count from 1900."""
    cdef uint32_t year = raw + 1900 if raw else 0
    return put_pair(put_pair(p, year // 100), year % 100)


cdef uint8_t* put_hires_time(uint8_t* p, uint64_t raw, int digits) noexcept nogil:
    """Write MariaDB's old TIME with fraction: an offset number of its last digits."""
    cdef int64_t v = <int64_t>raw - (TIME_SECONDS_MAX + 1) * <int64_t>POWERS[digits]
    cdef int64_t seconds
    if v < 0:
        p[0] = 45
        p += 1
        v = -v
    seconds = v // <int64_t>POWERS[digits]
    p = put_clock(p, <uint32_t>(seconds // 3600), <uint32_t>(seconds // 60 % 60),
                  <uint32_t>(seconds % 60))
    return put_fraction(p, v % <int64_t>POWERS[digits], digits, digits)


cdef uint8_t* put_old_datetime(uint8_t* p, uint64_t v) noexcept nogil:
    """Write DATETIME from before 5.6: the decimal number YYYYMMDDhhmmss."""
    cdef uint64_t date = v // 1000000
    cdef uint64_t clock = v % 1000000
    p = put_date(p, <uint32_t>(date // 10000 % 10000), <uint32_t>(date // 100 % 100),
                 <uint32_t>(date % 100))
    p[0] = 32
    return put_clock(p + 1, <uint32_t>(clock // 10000), <uint32_t>(clock // 100 % 100),
                     <uint32_t>(clock % 100))
