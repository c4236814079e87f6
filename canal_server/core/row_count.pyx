# cython: language_level=3, cdivision=True
"""How many rows a body of Messages has, counted without decoding them.

    body        any number of 0x12 length Entry, beside other fields
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from canal_server.core.entry_wire cimport (
    ENTRY_ROWDATA, Change, Slice, input_of, next_field, open_entry, read_change,
)
from canal_server.core.wire cimport Input

from canal_server.errors import ProtocolError


def count_rows(data):
    """Return how many rows a body of Messages has. Raises ProtocolError."""
    cdef Py_buffer view
    cdef Input entries
    cdef Slice whole, entry, header, store
    cdef uint32_t kind
    cdef Change change
    cdef uint64_t rows = 0
    cdef bint is_right = True
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        whole.p, whole.n = <const uint8_t*>view.buf, view.len
        entries = input_of(whole)
        while is_right and next_field(&entries, 0x12, &entry):
            is_right = open_entry(entry, &kind, &header, &store)
            if is_right and kind == ENTRY_ROWDATA:
                is_right = read_change(store, &change)
                rows += change.rows
    PyBuffer_Release(&view)
    if entries.short or not is_right:
        raise ProtocolError("malformed entry in a batch")
    return rows
