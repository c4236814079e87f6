"""Which binlog files and GTIDs can be read of a source: the server's and the archive's.

With an archive, its files precede the server's, if none is missing in between. Leaves
out reading them (`archived_dump`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import ArchiveError
from canal_server.mysql import binlogs
from canal_server.source.archive.archive_files import BinlogArchive, as_logs

if TYPE_CHECKING:
    from canal_server.mysql.binlogs import BinaryLog
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.source_settings import Access
    from canal_server.source.archive.archive_files import ArchivedFile, Gtids


def archive_of(access: Access) -> BinlogArchive | None:
    """Return the archive of a source, None when it has none."""
    if access.archive is None:
        return None
    key = access.named_by.removesuffix(".address")
    return BinlogArchive(access.archive, f"{key}.archive.dir")


def archived_file(access: Access, name: str) -> ArchivedFile | None:
    """Return the file of a name in the archive, None if there is none."""
    archive = archive_of(access)
    try:
        files = () if archive is None else archive.files()
    except ArchiveError:
        return None  # it is for advice only
    return next((each for each in files if each.name == name), None)


def readable_logs(connection: ControlConnection) -> list[BinaryLog]:
    """Return the binlog files that can be read, the oldest first.

    Raises SourceError, ArchiveError.
    """
    listed = binlogs.binary_logs(connection)
    archive = archive_of(connection.access)
    if archive is None or not listed:
        return listed
    return as_logs(archive.before(listed[0].name)) + listed


def unreadable_gtids(connection: ControlConnection, info: ServerInfo) -> str:
    """Return the GTID set that is in no file that can be read.

    Always empty for MariaDB, which does not report it. Raises SourceError.
    """
    purged = binlogs.purged_gtids(connection, info)
    archive = archive_of(connection.access)
    if archive is None or not purged:
        return purged
    listed = binlogs.binary_logs(connection)
    if not listed:
        return purged
    files = archive.before(listed[0].name)
    before = files[0].head().gtids if files else None
    return str(before) if isinstance(before, GtidSet) else purged


def purged_set_of(connection: ControlConnection, oldest: str) -> Gtids:
    """Return the GTID set that a server lacks; `oldest` is its oldest file.

    For a MariaDB, which keeps no such set, what was executed before that file. Raises
    SourceError.
    """
    if connection.is_mariadb:
        rows = connection.query("SELECT BINLOG_GTID_POS(%s, 4)", (oldest,))
        return MariaGtidSet.parse(str(rows[0][0] or ""))
    rows = connection.query("SELECT @@global.gtid_purged")
    return GtidSet.parse("".join(str(rows[0][0] or "").split()))
