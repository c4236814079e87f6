"""What the archive of a source covers, for its check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.model.positions import base_name, binlog_file_number
from canal_server.mysql.binlogs import binary_logs
from canal_server.source.archive.source_binlogs import archive_of, other_writer

if TYPE_CHECKING:
    from canal_server.mysql.control_connection import ControlConnection


@dataclass(frozen=True, slots=True)
class ArchiveSurvey:
    """The files of an archive that can be read, and what is missing after them.

    `since_ms` is when the first one was created. `oldest` is the server's oldest file;
    `missing` the file before it, if the archive has only older ones. `unread` counts
    the files before a gap. `is_same`: by their names they are of the server's binlog;
    `other`: why they are of another server all the same, empty when they are not.
    """

    directory: str
    first: str
    last: str
    files: int
    since_ms: int
    oldest: str
    missing: str
    unread: int
    is_same: bool
    other: str = ""


def survey_archive(control: ControlConnection) -> ArchiveSurvey | None:
    """Return what the archive of a source covers, None without one.

    Raises SourceError, ArchiveError.
    """
    archive = archive_of(control.access)
    listed = [] if archive is None else binary_logs(control)
    if archive is None or not listed:
        return None
    oldest = listed[0].name
    base, number = base_name(oldest), binlog_file_number(oldest) - 1
    files, found = archive.files(), archive.before(oldest)
    is_same = not files or base_name(files[0].name) == base
    older = [each for each in files if is_same and each.number <= number]
    missing = ""
    if older and not found:
        missing = f"{base}{number:0{len(oldest) - len(base)}}"
    return ArchiveSurvey(
        directory=str(archive.directory),
        first=found[0].name if found else "",
        last=found[-1].name if found else "",
        files=len(found),
        since_ms=found[0].head().time_s * 1000 if found else 0,
        oldest=oldest,
        missing=missing,
        unread=len(older) - len(found),
        is_same=is_same,
        other=other_writer(control, archive, oldest) if is_same else "",
    )
