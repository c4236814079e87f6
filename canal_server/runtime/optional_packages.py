"""Packages that only some installations have."""

from __future__ import annotations

import importlib
from typing import Any

from canal_server.errors import CanalError


def optional_module(module: str, purpose: str, *, extra: str) -> Any:
    """Return a module of an optional package. Raises CanalError with the extra.

    `purpose` is what needs it, for the error.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise CanalError(
            f"{purpose} needs {package}, which is not installed: "
            f"pip install 'canal-server[{extra}]'"
        ) from None
