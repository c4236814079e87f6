# cython: language_level=3
"""Values as Debezium maps them, before they are written; see debezium_values.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from canal_server.arrow.text_values cimport Moment
from canal_server.core.entry_wire cimport Slice
from canal_server.core.json_text cimport Text
from canal_server.queues.forms.column_plans cimport Plan

cdef enum:
    DECIMAL_PRECISE = 0         # the unscaled number, as bytes
    DECIMAL_STRING
    DECIMAL_DOUBLE

cdef struct Geometry:
    const uint8_t* wkb          # in the scratch that it was read into
    size_t n
    uint32_t srid               # 0: none
    double x                    # of a point
    double y

# Whether an unsigned number above 2^63 - 1 was read, as the signed one of 64 bits.
cdef bint read_wrapped(const Plan* plan, Slice value, int64_t* number) noexcept nogil
# A date in days, a DATETIME in ms or us since 1970, a TIME in us. MOMENT_NONE: null.
cdef Moment read_moment(const Plan* plan, Slice value, int64_t* number) noexcept nogil
# A geometry that is not empty; false for another text.
cdef bint read_geometry(Text* scratch, const Plan* plan, Slice value,
                        Geometry* found) noexcept nogil
cdef int decimals_of(str how) except -1
