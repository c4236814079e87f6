# cython: language_level=3, cdivision=True
"""Values of a column that had another type when they were written.

A stream has one type per column, that at its start. A value that was written when the
table had another type is accepted if the stream's type can hold exactly that value, and
is rejected otherwise: nothing is rounded or truncated. Equality of numbers is decided

    decimal digits -> FLOAT, DOUBLE     by the text that the number would have there, or
                                        by its integer value: 0.1 is 0.1
    FLOAT, DOUBLE -> decimal digits     in the same way
    DOUBLE -> FLOAT                     by its bits: 0.1 is not the FLOAT 0.1

All conversions work on texts, as such rows are rare: the kind's own reader reads the
resulting text. `type_pairs` decides how each pair is read.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

from canal_server.arrow.text_values cimport (
    MOMENT_OK, i128, read_date, read_datetime, read_double, read_float, u128,
)
from canal_server.decoder.text.number_text cimport put_double, put_float

READINGS = {
    "plain": READ_PLAIN, "digits": READ_DIGITS, "of float": READ_OF_FLOAT,
    "of double": READ_OF_DOUBLE, "as float": READ_AS_FLOAT,
    "as double": READ_AS_DOUBLE, "widened": READ_WIDENED, "narrowed": READ_NARROWED,
    "midnight": READ_MIDNIGHT, "day": READ_DAY, "day text": READ_DAY_TEXT,
    "moment text": READ_MOMENT_TEXT, "json": READ_JSON, "never": READ_NEVER,
}

cdef enum:
    DIGITS_MAX = 80      # per number; MySQL's DECIMAL has 65
    NUMBER_BYTES_MAX = 400
    DATE_BYTES = 10
    DATETIME_BYTES = 19  # without fractions of a second

cdef const uint8_t* JSON_NULL = b"null"
cdef double WHOLE_MAX = 1e38  # limit of integers in 128 bits
cdef double FLOAT_MAX = 3.4028234663852886e38

cdef struct Number:
    # digits * 10 ** exponent; without leading or trailing zeros. Zero has no digits.
    bint negative
    uint8_t[DIGITS_MAX] digits
    int count
    int exponent


cdef bint convert(int reading, Slice value, uint8_t* room, Slice* found) noexcept nogil:
    cdef Number number
    cdef float float_value
    cdef double double_value
    if reading == READ_JSON:
        # ALTER TABLE … ADD … JSON NOT NULL gives rows a document of no bytes, which
        # MySQL shows as null, and entries as an empty text.
        found[0] = value
        if value.n == 0:
            found.p, found.n = JSON_NULL, 4
        return True
    found.p = room
    if reading == READ_DIGITS:
        return parse(value.p, value.n, &number) and put_plain(&number, room, found)
    if reading == READ_OF_DOUBLE:
        return (read_double(value.p, value.n, &double_value)
                and put_floating_digits(value, double_value, room, found))
    if reading == READ_OF_FLOAT:
        return (read_float(value.p, value.n, &float_value)
                and put_floating_digits(value, float_value, room, found))
    if reading == READ_AS_DOUBLE:
        if not read_double(value.p, value.n, &double_value):
            return False
        found.n = put_double(room, double_value)
        return is_same(value, found[0], double_value)
    if reading == READ_AS_FLOAT:
        if not read_float(value.p, value.n, &float_value):
            return False
        found.n = put_float(room, float_value)
        return is_same(value, found[0], float_value)
    if reading == READ_WIDENED:
        if not read_float(value.p, value.n, &float_value):
            return False
        found.n = put_double(room, float_value)
        return True
    if reading == READ_NARROWED:
        if not read_double(value.p, value.n, &double_value):
            return False
        if not -FLOAT_MAX <= double_value <= FLOAT_MAX:
            return False
        float_value = <float>double_value
        found.n = put_float(room, float_value)
        return <double>float_value == double_value
    return convert_moment(reading, value, room, found)


# --- numbers ----------------------------------------------------------------------

cdef bint parse(const uint8_t* p, size_t n, Number* number) noexcept nogil:
    """Read a number with a point, or with an exponent in canal's notation."""
    cdef size_t i
    cdef int fraction = 0       # digits after the point
    cdef int pending = 0        # zeros that are digits if another digit follows
    cdef bint seen_point = False
    cdef bint seen_digit = False
    memset(number, 0, sizeof(Number))
    if n > NUMBER_BYTES_MAX:
        return False
    number.negative = n > 0 and p[0] == 45
    i = number.negative
    while i < n and p[i] != 69:
        if p[i] == 46 and not seen_point:
            seen_point = True
        elif 48 <= p[i] <= 57:
            seen_digit = True
            fraction += seen_point
            if p[i] == 48:
                pending += number.count > 0
            elif number.count + pending >= DIGITS_MAX:
                return False
            else:
                memset(number.digits + number.count, 48, pending)
                number.count += pending + 1
                number.digits[number.count - 1] = p[i]
                pending = 0
        else:
            return False
        i += 1
    number.exponent = pending - fraction
    if not seen_digit:
        return False
    return i == n or add_exponent(p + i + 1, n - i - 1, number)


