"""How many bytes of binlog are between two positions, by the sizes that are known."""

from __future__ import annotations

from canal_server.model.positions import EntryPosition
from canal_server.mysql.binlogs import BinaryLog
from canal_server.source.pump.read_files import ReadFiles
from canal_server.source.read.available_positions import SourceFiles


def at(number: int, offset: int) -> EntryPosition:
    """Return a position."""
    return EntryPosition(f"bin.{number:06}", offset)


def files_of(**sizes: int) -> SourceFiles:
    """Return files by number."""
    return SourceFiles(
        tuple(
            BinaryLog(f"bin.{int(name[1:]):06}", size) for name, size in sizes.items()
        )
    )


def test_in_one_file():
    """Nothing has to be known of it; what is ahead is no distance."""
    files = ReadFiles()
    assert files.bytes_between(at(3, 100), at(3, 250)) == 150
    assert files.bytes_between(at(3, 300), at(3, 250)) == 0
    assert files.bytes_between(EntryPosition(), at(3, 250)) is None


def test_over_several_files():
    """Those that have ended count with their sizes; one that is not known, not."""
    files = ReadFiles()
    files.begin(files_of(f2=1000, f3=2000, f4=500))
    assert files.bytes_between(at(2, 400), at(4, 450)) == 600 + 2000 + 450
    assert files.bytes_between(at(1, 400), at(4, 450)) is None
    assert files.bytes_between(at(4, 100), at(6, 50)) is None


def test_files_that_are_read():
    """What was read of later files is their size, at least."""
    files = ReadFiles()
    files.begin(files_of(f4=500))
    for position in (at(4, 450), at(4, 900), at(5, 700), at(6, 50)):
        files.note(position)
    assert files.bytes_between(at(4, 100), at(6, 50)) == 800 + 700 + 50


def test_another_server():
    """Its files have the same names, and other sizes."""
    files = ReadFiles()
    files.note(at(4, 900))
    files.begin(files_of(f5=100))
    assert files.bytes_between(at(4, 100), at(5, 50)) is None
