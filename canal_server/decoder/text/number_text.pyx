# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Text of integers, floating point numbers and packed decimals.

Floating point numbers are written as in Java: the shortest digits that read back as the
same number, and of those the closest. The algorithm is Raffaello Giulietti's ("The
Schubfach way to render doubles"): one 128-bit multiplication by a power of ten for the
number and for each end of its rounding interval, then a choice among four candidates.
Decimals follow canal: see `put_decimal`.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

cdef extern from *:
    """
    typedef unsigned __int128 canal_u128;
    """
    ctypedef unsigned long long u128 "canal_u128"

cdef struct Power:
    uint64_t high
    uint64_t low

# 10^e for POWER_MIN <= e <= POWER_MAX, scaled to 128 bits and rounded up.
cdef enum:
    POWER_MIN = -292
    POWER_MAX = 324

cdef Power[POWER_MAX - POWER_MIN + 1] powers


def _fill_powers():
    for e in range(POWER_MIN, POWER_MAX + 1):
        if e >= 0:
            number = 10**e
            shift = number.bit_length() - 128
            g = -(-number >> shift) if shift > 0 else number << -shift
        else:
            divisor = 10**-e
            # The quotient has 128 bits: 2^(bits + 127) / divisor, rounded up.
            g = -(-(1 << (divisor.bit_length() + 127)) // divisor)
        powers[e - POWER_MIN].high = g >> 64
        powers[e - POWER_MIN].low = g & 0xFFFFFFFFFFFFFFFF


_fill_powers()


cdef int log10_pow2(int e) noexcept nogil:
    """Floor of log10(2^e), for |e| <= 1500."""
    return (e * 1262611) >> 22


cdef int log10_three_quarters_pow2(int e) noexcept nogil:
    """Floor of log10(3/4 * 2^e), for |e| <= 1500."""
    return (e * 1262611 - 524031) >> 22


cdef int log2_pow10(int e) noexcept nogil:
    """Floor of log2(10^e), for |e| <= 1233."""
    return (e * 1741647) >> 19


cdef uint64_t round_to_odd(Power g, uint64_t factor) noexcept nogil:
    """Return the high 64 bits of the product; the lowest is set if bits were lost."""
    cdef u128 low = <u128>g.low * factor
    cdef u128 sum = <u128>g.high * factor + <uint64_t>(low >> 64)
    # g is rounded up, so an exact product may have a 1 here.
    return <uint64_t>(sum >> 64) | (<uint64_t>sum > 1)


cdef uint64_t shortest(uint64_t c, int q, bint uneven, int* exponent) noexcept nogil:
    """Return d, with exponent k: d * 10^k is the shortest decimal for c * 2^q.

    `uneven`: the number below is only half as far away as the one above.
    """
    cdef uint64_t odd = c & 1
    cdef int k = log10_three_quarters_pow2(q) if uneven else log10_pow2(q)
    cdef int h = q + log2_pow10(-k) + 1
    cdef Power g = powers[-k - POWER_MIN]
    cdef uint64_t lower = round_to_odd(g, ((c << 2) - (1 if uneven else 2)) << h) + odd
    cdef uint64_t value = round_to_odd(g, (c << 2) << h)
    cdef uint64_t upper = round_to_odd(g, ((c << 2) + 2) << h) - odd
    cdef uint64_t s = value >> 2
    cdef uint64_t tens
    cdef bint below_fits, above_fits
    exponent[0] = k
    # At least two digits are always shown, so shortening two to one has no effect.
    if s >= 100:
        tens = s // 10 * 10
        below_fits = lower <= tens << 2
        above_fits = (tens + 10) << 2 <= upper
        if below_fits != above_fits:
            return tens if below_fits else tens + 10
    below_fits = lower <= s << 2
    above_fits = (s + 1) << 2 <= upper
    if below_fits != above_fits:
        return s if below_fits else s + 1
    # Both or none: the closer one, the even one when they are equally close.
    tens = (s << 2) + 2
    if value < tens or (value == tens and s & 1 == 0):
        return s
    return s + 1


cdef int put_shortest(uint8_t* p, uint64_t d, int k) noexcept nogil:
    """Write d * 10^k > 0 in the layout of Java; returns the length."""
    cdef uint8_t[24] digits
    cdef uint8_t* start = p
    cdef int n, point
    while d % 10 == 0:
        d //= 10
        k += 1
    n = <int>(put_u64(digits, d) - digits)
    point = n + k  # the decimal point's index among the digits
    if 0 < point <= 7:
        if n <= point:
            memcpy(p, digits, n)
            memset(p + n, 48, point - n)
            p += point
            p[0], p[1] = 46, 48
            return <int>(p + 2 - start)
        memcpy(p, digits, point)
        p[point] = 46
        memcpy(p + point + 1, digits + point, n - point)
        return n + 1
    if -3 < point <= 0:
        p[0], p[1] = 48, 46
        memset(p + 2, 48, -point)
        memcpy(p + 2 - point, digits, n)
        return 2 - point + n
    p[0], p[1], p[2] = digits[0], 46, 48
    if n > 1:
        memcpy(p + 2, digits + 1, n - 1)
        p += n + 1
    else:
        p += 3
    p[0] = 69
    return <int>(put_i64(p + 1, point - 1) - start)


cdef int put_special(uint8_t* p, bint nan, bint zero, bint negative) noexcept nogil:
    """Write NaN, an infinity or a zero."""
    if nan:
        memcpy(p, b"NaN", 3)
        return 3
    if negative:
        p[0] = 45
    memcpy(p + negative, b"0.0" if zero else b"Infinity", 3 if zero else 8)
    return negative + (3 if zero else 8)


cdef inline int put_binary(uint8_t* p, double v, uint64_t bits, int fraction_bits,
                           int biased_max, int least, uint64_t few) noexcept nogil:
    """Write v, whose bits are given with their layout; returns the length.

    `least`: 2^least is the smallest number above zero; numbers of fewer than `few` of
    these have a single digit.
    """
    cdef uint64_t unit = <uint64_t>1 << fraction_bits
    cdef uint64_t c = bits & (unit - 1)
    cdef int head = <int>(bits >> fraction_bits)
    cdef int biased = head & biased_max
    cdef bint negative = head > biased_max
    cdef uint64_t d
    cdef int k = 0
    if biased == biased_max:
        return put_special(p, c != 0, False, negative)
    if biased == 0 and c == 0:
        return put_special(p, False, True, negative)
    if negative:
        p[0] = 45
        p += 1
        v = -v
    if 1 <= v < 1e7 and v == <double><uint32_t>v:  # faster for integers
        d = <uint32_t>v
    elif biased == 0 and c < few:
        d = shortest(10 * c, least, False, &k)  # gives Java's two digits
        k -= 1
    elif biased == 0:
        d = shortest(c, least, False, &k)
    else:
        d = shortest(c | unit, least + biased - 1, c == 0 and biased > 1, &k)
    return put_shortest(p, d, k) + negative


cdef int put_double(uint8_t* p, double v) noexcept nogil:
    """Write v as Java's Double.toString; returns the length."""
    cdef uint64_t bits
    memcpy(&bits, &v, 8)
    return put_binary(p, v, bits, 52, 0x7FF, -1074, 3)


cdef int put_float(uint8_t* p, float v) noexcept nogil:
    """Write v as Java's Float.toString; returns the length."""
    cdef uint32_t bits
    memcpy(&bits, &v, 4)
    return put_binary(p, v, bits, 23, 0xFF, -149, 8)


cdef int group_size(int digits) noexcept nogil:
    """Size of a packed group of 0 to 9 digits."""
    return (digits + 1) // 2 if digits < 9 else 4


cdef int side_size(int digits) noexcept nogil:
    """Size of the digits on one side of the point."""
    return digits // 9 * 4 + group_size(digits % 9)


cdef int decimal_size(int precision, int scale) noexcept nogil:
    """Size of a packed decimal; -1 if no such type exists."""
    if not (0 < precision <= DECIMAL_PRECISION_MAX and 0 <= scale <= precision):
        return -1
    return side_size(precision - scale) + side_size(scale)


cdef int stored_decimal_size(int precision, int scale) noexcept nogil:
    """Size of a packed decimal in JSON; -1 if the server cannot produce it.

    It is not a column's type but a value that the server has calculated, in up to nine
    words of nine digits: 65 digits may be declared as 72.
    """
    if not (0 < precision and 0 <= scale <= precision):
        return -1
    if (precision - scale + 8) // 9 + (scale + 8) // 9 > DECIMAL_WORDS_MAX:
        return -1
    return side_size(precision - scale) + side_size(scale)


cdef uint32_t take_group(const uint8_t* p, int digits, int mask) noexcept nogil:
    """Read a packed group; a value with too many digits keeps the last ones."""
    cdef uint32_t value = 0
    cdef uint32_t limit = 1
    cdef int i
    for i in range(group_size(digits)):
        value = value << 8 | <uint8_t>(p[i] ^ mask)
    for i in range(digits):
        limit *= 10
    return value % limit


cdef uint8_t* put_whole(uint8_t* p, const uint8_t* packed, int digits,
                        int mask) noexcept nogil:
    """Write the integer part without leading zeros; nothing if it is zero."""
    cdef uint8_t* first = p
    cdef uint32_t value = take_group(packed, digits % 9, mask)
    cdef int groups
    if value:
        p = put_u32(p, value)
    packed += group_size(digits % 9)
    for groups in range(digits // 9):
        value = take_group(packed, 9, mask)
        packed += 4
        if p != first:
            p = put_fixed(p, value, 9)
        elif value:
            p = put_u32(p, value)
    return p


cdef int put_decimal(uint8_t* p, const uint8_t* packed, int precision,
                     int scale) noexcept nogil:
    """Write the `stored_decimal_size` bytes at packed; returns the length.

    The fraction's last group of less than nine digits is omitted if it is zero, and a
    fraction without any digit becomes one 0. Zero has no sign.
    """
    cdef uint8_t[4 * DECIMAL_WORDS_MAX] bytes
    cdef int size = stored_decimal_size(precision, scale)
    if size < 0:
        return 0
    memcpy(bytes, packed, size)
    cdef bint negative = not bytes[0] & 0x80
    cdef int mask = 0xFF if negative else 0
    bytes[0] ^= 0x80
    cdef const uint8_t* source = bytes + side_size(precision - scale)
    cdef uint8_t* first = p + 1  # after the room for a sign
    cdef uint8_t* q = put_whole(first, bytes, precision - scale, mask)
    cdef bint nonzero = q != first
    cdef uint32_t value
    cdef int groups
    if not nonzero:
        q[0] = 48
        q += 1
    if scale:
        q[0] = 46
        q += 1
        for groups in range(scale // 9):
            value = take_group(source, 9, mask)
            source += 4
            nonzero |= value != 0
            q = put_fixed(q, value, 9)
        value = take_group(source, scale % 9, mask)
        nonzero |= value != 0
        if value:
            q = put_fixed(q, value, scale % 9)
        elif scale < 9:
            q[0] = 48
            q += 1
    if negative and nonzero:
        p[0] = 45
        return <int>(q - p)
    memmove(p, first, q - first)
    return <int>(q - first)


def double_text(double value):
    """Return the text of a DOUBLE."""
    cdef uint8_t[FLOAT_TEXT_MAX] text
    return text[:put_double(text, value)].decode("ascii")


def float_text(float value):
    """Return the text of a FLOAT, the value rounded to 32 bits."""
    cdef uint8_t[FLOAT_TEXT_MAX] text
    return text[:put_float(text, value)].decode("ascii")


def unsigned_text(uint64_t value):
    """Return the text of an unsigned integer."""
    cdef uint8_t[20] text
    return text[:put_u64(text, value) - text].decode("ascii")


def signed_text(int64_t value):
    """Return the text of a signed integer."""
    cdef uint8_t[20] text
    return text[:put_i64(text, value) - text].decode("ascii")


def decimal_text(bytes packed, int precision, int scale):
    """Return the text of a packed decimal; ValueError for a wrong size.

    Precision and scale may be those of a value in JSON.
    """
    cdef uint8_t[DECIMAL_TEXT_MAX] text
    cdef const uint8_t* source = packed
    if len(packed) != stored_decimal_size(precision, scale):
        raise ValueError(f"{len(packed)} bytes for a decimal({precision},{scale})")
    return text[:put_decimal(text, source, precision, scale)].decode("ascii")
