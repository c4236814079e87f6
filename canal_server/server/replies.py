"""What is sent in answer to a request: frames, or parts of one; nothing for an ack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from canal_server.protocol.framing import EMPTY_FRAME
from canal_server.protocol.server_session import ACK_FRAME, error_frame

Reply: TypeAlias = Sequence[bytes | memoryview]

ACCEPTED: Final[Reply] = (ACK_FRAME,)
EMPTY: Final[Reply] = (EMPTY_FRAME,)  # a batch without entries
NOTHING: Final[Reply] = ()


class Refusal(tuple[bytes]):  # noqa: SLOT001  # a tuple cannot have slots
    """A reply that refuses a request."""

    code = 0

    @classmethod
    def of(cls, code: int, message: str) -> Refusal:
        """Return the reply with a code and a text."""
        found = cls((error_frame(code, message),))
        found.code = code
        return found
