# cython: language_level=3
"""Values of a column that had another type when they were written; see the .pyx."""

from libc.stdint cimport uint8_t

from canal_server.core.entry_wire cimport Slice

cdef enum:
    CONVERTED_BYTES_MAX = 256

cdef enum:
    # How to read an entry's text.
    READ_PLAIN = 0
    READ_ENUM           # labels; for kinds that are texts
    READ_SET
    READ_CONVERTED      # from here on `convert` makes a text of the kind first
    READ_DIGITS = READ_CONVERTED  # a number to one of decimal digits
    READ_OF_FLOAT       # a FLOAT to decimal digits
    READ_OF_DOUBLE      # a DOUBLE to decimal digits
    READ_AS_FLOAT       # decimal digits to a FLOAT
    READ_AS_DOUBLE      # decimal digits to a DOUBLE
    READ_WIDENED        # a FLOAT to a DOUBLE
    READ_NARROWED       # a DOUBLE to a FLOAT
    READ_MIDNIGHT       # a DATE to a DATETIME
    READ_DAY            # a DATETIME to a DATE
    READ_DAY_TEXT       # a text to a DATE
    READ_MOMENT_TEXT    # a text to a DATETIME
    READ_JSON           # a document; see `convert`
    READ_NEVER          # one type determines nothing of the other

# Returns the text for the kind's own reader, which is the value itself or in `room` of
# CONVERTED_BYTES_MAX; false if the kind has no such value.
cdef bint convert(int reading, Slice value, uint8_t* room, Slice* found) noexcept nogil
