# cython: language_level=3
"""A growing buffer of received bytes; see byte_buffer.pyx."""

from libc.stdint cimport uint8_t

cdef class Feed:
    cdef uint8_t* data
    cdef size_t begin      # first byte not consumed
    cdef size_t end        # one past the last byte received
    cdef size_t capacity
    cdef size_t ordinary   # capacity to which it shrinks when empty
    cdef bint is_full      # the last read filled all space
    cdef Py_ssize_t exports
    cdef int reserve(self, size_t room) except -1
