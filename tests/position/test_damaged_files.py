"""Files after a power cut: truncated or zeroed at every length, cut at every step."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fix_disk import PowerCut, PowerlessDisk
from position_writer import CLIENT, position

from canal_server.position.atomic_file import Disk
from canal_server.position.file_meta import MetaFiles
from canal_server.position.meta_file import abridged
from canal_server.position.stored_meta import StoredClient


class Cursors:
    """One client's cursor in its file."""

    FILE = "meta.dat"

    def __init__(self, folder, disk=None):
        self._shelf = MetaFiles(folder, disk=disk)

    def write(self, position):
        """Store it."""
        self._shelf.write("example", [StoredClient(CLIENT, position)])

    def read(self):
        """Return it as a new process reads it."""
        found = self._shelf.read("example")
        return found[0].cursor if found else None


@pytest.fixture
def written(tmp_path):
    """Return a folder with three positions written to it, one after the other."""
    stored = Cursors(tmp_path)
    for offset in (10, 11, 12):
        stored.write(position(offset))
    return tmp_path / "example"


def truncated(content):
    """Yield what a power cut may leave of a file: its beginning, or zeros after it."""
    for length in range(len(content)):
        yield content[:length]
        yield content[:length] + bytes(len(content) - length)


def test_newest_file(written, caplog):
    """Whatever is left of the newest file, the position before it is found complete."""
    caplog.set_level(logging.CRITICAL)
    path = written / Cursors.FILE
    for damage in truncated(path.read_bytes()):
        path.write_bytes(damage)
        assert Cursors(written.parent).read() == position(11)


def test_what_is_beside(written, caplog):
    """Whatever is left of the file next to a cursor, the cursor is found."""
    path = written / f"{Cursors.FILE}.full"
    for damage in truncated(path.read_bytes()):
        path.write_bytes(damage)
        caplog.clear()
        assert Cursors(written.parent).read() == abridged(position(12))
        assert "is damaged" in caplog.text


@pytest.mark.parametrize("ending", ["", ".full"])
def test_file_that_was_being_written(written, ending):
    """A file that was not renamed yet is ignored, whatever is left of it."""
    path = written / f"{Cursors.FILE}{ending}"
    for damage in truncated(path.read_bytes()):
        path.with_name(f"{path.name}.tmp").write_bytes(damage)
        assert Cursors(written.parent).read() == position(12)
    stored = Cursors(written.parent)
    stored.read()
    stored.write(position(13))
    assert Cursors(written.parent).read() == position(13)
    assert not list(written.glob("*.tmp"))


class Found(Disk):
    """What a power cut left on a disk."""

    def __init__(self, files):
        self._files = files

    def read(self, path):
        """Return the content, if there is such a file."""
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path]


def test_power_cut_at_every_step():
    """After a power cut anywhere in a write, one position is found, with its set."""
    folder = Path("/data")
    before = PowerlessDisk()
    stored = Cursors(folder, before)
    stored.write(position(10))
    stored.write(position(11))
    [files] = before.states()
    steps = 0
    finished = False
    while not finished:
        disk = PowerlessDisk(files)
        again = Cursors(folder, disk)
        assert again.read() == position(11)
        disk.steps_left = steps
        try:
            again.write(position(12))
        except PowerCut:
            allowed = [position(11), position(12)]
        else:
            allowed = [position(12)]
            finished = True
        for state in disk.states():
            assert Cursors(folder, Found(state)).read() in allowed
        steps += 1
    assert steps > 16
