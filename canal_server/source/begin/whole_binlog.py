"""Whether a source still has all that it ever wrote to its binlog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.model.positions import binlog_file_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.mysql.flavour import ServerInfo
    from canal_server.source.read.binlog_scan import Scanner

FIRST_NUMBER: Final = 1  # of a binlog's files


def is_first_of_all(
    file: str, info: ServerInfo, scanner: Scanner, purged: Callable[[], str]
) -> bool:
    """Return whether nothing was changed before a binlog's oldest file.

    Nothing was when the file is the first one that the server ever wrote, and no GTID
    set precedes it, as it does on a server restored from a backup. `purged` returns the
    server's set of purged GTIDs. Raises SourceError.
    """
    if binlog_file_number(file) != FIRST_NUMBER:
        return False
    return not str(scanner.head_of(file, mariadb=info.is_mariadb)) and not purged()
