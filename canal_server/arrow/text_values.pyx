# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Numbers, dates and bytes, read from the texts in entries.

The texts are canal's: `number_text` and `temporal_text` write them. A text of any other
form is rejected, never guessed.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from canal_server.decoder.text.charset_text cimport valid_utf8

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <locale.h>
    #include <stdlib.h>
    #ifdef __APPLE__
    #include <xlocale.h>
    #endif
    /* The texts have a point, independent of the process's locale. */
    static locale_t canal_plain_locale = (locale_t)0;
    static void canal_open_locale(void) {
        if (canal_plain_locale == (locale_t)0)
            canal_plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    }
    static double canal_strtod(const char *text, char **end) {
        return strtod_l(text, end, canal_plain_locale);
    }
    static float canal_strtof(const char *text, char **end) {
        return strtof_l(text, end, canal_plain_locale);
    }
    """
    void canal_open_locale()
    double canal_strtod(const char* text, char** end) nogil
    float canal_strtof(const char* text, char** end) nogil

cdef enum:
    NUMBER_BYTES_MAX = 400  # of a floating point number's text, in any notation
    DAYS_TO_1970 = 719468   # from 0000-03-01
    US = 1000000

canal_open_locale()

cdef u128[DECIMAL_DIGITS_MAX + 1] TENS
cdef double[23] EXACT_TENS  # powers of ten that a double holds exactly
cdef float[11] EXACT_TENS_F


def _fill_tens():
    cdef u128 value = 1
    cdef int i
    for i in range(DECIMAL_DIGITS_MAX + 1):
        TENS[i] = value
        value = value * 10
    for i in range(23):
        EXACT_TENS[i] = 10.0**i
    for i in range(11):
        EXACT_TENS_F[i] = <float>10.0**i


_fill_tens()


# --- integers ---------------------------------------------------------------------

cdef bint read_u64(const uint8_t* p, size_t n, uint64_t* value) noexcept nogil:
    cdef uint64_t v = 0
    cdef uint32_t digit
    cdef size_t i
    if n == 0 or n > 20:
        return False
    for i in range(n):
        digit = <uint32_t>p[i] - 48
        if digit > 9:
            return False
        if i == 19 and (v > 1844674407370955161ULL or (
                v == 1844674407370955161ULL and digit > 5)):
            return False
        v = v * 10 + digit
    value[0] = v
    return True


cdef bint read_i64(const uint8_t* p, size_t n, int64_t* value) noexcept nogil:
    cdef uint64_t v
    cdef bint negative = n > 0 and p[0] == 45
    if negative:
        p += 1
        n -= 1
    if not read_u64(p, n, &v) or v > (<uint64_t>1 << 63) - (not negative):
        return False
    value[0] = <int64_t>(0 - v) if negative else <int64_t>v
    return True


# --- decimals ---------------------------------------------------------------------

cdef bint read_decimal(const uint8_t* p, size_t n, int precision, int scale,
                       i128* value) noexcept nogil:
    cdef u128 v = 0
    cdef uint64_t part = 0  # digits are collected in 64 bits: faster
    cdef int gathered = 0
    cdef int significant = 0
    cdef int fraction = -1  # digits after the point; -1: no point yet
    cdef uint32_t digit
    cdef size_t i
    cdef bint negative = n > 0 and p[0] == 45
    for i in range(negative, n):
        if p[i] == 46 and fraction < 0:
            fraction = 0
            continue
        digit = <uint32_t>p[i] - 48
        if digit > 9:
            return False
        if fraction >= 0:
            if fraction == scale:
                if digit:
                    return False
                continue  # "5.0" of an integer
            fraction += 1
        if significant or digit:
            significant += 1
            if significant > precision:
                return False
        part = part * 10 + digit
        gathered += 1
        if gathered == 18:
            v = v * TENS[18] + part
            part, gathered = 0, 0
    if n < <size_t>(1 + negative + (fraction >= 0)):
        return False  # no digit
    v = v * TENS[gathered] + part
    if fraction < 0:
        fraction = 0
    if v and significant + scale - fraction > precision:
        return False
    v = v * TENS[scale - fraction]
    value[0] = -<i128>v if negative else <i128>v
    return True


cdef uint8_t* put_padded_decimal(uint8_t* to, const uint8_t* p, size_t n,
                                 int scale) noexcept nogil:
    cdef size_t i
    cdef size_t point = n
    for i in range(n):
        if p[i] == 46:
            point = i
    memcpy(to, p, point)
    to += point
    if scale == 0:
        return to
    to[0] = 46
    to += 1
    for i in range(point + 1, point + 1 + scale):
        to[0] = p[i] if i < n else 48
        to += 1
    return to


# --- floating point ---------------------------------------------------------------

cdef bint split_number(const uint8_t* p, size_t n, uint64_t* digits,
                       int* exponent) noexcept nogil:
    """Read up to 18 digits and a power of ten; false for other texts."""
    cdef uint64_t v = 0
    cdef int count = 0
    cdef int e = 0
    cdef int given = 0
    cdef bint seen_point = False
    cdef bint negative
    cdef size_t i = 0
    while i < n and p[i] != 69:
        if p[i] == 46:
            if seen_point:
                return False
            seen_point = True
        elif 48 <= p[i] <= 57:
            v = v * 10 + p[i] - 48
            count += 1
            e -= seen_point
            if count > 18:
                return False
        else:
            return False
        i += 1
    if count == 0:
        return False
    if i < n:
        i += 1
        negative = i < n and p[i] == 45
        i += negative
        if i == n or n - i > 3:
            return False
        while i < n:
            if not 48 <= p[i] <= 57:
                return False
            given = given * 10 + p[i] - 48
            i += 1
        e += -given if negative else given
    digits[0], exponent[0] = v, e
    return True


cdef bint plain_number(const uint8_t* p, size_t n, char* text) noexcept nogil:
    """Copy a number's text for strtod; false if it is not in canal's notation."""
    cdef size_t i
    if n == 0 or n >= NUMBER_BYTES_MAX or not 48 <= p[0] <= 57:
        return False
    for i in range(n):
        # Digits, and `-.E` of canal's notation: no blanks, hexadecimals, "inf".
        if not (48 <= p[i] <= 57 or p[i] == 45 or p[i] == 46 or p[i] == 69):
            return False
    memcpy(text, p, n)
    text[n] = 0
    return True


cdef double special(const uint8_t* p, size_t n) noexcept nogil:
    """Return the infinity of a text, NaN for any other."""
    cdef double infinity = 1e308 * 10
    if n == 8 and memcmp(p, b"Infinity", 8) == 0:
        return infinity
    return infinity - infinity


cdef bint read_double(const uint8_t* p, size_t n, double* value) noexcept nogil:
    cdef char[NUMBER_BYTES_MAX] text
    cdef char* end
    cdef uint64_t digits
    cdef int e
    cdef bint negative = n > 0 and p[0] == 45
    if negative:
        p += 1
        n -= 1
    if (split_number(p, n, &digits, &e) and digits <= <uint64_t>1 << 53
            and -22 <= e <= 22):
        # Both are exact, so the single operation rounds correctly: faster.
        value[0] = digits / EXACT_TENS[-e] if e < 0 else digits * EXACT_TENS[e]
    elif plain_number(p, n, text):
        value[0] = canal_strtod(text, &end)
        if end != text + n:
            return False
    elif n in (3, 8) and (memcmp(p, b"NaN", 3) == 0 or special(p, n) > 0):
        value[0] = special(p, n)
    else:
        return False
    if negative:
        value[0] = -value[0]
    return True


cdef bint read_float(const uint8_t* p, size_t n, float* value) noexcept nogil:
    cdef char[NUMBER_BYTES_MAX] text
    cdef char* end
    cdef uint64_t digits
    cdef int e
    cdef float whole
    cdef bint negative = n > 0 and p[0] == 45
    if negative:
        p += 1
        n -= 1
    if split_number(p, n, &digits, &e) and digits <= 1 << 24 and -10 <= e <= 10:
        whole = <float>digits
        value[0] = whole / EXACT_TENS_F[-e] if e < 0 else whole * EXACT_TENS_F[e]
    elif plain_number(p, n, text):
        value[0] = canal_strtof(text, &end)
        if end != text + n:
            return False
    elif n in (3, 8) and (memcmp(p, b"NaN", 3) == 0 or special(p, n) > 0):
        value[0] = <float>special(p, n)
    else:
        return False
    if negative:
        value[0] = -value[0]
    return True


# --- dates ------------------------------------------------------------------------

cdef inline bint two_digits(const uint8_t* p, uint32_t* value) noexcept nogil:
    cdef uint32_t high = <uint32_t>p[0] - 48
    cdef uint32_t low = <uint32_t>p[1] - 48
    value[0] = high * 10 + low
    return high <= 9 and low <= 9


cdef inline uint32_t days_of(uint32_t year, uint32_t month) noexcept nogil:
    if month == 2:
        return 28 + (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    return 30 + ((month + month // 8) & 1)


cdef Moment read_date(const uint8_t* p, size_t n, int32_t* days) noexcept nogil:
    """Read yyyy-mm-dd. Invalid days of the Gregorian calendar are MOMENT_NONE."""
    cdef uint32_t century, year, month, day, shifted, era, of_era, of_year
    if n != 10 or p[4] != 45 or p[7] != 45:
        return MOMENT_BROKEN
    if not (two_digits(p, &century) and two_digits(p + 2, &year)
            and two_digits(p + 5, &month) and two_digits(p + 8, &day)):
        return MOMENT_BROKEN
    year += century * 100
    if year == 0 or month == 0 or month > 12 or day == 0 or day > days_of(year, month):
        return MOMENT_NONE
    # By eras of 400 years that begin on March 1st, as in `put_timestamp`.
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    days[0] = <int32_t>(era * 146097 + of_era * 365 + of_era // 4 - of_era // 100
                        + of_year) - DAYS_TO_1970
    return MOMENT_OK


cdef Moment read_datetime(const uint8_t* p, size_t n, int64_t* us) noexcept nogil:
    """Read yyyy-mm-dd hh:mm:ss and up to six digits of a second."""
    cdef uint32_t hour, minute, second
    cdef uint32_t fraction = 0
    cdef int32_t days = 0
    cdef Moment found
    cdef size_t i
    if n < 19 or n == 20 or n > 26 or p[10] != 32 or p[13] != 58 or p[16] != 58:
        return MOMENT_BROKEN
    found = read_date(p, 10, &days)
    if not (two_digits(p + 11, &hour) and two_digits(p + 14, &minute)
            and two_digits(p + 17, &second)):
        return MOMENT_BROKEN
    if hour > 23 or minute > 59 or second > 59:
        return MOMENT_BROKEN
    if n > 19:
        if p[19] != 46:
            return MOMENT_BROKEN
        for i in range(20, 26):
            fraction *= 10
            if i < n:
                if not 48 <= p[i] <= 57:
                    return MOMENT_BROKEN
                fraction += p[i] - 48
    us[0] = ((<int64_t>days * 86400 + hour * 3600 + minute * 60 + second) * US
             + fraction)
    return found


# --- text -------------------------------------------------------------------------

cdef int64_t put_latin1(uint8_t* to, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint8_t* start = to
    cdef uint64_t word
    cdef size_t i = 0
    while i < n:
        if i + 8 <= n:
            memcpy(&word, p + i, 8)
            if word & 0x8080808080808080ULL == 0:
                memcpy(to, &word, 8)
                to += 8
                i += 8
                continue
        if p[i] < 128:
            to[0] = p[i]
            i += 1
        elif (p[i] == 0xC2 or p[i] == 0xC3) and i + 1 < n and p[i + 1] >> 6 == 2:
            to[0] = <uint8_t>(p[i] << 6 | p[i + 1] & 63)
            i += 2
        else:
            return -1
        to += 1
    return to - start


cdef bint is_utf8(const uint8_t* p, size_t n) noexcept nogil:
    return valid_utf8(p, n) == n


# --- for tests --------------------------------------------------------------------

def read_as(str kind, bytes text, int a=0, int b=0):
    """Return the value that a reader reads from a text; None if it is invalid."""
    cdef int64_t number
    cdef uint64_t natural
    cdef i128 wide
    cdef double double_value
    cdef float float_value
    cdef int32_t days
    cdef const uint8_t* p = text
    cdef size_t n = len(text)
    cdef Moment found
    if kind == "int":
        return number if read_i64(p, n, &number) else None
    if kind == "unsigned":
        return natural if read_u64(p, n, &natural) else None
    if kind == "decimal":
        if not read_decimal(p, n, a, b, &wide):
            return None
        return (int(<int64_t>(wide >> 64)) << 64) + <uint64_t>wide
    if kind == "double":
        return double_value if read_double(p, n, &double_value) else None
    if kind == "float":
        return float_value if read_float(p, n, &float_value) else None
    if kind == "date":
        found = read_date(p, n, &days)
        return days if found == MOMENT_OK else ("none" if found == MOMENT_NONE else None)
    if kind == "datetime":
        found = read_datetime(p, n, &number)
        return number if found == MOMENT_OK else (
            "none" if found == MOMENT_NONE else None)
    raise ValueError(f"no reader of {kind}")
