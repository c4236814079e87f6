"""Numbers for the table names that occur in a stream.

A record carries the number of its subject, so that filters compare numbers: each
cursor evaluates its regular expressions once per subject.

A server may give its tables millions of names in the long run. When there are too
many, an epoch begins: names are numbered anew, and those of before are forgotten as
soon as whoever holds records says that none carries an old number any more. A number
is never given twice.
"""

from __future__ import annotations

import threading

NO_SUBJECT = 0  # entries without a table: every filter lets them through
# Of one epoch; more than tables that are in use at once. Some 350 bytes each, and
# twice as many may be kept while entries of the epoch before wait for clients.
NAMES_MAX = 1 << 17

Names = tuple[tuple[str | None, str], ...]  # (schema, table) pairs, one or several


class TableIds:
    """Gives each tuple of (schema, table) names a number, from 1 on.

    A row entry has one name; a DDL entry has the names of all tables it touches
    (RENAME: old and new), and passes a filter when one of them does. Any thread may
    ask: those of pumps, several in a group, for numbers, others for names.
    """

    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._names_max = names_max
        self._numbering = threading.Lock()
        self._ordinals: dict[Names, int] = {(): NO_SUBJECT}  # of this epoch
        # The lowest number that has names still, and those of it and of all above.
        # One value, so that other threads see both of the same moment.
        self._living: tuple[int, list[Names]] = (NO_SUBJECT + 1, [])
        self._epoch_first = NO_SUBJECT + 1
        self.epoch = 0  # who keeps numbers asks for them anew when it changes
        self.ageing = False  # names of the epoch before are kept still

    def ordinal_of(self, names: Names) -> int:
        """Return the number of these names, a new one when they are new."""
        found = self._ordinals.get(names)
        return self._new_ordinal(names) if found is None else found

    def _new_ordinal(self, names: Names) -> int:
        with self._numbering:
            found = self._ordinals.get(names)
            if found is not None:
                return found  # another thread was first
            if len(self._ordinals) > self._names_max and not self.ageing:
                self._begin_epoch()
            first, living = self._living
            living.append(names)
            # Behind the name: whoever learns the number must find it.
            found = self._ordinals[names] = first + len(living) - 1
            return found

    def names_of(self, ordinal: int) -> Names:
        """Return the names of a number that `ordinal_of` gave.

        Raises LookupError when they are forgotten.
        """
        if ordinal == NO_SUBJECT:
            return ()
        first, living = self._living
        if ordinal < first:
            raise LookupError(f"subject {ordinal} is forgotten: the first is {first}")
        return living[ordinal - first]

    def since(self, ordinal: int) -> tuple[int, list[Names]]:
        """Return the lowest number that has names, and the names from `ordinal` on.

        Those from the lowest number on when that is higher; NO_SUBJECT is left out.
        """
        first, living = self._living
        return first, living[max(ordinal - first, 0) :]

    def _begin_epoch(self) -> None:
        first, living = self._living
        self._epoch_first = first + len(living)
        self._ordinals = {(): NO_SUBJECT}
        self.epoch += 1
        self.ageing = True

    def forget_old(self) -> None:
        """Forget the names of the epoch before: nothing carries its numbers now."""
        with self._numbering:
            first, living = self._living
            self._living = (self._epoch_first, living[self._epoch_first - first :])
            self.ageing = False

    def __len__(self) -> int:
        """Return how many names are kept, those of no table included."""
        return len(self._living[1]) + 1
