# cython: language_level=3
"""Contents of entries that mark transactions; see markers.pyx."""

from libc.stdint cimport uint8_t, uint64_t

cdef enum:
    MARKER_BYTES_MAX = 1400
    XA_STATEMENT_BYTES_MAX = 512  # an xid has 128 bytes, in hexadecimal, and quotes

# Each writes a storeValue to `p` and returns the end of it.
cdef uint8_t* put_begin_value(uint8_t* p, uint64_t thread_id) noexcept nogil
cdef uint8_t* put_end_value(uint8_t* p, uint64_t xid) noexcept nogil
cdef uint8_t* put_xa_value(uint8_t* p, int kind, const uint8_t* sql, size_t n,
                           uint64_t thread_id) noexcept nogil
cdef uint8_t* put_pair_field(uint8_t* p, uint8_t tag, const uint8_t* key, size_t key_n,
                             const uint8_t* value, size_t value_n) noexcept nogil
