# cython: language_level=3
"""Text of the differences of partial updates; see json_diff.pyx."""

from libc.stdint cimport uint8_t

from canal_server.core.wire cimport Output

# Returns 0, JSON_MALFORMED of json_text, or -1 without memory; advances `out.p` only
# with 0.
cdef int put_json_diff(Output* out, const uint8_t* p, size_t n, const uint8_t* name,
                       size_t name_n) noexcept nogil
