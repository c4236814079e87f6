# cython: language_level=3
"""Converts a JSON text of the server to that of entries; see json_restyle.pyx."""

from libc.stdint cimport uint8_t

from canal_server.core.wire cimport Output

# Whether the server's text already has the form of entries.
cdef bint is_styled(const uint8_t* p, size_t n) noexcept nogil
# Returns 0, JSON_MALFORMED of json_text, or -1 without memory.
cdef int put_restyled(Output* out, const uint8_t* p, size_t n) noexcept nogil
