# cython: language_level=3
"""The common part of both kinds of GTID sets; see gtid_text.pyx."""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport realloc
from libc.string cimport memmove

cdef class GtidText:
    cdef uint32_t count     # of the set's groups or domains
    cdef const char* text   # valid after `render` until the next change
    cdef size_t text_n
    cdef char* memory
    cdef size_t memory_n
    cdef bint rendered      # false after each change

    # Updates `text` and `text_n`; -1 when there is no memory.
    cdef int render(self) noexcept nogil
    # Each kind of set has its own: the limit of its text's length, and the function
    # that
    # writes it and returns a pointer past it.
    cdef size_t text_room(self) noexcept nogil
    cdef uint8_t* put_text(self, uint8_t* p) noexcept nogil


cdef inline void* with_gap(void* items, size_t size, uint32_t count,
                           uint32_t* capacity, uint32_t at) noexcept nogil:
    """Return an array of `count` items with room for one more before item `at`.

    NULL when there is no memory; then the array is unchanged.
    """
    cdef char* memory = <char*>items
    if count == capacity[0]:
        memory = <char*>realloc(items, (2 * <size_t>count + 2) * size)
        if memory == NULL:
            return NULL
        capacity[0] = 2 * count + 2
    memmove(memory + (at + 1) * size, memory + at * size, (count - at) * size)
    return memory
