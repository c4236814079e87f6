# cython: language_level=3
"""Growing columns in Arrow's memory layout, without Arrow's library.

Appending needs no GIL. `take_column` passes the memory to objects with the buffer
protocol, from which pyarrow makes arrays without copying.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef enum:
    FIRST_BYTES = 1024


cdef class ArrowBuffer:
    """Memory of one part of a column; read-only, freed with its last view."""

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.used

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.used, 1, flags)


cdef int grow(Memory* memory, size_t room) noexcept nogil:
    """Enlarge the memory and keep its contents."""
    cdef size_t size = memory.size + memory.size // 2
    cdef uint8_t* data
    if memory.data == NULL:
        size = memory.hint if memory.hint > FIRST_BYTES else FIRST_BYTES
    if size < memory.used + room:
        size = memory.used + room
    if size + PADDING < size:
        return NO_ROOM
    data = <uint8_t*>realloc(memory.data, size + PADDING)
    if data == NULL:
        return NO_ROOM
    memory.data, memory.size = data, size
    return OK


cdef int init_column(ArrowColumn* column, Layout layout, uint32_t width) except -1:
    """Initialize an empty column in uninitialized memory."""
    memset(column, 0, sizeof(ArrowColumn))
    column.layout = layout
    column.width = width
    return begin_offsets(column)


cdef int begin_offsets(ArrowColumn* column) except -1:
    """Write the offset of the first value."""
    if column.layout == LAYOUT_TEXT or column.layout == LAYOUT_LIST:
        if put_offset(column, 0) != OK:
            raise MemoryError("no memory for a column")
    return 0


cdef void free_column(ArrowColumn* column) noexcept nogil:
    """Free the memory; the column is unusable afterwards."""
    free(column.validity.data)
    free(column.offsets.data)
    free(column.values.data)
    memset(column, 0, sizeof(ArrowColumn))


cdef int begin_validity(ArrowColumn* column) noexcept nogil:
    """Write the validity bits of all values so far, which are not NULL."""
    cdef size_t whole = column.length >> 3
    cdef size_t rest = column.length & 7
    if reserve(&column.validity, whole + 1) != OK:
        return NO_ROOM
    memset(column.validity.data, 0xFF, whole)
    column.validity.used = whole
    if rest:
        column.validity.data[whole] = <uint8_t>((1 << rest) - 1)
        column.validity.used += 1
    return OK


cdef int put_texts(ArrowColumn* column, const uint8_t* p, size_t n,
                   size_t count) noexcept nogil:
    """Append the same text `times` times."""
    cdef size_t i
    cdef int status = OK
    for i in range(count):
        status = put_text(column, p, n)
        if status != OK:
            break
    return status


cdef int put_nulls(ArrowColumn* column, size_t count) noexcept nogil:
    """Append NULL `times` times."""
    cdef size_t i
    cdef int status = OK
    for i in range(count):
        status = put_null(column)
        if status != OK:
            break
    return status


cdef int put_fixed_times(ArrowColumn* column, const void* value,
                         size_t count) noexcept nogil:
    """Append the same fixed-width value `times` times."""
    cdef size_t i
    cdef int status = OK
    for i in range(count):
        status = put_fixed_value(column, value, column.width)
        if status != OK:
            break
    return status


cdef object take_memory(Memory* memory):
    """Return the memory as an object, and release it."""
    cdef ArrowBuffer buffer = ArrowBuffer.__new__(ArrowBuffer)
    cdef uint8_t* data
    if memory.data == NULL and grow(memory, 0) != OK:
        raise MemoryError("no memory for a column")
    if memory.used < memory.size:
        # It never grows, so a failure has no consequence.
        data = <uint8_t*>realloc(memory.data, memory.used + PADDING)
        if data != NULL:
            memory.data = data
    memset(memory.data + memory.used, 0, PADDING)
    buffer.data, buffer.used = memory.data, memory.used
    memory.hint = memory.used + memory.used // 8
    memory.data, memory.used, memory.size = NULL, 0, 0
    return buffer


cdef object take_column(ArrowColumn* column):
    """Return (length, nulls, [validity, offsets, values]) and start an empty column.

    A part that the layout lacks, and the validity of a column without NULLs, is None.
    """
    length, nulls = column.length, column.nulls
    validity = take_memory(&column.validity) if nulls else None
    offsets = values = None
    if column.layout == LAYOUT_TEXT or column.layout == LAYOUT_LIST:
        offsets = take_memory(&column.offsets)
        begin_offsets(column)
    if column.layout != LAYOUT_LIST and column.layout != LAYOUT_STRUCT:
        values = take_memory(&column.values)
    column.length = column.nulls = 0
    column.validity.used = 0
    return length, nulls, (validity, offsets, values)
