"""Names of the tables that tools for online schema changes create beside a table.

gh-ost and pt-online-schema-change copy a table's rows into a second one, and exchange
the two by RENAME. Leaves out what the mirror does then (`run.replacements`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.mirror.settings.table_values import TableName

if TYPE_CHECKING:
    from collections.abc import Container

FOLDER: Final = "migrations"  # below the mirror's own
SKIP: Final = "skip"  # or mirror: like any other table

# gh-ost: the new rows, its log, the old rows (also with a time in the name).
_GHOST: Final = re.compile(r"_(.+?)(?:_\d{14})?_(gho|ghc|del)", re.DOTALL)
# pt-online-schema-change, which adds underscores until a name is free.
_MORE: Final = 10
_PERCONA: Final = re.compile(rf"_{{1,{_MORE}}}(.+)_(new|old)", re.DOTALL)
_SHADOWS: Final = ("gho", "new")

# All names of tables with new rows, as a filter of the server.
SHADOWS_FILTER: Final = r".*\._.*_(gho|new)"


class Helper(NamedTuple):
    """A table that belongs to a schema change of another one.

    `is_shadow`: it gets the rows, and the name, of that table.
    """

    base: TableName
    is_shadow: bool

    def is_of(self, names: Container[TableName]) -> bool:
        """Check whether one of these tables may be the changed one.

        Its own name may begin with underscores as well.
        """
        schema, table = self.base
        return any(
            TableName(schema, "_" * more + table) in names for more in range(_MORE)
        )


def helper_of(name: TableName) -> Helper | None:
    """Return which table's schema change a table belongs to, by its name alone."""
    for pattern in (_GHOST, _PERCONA):
        found = pattern.fullmatch(name.table)
        if found is not None:
            return Helper(TableName(name.schema, found[1]), found[2] in _SHADOWS)
    return None
