# cython: language_level=3
"""Growing columns in Arrow's memory layout, without Arrow's library.

A column is appended to without the GIL. `take_column` hands its memory over to objects
with the buffer protocol, of which pyarrow makes arrays without copying.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef enum:
    FIRST_BYTES = 1024


cdef class ArrowBuffer:
    """Memory of one part of a column; read-only, freed with the last view on it."""

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.used

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.used, 1, flags)


cdef int grow(Memory* memory, size_t room) noexcept nogil:
    """Make the memory larger; what it holds stays."""
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
    """Make an empty column of memory that holds anything."""
    memset(column, 0, sizeof(ArrowColumn))
    column.layout = layout
    column.width = width
    return begin_offsets(column)


cdef int begin_offsets(ArrowColumn* column) except -1:
    """Write the offset at which the first value begins."""
    if column.layout == LAYOUT_TEXT or column.layout == LAYOUT_LIST:
        if put_offset(column, 0) != OK:
            raise MemoryError("no memory for a column")
    return 0


cdef void free_column(ArrowColumn* column) noexcept nogil:
    """Free the memory; the column cannot be used any more."""
    free(column.validity.data)
    free(column.offsets.data)
    free(column.values.data)
    memset(column, 0, sizeof(ArrowColumn))


cdef int begin_validity(ArrowColumn* column) noexcept nogil:
    """Write the bits of all values so far, none of which is NULL."""
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
    """Append the same text some times."""
    cdef size_t i
    cdef int status = OK
    for i in range(count):
        status = put_text(column, p, n)
        if status != OK:
            break
    return status


cdef int put_nulls(ArrowColumn* column, size_t count) noexcept nogil:
    """Append NULL some times."""
    cdef size_t i
    cdef int status = OK
    for i in range(count):
        status = put_null(column)
        if status != OK:
            break
    return status


cdef int put_fixed_times(ArrowColumn* column, const void* value,
                         size_t count) noexcept nogil:
    """Append the same value of a fixed width some times."""
    cdef size_t i
    cdef int status = OK
    for i in range(count):
        status = put_fixed_value(column, value, column.width)
        if status != OK:
            break
    return status


cdef object take_memory(Memory* memory):
    """Return the memory as an object, and go on with none."""
    cdef ArrowBuffer buffer = ArrowBuffer.__new__(ArrowBuffer)
    cdef uint8_t* data
    if memory.data == NULL and grow(memory, 0) != OK:
        raise MemoryError("no memory for a column")
    if memory.used < memory.size:
        # Never larger than it was, so this cannot fail in a way that matters.
        data = <uint8_t*>realloc(memory.data, memory.used + PADDING)
        if data != NULL:
            memory.data = data
    memset(memory.data + memory.used, 0, PADDING)
    buffer.data, buffer.used = memory.data, memory.used
    memory.hint = memory.used + memory.used // 8
    memory.data, memory.used, memory.size = NULL, 0, 0
    return buffer


cdef object take_column(ArrowColumn* column):
    """Return (length, nulls, [validity, offsets, values]) and begin anew.

    A part that the layout has not, and the validity of a column without NULLs, is None.
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
