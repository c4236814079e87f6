"""mysql-replication on the same loads: what a Python program gets without us.

It reads some of the rows only, for it would take minutes to read all.
"""

from __future__ import annotations

import logging
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

if TYPE_CHECKING:
    from loads import Range
    from servers import Server

REPLICA_ID = 918_273
ROWS_MAX = {"inserts": 60_000, "single": 12_000, "updates": 30_000}


@dataclass(frozen=True, slots=True)
class LibraryRun:
    """One run from the first row event on."""

    rows: int
    seconds: float


def run_library(server: Server, load: Range) -> LibraryRun | None:
    """Read the first rows of a load; None for a load that is not compared."""
    rows_max = min(load.rows, ROWS_MAX.get(load.load.name, 0))
    if not rows_max:
        return None
    rows = 0
    first_at = 0.0
    # It complains on either way that the binlog lacks the names of columns.
    logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stream = BinLogStreamReader(
            connection_settings={
                "host": server.host,
                "port": server.port,
                "user": server.user,
                "passwd": server.password,
            },
            server_id=REPLICA_ID,
            log_file=load.file,
            log_pos=load.position,
            resume_stream=True,
            blocking=True,
            only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        )
        try:
            for event in stream:
                first_at = first_at or time.monotonic()
                rows += len(event.rows)
                if rows >= rows_max:
                    break
            return LibraryRun(rows, time.monotonic() - first_at)
        finally:
            stream.close()
