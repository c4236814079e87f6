# cython: language_level=3
"""Text of MySQL's binary JSON; see json_text.pyx."""

from libc.stdint cimport uint8_t

from canal_server.core.wire cimport Output

cdef enum:
    JSON_MALFORMED = 1

# Returns 0, JSON_MALFORMED, or -1 without memory; advances `out.p` only with 0.
cdef int put_json(Output* out, const uint8_t* p, size_t n) noexcept nogil
cdef str finished(Output* out, int status)
