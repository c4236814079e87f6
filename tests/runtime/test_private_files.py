"""Files and folders for their owner only, which are never opened through a link."""

from __future__ import annotations

import errno
import os
import stat
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from canal_server.daemon import control
from canal_server.daemon.control import ControlError, ControlServer
from canal_server.doors.sqlite import Database, FileForm
from canal_server.errors import MetaStoreError
from canal_server.ha.predecessor import Predecessor
from canal_server.position.atomic_file import Disk, replace_content
from canal_server.runtime.lifecycle import Deadline
from canal_server.runtime.private_files import (
    make_private_folder,
    open_private,
    reason_of,
    refuse_link,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from canal_server.doors.zookeeper import ZooKeeper


@pytest.fixture(params=[0o000, 0o022, 0o277], ids=oct)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run with a umask."""
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
def test_folders_are_the_owners_alone(tmp_path: Path) -> None:
    """A new folder and its new parents have mode 0700, whatever the umask."""
    make_private_folder(tmp_path / "a" / "b")
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_folders_that_are_there_stay_as_they_are(tmp_path: Path) -> None:
    """An existing folder keeps its mode, even when it is behind a link."""
    tmp_path.chmod(0o755)
    link = tmp_path.with_name("link-to-it")
    link.symlink_to(tmp_path)
    make_private_folder(link)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    """A file in place of a folder is an error."""
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_private_folder(tmp_path / "file")


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link in place of a file is an error, and its target untouched."""
    target = tmp_path / "target"
    target.write_text("theirs")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(OSError, match="link") as failed:
        open_private(tmp_path / "link", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    assert reason_of(failed.value).endswith(
        "link is a symbolic link, which is not followed: remove it"
    )
    with pytest.raises(OSError, match="link"):
        refuse_link(tmp_path / "link")
    assert target.read_text() == "theirs"


def test_reasons_name_the_remedy() -> None:
    """Running out of descriptors is reported with the limit, else the system's text."""
    assert "LimitNOFILE" in reason_of(OSError(errno.EMFILE, "too many"))
    assert "fs.file-max" in reason_of(OSError(errno.ENFILE, "too many"))
    assert reason_of(OSError(errno.ENOSPC, "no space")) == "no space"


def _theirs(tmp_path: Path, name: str) -> Path:
    """Put a link to another file in place of one of ours; returns the target."""
    target = tmp_path / f"target of {name}"
    target.write_text("theirs")
    folder = tmp_path / "data"
    folder.mkdir(exist_ok=True)
    (folder / name).symlink_to(target)
    return target


def test_the_lock_of_a_data_folder_is_no_link(tmp_path: Path) -> None:
    """A server does not start with a link for a lock, whose target stays unchanged."""
    target = _theirs(tmp_path, control.LOCK_NAME)
    with pytest.raises(
        ControlError, match=r"is a symbolic link.*canal\.file\.data\.dir"
    ):
        ControlServer(tmp_path / "data", {}).start()
    assert target.read_text() == "theirs"


@pytest.mark.parametrize("suffix", ["", ".lock", "-wal", "-shm"])
def test_databases_are_no_links(tmp_path: Path, suffix: str) -> None:
    """A database is refused, with its -wal file, and no target is written to."""
    target = _theirs(tmp_path, f"x.sqlite{suffix}")
    database = Database(
        tmp_path / "data" / "x.sqlite",
        FileForm("test", 1, (("CREATE TABLE t (a)",),), "", MetaStoreError),
    )
    with pytest.raises(MetaStoreError, match="symbolic link"):
        database.open()
    assert target.read_text() == "theirs"


@pytest.mark.parametrize("name", ["meta.dat", "meta.dat.tmp", "meta.dat.bak"])
def test_cursors_are_not_written_through_links(tmp_path: Path, name: str) -> None:
    """A link in place of a file of cursors is replaced, its target left unchanged."""
    target = _theirs(tmp_path, name)
    path = tmp_path / "data" / "meta.dat"
    replace_content(Disk(), path, b"ours", backup=path.with_name("meta.dat.bak"))
    assert path.read_bytes() == b"ours"
    assert not path.is_symlink()
    assert target.read_text() == "theirs"


def test_what_is_remembered_of_a_session_is_no_link(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The session of a server is not written through a link."""
    lock = tmp_path / "data" / control.LOCK_NAME
    predecessor = Predecessor(lock, "127.0.0.1:2181", 10.0)
    target = _theirs(tmp_path, f"{predecessor.path.name}.new")
    lock.touch()
    predecessor.remember(cast("ZooKeeper", SimpleNamespace(key=(1, b"secret"))))
    assert "is a symbolic link, which is not followed" in caplog.text
    assert target.read_text() == "theirs"


@pytest.mark.usefixtures("_umask")
def test_data_folders_are_the_owners_alone(tmp_path: Path) -> None:
    """Files that a server, a database or cursors create are for their owner only."""
    server = ControlServer(tmp_path / "server" / "data", {})
    server.start()
    server.request_stop()
    assert server.join(Deadline(60))
    replace_content(Disk(), tmp_path / "cursors" / "x" / "meta.dat", b"", backup=None)
    for name in ("server", "server/data", "cursors", "cursors/x"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe in place of our file does not block."""
    path = tmp_path / "meta.dat"
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file, remove it"):
        Disk().read(path)
    for flags in (os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND):
        with pytest.raises(OSError, match="meta") as failed:
            open_private(path, flags)
        assert reason_of(failed.value) == f"{path} is not a regular file: remove it"


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    """The error names it."""
    with pytest.raises(OSError, match=str(tmp_path)):
        Disk().read(tmp_path)
    with pytest.raises(OSError, match=str(tmp_path)) as failed:
        open_private(tmp_path, os.O_RDWR | os.O_CREAT)
    assert reason_of(failed.value) == f"{tmp_path} is a folder: remove it"


@pytest.mark.parametrize("name", [control.LOCK_NAME, control.SOCKET_NAME])
def test_a_folder_in_place_of_a_file_of_a_server(tmp_path: Path, name: str) -> None:
    """The server does not start, and names the folder."""
    (tmp_path / name).mkdir()
    with pytest.raises(ControlError, match=f"{tmp_path / name} is a folder: remove it"):
        ControlServer(tmp_path, {}).start()


def test_a_pipe_in_place_of_the_lock_of_a_server(tmp_path: Path) -> None:
    """The server does not start, and names the pipe."""
    os.mkfifo(tmp_path / control.LOCK_NAME)
    with pytest.raises(
        ControlError, match=f"{control.LOCK_NAME} is not a regular file: remove it"
    ):
        ControlServer(tmp_path, {}).start()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (os.mkfifo, r"not a regular file, remove it \(.*x\.sqlite\.lock\); a regular"),
        (
            os.mkdir,
            r"Is a directory \(.*x\.sqlite\.lock\); .* or a folder that of a file",
        ),
    ],
)
def test_locks_of_databases_are_files(
    tmp_path: Path, make: Callable[[Path], None], problem: str
) -> None:
    """A pipe or folder in place of the lock of a database is an error with its name."""
    path = tmp_path / "x.sqlite"
    make(path.with_name("x.sqlite.lock"))
    database = Database(
        path, FileForm("test", 1, (("CREATE TABLE t (a)",),), "", MetaStoreError)
    )
    with pytest.raises(MetaStoreError, match=problem):
        database.open()


def test_a_file_larger_than_memory_is_not_read(tmp_path: Path) -> None:
    """It is refused by its size; an ordinary file is read completely."""
    path = tmp_path / "seen.json"
    path.write_bytes(b"{}")
    assert Disk().read(path) == b"{}"
    os.truncate(path, 1 << 40)
    with pytest.raises(
        OSError, match="1099511627776 bytes exceed the limit of 268435456"
    ):
        Disk().read(path)
