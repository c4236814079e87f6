"""Converts rows in binlog format to entries here, instead of on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.decoder.rows.relayed_rows import Renderer
from canal_server.decoder.rows.table_shapes import layout_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Small enough that a processor cache still contains them when they are read.
PIECE_BYTES: Final = 256 * 1024


def rendered(pieces: Iterable[memoryview]) -> Iterator[memoryview]:
    """Yield the entries of an answer, the same bytes as in the form `entry`.

    Raises DecodeError for rows that cannot be decoded.
    """
    renderer = Renderer(layout_of)
    for piece in pieces:
        rest = piece
        while rest:
            used, made = renderer.render(rest, PIECE_BYTES)
            rest = rest[used:]
            yield made
