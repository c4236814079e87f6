"""Which positions a source has that refused one."""

from __future__ import annotations

import pytest

from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.mysql.binlogs import BinaryLog
from canal_server.source.begin.position_loss import LostPosition
from canal_server.source.read.available_positions import SourceFiles

HERE = LogIdentity("127.0.0.1", 3306)
ELSEWHERE = LogIdentity("127.0.0.1", 3307)
FILES = SourceFiles((BinaryLog("bin.000003", 500), BinaryLog("bin.000004", 900)))
SID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def position(
    file: str, offset: int = 4, gtid: str | None = None, at: LogIdentity = HERE
) -> LogPosition:
    """Return a position."""
    return LogPosition(at, EntryPosition(file, offset, 1000, 1, gtid))


def lost(purged: GtidSet | None = None) -> LostPosition:
    """Return a lost position: two files after it are purged."""
    return LostPosition(position("bin.000001"), HERE, FILES, purged)


@pytest.mark.parametrize(
    ("expected", "has"),
    [
        (position("bin.000001"), False),
        (position("bin.000002", 9999), False),
        (position("bin.000003", 500), True),
        (position("bin.000003", 501), False),
        (position("bin.000005"), False),
        (position("log.000003"), False),
        (position("bin.000001", at=ELSEWHERE), True),
    ],
)
def test_by_files(expected: LogPosition, *, has: bool) -> None:
    """A remaining file has its positions; another server's cannot be refuted."""
    assert lost().has(expected) is has


def test_by_sets() -> None:
    """A MySQL resumes after each set that contains everything purged."""
    found = lost(GtidSet.parse(f"{SID}:1-5"))
    assert found.has(position("bin.000001", gtid=f"{SID}:1-5"))
    assert found.has(position("log.1", gtid=f"{SID}:1-9", at=ELSEWHERE))
    assert not found.has(position("bin.000003", gtid=f"{SID}:1-4"))
    assert not found.has(position("bin.000003", gtid="nonsense"))


def test_names_what_is_missing() -> None:
    """The missing files are named, if files are missing."""
    found = lost()
    assert found.why(position("bin.000001")).startswith(
        "bin.000001 to bin.000002 (2 files) purged"
    )
    assert found.why(position("bin.000002")).startswith("bin.000002 purged, the oldest")
    assert "bin.000003 … bin.000004" in found.why(position("bin.000003"))
