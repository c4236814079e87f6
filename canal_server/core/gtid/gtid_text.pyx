# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The text of GTID sets of either kind, by which they are compared.

It is canonical: equal sets have equal texts. It is rendered on demand, in memory that
the set keeps.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc


cdef class GtidText:
    """A GTID set of either kind, seen from its text."""

    def __dealloc__(self):
        free(self.memory)

    cdef int render(self) noexcept nogil:
        cdef size_t room
        cdef char* memory
        if self.rendered:
            return 0
        room = self.text_room() + 1
        if room > self.memory_n:
            memory = <char*>realloc(self.memory, 2 * room)
            if memory == NULL:
                return -1
            self.memory = memory
            self.memory_n = 2 * room
        self.text_n = self.put_text(<uint8_t*>self.memory) - <uint8_t*>self.memory
        self.text = self.memory
        self.rendered = True
        return 0

    cdef size_t text_room(self) noexcept nogil:
        return 0

    cdef uint8_t* put_text(self, uint8_t* p) noexcept nogil:
        return p

    def __str__(self):
        if self.render() != 0:
            raise MemoryError("no memory for the text of a GTID set")
        return self.text[:self.text_n].decode("ascii")

    def __repr__(self):
        return f"<{type(self).__name__} {self}>"

    def __bool__(self):
        return self.count > 0

    def __eq__(self, other):
        return type(self) is type(other) and str(self) == str(other)

    __hash__ = None

    def copy(self):
        """Return an equal set that is independent of this one."""
        return type(self)().union(self)
