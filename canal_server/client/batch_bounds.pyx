# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Where transactions end in a body of Messages, found without decoding rows.

    body        any number of 0x12 length Entry
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

from canal_server.core.entry_wire cimport (
    ENTRY_BEGIN, ENTRY_END, ENTRY_ROWDATA, EVENT_DELETE, EVENT_INSERT, EVENT_QUERY,
    Change, EntryHead, Slice, next_field, read_change, read_entry,
)
from canal_server.core.wire cimport Input

from canal_server.errors import ProtocolError


def transactions_end(data, bint is_open=False):
    """Return (bytes up to the last end of a transaction, whether one is open after all).

    `is_open` says whether a transaction is open where the body begins. The number of
    bytes is 0 if no transaction ends in it. A statement that stands alone, such as DDL,
    is a transaction of its own. Raises ProtocolError.
    """
    cdef Py_buffer view
    cdef Input entries
    cdef Slice slice
    cdef EntryHead head
    cdef Change change
    cdef Py_ssize_t end = 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        entries.p = <const uint8_t*>view.buf
        entries.end, entries.short = entries.p + view.len, False
        while next_field(&entries, 0x12, &slice):
            if not read_entry(slice.p, slice.n, &head):
                raise ProtocolError("malformed entry in a batch")
            if head.kind == ENTRY_BEGIN:
                is_open = True
            elif head.kind == ENTRY_END:
                is_open = False
            elif head.kind == ENTRY_ROWDATA:
                if not read_change(head.store, &change):
                    raise ProtocolError("malformed entry in a batch")
                if change.event == 0:
                    change.event = head.event
                if EVENT_INSERT <= change.event <= EVENT_DELETE or (
                        change.event == EVENT_QUERY and not change.is_ddl):
                    is_open = True  # MariaDB's transactions have no begin
            if not is_open:
                end = entries.p - <const uint8_t*>view.buf
        if entries.short:
            raise ProtocolError("malformed entry in a batch")
    finally:
        PyBuffer_Release(&view)
    return end, bool(is_open)


def last_time_ms(data):
    """Return when the source executed the last entry, in ms since 1970; 0 without any.

    Raises ProtocolError.
    """
    cdef Py_buffer view
    cdef Input entries
    cdef Slice slice, last
    cdef EntryHead head
    last.p, last.n = NULL, 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        entries.p = <const uint8_t*>view.buf
        entries.end, entries.short = entries.p + view.len, False
        while next_field(&entries, 0x12, &slice):
            last = slice
        if last.p == NULL and not entries.short:
            return 0
        if entries.short or not read_entry(last.p, last.n, &head):
            raise ProtocolError("malformed entry in a batch")
        return head.time_ms
    finally:
        PyBuffer_Release(&view)
