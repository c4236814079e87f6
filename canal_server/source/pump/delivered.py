"""How much of a source's binlog was delivered, so that nothing is delivered twice.

Records are distinguished by file, offset and ordinal, which are valid in the binlog of
one server only. A row event with very many rows becomes several records that have these
in common; they are counted, and have the same sizes when they are read again. Used by
the pump's thread; `position` by any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from canal_server.core.blocks import Block
    from canal_server.ports import Span
    from canal_server.source.read.available_positions import SourceFiles
    from canal_server.source.read.start_position import StartPosition

    Key = tuple[int, int, int]  # file number, offset, ordinal


ORDINAL_MAX: Final = 2**32 - 1


class Delivered:
    """The last record that was delivered, and the last end of a transaction."""

    def __init__(self) -> None:
        self.file = ""
        self.server = ""  # whose file and offset it is
        self._last: Key | None = None
        self._pieces = 1  # records up to it that have its key
        self._ended = True  # `_last` is the end of a transaction
        self._last_whole: tuple[str, Key] | None = None  # such an end, and its server
        self._skip_to: Key | None = None
        self._skip_pieces = 0  # of it, that are still to be left out

    def position(self) -> tuple[str, tuple[int, int] | None]:
        """Return the name of the last record's file, and its file number and offset."""
        last = self._last
        return self.file, last and last[:2]

    def has(self, span: Span) -> bool:
        """Return whether the last record that was delivered is the last of a span."""
        block, _, stop = span
        return self._last == _key_of(block, stop - 1)

    def forget(self) -> None:
        """Note that positions of before are not valid any more."""
        self._last = self._last_whole = None

    def check(self, files: SourceFiles) -> None:
        """Forget everything if the binlog was reset: its positions are different."""
        if self._last and not files.had(self.file, self._last[1]):
            self.forget()

    def begin(self, position: StartPosition, server: str, *, truncated: bool) -> bool:
        """Note a session; return whether it continues after the last record.

        `truncated`: a transaction that was delivered in part comes again as a whole.
        """
        if truncated and self._last is not None:
            of, whole = self._last_whole or ("", None)
            self._last, self._pieces = (whole if of == self.server else None), 1
            self._ended = True
        # What was delivered from the same binlog is not delivered again. By GTID only
        # the rest of an open transaction can be read twice.
        same = self._last is not None and self.server == server
        self._skip_to = self._last if same else None
        self._skip_pieces = self._pieces
        if position.by_gtid and self._ended:
            self._skip_to = None
        return same

    def note(self, spans: list[Span], server: str) -> tuple[Block, int] | None:
        """Record that spans are delivered; return the last boundary among them.

        It is given as its block and the index in it; None when there is none.
        """
        block, _, stop = spans[-1]
        before, pieces = self._last, self._pieces
        self._last = _key_of(block, stop - 1)
        self._pieces, other = _count_last(spans, self._last)
        if not other and before == self._last:
            self._pieces += pieces
        self.file = block.file
        self._ended = block.last_boundary(stop - 1, stop) >= 0
        self.server = server
        for block, first, stop in reversed(spans):
            index = block.last_boundary(first, stop)
            if index >= 0:
                self._last_whole = (server, _key_of(block, index))
                return block, index
        return None

    def rest_of(self, spans: list[Span]) -> list[Span]:
        """Return spans without what was delivered before this session."""
        if self._skip_to is None:
            return spans
        number, offset, ordinal = self._skip_to
        left = []
        for block, first, stop in spans:
            if block.file_number < number:
                continue
            if block.file_number == number:
                stop_after = block.first_after(first, stop, offset, ordinal)
                same = block.first_after(first, stop_after, *_before(offset, ordinal))
                skipped = min(stop_after - same, self._skip_pieces)
                self._skip_pieces -= skipped
                first = same + skipped  # noqa: PLW2901
            if first < stop:
                self._skip_to = None
                left.append((block, first, stop))
                number = -1
        return left


def _before(offset: int, ordinal: int) -> tuple[int, int]:
    """Return the last key before one."""
    return (offset, ordinal - 1) if ordinal else (offset - 1, ORDINAL_MAX)


def _count_last(spans: list[Span], key: Key) -> tuple[int, bool]:
    """Return how many records at the end have a key, and whether others precede."""
    count = 0
    for block, first, stop in reversed(spans):
        for index in range(stop - 1, first - 1, -1):
            if _key_of(block, index) != key:
                return count, True
            count += 1
    return count, False


def _key_of(block: Block, index: int) -> Key:
    offset, ordinal = block.key(index)
    return block.file_number, offset, ordinal
