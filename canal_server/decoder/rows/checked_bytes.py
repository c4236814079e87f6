"""Reads parts of events in Python, never past their end."""

from __future__ import annotations

from canal_server.errors import DecodeError


class CheckedBytes:
    """The bytes of an event, or of a part of it, consumed from the front.

    Every read raises DecodeError if too few bytes remain.
    """

    def __init__(self, data: bytes, what: str, at: int = 0) -> None:
        self.data = data
        self.at = at
        self._what = what

    def __bool__(self) -> bool:
        return self.at < len(self.data)

    def take(self, n: int) -> bytes:
        """Read n bytes."""
        if n > len(self.data) - self.at:
            raise DecodeError(
                f"{self._what} ends early: {n} bytes needed at {self.at} of "
                f"{len(self.data)}"
            )
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, n: int) -> int:
        """Read a little-endian number of n bytes."""
        return int.from_bytes(self.take(n), "little")

    def packed(self) -> int:
        """Read a length-encoded integer of the protocol."""
        first = self.number(1)
        if first < 251:  # noqa: PLR2004  # the integer itself
            return first
        return self.number({252: 2, 253: 3, 254: 8}.get(first, 0))

    def text(self, n: int) -> str:
        """Read n bytes of UTF-8; invalid bytes are replaced."""
        return self.take(n).decode("utf-8", "replace")

    def rest(self) -> bytes:
        """Read the remaining bytes."""
        return self.take(len(self.data) - self.at)
