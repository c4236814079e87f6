# cython: language_level=3
"""Text of numbers; see number_text.pyx.

Writers put no terminator and return the end of the text or its length. Required room:
20 bytes for an integer, FLOAT_TEXT_MAX and DECIMAL_TEXT_MAX for the others.
"""

from libc.stdint cimport uint8_t

from canal_server.core.digits cimport put_fixed, put_i64, put_pair, put_u32, put_u64

cdef enum:
    FLOAT_TEXT_MAX = 32
    DECIMAL_TEXT_MAX = 96
    DECIMAL_PRECISION_MAX = 65  # of a column
    DECIMAL_WORDS_MAX = 9       # of nine digits, with which the server calculates


cdef int put_double(uint8_t* p, double v) noexcept nogil
cdef int put_float(uint8_t* p, float v) noexcept nogil
cdef int decimal_size(int precision, int scale) noexcept nogil
cdef int stored_decimal_size(int precision, int scale) noexcept nogil
cdef int put_decimal(uint8_t* p, const uint8_t* packed, int precision,
                     int scale) noexcept nogil
