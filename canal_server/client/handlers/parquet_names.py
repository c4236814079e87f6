"""The names of Parquet files, by which rows that are delivered again are found.

20260228T010203Z-binlog.000007-000000004711-0000.parquet
commit time      position of the first row, and its number in the event
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TIME: Final = "%Y%m%dT%H%M%SZ"
_NAME: Final = re.compile(r"(\d{8}T\d{6}Z)-(.+)-(\d+)-(\d+)\.parquet")


class FileName(NamedTuple):
    """A file, by its first row."""

    moment: datetime  # when its transaction was committed, in whole seconds
    binlog: str
    offset: int
    row: int

    def __str__(self) -> str:
        moment = f"{self.moment.astimezone(UTC):{_TIME}}"
        return f"{moment}-{self.binlog}-{self.offset:012}-{self.row:04}.parquet"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return what a name says; None for other files."""
        found = _NAME.fullmatch(text)
        if found is None:
            return None
        moment = datetime.strptime(found[1], _TIME).replace(tzinfo=UTC)
        return cls(moment, found[2], int(found[3]), int(found[4]))

    def is_before(self, other: Self) -> bool:
        """Return whether a row is before another one in the same binlog."""
        base, _, number = self.binlog.rpartition(".")
        other_base, _, other_number = other.binlog.rpartition(".")
        if base != other_base or not (number.isdecimal() and other_number.isdecimal()):
            return False
        return (int(number), self.offset, self.row) < (
            int(other_number), other.offset, other.row
        )  # fmt: skip


def folder_name(schema: str, table: str) -> str:
    """Return the name of the folder of a table."""
    return f"{schema}.{table}".replace("%", "%25").replace("/", "%2F")


def predecessor(folder: Path, first: FileName) -> Path | None:
    """Return the last file that begins before a new one, in the same binlogs."""
    found = [
        name
        for path in folder.iterdir()
        if (name := FileName.parse(path.name)) is not None
        and name.moment <= first.moment
        and name.is_before(first)
    ]
    return folder / str(max(found)) if found else None


def superseded(folder: Path, first: FileName, last: FileName) -> Iterator[Path]:
    """Yield the files that begin after the first row of a new file, up to its last.

    They are of an earlier delivery: what they have is in the new file, or delivered
    after it. Both position and time have to be within the file, as the positions of a
    source may begin again, or be those of another source.
    """
    start = first._replace(moment=first.moment.replace(microsecond=0))
    for path in folder.iterdir():
        found = FileName.parse(path.name)
        if (
            found is not None
            and start.moment <= found.moment <= last.moment
            and first.is_before(found)
            and (found.is_before(last) or found[1:] == last[1:])
        ):
            yield path
