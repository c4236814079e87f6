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
from canal_server.mysql.binlogs import writer_of
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
    return as_logs(archived_before(connection, archive, listed[0].name)) + listed


def archived_before(
    connection: ControlConnection, archive: BinlogArchive, oldest: str
) -> tuple[ArchivedFile, ...]:
    """Return the archived files that precede a server's oldest file without a gap.

    None of another server, although their names may continue: after a server has taken
    over, its files have what the former one never had, and the other way round. Raises
    SourceError, ArchiveError.
    """
    files = archive.before(oldest)
    return () if other_writer(connection, archive, oldest) else files


def other_writer(
    connection: ControlConnection, archive: BinlogArchive, oldest: str
) -> str:
    """Return why the archive is not of the server that has `oldest`; empty: it is.

    Two servers with one id cannot be distinguished. Raises SourceError, ArchiveError.
    """
    files = archive.before(oldest)
    if not files:
        return ""
    archived, written = files[-1].head().server_id, writer_of(connection, oldest)
    if written is None or archived == written:
        return ""
    return (
        f"{archive.key} = {archive.directory}: {files[-1].name} is of the server with"
        f" id {archived}, but {oldest} of the source of id {written}, so the archive is"
        " not read: name a directory with files of this server"
    )


def unread_in_archive(connection: ControlConnection, file: str) -> str:
    """Return why a file before the oldest readable one is not read from the archive.

    Empty when the archive does not have it. Raises SourceError, ArchiveError.
    """
    archive = archive_of(connection.access)
    listed = [] if archive is None else binlogs.binary_logs(connection)
    if archive is None or not listed:
        return ""
    gap = archive.gap_before(listed[0].name, file)
    return (gap and other_writer(connection, archive, listed[0].name)) or gap


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
    files = archived_before(connection, archive, listed[0].name)
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
