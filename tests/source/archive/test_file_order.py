"""Whether a file is complete, and whether another one follows it."""

from __future__ import annotations

import pytest
from binlog_bytes import GTID, PREVIOUS_GTIDS, ROTATE, STOP, Binlog, gtid_body

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import ArchiveError
from canal_server.source.archive.archive_files import ArchivedFile
from canal_server.source.archive.file_order import (
    ROTATION_S_MAX,
    FileEnd,
    check_follows,
    read_end,
)

SID = bytes(range(16))
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
NEXT = "bin.000002"
TIME_S = 1_700_000_000


def write(folder, *, closed: int | None = ROTATE, gtids: bool = True) -> ArchivedFile:
    """Write a file with the transactions 4 and 5."""
    log = Binlog()
    log.start()
    log.add(PREVIOUS_GTIDS, GtidSet.parse(f"{UUID}:1-3" if gtids else "").encode())
    for number in (4, 5):
        if gtids:
            log.add(GTID, gtid_body(SID, number))
        log.begin()
        log.xid()
    if closed is not None:
        log.add(closed, bytes(8) + NEXT.encode() if closed == ROTATE else b"")
    path = folder / "bin.000001"
    path.write_bytes(b"\xfebin" + b"".join(log.events))
    return ArchivedFile("bin.000001", path)


def test_end(tmp_path):
    """A file that is read to its end says what was executed there."""
    end = read_end(write(tmp_path))
    assert str(end.gtids) == f"{UUID}:1-5"
    assert (end.last_type, end.last_time) == (ROTATE, TIME_S)
    assert end.is_closed


def test_a_truncated_file(tmp_path):
    """A file that ends inside of an event is an error with its offset."""
    file = write(tmp_path)
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-3])
    length = int.from_bytes(whole[-19 - 8 - len(NEXT) - 4 + 9 :][:4], "little")
    at = len(whole) - length
    with pytest.raises(ArchiveError, match=rf"bin.000001 at offset {at}: is truncated"):
        read_end(file)


@pytest.mark.parametrize("closed", [ROTATE, STOP])
def test_a_closed_file(tmp_path, closed):
    """The next file follows one that its server has closed."""
    end = read_end(write(tmp_path, closed=closed))
    check_follows(end, NEXT, TIME_S, GtidSet.parse(f"{UUID}:1-5"))
    check_follows(end, NEXT, TIME_S, None)


def test_a_part_that_was_read(tmp_path):
    """Where reading began at the end of a file, all of it is read for the answer."""
    file = write(tmp_path, closed=None)
    end = FileEnd(file, file.size(), 0, 0, None)
    check_follows(end, NEXT, TIME_S, GtidSet.parse(f"{UUID}:1-5"))
    with pytest.raises(ArchiveError, match="without the event that closes a file"):
        check_follows(end, NEXT, TIME_S, GtidSet.parse(f"{UUID}:1-6"))


@pytest.mark.parametrize("gtids", [True, False])
def test_an_unclosed_file(tmp_path, *, gtids):
    """A file that nothing closes is complete if GTIDs or the operator say so."""
    end = read_end(write(tmp_path, closed=None, gtids=gtids))
    following = GtidSet.parse(f"{UUID}:1-5" if gtids else "")
    if gtids:
        check_follows(end, NEXT, TIME_S, following)
        following = GtidSet.parse(f"{UUID}:1-6")
    with pytest.raises(ArchiveError, match=r"empty file bin.000001.complete beside it"):
        check_follows(end, NEXT, TIME_S, following)
    (tmp_path / "bin.000001.complete").touch()
    check_follows(end, NEXT, TIME_S, following)


def test_a_file_of_another_binlog(tmp_path):
    """Neither its time nor its GTIDs may contradict that it follows."""
    end = read_end(write(tmp_path))
    with pytest.raises(ArchiveError, match=f"not the one before {NEXT}: it was closed"):
        check_follows(end, NEXT, TIME_S + ROTATION_S_MAX + 1, None)
    with pytest.raises(
        ArchiveError, match=f"begins after '{UUID}:1-4'; the binlog was"
    ):
        check_follows(end, NEXT, TIME_S, GtidSet.parse(f"{UUID}:1-4"))
    # A server that was restarted much later; sets of two kinds say nothing.
    end = read_end(write(tmp_path, closed=STOP))
    later = TIME_S + ROTATION_S_MAX + 1
    check_follows(end, NEXT, later, MariaGtidSet.parse("0-1-1"))
