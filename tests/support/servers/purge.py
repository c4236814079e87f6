"""Removing binlog files of a server, and what reads them."""

from __future__ import annotations

import contextlib
import time

import pymysql
from fix_pipeline import UNIT_S

NOT_CONVERTED = 3854  # an error of MySQL: a string between character sets


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
    for (number,) in dumps_of(server):
        with contextlib.suppress(pymysql.err.MySQLError):  # it noticed just now
            server.execute(f"KILL {number}")


def dumps_of(server):
    """Return a row with the id of each dump."""
    query = (
        "SELECT id FROM information_schema.processlist"
        " WHERE command LIKE 'Binlog Dump%'"
    )
    give_up_at = time.monotonic() + 3 * UNIT_S
    while True:
        try:
            return server.execute(query)
        except pymysql.err.OperationalError as error:
            # While a session runs a statement with letters beyond utf8mb3.
            if error.args[0] != NOT_CONVERTED or time.monotonic() > give_up_at:
                raise
