"""Which binlog positions a source still has.

A position is a file name and an offset. It proves nothing after the binlog was reset or
another server took over the address: the same name may then hold something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.errors import PositionError
from canal_server.model.positions import base_name, binlog_file_number

if TYPE_CHECKING:
    from canal_server.mysql.binlogs import BinaryLog


@dataclass(frozen=True, slots=True)
class PurgedFiles:
    """Binlog files that a source no longer has, without a gap."""

    first: str
    last: str
    number: int

    def __str__(self) -> str:
        if self.number == 1:
            return self.first
        return f"{self.first} to {self.last} ({self.number} files)"


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The binlog files of a source when a session began, oldest first."""

    files: tuple[BinaryLog, ...]

    def had(self, file: str | None, offset: int | None) -> bool:
        """Return whether a position belongs to this binlog, purged files included.

        A position without a file is always accepted.
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

    def purged_from(self, file: str | None) -> PurgedFiles | None:
        """Return the files from this one on that the source has purged."""
        if not file or not self.files:
            return None
        base, oldest = base_name(file), self.files[0].name
        first, left = binlog_file_number(file), binlog_file_number(oldest)
        if first >= left or base != base_name(oldest):
            return None
        last = f"{base}{left - 1:0{len(file) - len(base)}}"
        return PurgedFiles(file, last, left - first)

    def check(self, file: str, offset: int, oldest: str) -> None:
        """Raise PositionError for an operator's position that does not exist.

        `oldest`: the option that starts at the oldest file the source still has.
        """
        names = [each.name for each in self.files]
        left = f"the source has {names[0]} to {names[-1]}"
        if len(names) == 1:
            left = f"the source has {names[0]} only"
        if file in names:
            size = self.files[names.index(file)].size
            if offset > size:
                raise PositionError(
                    f"{file}:{offset} does not exist: {file} ends at {size}"
                )
        elif base_name(file) != base_name(names[0]):
            raise PositionError(f"no binlog file has the name {file}: {left}")
        elif binlog_file_number(file) < binlog_file_number(names[0]):
            raise PositionError(
                f"{file} was purged: {left}; {oldest} starts at the oldest"
            )
        else:
            raise PositionError(
                f"{file} does not exist yet: the newest binlog file of the source is"
                f" {names[-1]}"
            )

    def __str__(self) -> str:
        ends = dict.fromkeys(each.name for each in (*self.files[:1], *self.files[-1:]))
        return " … ".join(ends) or "none"
