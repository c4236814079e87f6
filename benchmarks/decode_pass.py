"""Decodes a binlog file some times; the task comes as JSON on standard input.

The answer on standard output is a list of runs: rows, seconds, bytes of entries.
Started by `decode_only`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canal_server.config.schema import FilterConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.table_ids import TableIds
from canal_server.filters.column_filters import ColumnFilter
from canal_server.mysql.cached_columns import CachedColumns
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_files import FileSource
from canal_server.source.read.binlog_reader import Reader

if TYPE_CHECKING:
    from canal_server.ports import Span

SPARE_BYTES_MAX = 16 * 1024 * 1024  # as in an instance


class _Pass:
    """One pass of a reader; counts rows only when asked to, for that takes time."""

    def __init__(self, task: dict[str, Any], *, counting: bool) -> None:
        self._task = task
        self._counting = counting
        self.rows = 0
        self.bytes = 0
        self.seconds = 0.0

    def run(self, control: ControlConnection) -> None:
        """Read the file from its beginning."""
        reader = Reader(
            BlockPool(spare_max=SPARE_BYTES_MAX),
            TableIds(),
            CachedColumns(control),
            table_filter=lambda _: True,
            columns=ColumnFilter("", ""),
            filters=FilterConfig(),
            packets=False,
            until=self._task["until"],
        )
        path = Path(self._task["path"])
        with FileSource(path) as source:
            reader.start(path.name, 4)
            started = time.monotonic()
            reader.run(source, self._take, lambda: None, Stop())
            self.seconds = time.monotonic() - started

    def _take(self, spans: list[Span]) -> bool:
        for block, first, stop in spans:
            self.bytes += block.size_of(first, stop)
            if self._counting:
                self.rows += sum(block.record(i)["rows"] for i in range(first, stop))
        return True


def main() -> None:
    """Do the task of standard input: a pass that counts, then those that are timed."""
    task = json.load(sys.stdin)
    access = Access(
        address=Address(task["host"], task["port"]),
        credentials=Credentials(task["user"], task["password"]),
    )
    with ControlConnection(access) as control:
        counted = _Pass(task, counting=True)
        counted.run(control)
        runs = []
        for _ in range(task["runs"]):
            timed = _Pass(task, counting=False)
            timed.run(control)
            runs.append(
                {"rows": counted.rows, "seconds": timed.seconds, "bytes": timed.bytes}
            )
    json.dump(runs, sys.stdout)


if __name__ == "__main__":
    main()
