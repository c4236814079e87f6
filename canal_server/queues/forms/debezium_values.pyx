# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Values as Debezium maps them: numbers of dates and times, geometries.

How they are written, in JSON or in Avro, is left to the forms.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from canal_server.arrow.text_values cimport (
    MOMENT_BROKEN, MOMENT_NONE, MOMENT_OK, Moment, read_date, read_datetime, read_u64,
)
from canal_server.core.entry_wire cimport Slice
from canal_server.core.json_text cimport Text
from canal_server.queues.forms.column_plans cimport KIND_DATE, KIND_TIME, Plan
from canal_server.queues.forms.geometry_text cimport read_point
from canal_server.queues.forms.rendered_values cimport read_time, take_bytes

cdef enum:
    SRID_BYTES = 4              # before the WKB of a geometry
    MS = 1000
    MILLISECOND_DIGITS = 3      # of a DATETIME in milliseconds


cdef int decimals_of(str how) except -1:
    """Return how decimals are written, by the word of the settings."""
    return {"precise": DECIMAL_PRECISE, "string": DECIMAL_STRING,
            "double": DECIMAL_DOUBLE}[how]


cdef bint read_wrapped(const Plan* plan, Slice value, int64_t* number) noexcept nogil:
    cdef uint64_t found
    if not (plan.b and plan.a == 64 and value.n >= 19
            and read_u64(value.p, value.n, &found) and found >> 63):
        return False
    number[0] = <int64_t>found
    return True


cdef Moment read_moment(const Plan* plan, Slice value, int64_t* number) noexcept nogil:
    """Read a date or a time; in a key, an invalid date is 1970-01-01."""
    cdef int32_t days = 0
    cdef int64_t us = 0
    cdef Moment found
    if plan.kind == KIND_TIME:
        return MOMENT_OK if read_time(value, number) else MOMENT_BROKEN
    if plan.kind == KIND_DATE:
        found = read_date(value.p, value.n, &days)
        number[0] = days
    else:
        found = read_datetime(value.p, value.n, &us)
        number[0] = us // MS - (us % MS < 0) if plan.a <= MILLISECOND_DIGITS else us
    if found == MOMENT_NONE and plan.is_key:
        number[0] = 0
        return MOMENT_OK
    return found


cdef bint read_geometry(Text* scratch, const Plan* plan, Slice value,
                        Geometry* found) noexcept nogil:
    found.srid = 0
    found.x = found.y = 0
    if not take_bytes(scratch, value, 0) or scratch.n < SRID_BYTES:
        return False
    memcpy(&found.srid, scratch.p, SRID_BYTES)
    found.wkb, found.n = scratch.p + SRID_BYTES, scratch.n - SRID_BYTES
    return not plan.a or read_point(found.wkb, found.n, &found.x, &found.y)
