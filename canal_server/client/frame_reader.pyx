# cython: language_level=3, cdivision=True
"""What a frame of a server has, found without decoding rows.

    frame       Packet: 0x18 type, 0x20 compression, 0x2a body
    body        Messages: 0x08 batch id, then any number of 0x12 length Entry

Leaves out where transactions end (`batch_bounds`) and what rows hold (`change_reader`).
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint64_t

from canal_server.core.entry_wire cimport (
    Slice, input_of, next_field, skip_field, take_slice, take_varint,
)
from canal_server.core.wire cimport Input

from canal_server.errors import ProtocolError

cdef enum:
    MESSAGES_PACKET = 7  # PacketType.MESSAGES


cdef Input input_in(const Py_buffer* view) noexcept nogil:
    cdef Slice whole
    whole.p, whole.n = <const uint8_t*>view.buf, view.len
    return input_of(whole)


def open_messages(data):
    """Return (batch id, where the body of Messages begins, where it ends) of a frame.

    None when the packet is another one than MESSAGES without compression. Raises
    ProtocolError for malformed bytes.
    """
    cdef Py_buffer view
    cdef Input packet, messages
    cdef Slice body
    cdef uint64_t tag, kind = 0, compression = 0
    cdef int64_t batch_id = 0
    cdef Py_ssize_t start
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        packet = input_in(&view)
        body.p, body.n = NULL, 0
        while packet.p < packet.end:
            tag = take_varint(&packet)
            if tag == 0x18:
                kind = take_varint(&packet)
            elif tag == 0x20:
                compression = take_varint(&packet)
            elif tag == 0x2A:
                body = take_slice(&packet)
            else:
                skip_field(&packet, tag)
        if packet.short:
            raise ProtocolError("malformed packet")
        if kind != MESSAGES_PACKET or compression > 1:
            return None
        if body.p == NULL:
            return 0, 0, 0
        messages = input_of(body)
        while messages.p < messages.end:
            tag = take_varint(&messages)
            if tag == 0x08:
                batch_id = <int64_t>take_varint(&messages)
                break  # servers write it first
            skip_field(&messages, tag)
        if messages.short:
            raise ProtocolError("malformed packet of messages")
        start = body.p - <const uint8_t*>view.buf
        return batch_id, start, start + body.n
    finally:
        PyBuffer_Release(&view)


def entries_of(data):
    """Return the bytes of each entry in a body of Messages. Raises ProtocolError."""
    cdef Py_buffer view
    cdef Input entries
    cdef Slice entry
    cdef list found = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        entries = input_in(&view)
        while next_field(&entries, 0x12, &entry):
            found.append(<bytes>entry.p[:entry.n])
    finally:
        PyBuffer_Release(&view)
    if entries.short:
        raise ProtocolError("malformed entry in a batch")
    return found
