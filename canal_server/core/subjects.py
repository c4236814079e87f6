"""Numbers for the table names that occur in a stream.

A record carries the number of its subject, so that filters compare numbers: each
cursor evaluates its regular expressions once per subject.
"""

from __future__ import annotations

NO_SUBJECT = 0  # entries without a table: every filter lets them through

Names = tuple[tuple[str | None, str], ...]  # (schema, table) pairs, one or several


class Subjects:
    """Gives each tuple of (schema, table) names a small number, from 1 on.

    A row entry has one name; a DDL entry has the names of all tables it touches
    (RENAME: old and new), and passes a filter when one of them does. Written by the
    pump's thread only; reading from others is safe as numbers are never reused.
    """

    def __init__(self) -> None:
        self._ordinals: dict[Names, int] = {(): NO_SUBJECT}
        self._names: list[Names] = [()]

    def ordinal_of(self, names: Names) -> int:
        """Return the number of these names, a new one when they are new."""
        found = self._ordinals.get(names)
        if found is None:
            found = self._ordinals[names] = len(self._names)
            self._names.append(names)
        return found

    def names_of(self, ordinal: int) -> Names:
        """Return the names of a number that `ordinal_of` gave."""
        return self._names[ordinal]

    def __len__(self) -> int:
        return len(self._names)
