"""Collects what is wrong with the settings, so that all of it is told at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.config.substitution import UnresolvableError
from canal_server.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.config.substitution import Found, Lookup

SHOWN_CHARACTERS_MAX = 200
HIDDEN = "(hidden)"


class Problems:
    """Sentences of the form `file: key = value: what is wrong; remedy`."""

    def __init__(self) -> None:
        # Ordered and without repetition: instances share canal.properties.
        self._sentences: dict[str, None] = {}

    def add(
        self, origin: str, key: str, text: str, wrong: str, *, secret: bool = False
    ) -> None:
        """Note that a value cannot be used; a secret's text is not told."""
        shown = HIDDEN if secret and text else _bounded(text)
        sentence = f"{origin}: {key} = {shown}: {wrong}"
        self._sentences[" ".join(sentence.split())] = None

    def add_file(self, origin: str, wrong: str) -> None:
        """Note that a whole file cannot be used."""
        self._sentences[f"{origin}: {wrong}"] = None

    def raise_if_any(self, warnings: Callable[[], Sequence[str]] = tuple) -> None:
        """Raise ConfigError with everything that was noted, and with the warnings."""
        if self._sentences:
            raise ConfigError(list(self._sentences), warnings())


def find(
    lookup: Lookup, key: str, problems: Problems, *, secret: bool = False
) -> Found | None:
    """Look a key up; what cannot be resolved is a problem and counts as missing."""
    try:
        return lookup.find(key)
    except UnresolvableError as error:
        problems.add(error.origin, key, error.text, str(error), secret=secret)
        return None


def _bounded(text: str) -> str:
    """Return a text fit for a line of the log."""
    shown = "".join(char if char.isprintable() else "?" for char in text)
    if len(shown) <= SHOWN_CHARACTERS_MAX:
        return shown
    return shown[: SHOWN_CHARACTERS_MAX - 1] + "…"
