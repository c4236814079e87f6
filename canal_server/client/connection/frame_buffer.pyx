# cython: language_level=3
"""Memory into which frames are received.

A `bytearray` of a megabyte is set to zero, and its pages are new to the process each
time: together a third of what receiving costs (benchmark `clients`). This memory is
neither, as that of frames that nobody uses any more is used again.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport uint8_t

cdef enum:
    SPARES_MAX = 3                # at hand, requested before, and late
    SPARE_BYTES_MAX = 4 * 1024 * 1024
    SPARE_BYTES_MIN = 64 * 1024   # smaller ones are quick to have

cdef struct Block:
    uint8_t* data
    Py_ssize_t room

cdef Block[SPARES_MAX] spares
cdef int spares_n = 0


cdef Block take_block(Py_ssize_t size) noexcept:
    """Return memory for so many bytes; without any if there is none."""
    global spares_n
    cdef Block found
    if SPARE_BYTES_MIN <= size:
        for i in range(spares_n):
            # A small frame in a large block would hold all of it.
            if size <= spares[i].room <= 4 * size:
                found = spares[i]
                spares_n -= 1
                spares[i] = spares[spares_n]
                return found
    found.room = size
    if SPARE_BYTES_MIN <= size <= SPARE_BYTES_MAX - size // 4:
        found.room = size + size // 4  # the next one is a little larger, maybe
    found.data = <uint8_t*>PyMem_RawMalloc(found.room)
    return found


cdef void give_block(Block block) noexcept:
    global spares_n
    if SPARE_BYTES_MIN <= block.room <= SPARE_BYTES_MAX:
        if spares_n == SPARES_MAX:
            # An old one, whose size may not be in use any more.
            PyMem_RawFree(spares[0].data)
            spares_n -= 1
            for i in range(spares_n):
                spares[i] = spares[i + 1]
        spares[spares_n] = block
        spares_n += 1
    else:
        PyMem_RawFree(block.data)


@cython.final
cdef class FrameBuffer:
    """Writable bytes of a fixed size, which hold anything at first."""

    cdef Block block
    cdef Py_ssize_t size

    def __cinit__(self, Py_ssize_t size):
        if size < 0:
            raise ValueError(f"size = {size}: expected 0 or more")
        self.size = size
        self.block = take_block(size)
        if self.block.data == NULL:
            raise MemoryError(f"no memory for a frame of {size} bytes")

    def __dealloc__(self):
        if self.block.data != NULL:
            give_block(self.block)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.block.data, self.size, False, flags)
