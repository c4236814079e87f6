# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Values of columns in JSON, from the texts that entries have.

What forms of messages share: numbers, bytes in base64, labels of ENUM and SET, moments
in UTC. Which column is written in which way is left to the forms.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from canal_server.arrow.text_values cimport (
    DECIMAL_DIGITS_MAX, MOMENT_BROKEN, MOMENT_NONE, MOMENT_OK, Moment, i128, is_utf8,
    put_latin1, put_padded_decimal, read_datetime, read_decimal, read_u64,
)
from canal_server.core.digits cimport put_fixed, put_pair
from canal_server.core.json_text cimport put, put_number, put_string, reserve
from canal_server.decoder.text.number_text cimport FLOAT_TEXT_MAX, put_float

cdef enum:
    US = 1000000
    DAYS_TO_1970 = 719468       # from 0000-03-01
    DIGITS_MAX = 130            # of a number, its point included
    LIMBS = 18                  # of 32 bits, for DIGITS_MAX and 38 more digits
    TIME_HOURS_MAX = 1000


cdef void put_text(Text* out, Slice value) noexcept nogil:
    if is_utf8(value.p, value.n):
        put_string(out, value)
    else:
        out.bad = True


cdef void put_digits(Text* out, Slice value) noexcept nogil:
    """Append an integer; without zeros before it."""
    cdef size_t at = value.n > 0 and value.p[0] == 45
    cdef size_t begin = at
    cdef size_t i
    for i in range(at, value.n):
        if not 48 <= value.p[i] <= 57:
            out.bad = True
            return
    if at == value.n or value.n > DIGITS_MAX:
        out.bad = True
        return
    while at + 1 < value.n and value.p[at] == 48:
        at += 1
    put(out, value.p, begin)
    put(out, value.p + at, value.n - at)


cdef void put_floating(Text* out, Slice value) noexcept nogil:
    """Append a number as Java writes it, which JSON can have; null for NaN."""
    cdef size_t i
    cdef bint seen = False
    cdef uint8_t c
    if value.n and value.p[value.n - 1] in (78, 121):  # NaN, Infinity
        put(out, b"null", 4)
        return
    for i in range(value.n):
        c = value.p[i]
        if 48 <= c <= 57:
            seen = True
        elif not (c == 45 and (i == 0 or value.p[i - 1] == 69)
                  or c in (46, 69) and seen and i + 1 < value.n and (
                      48 <= value.p[i - 1] <= 57)):
            out.bad = True
            return
    if not seen or not 48 <= value.p[value.n - 1] <= 57:
        out.bad = True
        return
    put(out, value.p, value.n)


cdef bint is_decimal(Slice value) noexcept nogil:
    cdef size_t i
    cdef size_t digits = 0
    cdef size_t points = 0
    for i in range(value.n):
        if 48 <= value.p[i] <= 57:
            digits += 1
        elif value.p[i] == 46 and digits and i + 1 < value.n:
            points += 1
        elif not (value.p[i] == 45 and i == 0):
            return False
    return digits > 0 and points <= 1 and value.n <= DIGITS_MAX


cdef bint exceeds_scale(Slice value, int scale) noexcept nogil:
    """Return whether more digits follow the point of a decimal than its type has."""
    cdef size_t at = 0
    while at < value.n and value.p[at] != 46:
        at += 1
    for at in range(at + 1 + scale, value.n):
        if value.p[at] != 48:
            return True
    return False


cdef void put_decimal(Text* out, const Plan* plan, Slice value) noexcept nogil:
    """Append a decimal with all digits of its column after the point, if not more."""
    if not is_decimal(value):
        out.bad = True
    elif exceeds_scale(value, plan.b):
        put(out, value.p, value.n)
    elif reserve(out, value.n + plan.b + 2):
        out.n = put_padded_decimal(out.p + out.n, value.p, value.n, plan.b) - out.p


cdef void put_decimal_bytes(Text* out, const Plan* plan, Slice value) noexcept nogil:
    """Append the unscaled number of a decimal, big-endian, in base64."""
    cdef uint8_t[UNSCALED_BYTES_MAX] made
    cdef int size = unscaled_bytes(made, plan, value)
    if size < 0:
        out.bad = True
    else:
        put_base64(out, made, size)


