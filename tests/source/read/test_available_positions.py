"""Which binlog positions count as positions of the source that is read."""

from __future__ import annotations

import pytest

from canal_server.mysql.binlogs import BinaryLog
from canal_server.source.read.available_positions import SourceFiles

FILES = SourceFiles((BinaryLog("binlog.000007", 500), BinaryLog("binlog.000008", 900)))


@pytest.mark.parametrize(
    ("file", "offset", "had"),
    [
        ("binlog.000007", 500, True),
        ("binlog.000007", 501, False),
        ("binlog.000008", 4, True),
        ("binlog.000008", 901, False),
        ("binlog.000003", 99_999, True),  # purged, but of this binlog
        ("binlog.000009", 4, False),  # from before the binlog was reset
        ("mysql-bin.000003", 4, False),  # another server's
        ("mysql-bin.000007", 4, False),
        (None, None, True),
    ],
)
def test_positions(file, offset, had):
    """A position counts when its file exists and is long enough, or was purged."""
    assert FILES.had(file, offset) is had


def test_unknown_files():
    """Without a list of files every position is accepted."""
    assert SourceFiles(()).had("binlog.000001", 10**12)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("binlog.000003", "binlog.000003 to binlog.000006 (4 files)"),
        ("binlog.000006", "binlog.000006"),
        ("binlog.000007", None),
        ("binlog.000009", None),
        ("mysql-bin.000003", None),
        (None, None),
    ],
)
def test_purged_files(file, expected):
    """The error names the files between a purged one and the oldest remaining one."""
    purged = FILES.purged_from(file)
    assert (None if purged is None else str(purged)) == expected
    assert SourceFiles(()).purged_from(file) is None
