"""What the file meta manager stores, when, and what it survives."""

from __future__ import annotations

import errno
import logging
import threading
from pathlib import Path

import pytest
from fix_disk import FaultyDisk, PowerCut, PowerlessDisk
from fix_store import eventually

from canal_server.errors import MetaStoreError
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.atomic_file import Disk
from canal_server.position.file_meta import MetaFiles
from canal_server.position.meta_file import decode, encode
from canal_server.position.stored_meta import StoredMetaManager

WAIT_S = 30  # how long a test waits for what happens at once
CLIENT = ClientIdentity("example", 1001, r"a\..*")


def position(offset):
    """Return a position of one server."""
    return LogPosition(
        LogIdentity("db", 3306), EntryPosition("bin.000001", offset, 0, 1, "")
    )


class SignallingDisk(FaultyDisk):
    """Reports when a file was replaced, or could not be."""

    def __init__(self):
        super().__init__()
        self.written = threading.Semaphore(0)
        self.refused = threading.Semaphore(0)

    def sync_directory(self, path):
        """Report after the last step."""
        super().sync_directory(path)
        self.written.release()

    def create(self, path):
        """Report when the first step failed."""
        try:
            return super().create(path)
        except OSError:
            self.refused.release()
            raise


def manager(folder, *, disk=None, period_s=3600.0):
    """Return a manager that only writes subscriptions by itself."""
    return StoredMetaManager(
        MetaFiles(folder, disk=disk),
        destinations=["example"],
        flush_period_s=period_s,
    )


def test_survives_a_restart(tmp_path):
    """Subscriptions, filters and cursors exist after a restart."""
    first = manager(tmp_path)
    first.start()
    first.subscribe(CLIENT)
    first.update_cursor(CLIENT, position(4))
    first.subscribe(ClientIdentity("example", 2))
    first.stop()

    second = manager(tmp_path)
    second.start()
    assert [each.filter for each in second.subscriptions("example")] == ["", r"a\..*"]
    assert second.cursor(CLIENT) == position(4)
    assert second.cursor(ClientIdentity("example", 2)) is None
    assert second.batches(CLIENT) == {}
    second.stop()


def test_file(tmp_path):
    """The file has canal's path and content, and is for its owner only."""
    meta = manager(tmp_path)
    meta.start()
    meta.subscribe(CLIENT)
    meta.update_cursor(CLIENT, position(4))
    meta.stop()
    path = tmp_path / "example" / "meta.dat"
    assert path.read_bytes() == encode("example", [(CLIENT, position(4))])
    assert path.stat().st_mode & 0o777 == 0o600


def test_subscriptions_are_written_at_once(tmp_path):
    """A subscription and its end are written to disk without waiting for the period."""
    disk = SignallingDisk()
    meta = manager(tmp_path, disk=disk)
    meta.start()
    path = tmp_path / "example" / "meta.dat"
    meta.subscribe(CLIENT)
    assert disk.written.acquire(timeout=WAIT_S)
    assert decode("example", path.read_bytes()) == [(CLIENT, None)]
    meta.unsubscribe(CLIENT)
    assert disk.written.acquire(timeout=WAIT_S)
    assert decode("example", path.read_bytes()) == []
    meta.stop()


def test_cursors_are_written_each_period(tmp_path):
    """A cursor is written to disk by itself, and nothing without a change."""
    disk = SignallingDisk()
    meta = manager(tmp_path, disk=disk, period_s=0.001)
    meta.start()
    meta.subscribe(CLIENT)
    assert disk.written.acquire(timeout=WAIT_S)
    meta.update_cursor(CLIENT, position(8))
    assert disk.written.acquire(timeout=WAIT_S)
    before = list(disk.operations)
    meta.flush()
    meta.stop()
    assert disk.operations == before


def test_other_destinations_are_loaded_when_asked_for(tmp_path):
    """A destination that was not named is read at its first use, and written too."""
    (tmp_path / "other").mkdir()
    client = ClientIdentity("other", 7)
    (tmp_path / "other" / "meta.dat").write_bytes(
        encode("other", [(client, position(4))])
    )
    meta = manager(tmp_path)
    meta.start()
    assert meta.cursor(client) == position(4)
    meta.update_cursor(client, position(8))
    meta.stop()
    assert decode("other", (tmp_path / "other" / "meta.dat").read_bytes()) == [
        (client, position(8))
    ]


@pytest.mark.parametrize("damage", [b"", bytes(300), b'{"clientDatas":[{"cli'])
def test_damaged_file(tmp_path, caplog, damage):
    """After a truncated file the older cursors, an alarm and a good file remain."""
    meta = manager(tmp_path)
    meta.start()
    meta.subscribe(CLIENT)
    meta.update_cursor(CLIENT, position(4))
    meta.flush()
    meta.update_cursor(CLIENT, position(8))
    meta.stop()
    path = tmp_path / "example" / "meta.dat"
    path.write_bytes(damage)

    with caplog.at_level(logging.ERROR):
        again = manager(tmp_path)
        again.start()
    assert again.cursor(CLIENT) == position(4)
    assert "is damaged" in caplog.text
    assert str(path) in caplog.text
    again.stop()
    # The damaged content has not become the backup.
    for name in ("meta.dat", "meta.dat.bak"):
        content = path.with_name(name).read_bytes()
        assert decode("example", content) == [(CLIENT, position(4))]


