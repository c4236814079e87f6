# cython: language_level=3
"""The text of geometries; see geometry_text.pyx."""

from libc.stdint cimport uint8_t

from canal_server.core.json_text cimport Text

# Append the WKT of a WKB, without quotes; false if it is malformed.
cdef bint put_wkt(Text* out, const uint8_t* p, size_t n) noexcept nogil
# The coordinates of a point; false for what is no point.
cdef bint read_point(const uint8_t* p, size_t n, double* x, double* y) noexcept nogil