cdef int unscaled_bytes(uint8_t* made, const Plan* plan, Slice value) noexcept nogil:
    """Write the unscaled number of a decimal, in as few bytes as it and its sign need.

    It may have more digits than its type, but not more after the point: how many those
    are is known by the type alone.
    """
    cdef uint8_t[DIGITS_MAX + 64] digits
    cdef uint32_t[LIMBS] limbs
    cdef uint64_t carry
    cdef i128 number = 0
    cdef Slice text
    cdef int size, i, at
    cdef int used = 1
    cdef bint negative = value.n > 0 and value.p[0] == 45
    if not is_decimal(value) or exceeds_scale(value, plan.b):
        return -1
    if plan.a <= DECIMAL_DIGITS_MAX and (
            read_decimal(value.p, value.n, plan.a, plan.b, &number)):
        size = 16
        for i in range(size):
            made[size - 1 - i] = <uint8_t>(number >> (8 * i))
    else:
        text.p = digits
        text.n = put_padded_decimal(digits, value.p, value.n, plan.b) - digits
        memset(limbs, 0, sizeof(limbs))
        for at in range(<int>text.n):
            if digits[at] in (45, 46):
                continue
            carry = digits[at] - 48
            for i in range(used):
                carry += <uint64_t>limbs[i] * 10
                limbs[i] = <uint32_t>carry
                carry >>= 32
            if carry:  # never beyond all limbs, which have room for all digits
                limbs[used] = <uint32_t>carry
                used += 1
        if negative:  # two's complement
            carry = 1
            for i in range(LIMBS):
                carry += <uint32_t>~limbs[i]
                limbs[i] = <uint32_t>carry
                carry >>= 32
        size = 4 * LIMBS
        for i in range(size):
            made[size - 1 - i] = <uint8_t>(limbs[i // 4] >> (8 * (i % 4)))
    at = 0
    while at + 1 < size and (
            (made[at] == 0 and made[at + 1] < 128)
            or (made[at] == 255 and made[at + 1] >= 128)):
        at += 1
    memmove(made, made + at, size - at)
    return size - at


cdef void put_base64(Text* out, const uint8_t* p, size_t n) noexcept nogil:
    """Append bytes in base64, in quotes."""
    cdef const char* letters = (
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
    cdef uint8_t* to
    cdef uint32_t three
    cdef size_t i = 0
    if not reserve(out, (n + 2) // 3 * 4 + 2):
        return
    to = out.p + out.n
    to[0] = 34
    to += 1
    while i + 3 <= n:
        three = <uint32_t>p[i] << 16 | <uint32_t>p[i + 1] << 8 | p[i + 2]
        to[0], to[1] = letters[three >> 18], letters[three >> 12 & 63]
        to[2], to[3] = letters[three >> 6 & 63], letters[three & 63]
        to += 4
        i += 3
    if i < n:
        three = <uint32_t>p[i] << 16
        if i + 1 < n:
            three |= <uint32_t>p[i + 1] << 8
        to[0], to[1] = letters[three >> 18], letters[three >> 12 & 63]
        to[2], to[3] = letters[three >> 6 & 63] if i + 1 < n else 61, 61
        to += 4
    to[0] = 34
    out.n = to + 1 - out.p


cdef bint take_bytes(Text* scratch, Slice value, size_t filled) noexcept nogil:
    """Turn characters of ISO-8859-1 back into bytes; false for others."""
    cdef int64_t n
    scratch.n = 0
    if not reserve(scratch, value.n + filled):
        return False
    n = put_latin1(scratch.p, value.p, value.n)
    if n < 0:
        return False
    if <size_t>n < filled:
        memset(scratch.p + n, 0, filled - n)
        n = filled
    scratch.n = n
    return True


cdef void put_bytes(Text* out, Text* scratch, const Plan* plan, Slice value) noexcept nogil:
    if take_bytes(scratch, value, plan.filled):
        put_base64(out, scratch.p, scratch.n)
    else:
        out.bad = True


cdef void put_bits(Text* out, const Plan* plan, Slice value) noexcept nogil:
    """Append the bytes of a BIT, the lowest first, in base64."""
    cdef uint8_t[8] made
    cdef int size = bytes_of_bits(made, plan, value)
    if size < 0:
        out.bad = True
    else:
        put_base64(out, made, size)


cdef int bytes_of_bits(uint8_t* made, const Plan* plan, Slice value) noexcept nogil:
    cdef uint64_t bits
    cdef int i
    cdef int size = (plan.a + 7) // 8
    if not read_u64(value.p, value.n, &bits) or not 0 < size <= 8:
        return -1
    for i in range(size):
        made[i] = <uint8_t>(bits >> (8 * i))
    return size


cdef Labeled label_of(const Plan* plan, Slice value, Slice* label) noexcept nogil:
    """Find the label of an ENUM, which is empty for the invalid value 0."""
    cdef uint64_t number
    label.p, label.n = b"", 0
    if not read_u64(value.p, value.n, &number) or plan.labels == NULL:
        return LABEL_BROKEN
    if number > plan.labels.count:
        return LABEL_NONE
    if number == 0:
        return LABEL_INVALID
    label[0] = plan.labels.labels[number - 1]
    return LABEL_FOUND


cdef Labeled bits_of_labels(const Plan* plan, Slice value, uint64_t* bits) noexcept nogil:
    """Read which labels a SET has."""
    if not read_u64(value.p, value.n, bits) or plan.labels == NULL:
        return LABEL_BROKEN
    if plan.labels.count < 64 and bits[0] >> plan.labels.count:
        return LABEL_NONE
    return LABEL_FOUND


cdef void put_label(Text* out, const Plan* plan, Slice value,
                    bint null_if_none) noexcept nogil:
    """Append the label of an ENUM; 0 is an invalid value: null, or an empty text."""
    cdef Slice label
    cdef Labeled found = label_of(plan, value, &label)
    if found == LABEL_BROKEN:
        out.bad = True
    elif found == LABEL_NONE:
        put_unlabeled(out, plan, value)
    elif found == LABEL_INVALID and null_if_none:
        put(out, b"null", 4)
    else:
        put_string(out, label)


cdef void put_unlabeled(Text* out, const Plan* plan, Slice value) noexcept nogil:
    """Append null for a number whose labels the column's type does not have.

    In a key, the number as a text, so that rows keep different keys.
    """
    if not plan.is_key:
        put(out, b"null", 4)
        return
    put(out, b'"', 1)
    put_digits(out, value)
    put(out, b'"', 1)


cdef void put_labels(Text* out, const Plan* plan, Slice value, bint as_list) noexcept nogil:
    """Append the labels of a SET: a list of texts, or one text with commas."""
    cdef uint64_t bits
    cdef size_t at, i
    cdef bint is_first = True
    cdef Labeled found = bits_of_labels(plan, value, &bits)
    if found == LABEL_BROKEN:
        out.bad = True
        return
    if found == LABEL_NONE:
        put_unlabeled(out, plan, value)
        return
    put(out, b"[" if as_list else b'"', 1)
    for i in range(min(<size_t>64, plan.labels.count)):
        if not bits >> i & 1:
            continue
        if not is_first:
            put(out, b",", 1)
        is_first = False
        at = out.n
        put_string(out, plan.labels.labels[i])
        if not as_list and not out.failed:  # without its quotes
            memcpy_down(out.p + at, out.n - at)
            out.n -= 2
    put(out, b"]" if as_list else b'"', 1)


cdef void memcpy_down(uint8_t* p, size_t n) noexcept nogil:
    """Move all but the first and the last byte down by one."""
    cdef size_t i
    for i in range(n - 2):
        p[i] = p[i + 1]


cdef void put_document(Text* out, Slice value) noexcept nogil:
    """Append a document of JSON; another text, such as JSON_SET(…), in quotes.

    Of a partial update of a row, the value is an expression of functions.
    """
    if value.n == 0:
        put(out, b"null", 4)
    elif value.p[0] == 74:
        put_text(out, value)
    elif is_utf8(value.p, value.n):
        put(out, value.p, value.n)
    else:
        out.bad = True


cdef void put_vector(Text* out, Text* scratch, Slice value) noexcept nogil:
    """Append the numbers of a VECTOR, each of which has four bytes."""
    cdef float number
    cdef size_t i
    if not take_bytes(scratch, value, 0) or scratch.n % 4:
        out.bad = True
        return
    put(out, b"[", 1)
    for i in range(scratch.n // 4):
        memcpy(&number, scratch.p + 4 * i, 4)
        if i:
            put(out, b",", 1)
        if reserve(out, FLOAT_TEXT_MAX):
            out.n += put_float(out.p + out.n, number)
    put(out, b"]", 1)


# --- moments --------------------------------------------------------------------------

cdef bint put_utc(Text* out, Slice value, const LocalZone* zone, bint iso) noexcept nogil:
    cdef size_t n = 0
    cdef Moment found
    if not reserve(out, MOMENT_BYTES_MAX + 2):
        return True
    found = write_utc(out.p + out.n + 1, &n, value, zone, iso)
    if found == MOMENT_BROKEN:
        out.bad = True
        return True
    if found == MOMENT_NONE:
        if not iso:
            put_text(out, value)
        return not iso
    out.p[out.n] = out.p[out.n + n + 1] = 34
    out.n += n + 2
    return True


cdef Moment write_utc(uint8_t* to, size_t* n, Slice value, const LocalZone* zone,
                      bint iso) noexcept nogil:
    """Write a moment in UTC, unless it is none; `to` has room for MOMENT_BYTES_MAX."""
    cdef int64_t us, second
    cdef uint8_t* begin = to
    cdef size_t digits = value.n - 20 if value.n > 20 else 0
    cdef Moment found = read_datetime(value.p, value.n, &us)
    if found != MOMENT_OK:
        return found
    second = us // US - (us % US < 0)
    if zone.count:
        second -= offset_at(zone, second)
    to = put_day(to, second // 86400 - (second % 86400 < 0))
    second = (second % 86400 + 86400) % 86400
    to[0] = 84 if iso else 32
    to = put_pair(to + 1, <uint32_t>(second // 3600))
    to[0] = 58
    to = put_pair(to + 1, <uint32_t>(second // 60 % 60))
    to[0] = 58
    to = put_pair(to + 1, <uint32_t>(second % 60))
    if digits:
        memcpy(to, value.p + 19, digits + 1)
        to += digits + 1
    if iso:
        to[0] = 90
        to += 1
    n[0] = to - begin
    return MOMENT_OK


cdef int64_t offset_at(const LocalZone* zone, int64_t second) noexcept nogil:
    """Return the seconds east of UTC at a moment of local time."""
    cdef size_t low = 0
    cdef size_t high = zone.count
    cdef size_t middle
    while high - low > 1:
        middle = (low + high) // 2
        if zone.steps[2 * middle] <= second:
            low = middle
        else:
            high = middle
    return zone.steps[2 * low + 1]


cdef uint8_t* put_day(uint8_t* to, int64_t days) noexcept nogil:
    """Write yyyy-mm-dd of days since 1970, of years from 0 to 9999."""
    # By eras of 400 years that begin on March 1st, as `read_date` counts.
    cdef int64_t shifted = days + DAYS_TO_1970
    cdef int64_t era = shifted // 146097 - (shifted % 146097 < 0)
    cdef uint32_t of_era = <uint32_t>(shifted - era * 146097)
    cdef uint32_t year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    cdef uint32_t of_year = of_era - (365 * year + year // 4 - year // 100)
    cdef uint32_t month = (5 * of_year + 2) // 153
    cdef uint32_t day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    to = put_fixed(to, <uint32_t>(era * 400 + year + (month <= 2)), 4)
    to[0] = 45
    to = put_pair(to + 1, month)
    to[0] = 45
    return put_pair(to + 1, day)


cdef bint read_time(Slice value, int64_t* us) noexcept nogil:
    """Read [-]hh:mm:ss and up to six digits of a second; hours up to three digits."""
    cdef size_t at = value.n > 0 and value.p[0] == 45
    cdef bint negative = at == 1
    cdef int64_t part = 0
    cdef int64_t whole = 0
    cdef int colons = 0
    cdef int digits = 0
    cdef uint8_t c
    while at < value.n and value.p[at] != 46:
        c = value.p[at]
        if c == 58:
            whole = whole * 60 + part
            part = 0
            colons += 1
        elif 48 <= c <= 57 and part < TIME_HOURS_MAX:
            part = part * 10 + c - 48
        else:
            return False
        at += 1
    if colons != 2:
        return False
    whole = whole * 60 + part
    part = 0
    at += 1
    while digits < 6:
        part *= 10
        if at < value.n:
            if not 48 <= value.p[at] <= 57:
                return False
            part += value.p[at] - 48
            at += 1
        digits += 1
    us[0] = whole * US + part
    if negative:
        us[0] = -us[0]
    return at >= value.n
