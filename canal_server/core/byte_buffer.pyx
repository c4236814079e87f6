# cython: language_level=3
"""Holds received bytes until the decoder has consumed them.

One contiguous buffer: an event is always decoded in place. It takes memory when it is
first used, and more of it, up to an ordinary size, while each read fills what there is:
a source that is idle costs little. It grows to the largest event and shrinks again when
it is empty. After `capacity` there are 64 readable bytes, so that short values may be
copied in fixed steps.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

cdef enum:
    SLACK = 64
    FIRST = 8 * 1024  # bytes
    MOVED_MAX = 4  # share of the decoded bytes that others are moved for


cdef class Feed:
    """Bytes from `begin` to `end` wait; the buffer protocol exposes the free tail."""

    def __cinit__(self, size_t ordinary=256 * 1024):
        self.ordinary = ordinary

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data + self.end,
                          self.capacity - self.end, 0, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self.exports -= 1

    cdef int reserve(self, size_t room) except -1:
        """Make room for so many bytes; no memoryview may be alive."""
        cdef uint8_t* data
        cdef size_t waiting = self.end - self.begin
        cdef size_t size = self.capacity
        if self.exports:
            raise BufferError("the space of the last call is still in use")
        if self.begin:
            memmove(self.data, self.data + self.begin, waiting)
            self.begin, self.end = 0, waiting
        if waiting == 0 and size > self.ordinary and room <= self.ordinary:
            size = self.ordinary
        elif size - waiting < room:
            size = max(waiting + room, size + size // 2, min(FIRST, self.ordinary))
        if self.is_full and size < self.ordinary:
            size = min(4 * size, self.ordinary)
        self.is_full = False
        if size != self.capacity:
            data = <uint8_t*>realloc(self.data, size + SLACK)
            if data == NULL:
                raise MemoryError(f"no memory for a buffer of {size} bytes")
            self.data, self.capacity = data, size
            memset(data + size, 0, SLACK)
        return 0

    def space(self, size_t room=65536):
        """Return a writable memoryview of the free tail, at least `room` bytes.

        It must be released before the next call.
        """
        # What was decoded makes room for a large read before the tail becomes small.
        if self.end - self.begin < self.begin // MOVED_MAX:
            self.reserve(room)
        elif self.capacity - self.end < room or (
                self.is_full and self.capacity < self.ordinary):
            self.reserve(room)
        return memoryview(self)

    def filled(self, size_t n):
        """Report that n bytes were written to the start of the space."""
        if n > self.capacity - self.end:
            raise ValueError(f"{n} bytes in a space of {self.capacity - self.end}")
        self.is_full = n == self.capacity - self.end
        self.end += n

    def clear(self):
        """Drop the waiting bytes."""
        self.begin = self.end = 0

    @property
    def waiting(self):
        """Return how many bytes wait."""
        return self.end - self.begin
