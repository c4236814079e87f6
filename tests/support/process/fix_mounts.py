"""File systems of a test's own; skipped with the reason where none can be mounted."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
import small_disk
from server_folders import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """Give a new file system in memory at a folder."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(small_disk.mounted(folder, *options))
        except Unavailable as error:
            pytest.skip(str(error))
        yield made
