"""Frames: a length of four bytes, big-endian and signed, followed by that many bytes.

Both directions use the same framing. A reader limits the length; a server may send
frames of any length.
"""

from __future__ import annotations

import struct

from canal_server.errors import ProtocolError
from canal_server.protocol.packets import VERSION, Messages, PacketType, encode_packet
from canal_server.protocol.protobuf import varint

FRAME_BYTES_MAX = 2**31 - 1
LENGTH_BYTES = 4
_LENGTH = struct.Struct(">i")


def frame(body: bytes) -> bytes:
    """Return the body preceded by its length."""
    return _LENGTH.pack(len(body)) + body


def frame_length(header: bytes | bytearray, limit: int) -> int:
    """Return the length that the first four bytes of a frame encode.

    Raises ProtocolError if it is negative or above the limit, in bytes.
    """
    (length,) = _LENGTH.unpack_from(header)
    if not 0 <= length <= limit:
        raise ProtocolError(f"a frame of {length} bytes is out of range 0 to {limit}")
    return int(length)


class FrameReader:
    """Receives bytes as they arrive and returns complete frames.

    It never holds more than one frame of the limit and the result of one read.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit  # may be raised between two frames
        self._buffer = bytearray()

    def receive_data(self, data: bytes) -> None:
        """Append bytes from the other side."""
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """Return the body of the next frame, None while it is incomplete.

        Raises ProtocolError for an invalid length; the stream is then unusable.
        """
        buffer = self._buffer
        if len(buffer) < LENGTH_BYTES:
            return None
        stop = LENGTH_BYTES + frame_length(buffer, self.limit)
        if len(buffer) < stop:
            return None
        body = bytes(buffer[LENGTH_BYTES:stop])
        del buffer[:stop]
        return body


# --------------------------------------------------------------------------------
# Replies of a server
# --------------------------------------------------------------------------------
#
# A data reply is encoded by hand, so that the entries are sent as the slices in which
# the store keeps them:
#
#   length | [10 01] 18 07 2a <size of Messages> 08 <batch id> | 12 <size> <entry> …
#            version  type  body                  Messages.batch_id
#            `------------------- header ------------------' `------ slices ------'

_TYPE_AND_BODY = bytes((3 << 3, PacketType.MESSAGES, 5 << 3 | 2))
_VERSION_FIELD = bytes((2 << 3, VERSION))


def messages_header(batch_id: int, body_size: int, *, raw: bool = True) -> bytes:
    """Return the part of a data reply before the entries.

    `body_size` is the number of bytes that follow: entries as field 2 of Messages. The
    raw form has no version, as canal sends it from a store of raw entries. Raises
    ValueError if the frame would exceed the maximum length.
    """
    batch = b"\x08" + varint(batch_id)
    head = _TYPE_AND_BODY + varint(len(batch) + body_size) + batch
    if not raw:
        head = _VERSION_FIELD + head
    length = len(head) + body_size
    if length > FRAME_BYTES_MAX:
        raise ValueError(
            f"batch {batch_id} needs a frame of {length} bytes, above the limit of "
            f"{FRAME_BYTES_MAX}"
        )
    return _LENGTH.pack(length) + head


EMPTY_BATCH_ID = -1  # in the answer to a get without changes
EMPTY_FRAME = frame(
    encode_packet(PacketType.MESSAGES, Messages(batch_id=EMPTY_BATCH_ID))
)
