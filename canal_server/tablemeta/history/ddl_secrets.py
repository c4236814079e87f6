"""Passwords in table definitions: those of tables on another server contain some.

Statements about accounts are never in a table history.
"""

from __future__ import annotations

import re
from typing import Final

_HIDDEN: Final = "***"

# The connection of a FEDERATED table: 'mysql://user:password@host/…'.
_IN_URL: Final = re.compile(r"(?P<head>\w+://[^\s:/@'\"]*:)[^\s'\"]*(?=@)")
# An option or a word in a comment that sets one: PASSWORD = 'x', password "x".
_AS_OPTION: Final = re.compile(
    r"""(?P<head>\bpass(?:word|wd)?\W{0,2}\s*=?\s*\\?)
        (?P<quote>['"]) (?:\\.|(?P=quote){2}|(?!(?P=quote)).)* (?P=quote)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def without_secrets(text: str) -> str:
    """Return a statement with recognizable passwords replaced."""
    text = _IN_URL.sub(rf"\g<head>{_HIDDEN}", text)
    return _AS_OPTION.sub(rf"\g<head>\g<quote>{_HIDDEN}\g<quote>", text)
