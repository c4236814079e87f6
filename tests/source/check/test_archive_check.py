"""What the check of an archive says about the files that it has."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from facts_of_source import NOW_S, checked_of, facts_of

from canal_server.errors import ArchiveError
from canal_server.model.check_results import Outcome
from canal_server.source.archive.archive_survey import ArchiveSurvey
from canal_server.source.check.archive_check import archive_results

GOOD = ArchiveSurvey(
    directory="/archive",
    first="binlog.000001",
    last="binlog.000002",
    files=2,
    since_ms=NOW_S * 1000,
    oldest="binlog.000003",
    missing="",
    unread=0,
    is_same=True,
)
NOTHING = replace(GOOD, first="", last="", files=0, since_ms=0)
OTHER = replace(NOTHING, is_same=False)
GAP = replace(NOTHING, missing="binlog.000002", unread=2)
OK, WARN, FAIL = Outcome.OK, Outcome.WARN, Outcome.FAIL


@pytest.mark.parametrize(
    ("found", "outcome", "words"),
    [
        (GOOD, OK, r"binlog.000002 \(2 files\), since .*, followed by binlog.0"),
        (NOTHING, OK, "has no files before binlog.000003 yet"),
        (replace(GOOD, unread=3), WARN, "3 older files are not read"),
        (GAP, FAIL, "lacks binlog.000002, the file before the source's oldest"),
        (OTHER, FAIL, "those of the source have other names"),
        (ArchiveError("damaged"), FAIL, "damaged"),
    ],
)
def test_archive(found, outcome, words):
    """It covers the past if no file is missing before those of the source."""
    (result,) = archive_results(facts_of(archive=found), checked_of())
    assert result.outcome is outcome
    assert result.check == "archive"
    assert re.search(words, result.message)


def test_no_archive():
    """Without an archive there is nothing to check."""
    assert not list(archive_results(facts_of(), checked_of()))
