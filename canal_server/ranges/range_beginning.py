"""What was changed before the first binlog file that a source has, if anything.

For a cursor that is to start at a time before everything that remains.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from canal_server.errors import ClientError
from canal_server.protocol.range_messages import PURGED
from canal_server.source.archive.source_binlogs import unreadable_gtids
from canal_server.source.begin.whole_binlog import is_first_of_all

if TYPE_CHECKING:
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.source.read.binlog_scan import Scanner

_YEAR_9999_MS: Final = 253_402_300_799_000


def check_nothing_before(
    file: str,
    requested_ms: int,
    control: ControlConnection,
    info: ServerInfo,
    scanner: Scanner,
) -> None:
    """Raise ClientError unless nothing was changed before a binlog's first file."""
    if is_first_of_all(file, info, scanner, lambda: unreadable_gtids(control, info)):
        return
    created_ms = scanner.first_event_ms(file)
    next_ms = created_ms + 1000  # times in binlogs are whole seconds
    raise ClientError(
        f"the source's binlog starts with {file}, at {_time_text(created_ms)}: changes"
        f" between {_time_text(requested_ms)} and then are not in it; start at"
        f" `earliest`, or at time:{next_ms} or later, and load what is missing from"
        " the tables",
        code=PURGED,
    )


def _time_text(time_ms: int) -> str:
    moment = datetime.fromtimestamp(min(time_ms, _YEAR_9999_MS) / 1000, UTC)
    return moment.isoformat(timespec="seconds")
