"""A source of bytes for readers, made of chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Bytes:
    """A source of chunks; None means that nothing is at hand."""

    def __init__(self, chunks: Iterable[bytes | None]) -> None:
        self._chunks = list(chunks)

    def try_receive_into(self, buffer: memoryview) -> int | None:
        """Take the next chunk or a part of it."""
        if not self._chunks:
            return 0
        chunk = self._chunks.pop(0)
        if chunk is None:
            return None
        part, rest = chunk[: len(buffer)], chunk[len(buffer) :]
        buffer[: len(part)] = part
        if rest:
            self._chunks.insert(0, rest)
        return len(part)

    def receive_into(self, buffer: memoryview, timeout_s: float | None) -> int | None:
        """Take the next chunk; what is not at hand comes at once."""
        return self.try_receive_into(buffer)
