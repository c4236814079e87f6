"""The labels of ENUM and SET, as COLUMN_TYPE has them."""

from __future__ import annotations

import re
from typing import Final

Label = str | bytes  # bytes: MySQL shows what is not text as hexadecimal digits


def labels_of(text: str) -> tuple[Label, ...]:
    """Read the labels as COLUMN_TYPE has them."""
    return tuple(
        bytes.fromhex(found["value"].zfill(len(found["value"]) + 1 & ~1))
        if found["hex"]
        else _ESCAPE.sub(lambda escape: _UNESCAPED[escape[0]], found["value"])
        for found in _LABEL.finditer(text)
    )


_LABEL: Final = re.compile(r"(?P<hex>x?)'(?P<value>(?:[^'\\]|''|\\.)*+)'", re.DOTALL)
_ESCAPE: Final = re.compile(r"''|\\.", re.DOTALL)
_UNESCAPED: Final = {"''": "'", "\\0": "\0", "\\n": "\n", "\\r": "\r", "\\\\": "\\"}
