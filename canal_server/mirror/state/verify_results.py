"""The last comparison of each table with its source, kept in the lake.

Of `mirror verify` or of the running mirror; status and metrics of the mirror show it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.state import file_of

if TYPE_CHECKING:
    from canal_server.mirror.lake.lake_storage import Folder


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What a comparison found: its outcome, and at least how many rows differ.

    `problem` is why it was not compared.
    """

    table: TableName
    outcome: str
    at_ms: int
    differing: int = 0
    problem: str = ""


class VerifyResults:
    """The results of all tables. Each method may raise LakeError."""

    def __init__(self, folder: Folder) -> None:
        """Set the mirror's own folder."""
        self._folder = folder.below("verified")

    def write(self, result: VerifyResult) -> None:
        """Store the result of a table; replaces an earlier one."""
        fields = {
            "table": [*result.table],
            "outcome": result.outcome,
            "at_ms": result.at_ms,
            "differing": result.differing,
            "problem": result.problem,
        }
        self._folder.write(file_of(result.table), json.dumps(fields).encode())

    def read_all(self) -> dict[TableName, VerifyResult]:
        """Return the results by table; unreadable ones are left out."""
        found = (self._read(name) for name in self._folder.names())
        return {each.table: each for each in found if each is not None}

    def _read(self, name: str) -> VerifyResult | None:
        try:
            fields: dict[str, Any] = json.loads(self._folder.read(name) or b"")
            return VerifyResult(
                TableName(*map(str, fields["table"])),
                str(fields["outcome"]),
                int(fields["at_ms"]),
                int(fields["differing"]),
                str(fields.get("problem", "")),
            )
        except (ValueError, KeyError, TypeError):
            return None
