"""Passwords in definitions of tables: those that name another server hold some.

Leaves out statements about accounts, which no table history has.
"""

from __future__ import annotations

import re
from typing import Final

_HIDDEN: Final = "***"

# The connection of a table that lies on another server: 'mysql://user:password@host/…'.
_IN_URL: Final = re.compile(r"(?P<head>\w+://[^\s:/@'\"]*:)[^\s'\"]*(?=@)")
# An option or a word in a comment that configures one: PASSWORD = 'x', password "x".
_AS_OPTION: Final = re.compile(
    r"""(?P<head>\bpass(?:word|wd)?\W{0,2}\s*=?\s*\\?)
        (?P<quote>['"]) (?:\\.|(?P=quote){2}|(?!(?P=quote)).)* (?P=quote)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def without_secrets(text: str) -> str:
    """Return a statement without the passwords that can be told as such."""
    text = _IN_URL.sub(rf"\g<head>{_HIDDEN}", text)
    return _AS_OPTION.sub(rf"\g<head>\g<quote>{_HIDDEN}\g<quote>", text)
