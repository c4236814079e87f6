"""Tells files in PEM from key stores, which settings may name alike."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_HEAD: Final = b"-----BEGIN"
_HEAD_BYTES_MAX: Final = 4096  # text may come before it


def is_pem(path: str | Path) -> bool:
    """Return whether a file has certificates or keys in PEM. Raises OSError."""
    with Path(path).open("rb") as file:
        return _HEAD in file.read(_HEAD_BYTES_MAX)
