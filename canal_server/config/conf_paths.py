"""Paths in settings: relative ones start at the conf folder."""

from __future__ import annotations

import os
from pathlib import Path


def anchored(conf_dir: Path, path: Path) -> Path:
    """Return the absolute path for a path in a setting.

    A relative path starts at the conf folder, where `../conf` means that folder itself,
    whatever its name: the Java server runs in a sibling folder of `conf`.
    """
    parts = path.parts
    if parts[:2] == ("..", "conf"):
        path = Path(*parts[2:])
    return Path(os.path.abspath(conf_dir / path))  # noqa: PTH100  # links stay
