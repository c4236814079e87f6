"""When tables of the lake were compacted and vacuumed last, kept in the lake.

So that the periods count over restarts, and for a mirror that runs for a short time.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from canal_server.mirror.settings.table_values import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.mirror.lake.lake_storage import Folder

FILE: Final = "upkeep.json"


class UpkeepTimes:
    """The times of all tables. Each method may raise LakeError."""

    def __init__(self, folder: Folder, wall: Callable[[], float] = time.time) -> None:
        """Set the mirror's own folder."""
        self._folder = folder
        self._wall = wall

    def read(self) -> tuple[dict[TableName, float], dict[TableName, float]]:
        """Return how many seconds ago tables were compacted, and vacuumed.

        A file that cannot be understood is as none.
        """
        try:
            found = json.loads(self._folder.read(FILE) or b"{}")
            return self._ago(found["compacted"]), self._ago(found["vacuumed"])
        except (ValueError, KeyError, TypeError):
            return {}, {}

    def write(
        self, compacted: Mapping[TableName, float], vacuumed: Mapping[TableName, float]
    ) -> None:
        """Store how many seconds ago that was."""
        now = self._wall()
        fields = {
            kind: [[*name, round((now - ago_s) * 1000)] for name, ago_s in each.items()]
            for kind, each in (("compacted", compacted), ("vacuumed", vacuumed))
        }
        self._folder.write(FILE, json.dumps(fields, ensure_ascii=False).encode())

    def _ago(self, found: list[tuple[str, str, int]]) -> dict[TableName, float]:
        now = self._wall()
        return {
            TableName(str(schema), str(table)): max(0.0, now - int(at_ms) / 1000)
            for schema, table, at_ms in found
        }
