# cython: language_level=3
"""A document's text as entries have it, from the server's; see json_restyle.pyx."""

from libc.stdint cimport uint8_t

from canal_server.core.wire cimport Output

# Whether the server's text is that of entries already.
cdef bint is_styled(const uint8_t* p, size_t n) noexcept nogil
# 0, JSON_MALFORMED of json_text, or -1 when there is no memory.
cdef int put_restyled(Output* out, const uint8_t* p, size_t n) noexcept nogil
