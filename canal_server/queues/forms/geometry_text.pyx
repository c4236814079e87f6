# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The text of geometries (WKT), from the bytes that the server stores (WKB).

    WKB     byte order (1: little-endian), uint32 type, content
    1       a point: two doubles
    2       a line: uint32 count, that many points
    3       a polygon: uint32 count, that many lines
    4 to 7  multipoint, multilinestring, multipolygon, collection: uint32 count, WKBs
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from canal_server.arrow.conversions cimport CONVERTED_BYTES_MAX, READ_OF_DOUBLE, convert
from canal_server.core.entry_wire cimport Slice
from canal_server.core.json_text cimport put
from canal_server.core.wire cimport Input, need, take_le
from canal_server.decoder.text.number_text cimport FLOAT_TEXT_MAX, put_double

cdef enum:
    DEPTH_MAX = 32      # of collections in collections
    POINT_BYTES = 16


cdef bint put_wkt(Text* out, const uint8_t* p, size_t n) noexcept nogil:
    cdef Input source
    source.p, source.end, source.short = p, p + n, False
    return put_one(out, &source, True, 0) and source.p == source.end


cdef bint put_one(Text* out, Input* source, bint named, int depth) noexcept nogil:
    """Append a geometry; the parts of a multipoint and the like have no names."""
    cdef uint32_t kind, i
    cdef uint64_t count
    if take_le(source, 1) != 1 or depth > DEPTH_MAX:
        return False
    kind = <uint32_t>take_le(source, 4)
    if source.short or not 1 <= kind <= 7:
        return False
    if named:
        put_name(out, kind)
    if kind == 1:
        put(out, b"(", 1)
        if not put_point(out, source):
            return False
        put(out, b")", 1)
        return True
    if kind == 2:
        return put_line(out, source)
    count = take_le(source, 4)
    if source.short or count > <uint64_t>(source.end - source.p):
        return False
    if count == 0:
        put(out, b"EMPTY", 5)
        return True
    put(out, b"(", 1)
    for i in range(<uint32_t>count):
        put(out, b", ", 2 if i else 0)
        if not (put_line(out, source) if kind == 3
                else put_one(out, source, kind == 7, depth + 1)):
            return False
    put(out, b")", 1)
    return True


cdef void put_name(Text* out, uint32_t kind) noexcept nogil:
    if kind == 1:
        put(out, b"POINT ", 6)
    elif kind == 2:
        put(out, b"LINESTRING ", 11)
    elif kind == 3:
        put(out, b"POLYGON ", 8)
    elif kind == 4:
        put(out, b"MULTIPOINT ", 11)
    elif kind == 5:
        put(out, b"MULTILINESTRING ", 16)
    elif kind == 6:
        put(out, b"MULTIPOLYGON ", 13)
    else:
        put(out, b"GEOMETRYCOLLECTION ", 19)


cdef bint put_line(Text* out, Input* source) noexcept nogil:
    cdef uint64_t count = take_le(source, 4)
    cdef uint32_t i
    if source.short or count > <uint64_t>(source.end - source.p) // POINT_BYTES:
        return False
    if count == 0:
        put(out, b"EMPTY", 5)
        return True
    put(out, b"(", 1)
    for i in range(<uint32_t>count):
        put(out, b", ", 2 if i else 0)
        if not put_point(out, source):
            return False
    put(out, b")", 1)
    return True


cdef bint put_point(Text* out, Input* source) noexcept nogil:
    cdef const uint8_t* p = need(source, POINT_BYTES)
    cdef double x, y
    if p == NULL:
        return False
    memcpy(&x, p, 8)
    memcpy(&y, p + 8, 8)
    put_coordinate(out, x)
    put(out, b" ", 1)
    put_coordinate(out, y)
    return True


cdef void put_coordinate(Text* out, double value) noexcept nogil:
    """Append a number without an exponent, and without a fraction of zero."""
    cdef uint8_t[FLOAT_TEXT_MAX] text
    cdef uint8_t[CONVERTED_BYTES_MAX] room
    cdef Slice given, found
    given.p, given.n = text, put_double(text, value)
    if convert(READ_OF_DOUBLE, given, room, &found):
        put(out, found.p, found.n)
    else:
        put(out, given.p, given.n)


cdef bint read_point(const uint8_t* p, size_t n, double* x, double* y) noexcept nogil:
    if n != 5 + POINT_BYTES or p[0] != 1 or p[1] != 1:
        return False
    memcpy(x, p + 5, 8)
    memcpy(y, p + 13, 8)
    return True
