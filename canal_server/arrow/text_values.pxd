# cython: language_level=3
"""Values of columns, read from the texts in entries."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    typedef unsigned __int128 canal_arrow_u128;
    typedef __int128 canal_arrow_i128;
    """
    ctypedef unsigned long long u128 "canal_arrow_u128"
    ctypedef long long i128 "canal_arrow_i128"

cdef enum:
    DECIMAL_DIGITS_MAX = 38  # in 128 bits

cdef enum Moment:
    # The result of reading a date, or a date and time.
    MOMENT_OK = 0
    MOMENT_NONE = 1   # valid form, invalid date: 0000-00-00
    MOMENT_BROKEN = 2

# Each returns whether the text is such a value.
cdef bint read_i64(const uint8_t* p, size_t n, int64_t* value) noexcept nogil
cdef bint read_u64(const uint8_t* p, size_t n, uint64_t* value) noexcept nogil
# In units of the last of `scale` digits; at most `precision` digits in all.
cdef bint read_decimal(const uint8_t* p, size_t n, int precision, int scale,
                       i128* value) noexcept nogil
cdef bint read_double(const uint8_t* p, size_t n, double* value) noexcept nogil
cdef bint read_float(const uint8_t* p, size_t n, float* value) noexcept nogil
# Days since 1970; microseconds since 1970-01-01 00:00:00.
cdef Moment read_date(const uint8_t* p, size_t n, int32_t* days) noexcept nogil
cdef Moment read_datetime(const uint8_t* p, size_t n, int64_t* us) noexcept nogil
# Writes the decimal with exactly `scale` digits; `to` has room for n + scale + 2.
cdef uint8_t* put_padded_decimal(uint8_t* to, const uint8_t* p, size_t n,
                                 int scale) noexcept nogil
# Turns code points below 256 back into bytes; `to` has room for n. -1 for others.
cdef int64_t put_latin1(uint8_t* to, const uint8_t* p, size_t n) noexcept nogil
cdef bint is_utf8(const uint8_t* p, size_t n) noexcept nogil
