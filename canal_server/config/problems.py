"""Collects the problems of the settings, so that all of them are reported at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from canal_server.config.substitution import UnresolvableError
from canal_server.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.config.substitution import Found, Lookup

SHOWN_CHARACTERS_MAX = 200
HIDDEN = "(hidden)"
_REFERENCE = re.compile(r"\$\{[\w.]+\}")  # and nothing beside it
UNRESOLVED = (
    "contains ${…}, which is not replaced here, not set, or refers to itself; write"
    " another value"
)


class Problems:
    """Sentences of the form `file: key = value: problem; remedy`."""

    def __init__(self) -> None:
        # Ordered and unique: instances share canal.properties.
        self._sentences: dict[str, None] = {}

    def add(
        self, origin: str, key: str, text: str, wrong: str, *, secret: bool = False
    ) -> None:
        """Report an invalid value; the text of a secret is hidden."""
        shown = HIDDEN if secret and text else _bounded(text)
        sentence = f"{origin}: {key} = {shown}: {wrong}"
        self._sentences[" ".join(sentence.split())] = None

    def add_file(self, origin: str, wrong: str) -> None:
        """Report an unusable file."""
        self._sentences[f"{origin}: {wrong}"] = None

    def raise_if_any(self, warnings: Callable[[], Sequence[str]] = tuple) -> None:
        """Raise ConfigError with all reported problems, and with the warnings."""
        if self._sentences:
            raise ConfigError(list(self._sentences), warnings())


def find(
    lookup: Lookup, key: str, problems: Problems, *, secret: bool = False
) -> Found | None:
    """Look a key up; an unresolvable one is reported and counts as missing."""
    try:
        return lookup.find(key)
    except UnresolvableError as error:
        # The message names what is in the braces: maybe a part of a password.
        is_shown = not secret or _REFERENCE.fullmatch(error.text)
        wrong = str(error) if is_shown else UNRESOLVED
        problems.add(error.origin, key, error.text, wrong, secret=secret)
        return None


def _bounded(text: str) -> str:
    """Return a text shortened for a log line."""
    shown = "".join(char if char.isprintable() else "?" for char in text)
    if len(shown) <= SHOWN_CHARACTERS_MAX:
        return shown
    return shown[: SHOWN_CHARACTERS_MAX - 1] + "…"
