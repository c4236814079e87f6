"""Frames: a length of four bytes, big-endian and signed, then so many bytes.

Both directions are framed alike. The reader limits what it takes; what a server
sends is limited by the length's own range only.
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
    """Return the body with its length in front."""
    return _LENGTH.pack(len(body)) + body


def frame_length(header: bytes | bytearray, limit: int) -> int:
    """Return the length that the first four bytes of a frame tell.

    Raises ProtocolError when it is negative or above the limit, in bytes.
    """
    (length,) = _LENGTH.unpack_from(header)
    if not 0 <= length <= limit:
        raise ProtocolError(f"a frame of {length} bytes, allowed are 0 to {limit}")
    return int(length)


class FrameReader:
    """Takes bytes as they arrive and gives whole frames.

    Never holds more than one frame of the limit and what one read brought.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit  # may be raised between two frames
        self._buffer = bytearray()

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the other side."""
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """Return the next frame's body, None when it has not arrived entirely.

        Raises ProtocolError for a length out of range; then the stream is lost.
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
# A data reply is written by hand, so that the entries leave as the slices that the
# store keeps them in:
#
#   length | [10 01] 18 07 2a <size of Messages> 08 <batch id> | 12 <size> <entry> …
#            version  type  body                  Messages.batch_id
#            `------------------- header ------------------' `------ slices ------'

_TYPE_AND_BODY = bytes((3 << 3, PacketType.MESSAGES, 5 << 3 | 2))
_VERSION_FIELD = bytes((2 << 3, VERSION))


def messages_header(batch_id: int, body_size: int, *, raw: bool = True) -> bytes:
    """Return what stands before the entries of a data reply.

    `body_size` is the number of bytes that follow: entries as field 2 of Messages.
    The raw form carries no version, as canal sends it from a store of raw entries.
    Raises ValueError when the frame would be longer than its length can tell.
    """
    batch = b"\x08" + varint(batch_id)
    head = _TYPE_AND_BODY + varint(len(batch) + body_size) + batch
    if not raw:
        head = _VERSION_FIELD + head
    length = len(head) + body_size
    if length > FRAME_BYTES_MAX:
        raise ValueError(
            f"batch {batch_id} would be a frame of {length} bytes, "
            f"{FRAME_BYTES_MAX} are possible"
        )
    return _LENGTH.pack(length) + head


EMPTY_BATCH_ID = -1  # of the answer to a get that found nothing
EMPTY_FRAME = frame(
    encode_packet(PacketType.MESSAGES, Messages(batch_id=EMPTY_BATCH_ID))
)
