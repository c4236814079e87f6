"""Replacing a file's content survives crashes and power cuts at every step."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from fix_disk import FaultyDisk, PowerCut, PowerlessDisk

from canal_server.position.atomic_file import Disk, replace_content

PATH = Path("/data/meta.dat")
BACKUP = Path("/data/meta.dat.bak")
TEMPORARY = Path("/data/meta.dat.tmp")


class NoLinks(PowerlessDisk):
    """A disk whose file system has no hard links."""

    def link(self, path, other):
        """Fail like such a file system."""
        self._step()
        self.read(path)
        raise OSError(errno.EPERM, "operation not permitted")


@pytest.mark.parametrize("disk_type", [PowerlessDisk, NoLinks])
@pytest.mark.parametrize(
    "before",
    [
        {},
        {PATH: b"old"},
        {PATH: b"old", BACKUP: b"older"},
        {PATH: b"old", BACKUP: b"older", TEMPORARY: b"le"},
    ],
)
def test_power_cut_at_every_step(disk_type, before):
    """Whatever is lost, the content is the old or the new one, nothing else."""
    steps = 0
    while True:
        disk = disk_type(before)
        disk.steps_left = steps
        try:
            replace_content(disk, PATH, b"new content", backup=BACKUP)
        except PowerCut:
            done = False
        else:
            done = True
        for state in disk.states():
            assert state.get(PATH) in (before.get(PATH), b"new content"), state
            if done:
                assert state[PATH] == b"new content"
                assert state.get(BACKUP) == before.get(PATH)
        if done:
            break
        steps += 1
    assert steps > 8


def test_backup_stays_on_demand():
    """Without a backup to make, an existing one is not touched."""
    disk = PowerlessDisk({PATH: b"damaged", BACKUP: b"good"})
    replace_content(disk, PATH, b"new", backup=None)
    assert disk.states() == [{PATH: b"new", BACKUP: b"good"}]


def test_after_a_crash_between_the_names():
    """File and backup may be one file after a crash, and are two again later."""
    disk = PowerlessDisk({PATH: b"old"})
    disk.link(PATH, BACKUP)
    replace_content(disk, PATH, b"new", backup=BACKUP)
    assert disk.states() == [{PATH: b"new", BACKUP: b"old"}]


def test_real_files(tmp_path):
    """On the real disk the files are for their owner only, and nothing else is left."""
    path = tmp_path / "folder" / "meta.dat"
    backup = path.with_name("meta.dat.bak")
    replace_content(Disk(), path, b"one", backup=backup)
    assert not backup.exists()
    path.chmod(0o644)  # as the Java server leaves it
    replace_content(Disk(), path, b"two", backup=backup)
    replace_content(Disk(), path, b"three", backup=backup)
    assert (path.read_bytes(), backup.read_bytes()) == (b"three", b"two")
    assert path.stat().st_mode & 0o777 == 0o600
    assert backup.stat().st_mode & 0o777 == 0o600
    assert sorted(path.parent.iterdir()) == [path, backup]


def test_errors_at_every_step(tmp_path):
    """Each failing operation is reported, leaves a complete content, can be retried."""
    path, backup = tmp_path / "meta.dat", tmp_path / "meta.dat.bak"
    disk = FaultyDisk()
    replace_content(disk, path, b"old", backup=backup)
    replace_content(disk, path, b"old", backup=backup)
    disk.operations.clear()
    replace_content(disk, path, b"old", backup=backup)
    operations = tuple(disk.operations)
    assert set(operations) == {*FaultyDisk.WRITES, *FaultyDisk.NAMES}
    for at, operation in enumerate(operations):
        error = OSError(errno.EIO, operation)
        if operation == "link":
            # The copy replaces it.
            with disk.failing(at, error):
                replace_content(disk, path, b"new", backup=backup)
            assert backup.read_bytes() == b"old"
        else:
            with disk.failing(at, error), pytest.raises(OSError, match=operation):
                replace_content(disk, path, b"new", backup=backup)
            assert path.read_bytes() in (b"old", b"new")
        replace_content(disk, path, b"old", backup=backup)
        assert path.read_bytes() == b"old"
