"""Data compressed with zstd; the only module that imports zstandard.

`ZstdError` is what reading raises for damaged data.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, cast

import zstandard

if TYPE_CHECKING:
    from pathlib import Path

ZstdError = zstandard.ZstdError


def inflated(data: bytes | memoryview) -> IO[bytes]:
    """Return a stream of the plain bytes of one frame in memory."""
    reader = zstandard.ZstdDecompressor().stream_reader(data, closefd=False)
    return cast("IO[bytes]", reader)


def open_inflated(path: Path) -> IO[bytes]:
    """Return a stream of the plain bytes of a file, of all its frames."""
    reader = zstandard.ZstdDecompressor().stream_reader(
        path.open("rb"), read_across_frames=True, closefd=True
    )
    return cast("IO[bytes]", reader)


def plain_size(head: bytes) -> int | None:
    """Return the plain size that the beginning of a file names, None without one.

    Raises ZstdError.
    """
    size: int = zstandard.frame_content_size(head)
    return size if size > 0 else None
