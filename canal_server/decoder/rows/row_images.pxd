# cython: language_level=3
"""Row images to RowData bodies; see row_images.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from canal_server.core.wire cimport Input, Output
from canal_server.decoder.rows.row_layout cimport LayoutC

# Bytes that may be read after the end of an input and written after a value: short
# pieces are copied in fixed steps, which is faster than by length (benchmark
# `inserts`).
cdef enum:
    SLACK = 64

cdef enum Role:
    ROLE_BEFORE = 0  # before image: no column is updated
    ROLE_INSERT = 1  # after image of an insert: all columns are
    ROLE_AFTER = 2   # after image of an update: columns that differ

cdef enum RowError:
    ROW_OK = 0
    ROW_SHORT = -1    # the image ends before its columns do
    ROW_MEMORY = -2
    ROW_VALUE = -3    # a value contradicts its type

cdef struct Before:
    # A column of the before image: its raw bytes, or its text in the output.
    const uint8_t* raw
    int64_t size          # -1: NULL, -2: not in the image
    uint64_t text_at      # offset from Output.start, if texts are compared
    uint64_t text_n

cdef struct RowContext:
    Before* before
    uint32_t before_n
    Output scratch
    uint32_t column       # the column of an error
    uint64_t text_bytes_max   # of one value's text
    uint64_t inflated_max     # of one compressed value
    uint64_t too_large        # bytes of a rejected text, 0: none
    uint64_t inflates_to      # bytes of a rejected compressed value, 0: none

cdef int grow_rows(Output* out, size_t room) noexcept nogil
cdef int init_context(RowContext* context, uint64_t value_bytes_max) except -1
cdef void free_context(RowContext* context) noexcept nogil
cdef int encode_image(RowContext* context, Input* source, const LayoutC* layout,
                      const uint8_t* present, uint32_t width, Output* out, Role role,
                      const uint8_t* partial, uint32_t partial_n) noexcept nogil
