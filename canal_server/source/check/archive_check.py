"""The check of a source's archive of binlog files: what it covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.errors import CanalError
from canal_server.model.check_results import fail, ok, warn
from canal_server.model.moments import time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.model.check_results import CheckResult
    from canal_server.source.archive.archive_survey import ArchiveSurvey
    from canal_server.source.check.checked_source import CheckedSource
    from canal_server.source.check.source_facts import SourceFacts


def archive_results(
    facts: SourceFacts, checked: CheckedSource
) -> Iterator[CheckResult]:
    """Yield the result of the check, nothing without an archive."""
    found = facts.archive
    if isinstance(found, CanalError):
        yield fail("archive", str(found))
    elif found is not None:
        yield _covered(found, checked)


def _covered(found: ArchiveSurvey, checked: CheckedSource) -> CheckResult:
    name = "archive"
    what = f"{checked.key}.archive.dir = {found.directory}"
    covers = (
        f"{what}: has {found.first} to {found.last} ({found.files} files), since"
        f" {time_text(found.since_ms)}"
    )
    if not found.is_same:
        return fail(
            name,
            f"{what}: none of its files is read, as those of the source have other"
            f" names, such as {found.oldest}",
            "name a directory with files of this server",
        )
    if found.other:
        what, _, remedy = found.other.rpartition(": ")
        return fail(name, what, remedy)
    if found.missing:
        return fail(
            name,
            f"{what}: lacks {found.missing}, the file before the source's oldest,"
            f" {found.oldest}, so nothing of it can be read",
            "add the file",
        )
    if not found.files:
        return ok(name, f"{what}: has no files before {found.oldest} yet")
    covers += f", followed by {found.oldest} of the source"
    if found.unread:
        return warn(
            name,
            f"{covers}; {found.unread} older files are not read, as files after them"
            " are missing",
            "add the missing files, or remove the older ones",
        )
    return ok(name, covers)
