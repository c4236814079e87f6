# cython: language_level=3
"""Values of columns in JSON, and what is read for them; see rendered_values.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from canal_server.arrow.text_values cimport Moment
from canal_server.core.entry_wire cimport Slice
from canal_server.core.json_text cimport Text
from canal_server.queues.forms.column_plans cimport Plan

cdef enum:
    SQL_BLOB = 2004             # of java.sql.Types: bytes as ISO-8859-1
    UNSCALED_BYTES_MAX = 72     # of a decimal with all digits that are read
    MOMENT_BYTES_MAX = 40       # of a text in UTC

cdef enum Labeled:
    # What is known of the number of an ENUM or a SET.
    LABEL_FOUND = 0
    LABEL_INVALID = 1   # the value 0 of an ENUM
    LABEL_NONE = 2      # no label in the column's type, which may be that of another time
    LABEL_BROKEN = 3    # not a number, or no labels are known

cdef struct LocalZone:
    # Pairs of a local second and the seconds east of UTC from then on; none: UTC.
    int64_t* steps
    size_t count

# Each appends a value that is not NULL. A text that is no value of its kind is noted as
# `bad` of the text. `scratch` is overwritten. A number of an ENUM or a SET without labels
# in the column's type, which may be that of another time, is null.
cdef void put_text(Text* out, Slice value) noexcept nogil
cdef void put_digits(Text* out, Slice value) noexcept nogil
cdef void put_floating(Text* out, Slice value) noexcept nogil
cdef void put_decimal(Text* out, const Plan* plan, Slice value) noexcept nogil
cdef void put_decimal_bytes(Text* out, const Plan* plan, Slice value) noexcept nogil
cdef void put_base64(Text* out, const uint8_t* p, size_t n) noexcept nogil
# Bytes that were characters of ISO-8859-1, filled up as the column has it.
cdef void put_bytes(Text* out, Text* scratch, const Plan* plan, Slice value) noexcept nogil
cdef bint take_bytes(Text* scratch, Slice value, size_t filled) noexcept nogil
cdef void put_bits(Text* out, const Plan* plan, Slice value) noexcept nogil
cdef void put_label(Text* out, const Plan* plan, Slice value, bint null_if_none) noexcept nogil
cdef void put_labels(Text* out, const Plan* plan, Slice value, bint as_list) noexcept nogil
cdef void put_document(Text* out, Slice value) noexcept nogil
cdef void put_vector(Text* out, Text* scratch, Slice value) noexcept nogil
# In UTC, yyyy-mm-dd hh:mm:ss with as many digits of a second as the text has; `iso`: with
# T and Z. An invalid date is left as it is, or false: nothing is written, if `iso`.
cdef bint put_utc(Text* out, Slice value, const LocalZone* zone, bint iso) noexcept nogil
cdef bint read_time(Slice value, int64_t* us) noexcept nogil

# The same as plain values, for forms that are not JSON.
# How many bytes were written, of at most UNSCALED_BYTES_MAX; -1: not such a decimal.
cdef int unscaled_bytes(uint8_t* made, const Plan* plan, Slice value) noexcept nogil
# The same of a BIT, of at most 8, the lowest first.
cdef int bytes_of_bits(uint8_t* made, const Plan* plan, Slice value) noexcept nogil
cdef Labeled label_of(const Plan* plan, Slice value, Slice* label) noexcept nogil
cdef Labeled bits_of_labels(const Plan* plan, Slice value, uint64_t* bits) noexcept nogil
cdef Moment write_utc(uint8_t* to, size_t* n, Slice value, const LocalZone* zone,
                      bint iso) noexcept nogil
