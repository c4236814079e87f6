"""Which places of a binlog a source still has.

A place is a file's name and an offset. It says nothing once the binlog was begun anew
or another server took over the address: there the same name may hold something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.model.positions import binlog_file_number

if TYPE_CHECKING:
    from canal_server.mysql.binlogs import BinaryLog

_NUMBER = re.compile(r"\d+$")


def base_name(file: str) -> str:
    """Return a binlog file's name without its number."""
    return _NUMBER.sub("", file)


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The binlog files of a source when a session began, oldest first."""

    files: tuple[BinaryLog, ...]

    def had(self, file: str | None, offset: int | None) -> bool:
        """Tell whether a place is one of this binlog, purged ones included.

        A place without a file is not contradicted by anything.
        """
        if not file or not self.files:
            return True
        for known in self.files:
            if known.name == file:
                return (offset or 0) <= known.size
        oldest = self.files[0].name
        return base_name(file) == base_name(oldest) and (
            binlog_file_number(file) < binlog_file_number(oldest)
        )

    def __str__(self) -> str:
        ends = dict.fromkeys(each.name for each in (*self.files[:1], *self.files[-1:]))
        return " … ".join(ends) or "none"
