"""Numbers for the table names that occur in a stream.

A record has the id of its table, so that filters compare numbers: each cursor evaluates
its regular expressions once per table.

In the long run, a server may have millions of table names. When there are too many, an
epoch begins: names get new numbers, and the old ones are forgotten as soon as the owner
of the records reports that none has an old number. A number is never used twice.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canal_server.model.ddl_statement import FilteredNames

NO_TABLE = 0  # entries without a table: every filter passes them
# In one epoch; more than the tables that are in use at once. A name takes about 350
# bytes, and twice as many are kept while entries of the previous epoch wait for
# clients.
NAMES_MAX = 1 << 17


class TableIds:
    """Gives each tuple of table names a number, from 1 on.

    A row entry has one name; a DDL entry has the names of all tables it changes
    (RENAME: old and new), and passes a filter when one of them does. It may also have
    tables that it only moves rows from or to, which not all filters see. Used by any
    thread: the pumps, several in a group, ask for numbers, others for names.
    """

    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._names_max = names_max
        self._numbering = threading.Lock()
        self._ordinals: dict[FilteredNames, int] = {(): NO_TABLE}  # of this epoch
        # The lowest number that still has a name, and the names from it on. One value,
        # so that other threads see a consistent pair.
        self._living: tuple[int, list[FilteredNames]] = (NO_TABLE + 1, [])
        self._epoch_first = NO_TABLE + 1
        self.epoch = 0  # when it changes, cached numbers are outdated
        self.ageing = False  # names of the previous epoch are still kept

    def ordinal_of(self, names: FilteredNames) -> int:
        """Return the number of these names, a new one when they are new."""
        found = self._ordinals.get(names)
        return self._new_ordinal(names) if found is None else found

    def _new_ordinal(self, names: FilteredNames) -> int:
        with self._numbering:
            found = self._ordinals.get(names)
            if found is not None:
                return found  # another thread was first
            if len(self._ordinals) > self._names_max and not self.ageing:
                self._begin_epoch()
            first, living = self._living
            living.append(names)
            # After the name: a thread that knows the number must find the name.
            found = self._ordinals[names] = first + len(living) - 1
            return found

    def names_of(self, ordinal: int) -> FilteredNames:
        """Return the names of a number from `ordinal_of`.

        Raises LookupError when they were forgotten.
        """
        if ordinal == NO_TABLE:
            return ()
        first, living = self._living
        if ordinal < first:
            raise LookupError(f"table id {ordinal} was forgotten, the first is {first}")
        return living[ordinal - first]

    def since(self, ordinal: int) -> tuple[int, list[FilteredNames]]:
        """Return the lowest number that has a name, and the names from `ordinal` on.

        The names start at the lowest number when that is higher, and without
        NO_TABLE.
        """
        first, living = self._living
        return first, living[max(ordinal - first, 0) :]

    def _begin_epoch(self) -> None:
        first, living = self._living
        self._epoch_first = first + len(living)
        self._ordinals = {(): NO_TABLE}
        self.epoch += 1
        self.ageing = True

    def forget_old(self) -> None:
        """Forget the names of the previous epoch: nothing has its numbers any more."""
        with self._numbering:
            first, living = self._living
            self._living = (self._epoch_first, living[self._epoch_first - first :])
            self.ageing = False

    def __len__(self) -> int:
        """Return how many names are kept, including that of NO_TABLE."""
        return len(self._living[1]) + 1
