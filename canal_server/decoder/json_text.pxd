# cython: language_level=3
"""Text of MySQL's binary JSON; see json_text.pyx.

Both return 0, JSON_MALFORMED, or -1 when there is no memory; `out.p` moves only when
they return 0.
"""

from libc.stdint cimport uint8_t

from canal_server.core.wire cimport Output

cdef enum:
    JSON_MALFORMED = 1

cdef int put_json(Output* out, const uint8_t* p, size_t n) noexcept nogil
cdef int put_json_diff(Output* out, const uint8_t* p, size_t n, const uint8_t* name,
                       size_t name_n) noexcept nogil