def test_damage_without_backup(tmp_path):
    """Without any good copy the manager does not start as if there were no clients."""
    (tmp_path / "example").mkdir()
    (tmp_path / "example" / "meta.dat").write_bytes(b"{")
    with pytest.raises(
        MetaStoreError, match=r"damaged .* meta\.dat\.bak cannot be read"
    ):
        manager(tmp_path).start()


def test_removed_file_means_no_clients(tmp_path):
    """Without meta.dat there are no clients; the backup does not restore them."""
    (tmp_path / "example").mkdir()
    (tmp_path / "example" / "meta.dat.bak").write_bytes(
        encode("example", [(CLIENT, position(4))])
    )
    meta = manager(tmp_path)
    meta.start()
    assert meta.subscriptions("example") == []
    meta.stop()


def test_unreadable_file(tmp_path):
    """A file that cannot be read is an error, not an absence of clients."""
    (tmp_path / "example" / "meta.dat").mkdir(parents=True)
    with pytest.raises(MetaStoreError, match="cannot read"):
        manager(tmp_path).start()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b"])
def test_names_that_leave_the_folder(tmp_path, name):
    """A destination's name cannot lead to another folder."""
    meta = manager(tmp_path)
    with pytest.raises(MetaStoreError, match="cannot be used as the name of a folder"):
        meta.subscribe(ClientIdentity(name, 1))
    assert list(tmp_path.iterdir()) == []


def test_failing_disk(tmp_path, caplog):
    """A failed write is reported once, and repeated when the disk works again."""
    disk = SignallingDisk()
    meta = manager(tmp_path, disk=disk, period_s=0.001)
    full = OSError(errno.ENOSPC, "no space left on device")
    meta.start()
    with caplog.at_level(logging.WARNING), disk.always_failing("create", full):
        meta.subscribe(CLIENT)
        for _ in range(3):
            assert disk.refused.acquire(timeout=WAIT_S)
        with pytest.raises(MetaStoreError, match="cannot write the cursors of example"):
            meta.flush()
    assert disk.written.acquire(timeout=WAIT_S)
    meta.stop()
    path = tmp_path / "example" / "meta.dat"
    assert decode("example", path.read_bytes()) == [(CLIENT, None)]
    errors = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert len(errors) == 1


def test_stop_reports_what_is_lost(tmp_path):
    """Stopping raises when the last cursors cannot be written."""
    disk = FaultyDisk()
    meta = manager(tmp_path, disk=disk)
    meta.start()
    with disk.always_failing("sync", OSError(errno.EIO, "input/output error")):
        meta.update_cursor(CLIENT, position(4))
        with pytest.raises(MetaStoreError, match="input/output error"):
            meta.stop()
    meta.stop()


class HangingDisk(Disk):
    """Blocks until it is released."""

    def __init__(self):
        self.asked = threading.Event()
        self.may_answer = threading.Event()

    def sync(self, descriptor):
        """Wait."""
        self.asked.set()
        assert self.may_answer.wait(WAIT_S)
        super().sync(descriptor)


def has_stopped(meta: StoredMetaManager) -> bool:
    """Return whether a stop succeeds."""
    try:
        meta.stop()
    except MetaStoreError:
        return False
    return True


@pytest.mark.parametrize("amid_write", [True, False])
def test_stop_does_not_wait_for_a_hanging_disk(tmp_path, amid_write):
    """Stopping fails after a time if the disk does not answer, and can be retried."""
    disk = HangingDisk()
    meta = StoredMetaManager(
        MetaFiles(tmp_path, disk=disk),
        destinations=["example"],
        flush_period_s=3600.0,
        stop_timeout_s=0.01,
    )
    meta.start()
    if amid_write:
        meta.subscribe(CLIENT)
        assert disk.asked.wait(WAIT_S)
    meta.update_cursor(CLIENT, position(4))
    with pytest.raises(MetaStoreError, match=r"example: the disk .* did not answer"):
        meta.stop()
    disk.may_answer.set()
    eventually(lambda: has_stopped(meta))
    content = (tmp_path / "example" / "meta.dat").read_bytes()
    expected = [(CLIENT, position(4))] if amid_write else []
    assert decode("example", content) == expected


class ReadOnlyState(Disk):
    """What a power cut left on a disk."""

    def __init__(self, files):
        self._files = files

    def read(self, path):
        """Return the content, if there is such a file."""
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path]


def test_power_cut_at_every_step():
    """After a power cut anywhere in a flush, the cursor is the last or the one before.

    The file is readable in each state that the disk may then have, without reading
    the backup.
    """
    folder = Path("/data")
    path, backup = folder / "example" / "meta.dat", folder / "example" / "meta.dat.bak"
    old = [(CLIENT, position(8))]
    steps = 0
    finished = False
    while not finished:
        disk = PowerlessDisk(
            {
                path: encode("example", old),
                backup: encode("example", [(CLIENT, position(4))]),
            }
        )
        meta = manager(folder, disk=disk)
        meta.update_cursor(CLIENT, position(12))
        disk.steps_left = steps
        try:
            meta.flush()
        except PowerCut:
            allowed = [position(8), position(12)]
        else:
            allowed = [position(12)]
            finished = True
        for state in disk.states():
            after = manager(folder, disk=ReadOnlyState({path: state[path]}))
            assert after.cursor(CLIENT) in allowed
        steps += 1
    assert steps > 8
