"""Copies a server's binlog files to a directory, and has the server purge them."""

from __future__ import annotations

import bz2
import gzip
import lzma
from typing import TYPE_CHECKING

import zstandard
from purge import purge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from servers import PrivateServer

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def archive(
    source: PrivateServer, folder: Path, *, suffix: str = "", purges: bool = True
) -> list[str]:
    """Copy all files but the newest, which is a new one; return their names."""
    folder.mkdir(exist_ok=True)
    source.execute("FLUSH BINARY LOGS")
    names = [row[0] for row in source.execute("SHOW BINARY LOGS")]
    for name in names[:-1]:
        content = (source.data_folder / name).read_bytes()
        (folder / f"{name}{suffix}").write_bytes(COMPRESSIONS[suffix](content))
    if purges:
        purge(source, names[-1])
    return names[:-1]
