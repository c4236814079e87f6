"""A table that an online schema change swaps, and one that is copied again unchanged.

The new table is filled as gh-ost fills it, in transactions of some thousand rows, while
the mirror follows it out of sight. Then the names are exchanged, and a row is changed:
the swap is followed when the lake has that change.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from deltalake import DeltaTable
from loads import SCHEMA, TABLE
from results import Verdict

from canal_server.model.versions import version

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from servers import Server

NEW, OLD = f"_{TABLE}_gho", f"_{TABLE}_del"
CHUNK = 10_000  # rows of a transaction
SWAP_S_MAX = 10.0


class Lake(Protocol):
    """What the lake of a mirror shows of the table."""

    path: Path

    @property
    def epoch(self) -> int:
        """The number of the source, in positions."""

    def position(self) -> int:
        """Return the number of the position up to which changes are in the lake."""

    def is_copied(self, times: int) -> bool:
        """Return whether it was copied so often, and follows the stream."""

    def copies(self) -> int:
        """Return how often the table was copied."""

    def phase_of(self, table: str) -> str:
        """Return what the mirror does with a table."""

    def wait(self, done: Callable[[], bool], what: str) -> float:
        """Return when a condition became true."""

    def copy(self) -> None:
        """Request another copy of the table."""


def swap(lake: Lake, server: Server, rows: int) -> Verdict:
    """Replace the table by a new one with the same rows; return how long that took."""
    with server.connect(database=SCHEMA, read_timeout=1800) as connection:
        cursor = connection.cursor()
        cursor.execute("SET autocommit = 1")
        cursor.execute(f"CREATE TABLE {NEW} LIKE {TABLE}")
        cursor.execute(f"ALTER TABLE {NEW} ADD INDEX by_k (k)")
        lake.wait(lambda: lake.phase_of(NEW) == "following", f"table {NEW}")
        for first in range(0, rows + 1, CHUNK):
            cursor.execute(
                f"INSERT INTO {NEW} SELECT * FROM {TABLE} WHERE id >= {first} AND "
                f"id < {first + CHUNK}"
            )
        _wait_for_change(lake, cursor)
        cursor.execute(f"RENAME TABLE {TABLE} TO {OLD}, {NEW} TO {TABLE}")
        started = time.monotonic()
        seconds = _wait_for_change(lake, cursor) - started
        cursor.execute(f"DROP TABLE {OLD}")
    return Verdict(
        f"swap of a table of {rows:,} rows followed",
        f"{SWAP_S_MAX:g} s",
        f"{seconds:.1f} s after the RENAME",
        seconds < SWAP_S_MAX,
    )


def copy_unchanged(lake: Lake, rows: int) -> Verdict:
    """Copy the table again, which equals the source; return what that wrote."""
    before, copies = DeltaTable(str(lake.path)), lake.copies()
    started = time.monotonic()
    lake.copy()
    ended = lake.wait(lambda: lake.is_copied(copies + 1), "another copy")
    after = DeltaTable(str(lake.path))
    written = len(set(after.file_uris()) - set(before.file_uris()))
    return Verdict(
        f"copy of an unchanged table of {rows:,} rows",
        "no data file",
        f"{written} data files, {ended - started:.0f} s",
        written == 0,
    )


def _wait_for_change(lake: Lake, cursor: Any) -> float:
    """Change a row, and return when the lake has that."""
    cursor.execute(f"UPDATE {TABLE} SET k = k + 1 WHERE id = 1")
    cursor.execute("SHOW BINARY LOG STATUS")
    file, offset = cursor.fetchone()[:2]
    number = version(lake.epoch, file, offset)
    return lake.wait(lambda: lake.position() >= number, "the change")
