"""Joins what the server cut: pieces that end where a transaction ends.

A batch of the server ends anywhere. What follows the last end of a transaction in it
waits for the batches after it. A batch may be acked as soon as all of it was handed
out, so a piece has the id of the last batch that it completes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.client.batch_bounds import transactions_end

if TYPE_CHECKING:
    from canal_server.client.received_message import Message

_NO_BATCH: Final = -1


class Piece(NamedTuple):
    """Entries to hand out, and the newest batch that ends in them; -1: none does."""

    batch_id: int
    body: bytes | memoryview


class WholeTransactions:
    """The part of a transaction that was received, until its end is."""

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self._is_open = False
        self._clear()

    @property
    def held_bytes(self) -> int:
        """How many bytes wait for the end of their transaction."""
        return self._bytes

    @property
    def is_split(self) -> bool:
        """Whether the batch whose end waits here was handed out in part."""
        return self._is_split

    def reset(self) -> None:
        """Forget everything, as it will be delivered again."""
        self._is_open = False
        self._clear()

    def add(self, message: Message) -> Piece | None:
        """Add a batch and return what ends with a transaction; None if nothing does.

        Raises ProtocolError.
        """
        body = message.body
        end, self._is_open = transactions_end(body, self._is_open)
        if not end:
            self._hold(body, message.id)
            return None
        is_complete = end == len(body)
        batch_id = message.id if is_complete else self._last_id
        piece = Piece(batch_id, self._joined(body[:end]))
        self._clear()
        if not is_complete:
            self._hold(body[end:], message.id)
            self._is_split = True
        return piece

    def take(self) -> Piece:
        """Return everything that waits, although its transaction continues."""
        piece = Piece(self._last_id, self._joined(b""))
        self._clear()
        return piece

    def _hold(self, part: bytes | memoryview, batch_id: int) -> None:
        self._parts.append(part)
        self._bytes += len(part)
        self._last_id = batch_id

    def _joined(self, last: bytes | memoryview) -> bytes | memoryview:
        return b"".join((*self._parts, last)) if self._parts else last

    def _clear(self) -> None:
        self._parts.clear()
        self._bytes = 0
        self._last_id = _NO_BATCH  # of the batches whose entries are in the parts
        self._is_split = False
