"""Finds the text of a key: environment, files, `${key:default}`.

`${…}` is replaced only in keys of instances, and is an error in keys of the server. The
meaning of a text is left to `canal_server.config.values`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from canal_server.config.properties import Properties

ENVIRONMENT = "environment"
NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")
_REFERENCE = re.compile(r"\$\{[^}]*\}")


@dataclass(frozen=True, slots=True)
class Found:
    """A value as text, trimmed and never blank, and its origin."""

    text: str
    origin: str  # a file name or `ENVIRONMENT`


class UnresolvableError(Exception):
    """A value that refers to itself, or to a key that is not set."""

    def __init__(self, message: str, origin: str, text: str) -> None:
        super().__init__(message)
        self.origin = origin
        self.text = text


def environment_name(key: str) -> str:
    """Return the environment variable that sets a key.

    >>> environment_name("canal.instance.master.address")
    'CANAL_INSTANCE_MASTER_ADDRESS'
    """
    return NOT_ALPHANUMERIC.sub("_", key).upper()


class Lookup:
    """Looks keys up in the environment first, then in files; blank counts as missing.

    `used` collects the keys that were looked up.
    """

    def __init__(
        self, environ: Mapping[str, str], files: Sequence[Properties], /
    ) -> None:
        self._environ = environ
        self.values: dict[str, tuple[str, str]] = {}
        self._origins = [file.origin for file in files]
        for file in files:
            # A later file hides the key of an earlier one, even with a blank value.
            for key, text in file.values.items():
                self.values[key] = (text, file.origin)
        self.used: set[str] = set()

    @property
    def last_file(self) -> str:
        """Return the file that counts most."""
        return self._origins[-1] if self._origins else ""

    def find(self, key: str) -> Found | None:
        """Return the text of a key, None if it is missing or blank.

        Raises UnresolvableError if it contains a `${…}`.
        """
        found = self._as_written(key)
        if found is not None and (reference := _REFERENCE.search(found.text)):
            message = (
                f"{reference[0]} is not replaced in keys of the server; write the"
                f" value, or set the environment variable {environment_name(key)}"
            )
            raise UnresolvableError(message, found.origin, found.text)
        return found

    def find_safely(self, key: str) -> Found | None:
        """Return the text of a key; one that cannot be resolved counts as missing."""
        try:
            return self.find(key)
        except UnresolvableError:
            return None

    def is_set(self, key: str) -> bool:
        """Return whether a key has a value, even one that cannot be resolved."""
        try:
            return self.find(key) is not None
        except UnresolvableError:
            return True

    def names(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix, by files and the environment."""
        return sorted(
            {
                key
                for each in (self.values, self._environ)
                for key in each
                if key.startswith(prefix)
            }
        )

    def rank(self, origin: str) -> int:
        """Return how much a value counts: the later its file the more."""
        if origin == ENVIRONMENT:
            return len(self._origins)
        return self._origins.index(origin) if origin in self._origins else -1

    def is_written(self, key: str) -> bool:
        """Return whether a file contains a key, even a blank one."""
        return key in self.values

    def _as_written(self, key: str) -> Found | None:
        self.used.add(key)
        text = self._environ.get(key, "").strip()
        if not text and key.startswith("canal."):
            text = self._environ.get(environment_name(key), "").strip()
        if text:
            return Found(text, ENVIRONMENT)
        text, origin = self.values.get(key, ("", ""))
        text = text.strip()
        return Found(text, origin) if text else None


class InstanceLookup(Lookup):
    """Like `Lookup`, but replaces `${key:default}` in values.

    `${a:b}` is the value of `a`, or `b` if it has none; both may contain further
    `${…}`. Without a default, a key that is blank in a file is empty, and a key in no
    file is an error.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        files: Sequence[Properties],
        /,
        fixed: Mapping[str, str],
    ) -> None:
        super().__init__(environ, files)
        self._fixed = fixed  # keys that cannot be overridden

    def find(self, key: str) -> Found | None:
        """Return the text of a key with all `${…}` replaced.

        Raises UnresolvableError if the value refers to itself or to a missing key.
        """
        found = self._raw(key)
        if found is None or "${" not in found.text:
            return found
        try:
            text = self._expand(found.text, (key,)).strip()
        except _CircleError as circle:
            message = (
                f"refers to itself ({' -> '.join(circle.keys)}); remove the circular "
                "reference"
            )
            raise UnresolvableError(message, found.origin, found.text) from None
        except _MissingError as missing:
            message = (
                f"${{{missing.key}}} is not set; set it in a file or in the"
                f" environment, or write ${{{missing.key}:}} for an empty value"
            )
            raise UnresolvableError(message, found.origin, found.text) from None
        return Found(text, found.origin) if text else None

    def _raw(self, key: str) -> Found | None:
        if key in self._fixed:
            self.used.add(key)
            return Found(self._fixed[key], "")
        return self._as_written(key)

    def _expand(self, text: str, inside: tuple[str, ...]) -> str:
        """Replace every `${…}`; `inside` are the keys that are being expanded."""
        begin = text.find("${")
        if begin < 0:
            return text
        end = _closing_brace(text, begin + 2)
        if end < 0:  # never closed: plain text
            return text
        # Replace from the inside out, so that a key may be composed.
        name, colon, rest = self._expand(text[begin + 2 : end], inside).partition(":")
        default = rest.strip() if colon else None
        return (
            text[:begin]
            + self._value(name.strip(), default, inside)
            + self._expand(text[end + 1 :], inside)
        )

    def _value(self, key: str, default: str | None, inside: tuple[str, ...]) -> str:
        if key in inside:
            raise _CircleError((*inside, key))
        found = self._raw(key)
        if found is None:
            if default is None and not self.is_written(key):
                raise _MissingError(key)
            return default or ""
        return self._expand(found.text, (*inside, key)).strip() or default or ""


class _CircleError(Exception):
    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__()
        self.keys = keys


class _MissingError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


def _closing_brace(text: str, begin: int) -> int:
    """Return where the `}` of a `${` that ends before `begin` is, or -1.

    Braces inside are balanced, so that a default may contain `{2}` or `${…}`.
    """
    depth = 1
    for at in range(begin, len(text)):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return at
    return -1
