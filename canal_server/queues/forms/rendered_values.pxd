# cython: language_level=3
"""Values of columns in JSON; see rendered_values.pyx."""

from libc.stdint cimport int64_t, uint8_t

from canal_server.core.entry_wire cimport Slice
from canal_server.core.json_text cimport Text
from canal_server.queues.forms.column_plans cimport Plan

cdef enum:
    SQL_BLOB = 2004     # of java.sql.Types: bytes as ISO-8859-1

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
