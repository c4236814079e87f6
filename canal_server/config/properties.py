"""Reads .properties files as Java does: ISO-8859-1 with escapes.

A byte order mark, which Java treats as part of the first key, is skipped. This is the
only module that imports `javaproperties`; the meaning of values is left to others.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import javaproperties

if TYPE_CHECKING:
    from pathlib import Path

FILE_BYTES_MAX = 16 * 1024 * 1024

# Editors, mostly on Windows, write it at the start of a text; it may also be inside a
# file that was concatenated from several.
_BOM = re.compile(rb"^\xef\xbb\xbf", re.MULTILINE)
_NOT_LATIN = (
    "UTF-16 or not a text file; save it as ISO-8859-1, with other characters as \\uXXXX"
)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class UnreadableError(Exception):
    """A file that cannot be read; the message omits its name."""


@dataclass(frozen=True, slots=True)
class Properties:
    """The keys of one file; the last value of a repeated key counts."""

    origin: str  # the file name for messages
    values: dict[str, str]
    non_ascii: tuple[str, ...] = ()  # keys whose values contain non-ASCII bytes
    repeated: tuple[tuple[str, tuple[int, ...]], ...] = ()  # keys, and their lines


def read_properties(path: Path) -> Properties:
    """Read a file. Raises FileNotFoundError and UnreadableError."""
    content = _content(path)
    try:
        values = javaproperties.loads(content)
        return Properties(str(path), values, _non_ascii(content), _repeated(content))
    except javaproperties.InvalidUEscapeError:
        # The escape is not shown, as it may be a part of a password.
        raise UnreadableError(
            f"line {_line_of_escape(content)}: \\u is not a valid escape; write a"
            " backslash, u and four hexadecimal digits, or double the backslash"
        ) from None


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise
    except NotADirectoryError:
        raise UnreadableError(
            f"{path.parent} is a file; set the folder that contains {path.name}"
        ) from None
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from error
    if len(content) > FILE_BYTES_MAX:
        raise UnreadableError(
            f"larger than {FILE_BYTES_MAX} bytes; set a properties file"
        )
    if content.startswith(_UTF_16) or b"\0" in content:
        raise UnreadableError(_NOT_LATIN)
    return _BOM.sub(b"", content)


def _line_of_escape(content: bytes) -> int:
    """Return the number of the line where the invalid escape begins."""
    line = 1
    with contextlib.suppress(javaproperties.InvalidUEscapeError):
        for element in javaproperties.parse(content):
            line += element.source.count("\n")
    return line


def _non_ascii(content: bytes) -> tuple[str, ...]:
    """Return the keys whose lines contain raw non-ASCII bytes.

    Such bytes are read as ISO-8859-1, which is rarely what an editor wrote.
    """
    return tuple(
        element.key
        for element in javaproperties.parse(content)
        if isinstance(element, javaproperties.KeyValue) and not element.source.isascii()
    )


def _repeated(content: bytes) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the keys that are written more than once, with the lines of each."""
    lines: dict[str, list[int]] = {}
    line = 1
    for element in javaproperties.parse(content):
        if isinstance(element, javaproperties.KeyValue):
            lines.setdefault(element.key, []).append(line)
        line += element.source.count("\n")
    return tuple((key, tuple(at)) for key, at in lines.items() if len(at) > 1)
