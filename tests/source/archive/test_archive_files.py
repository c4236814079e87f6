"""The files of an archive: their names, order, heads, sizes and compression."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest
from binlog_archiver import COMPRESSIONS
from binlog_bytes import GTID_LIST, IN_USE, PREVIOUS_GTIDS, Binlog

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import ArchiveError
from canal_server.source.archive.archive_files import (
    BinlogArchive,
    as_logs,
    format_amid,
    has_checksum,
    others_have_checksums,
)

if TYPE_CHECKING:
    from pathlib import Path

KEY = "canal.instance.master.archive.dir"
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def binlog(*, checksums: bool = True, gtids: str | None = UUID + ":1-5") -> Binlog:
    """Return a file's events: a format description, and GTIDs unless they are None."""
    log = Binlog(checksums=checksums)
    log.start()
    if gtids is not None:
        log.add(PREVIOUS_GTIDS, GtidSet.parse(gtids).encode())
    log.begin()
    log.xid()
    return log


def content_of(log: Binlog) -> bytes:
    """Return a file with these events."""
    return b"\xfebin" + b"".join(log.events)


def archive_with(folder: Path, *names: str, content: bytes = b"") -> BinlogArchive:
    """Return an archive with files of these names."""
    for name in names:
        (folder / name).write_bytes(content)
    return BinlogArchive(folder, KEY)


def names_of(files) -> list[str]:
    """Return the names that files had on the server."""
    return [each.name for each in files]


def test_order(tmp_path):
    """Files are ordered by number; compressed ones have the server's names.

    What is no binlog file is left out, and a plain file is preferred.
    """
    archive = archive_with(
        tmp_path,
        "binlog.999999",
        "binlog.1000000.gz",
        "binlog.999998.zst",
        "binlog.999998",
        "binlog.index",
        "binlog.999997.complete",
        "binlog.999997.tmp",
    )
    files = archive.files()
    assert names_of(files) == ["binlog.999998", "binlog.999999", "binlog.1000000"]
    assert files[0].path.name == "binlog.999998"


def test_files_before_those_of_a_server(tmp_path):
    """Those right before the server's oldest file can be read, up to a gap."""
    archive = archive_with(tmp_path, *(f"bin.00000{n}" for n in (1, 2, 4, 5, 6)))
    assert names_of(archive.before("bin.000006")) == ["bin.000004", "bin.000005"]
    assert names_of(archive.before("bin.000008")) == []
    assert names_of(archive.before("other.000006")) == []
    assert "lacks bin.000003" in archive.gap_before("bin.000006", "bin.000002")
    assert archive.gap_before("bin.000006", "bin.000003") == ""


def test_two_binlogs(tmp_path):
    """Files of two servers in one directory are an error."""
    archive = archive_with(tmp_path, "bin.000001", "mysqld-bin.000001")
    with pytest.raises(ArchiveError, match=r"bin\.\* and mysqld-bin\.\*; use one"):
        archive.files()


def test_no_directory(tmp_path):
    """A missing directory is an error with the key and the path."""
    archive = BinlogArchive(tmp_path / "none", KEY)
    with pytest.raises(ArchiveError, match=rf"{KEY} = .*none: No such file"):
        archive.files()


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("checksums", [True, False])
def test_compression(tmp_path, suffix, *, checksums):
    """Each compression gives the plain bytes, from any offset, and the plain size."""
    content = content_of(binlog(checksums=checksums))
    compressed = COMPRESSIONS[suffix](content)
    archive = archive_with(tmp_path, f"bin.000001{suffix}", content=compressed)
    (file,) = archive.files()
    with file.open() as source:
        assert source.skip(10) == 10
        assert source.read(1 << 20) == content[14:]
        assert source.read(1) == b""
    with file.open() as source:
        assert source.skip(1 << 20) == len(content) - 4
    assert [(each.name, each.size) for each in as_logs([file])] == [
        ("bin.000001", len(content))
    ]
    head = file.head()
    assert head.time_s == 1_700_000_000
    assert str(head.gtids) == UUID + ":1-5"
    assert has_checksum(head.format)  # that of the first event always
    assert others_have_checksums(head.format) is checksums


@pytest.mark.parametrize("suffix", [each for each in COMPRESSIONS if each])
def test_damaged_compression(tmp_path, suffix):
    """Damaged compressed bytes are an error that names the file."""
    whole = bytearray(COMPRESSIONS[suffix](content_of(binlog()) * 50))
    whole[: len(whole) // 2] = b"?" * (len(whole) // 2)
    archive = archive_with(tmp_path, f"bin.000001{suffix}", content=bytes(whole))
    (file,) = archive.files()
    with pytest.raises(ArchiveError, match=rf"{suffix}: .*; replace it with an intact"):
        file.open()


def test_a_mariadb(tmp_path):
    """Its files begin with the position of each domain."""
    log = Binlog()
    log.start()
    listed = b"\1\0\0\0" + b"\0\0\0\0" + b"\1\0\0\0" + (7).to_bytes(8, "little")
    log.add(GTID_LIST, listed)
    archive = archive_with(tmp_path, "bin.000001", content=content_of(log))
    gtids = archive.files()[0].head().gtids
    assert isinstance(gtids, MariaGtidSet)
    assert str(gtids) == "0-1-7"


def test_without_gtids(tmp_path):
    """A file that does not say what was executed before it has no set."""
    log = binlog(gtids=None)
    archive = archive_with(tmp_path, "bin.000001", content=content_of(log))
    assert archive.files()[0].head().gtids is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "does not start with the bytes fe 62 69 6e"),
        (b"\xfdbin" + bytes(99), r"is encrypted \(binlog_encryption\)"),
        (b"\xfebin", "at offset 4: does not start with a format description"),
        (b"\xfebin" + bytes(99), "at offset 4: has no event there"),
        (content_of(binlog())[:60], "at offset 4: is truncated"),
    ],
)
def test_no_head(tmp_path, content, words):
    """A file without a valid beginning is an error with path and offset."""
    archive = archive_with(tmp_path, "bin.000001", content=content)
    with pytest.raises(ArchiveError, match=f"bin.000001.*{words}"):
        archive.files()[0].head()


def test_a_replaced_file(tmp_path):
    """A file that was replaced is read anew."""
    archive = archive_with(tmp_path, "bin.000001", content=b"\xfebin" + bytes(99))
    with pytest.raises(ArchiveError):
        archive.files()[0].head()
    archive_with(tmp_path, "bin.000001", content=content_of(binlog()))
    assert archive.files()[0].head().gtids is not None


def test_the_size_in_a_trailer(tmp_path):
    """The size of a gzip file is read from its end, not by inflating it."""
    content = content_of(binlog())
    whole = bytearray(gzip.compress(content))
    whole[20:30] = bytes(10)
    archive = archive_with(tmp_path, "bin.000001.gz", content=bytes(whole))
    assert archive.files()[0].size() == len(content)


@pytest.mark.parametrize("checksums", [True, False])
def test_format_for_a_later_start(*, checksums):
    """It has no position and is not in use; its checksum is right."""
    log = Binlog(checksums=checksums)
    log.start(flags=IN_USE)
    (event,) = log.events
    amid = format_amid(event)
    assert amid[13:17] == bytes(4)
    assert amid[17] & IN_USE == 0
    assert has_checksum(amid)
    assert amid[19:-4] == event[19:-4]