cdef bint add_exponent(const uint8_t* p, size_t n, Number* number) noexcept nogil:
    cdef size_t i
    cdef int given = 0
    cdef bint negative = n > 0 and p[0] == 45
    if n <= <size_t>negative or n > 4:
        return False
    for i in range(negative, n):
        if not 48 <= p[i] <= 57:
            return False
        given = given * 10 + p[i] - 48
    number.exponent += -given if negative else given
    return True


cdef bint put_plain(const Number* number, uint8_t* room, Slice* found) noexcept nogil:
    """Write a number without exponent, and with a point only if needed."""
    cdef uint8_t* to = room
    cdef int whole = number.count + number.exponent  # digits before the point
    cdef int i
    if number.count == 0:
        room[0] = 48
        found.n = 1
        return True
    if whole > DIGITS_MAX or number.exponent < -DIGITS_MAX:
        return False
    if number.negative:
        to[0] = 45
        to += 1
    if whole <= 0:
        to[0] = 48
        to += 1
    for i in range(min(0, whole), max(number.count, whole)):
        if i == whole:
            to[0] = 46
            to += 1
        to[0] = number.digits[i] if 0 <= i < number.count else 48
        to += 1
    found.n = to - room
    return True


cdef bint put_floating_digits(Slice value, double read, uint8_t* room,
                              Slice* found) noexcept nogil:
    """Write the decimal digits of a FLOAT or a DOUBLE; all digits of an integer."""
    cdef Number number
    cdef i128 whole
    if -WHOLE_MAX < read < WHOLE_MAX:
        whole = <i128>read
        if <double>whole == read:
            found.n = put_whole(whole, room)
            return True
        return parse(value.p, value.n, &number) and put_plain(&number, room, found)
    return False


cdef size_t put_whole(i128 value, uint8_t* room) noexcept nogil:
    cdef uint8_t[40] digits
    cdef u128 rest = <u128>(-value if value < 0 else value)
    cdef size_t n = 0
    cdef size_t negative = value < 0
    while rest or n == 0:
        digits[39 - n] = <uint8_t>(48 + <int>(rest % 10))
        rest = rest // 10
        n += 1
    room[0] = 45
    memcpy(room + negative, digits + 40 - n, n)
    return n + negative


cdef bint is_same(Slice value, Slice text, double read) noexcept nogil:
    """Check whether a decimal equals the converted number, as text or integer."""
    cdef Number given, made
    cdef uint8_t[CONVERTED_BYTES_MAX] room
    cdef uint8_t[CONVERTED_BYTES_MAX] whole_room
    cdef Slice plain
    cdef i128 whole
    if not parse(value.p, value.n, &given):
        return False
    if parse(text.p, text.n, &made) and is_equal(&given, &made):
        return True
    if not -WHOLE_MAX < read < WHOLE_MAX:
        return False
    whole = <i128>read
    plain.p = room
    return (<double>whole == read and put_plain(&given, room, &plain)
            and put_whole(whole, whole_room) == plain.n
            and memcmp(room, whole_room, plain.n) == 0)


cdef bint is_equal(const Number* a, const Number* b) noexcept nogil:
    if a.count == 0 or b.count == 0:
        return a.count == b.count
    return (a.negative == b.negative and a.count == b.count
            and a.exponent == b.exponent
            and memcmp(a.digits, b.digits, a.count) == 0)


# --- dates and times --------------------------------------------------------------

cdef bint convert_moment(int reading, Slice value, uint8_t* room,
                         Slice* found) noexcept nogil:
    """Write a DATE as a DATETIME, and the reverse at midnight."""
    cdef int32_t days
    cdef int64_t us
    cdef size_t i
    found[0] = value
    if reading == READ_MIDNIGHT:
        if value.n != DATE_BYTES:
            return False
        memcpy(room, value.p, DATE_BYTES)
        memcpy(room + DATE_BYTES, b" 00:00:00", DATETIME_BYTES - DATE_BYTES)
        found.p, found.n = room, DATETIME_BYTES
        return True
    if reading == READ_DAY:
        if (value.n < DATETIME_BYTES or memcmp(
                value.p + DATE_BYTES, b" 00:00:00", DATETIME_BYTES - DATE_BYTES) != 0):
            return False
        for i in range(DATETIME_BYTES, value.n):
            if value.p[i] != (46 if i == DATETIME_BYTES else 48):
                return False
        found.n = DATE_BYTES
        return True
    # A text that is not a valid date is rejected, even if zero dates become NULL.
    if reading == READ_DAY_TEXT:
        return read_date(value.p, value.n, &days) == MOMENT_OK
    if reading == READ_MOMENT_TEXT:
        return read_datetime(value.p, value.n, &us) == MOMENT_OK
    return False


# --- for tests --------------------------------------------------------------------

def converted(str reading, bytes text):
    """Return the converted text of a value; None if there is no such value."""
    cdef uint8_t[CONVERTED_BYTES_MAX] room
    cdef Slice value, found
    value.p, value.n = text, len(text)
    found.p, found.n = NULL, 0
    if not convert(READINGS[reading], value, room, &found):
        return None
    return found.p[:found.n]
