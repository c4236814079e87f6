"""Removing binlog files of a server, and what reads them."""

from __future__ import annotations

import contextlib
import time

import pymysql
from fix_pipeline import UNIT_S


def purge(server, file=""):
    """Remove the binlog files before one, a new one unless it is named."""
    if not file:
        server.execute("FLUSH BINARY LOGS")
        file, _ = server.binlog_position()
    give_up_at = time.monotonic() + 3 * UNIT_S
    while server.execute("SHOW BINARY LOGS")[0][0] != file:
        assert time.monotonic() < give_up_at, "the files are not purged"
        # The thread of a dump that has ended may not have noticed, and hold a file.
        kill_dumps(server)
        server.execute(f"PURGE BINARY LOGS TO '{file}'")


def kill_dumps(server):
    """Kill all dumps of a server, also those whose clients have ended."""
    # MySQL's information_schema fails while a session has letters beyond utf8mb3.
    is_new = server.flavour == "mysql" and server.version >= (8, 0, 22)
    owner = "performance_schema" if is_new else "information_schema"
    dumps = server.execute(
        f"SELECT id FROM {owner}.processlist WHERE command LIKE 'Binlog Dump%'"
    )
    for (number,) in dumps:
        with contextlib.suppress(pymysql.err.MySQLError):  # it noticed just now
            server.execute(f"KILL {number}")
