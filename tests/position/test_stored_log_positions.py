"""When positions of pumps are written, and what they survive."""

from __future__ import annotations

from pathlib import Path

import pytest
from fix_disk import FaultyDisk, PowerCut, PowerlessDisk
from fix_store import eventually

from canal_server.errors import MetaStoreError
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.file_meta import PositionFiles
from canal_server.position.meta_file import decode_position, encode_position
from canal_server.position.stored_log_positions import StoredLogPositionManager
from canal_server.position.write_behind import Writing

PATH = Path("/data/example/parse.dat")
BACKUP = PATH.with_name("parse.dat.bak")


def position(offset):
    """Return a position of one server."""
    return LogPosition(
        LogIdentity("db", 3306), EntryPosition("bin.000001", offset, 0, 1, "")
    )


def manager(disk, *, writing=Writing.PERIODIC, folder=Path("/data")):
    """Return a manager whose period does not end within a test."""
    return StoredLogPositionManager(
        PositionFiles(folder, disk=disk),
        destinations=["example"],
        writing=writing,
        flush_period_s=3600.0,
    )


def test_file(tmp_path):
    """The file has the Java server's content, no hint, and is for its owner only."""
    positions = manager(None, folder=tmp_path)
    positions.start()
    positions.persist("example", position(4))
    path = tmp_path / "example" / "parse.dat"
    assert not path.exists()
    positions.stop()
    assert path.read_bytes() == encode_position(position(4))
    assert path.read_bytes().startswith(b'{"identity":{"slaveId":-1,')
    assert path.stat().st_mode & 0o777 == 0o600


def test_written_soon():
    """Without a period a position is written by itself, and only when it changed."""
    disk = PowerlessDisk()
    positions = manager(disk, writing=Writing.SOON)
    positions.start()
    positions.persist("example", position(4))
    eventually(lambda: {PATH: encode_position(position(4))} in disk.states())
    positions.stop()


def test_written_at_once():
    """A position is on the disk when the call returns, or the caller is told."""
    disk = FaultyDisk()
    positions = manager(disk, writing=Writing.AT_ONCE, folder=Path("/proc/no"))
    with pytest.raises(MetaStoreError, match="cannot write the position of example"):
        positions.persist("example", position(4))
    assert positions.latest("example") == position(4)


def test_failure_at_the_end(tmp_path):
    """Stopping raises what could not be written, and can be retried."""
    disk = FaultyDisk()
    positions = manager(disk, folder=tmp_path)
    positions.start()
    with disk.always_failing("sync", OSError(5, "input/output error")):
        positions.persist("example", position(4))
        with pytest.raises(MetaStoreError, match="input/output error"):
            positions.stop()
    positions.stop()
    assert manager(None, folder=tmp_path).latest("example") == position(4)


def test_the_last_one_counts(tmp_path):
    """A position stored before anything was read is not replaced by an older file."""
    (tmp_path / "example").mkdir()
    (tmp_path / "example" / "parse.dat").write_bytes(encode_position(position(4)))
    positions = manager(None, folder=tmp_path)
    positions.persist("example", position(8))
    assert positions.latest("example") == position(8)


@pytest.mark.parametrize("damage", [b"", b"{", b"\0" * 100])
def test_damaged_file(damage, caplog):
    """The backup replaces a damaged file, and stays the backup."""
    disk = PowerlessDisk({PATH: damage, BACKUP: encode_position(position(4))})
    positions = manager(disk)
    assert positions.latest("example") == position(4)
    assert "restored the position from parse.dat.bak, which is older" in caplog.text
    positions.persist("example", position(8))
    positions.flush()
    assert disk.read(BACKUP) == encode_position(position(4))


def test_damage_without_backup():
    """Without a good copy there is an error, not the absence of a position."""
    with pytest.raises(
        MetaStoreError, match=r"damaged .* parse\.dat\.bak cannot be read"
    ):
        manager(PowerlessDisk({PATH: b"{}"})).latest("example")


def test_power_cut_at_every_step():
    """After a power cut anywhere in a write, the position is the last or that before.

    The file is readable in each state that the disk may then be in.
    """
    finished = False
    steps = 0
    while not finished:
        disk = PowerlessDisk({PATH: encode_position(position(8))})
        positions = manager(disk)
        positions.persist("example", position(12))
        disk.steps_left = steps
        try:
            positions.flush()
        except PowerCut:
            allowed = [position(8), position(12)]
        else:
            allowed = [position(12)]
            finished = True
        for state in disk.states():
            assert decode_position(state[PATH]) in allowed
        steps += 1
    assert steps > 5
