# cython: language_level=3
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from canal_server.core.runs cimport Runs


cdef class Fetched:
    cdef readonly uint64_t first_sequence
    cdef readonly uint64_t last_sequence
    cdef readonly uint64_t count
    cdef readonly uint64_t size  # bytes
    cdef readonly bint is_open   # the last entry is in a transaction that goes on
    cdef readonly bint begins_anew  # the first entry is in none that was open before it
    cdef readonly bint is_broken    # a transaction in it was not ended
    cdef bint has_begun
    cdef PyObject* open_block  # of the last entry that is no heartbeat; borrowed
    cdef Runs runs
    # The first, the last and the last resumable entry: their block, and index in it.
    # Borrowed, since the runs hold every block; ack_block NULL: no such entry.
    cdef PyObject* start_block
    cdef PyObject* end_block
    cdef PyObject* ack_block
    cdef readonly dict boundaries  # in a group: the position to ack in each source
    cdef uint32_t start_index, end_index, ack_index

    cdef int add(self, PyObject* block, uint32_t index) except -1
