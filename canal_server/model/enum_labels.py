"""The labels of ENUM and SET, as COLUMN_TYPE has them."""

from __future__ import annotations

import re
from typing import Final

Label = str | bytes  # bytes: MySQL shows what is not text as hexadecimal digits


def labels_of(text: str) -> tuple[Label, ...]:
    """Read the labels as COLUMN_TYPE has them; never raises."""
    return tuple(_label(found) for found in _LABEL.finditer(text))


def _label(found: re.Match[str]) -> Label:
    value = found["value"]
    if found["hex"]:
        try:
            return bytes.fromhex(value.zfill(len(value) + 1 & ~1))
        except ValueError:
            return value  # of a damaged entry
    return _ESCAPE.sub(lambda escape: _UNESCAPED.get(escape[0], escape[0]), value)


_LABEL: Final = re.compile(r"(?P<hex>x?)'(?P<value>(?:[^'\\]|''|\\.)*+)'", re.DOTALL)
_ESCAPE: Final = re.compile(r"''|\\.", re.DOTALL)
_UNESCAPED: Final = {"''": "'", "\\0": "\0", "\\n": "\n", "\\r": "\r", "\\\\": "\\"}
