"""One table among all: which changes are its, and the filter that selects it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canal_server.client.arrow_tables import ArrowBatch
    from canal_server.client.change_reader import Change


class TableChoice:
    """A table by its name `schema.table`. Raises ValueError for another text."""

    def __init__(self, name: str) -> None:
        self.schema, point, self.table = name.partition(".")
        if not (self.schema and point and self.table):
            raise ValueError(f"table = {name!r}: expected schema.table")

    @property
    def filter(self) -> str:
        """The regular expression for the table; empty if none can be written."""
        name = f"{self.schema}.{self.table}"
        return "" if "," in name else re.escape(name)

    def accepts(self, change: Change | ArrowBatch) -> bool:
        """Return whether a change is, or rows are, of this table."""
        return change.table == self.table and change.schema == self.schema
