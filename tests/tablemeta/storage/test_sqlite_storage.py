"""The table history's file: killed, truncated, full, locked, and not ours."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fix_tablemeta_storage import at, ddl, schemas, segment
from history_faults import OPENED
from history_writer import BY_SIZE, KINDS, WRITES, content, write
from support_paths import PYTHONPATH, ROOT, program

from canal_server.doors.sqlite import Database
from canal_server.errors import TableMetaStoreError
from canal_server.tablemeta.storage import sqlite_storage
from canal_server.tablemeta.storage.sqlite_storage import (
    FILE_NAME,
    SqliteHistoryStorage,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

KILLS = 15
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}:{PYTHONPATH}"}
LEFT_ALONE = "without it a new history starts"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the path of a file that is not there."""
    return tmp_path / "data" / "example" / FILE_NAME


@contextmanager
def opened(path: Path, *, read_only: bool = False) -> Iterator[SqliteHistoryStorage]:
    """Give an open storage."""
    storage = SqliteHistoryStorage(path, read_only=read_only)
    with closing(storage):
        storage.open()
        yield storage


def filled(path: Path, writes: int = 40) -> list[object]:
    """Fill a file with what all kinds of writes leave; returns its content."""
    with opened(path) as storage:
        for number in range(writes):
            write(storage, number)
        return content(storage)


def refused(path: Path, *, read_only: bool = False) -> str:
    """Return what opening the file is refused with; it names the file."""
    with pytest.raises(TableMetaStoreError) as caught:
        SqliteHistoryStorage(path, read_only=read_only).open()
    assert str(path) in str(caught.value)
    return str(caught.value)


def change(path: Path, *statements: str) -> None:
    """Run statements on a file that is closed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


# --- killed ---------------------------------------------------------------------------


@pytest.mark.slow
def test_killed(path: Path, tmp_path: Path, rng: random.Random) -> None:
    """After SIGKILL the file holds what was acknowledged, or one write more, whole."""
    done = 0
    inside = 0  # writes that were done and not acknowledged
    with opened(tmp_path / "model.sqlite") as model:
        for _ in range(KILLS):
            with subprocess.Popen(
                [sys.executable, program("history_writer.py"), path, str(done)],
                stdout=subprocess.PIPE,
                env=ENVIRONMENT,
            ) as process:
                assert process.stdout is not None
                for _ in range(rng.randint(1, 30)):
                    assert int(process.stdout.readline()) == done
                    write(model, done)
                    done += 1
                # Somewhere in what it does next.
                for _ in range(rng.randint(0, 50_000)):
                    pass
                process.send_signal(signal.SIGKILL)
                for line in process.stdout.readlines():
                    assert int(line) == done
                    write(model, done)
                    done += 1
            with opened(path) as storage:
                found = content(storage)
            if found != content(model):
                write(model, done)
                done += 1
                inside += 1
            assert found == content(model)
    print(f"{done} writes, {inside} of them unacknowledged")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_by_its_log(
    path: Path, tmp_path: Path, kind: str, rng: random.Random
) -> None:
    """A process that dies in the middle of writing the log leaves all or nothing."""
    number = KINDS[kind] + WRITES
    before = filled(path, number)
    with opened(tmp_path / "model.sqlite") as model:
        for each in range(number + 1):
            write(model, each)
        after = content(model)
    deaths = size = 0
    found: list[object] | str = before
    while found == before:
        target = (program("history_writer.py"), path)
        ended = subprocess.run(
            [sys.executable, *target, str(number), BY_SIZE, str(size)],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            check=False,
        ).returncode
        assert ended in (0, -signal.SIGXFSZ)
        deaths += ended != 0
        found = read(path)
        assert found in (before, after)
        assert ended or found == after
        size += rng.randint(500, 25_000)
    print(f"{deaths} deaths in one write to {kind}")
    assert deaths


def test_killed_while_made(path: Path) -> None:
    """What is left of a file that was not made to its end is not in the way."""
    path.parent.mkdir(parents=True)
    for suffix in (".new", ".new-journal", ".new-wal", "-wal", "-shm"):
        path.with_name(path.name + suffix).write_bytes(b"damaged")
    assert filled(path, 3)
    assert not list(path.parent.glob("*.new*"))


def test_log_of_another_file(path: Path, tmp_path: Path) -> None:
    """The log of a removed file is not applied to the next one."""
    other = tmp_path / "other.sqlite"
    with opened(other) as storage:
        storage.begin(segment(at(1, 4)), schemas("old"))
        path.parent.mkdir(parents=True)
        for suffix in ("-wal", "-shm"):
            shutil.copy(f"{other}{suffix}", f"{path}{suffix}")
    with opened(path) as storage:
        assert storage.segments() == []


# --- truncated ------------------------------------------------------------------------


def read(path: Path) -> list[object] | str:
    """Return the content of a file, or what opening or reading it is refused with."""
    try:
        with opened(path) as storage:
            return content(storage)
    except TableMetaStoreError as error:
        return str(error)


def is_reported(found: list[object] | str, path: Path) -> bool:
    """Return whether a file was refused with its name and a remedy."""
    return isinstance(found, str) and str(path) in found and ";" in found


def test_a_name_that_is_no_text(path: Path) -> None:
    """A damaged table name is reported like other damage."""
    filled(path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"tabledefinition", b"tabl\xdf\xffefinition"))
    assert is_reported(found := read(path), path), found


@pytest.mark.slow
def test_flipped_bytes(path: Path, rng: random.Random) -> None:
    """A file with a changed byte is refused, or nothing that counts has changed."""
    before = filled(path)
    whole = path.read_bytes()
    refusals = 0
    for _ in range(300):
        truncated = bytearray(whole)
        truncated[rng.randrange(len(truncated))] ^= 1 << rng.randrange(8)
        path.write_bytes(truncated)
        found = read(path)
        refusals += found != before
        assert found == before or is_reported(found, path)
    assert refusals > 100


def test_truncated(path: Path, rng: random.Random) -> None:
    """A file that is too short is refused, or what is missing was not in use."""
    before = filled(path)
    whole = path.read_bytes()
    for length in (0, 1, 99, 100, 4_096, *(rng.randrange(len(whole)) for _ in "12345")):
        path.write_bytes(whole[:length])
        found = read(path)
        assert is_reported(found, path) or found == before
        assert path.stat().st_size == length or found == before
    path.write_bytes(whole)
    assert read(path) == before


def test_truncated_log(path: Path, tmp_path: Path, rng: random.Random) -> None:
    """In a truncated log, the writes before the end are kept, each as a whole."""
    states: list[object] = []
    copy = tmp_path / "copy" / FILE_NAME
    copy.parent.mkdir()
    with opened(path) as storage:
        for number in range(14):
            states.append(content(storage))
            write(storage, number)
        states.append(content(storage))
        shutil.copy(path, copy)
        log = Path(f"{path}-wal").read_bytes()
    whole = copy.read_bytes()
    found = []
    for cut in [0, 31, len(log), *(rng.randrange(len(log)) for _ in range(25))]:
        truncated = bytearray(log[:cut])
        if truncated and rng.random() < 0.5:
            truncated[rng.randrange(len(truncated))] ^= 1 << rng.randrange(8)
        copy.write_bytes(whole)
        Path(f"{copy}-wal").write_bytes(truncated)
        found.append(states.index(read(copy)))
        Path(f"{copy}-shm").unlink(missing_ok=True)
    assert len(set(found)) > 3


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE record SET ddl = 'DROP TABLE t'", "the statement at"),
        ("UPDATE record SET contained = 1", "the statement at"),
        ("UPDATE stretch SET last = first", "segment 1 has a wrong checksum"),
        ("UPDATE stretch SET written = 9", "segment 1 has a wrong checksum"),
        ("UPDATE snapshot SET images = x''", "the snapshot at"),
        ("UPDATE definition SET text = 'CREATE'", "'t' has a wrong digest"),
        ("UPDATE schema_image SET views = '[1]'", "'db' has a wrong digest"),
        ("DELETE FROM definition", "1 of 1 definitions are missing"),
    ],
)
def test_changed_by_others(path: Path, statement: str, expected: str) -> None:
    """Any change to the file is noticed when it is read."""
    with opened(path) as storage:
        of = storage.begin(segment(at(1, 4), at(1, 90)), schemas("t"))
        storage.append(of.id, ddl(at(1, 50)))
    change(path, statement)
    with opened(path) as storage, pytest.raises(TableMetaStoreError) as caught:
        content(storage)
    assert f"{path} is damaged ({expected}" in str(caught.value)
    assert LEFT_ALONE in str(caught.value)


@pytest.mark.parametrize("read_only", [False, True])
def test_not_a_database(path: Path, read_only: bool) -> None:
    """A file of another kind is refused and left as it is."""
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no data base, but long enough to be one\n" * 1_000)
    before = path.read_bytes()
    assert LEFT_ALONE in refused(path, read_only=read_only)
    assert path.read_bytes() == before


def test_of_another_program(path: Path) -> None:
    """A database of another program is refused and left as it is."""
    path.parent.mkdir(parents=True)
    change(path, "CREATE TABLE t (a)", "PRAGMA user_version = 1")
    before = path.read_bytes()
    assert "is a database of another program" in refused(path)
    assert path.read_bytes() == before


# --- versions -------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
def test_newer_version(path: Path, read_only: bool) -> None:
    """A file of a newer version is refused, with both versions and what to do."""
    filled(path, 3)
    change(path, "PRAGMA user_version = 2")
    text = refused(path, read_only=read_only)
    assert "newer canal-server (version 2, this one supports up to 1)" in text
    assert "start that one again" in text


def test_older_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older file is upgraded step by step, but not by a reader."""
    before = filled(path, 5)
    form = sqlite_storage.FORM
    steps = (*form.steps, ("CREATE TABLE more (a)",), ("INSERT INTO more VALUES (7)",))
    newer = type(form)(form.what, form.application_id, steps, form.without, form.error)
    monkeypatch.setattr(sqlite_storage, "FORM", newer)
    assert "version 1, required is 3; start the server" in refused(path, read_only=True)
    assert read(path) == before
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT a FROM more").fetchall() == [(7,)]
        assert connection.execute("PRAGMA user_version").fetchall() == [(3,)]


def test_step_that_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed upgrade leaves the older version unchanged."""
    before = filled(path, 5)
    form = sqlite_storage.FORM
    steps = (*form.steps, ("CREATE TABLE more (a)", "INSERT INTO nowhere VALUES (7)"))
    newer = type(form)(form.what, form.application_id, steps, form.without, form.error)
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_storage, "FORM", newer)
        assert "no such table: nowhere" in refused(path)
    assert read(path) == before


# --- others ---------------------------------------------------------------------------


def test_two_writers(path: Path) -> None:
    """A second server is refused with the first one's process id, and may retry."""
    with opened(path) as storage:
        storage.begin(segment(at(1, 4)), schemas("t"))
        assert f"in use by another server (process {os.getpid()})" in refused(path)
        storage.begin(segment(at(2, 4)), schemas("t"))
    with opened(path) as storage:
        assert len(storage.segments()) == 2


def test_readers(path: Path) -> None:
    """Who reads sees what a running server wrote so far, and cannot write."""
    with opened(path) as storage:
        of = storage.begin(segment(at(1, 4)), schemas("t"))
        with opened(path, read_only=True) as reader:
            assert reader.segments() == [of]
            storage.append(of.id, ddl(at(1, 50)))
            assert list(reader.records(of.id)) == [ddl(at(1, 50))]
            with pytest.raises(TableMetaStoreError, match="attempt to write"):
                reader.append(of.id, ddl(at(1, 60)))
        storage.append(of.id, ddl(at(1, 70)))
    with opened(path, read_only=True) as reader:
        assert len(list(reader.records(of.id))) == 2
    with opened(path) as storage:
        assert len(list(storage.records(of.id))) == 2


def test_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file locked by another program is reported, and usable once it is free."""
    impatient = partial(Database, busy_timeout_s=0.05)
    monkeypatch.setattr(sqlite_storage, "Database", impatient)
    with opened(path) as storage:
        of = storage.begin(segment(at(1, 4)), schemas("t"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(TableMetaStoreError, match="another program has locked"):
                storage.append(of.id, ddl(at(1, 50)))
            other.execute("ROLLBACK")
        assert storage.append(of.id, ddl(at(1, 50)))


def test_moved_away(path: Path, tmp_path: Path) -> None:
    """A file that was moved away is noticed; the next call creates a new one."""
    with opened(path) as storage:
        of = storage.begin(segment(at(1, 4)), schemas("t"))
        path.rename(tmp_path / FILE_NAME)
        with pytest.raises(TableMetaStoreError, match="was moved away or replaced"):
            storage.append(of.id, ddl(at(1, 50)))
        assert storage.segments() == []
        storage.begin(segment(at(2, 4)), schemas("u"))
        path.unlink()
        with pytest.raises(TableMetaStoreError, match="was moved away or replaced"):
            storage.extend(of.id, last=at(1, 60))
        (tmp_path / FILE_NAME).rename(path)
        assert storage.append(of.id, ddl(at(1, 50)))
        assert "in use by another server" in refused(path)
    with opened(path) as storage:
        assert list(storage.records(of.id)) == [ddl(at(1, 50))]


def test_goes_on_after_damage(path: Path) -> None:
    """A storage with a damaged file recovers by itself when that is repaired."""
    with opened(path) as storage:
        of = storage.begin(segment(at(1, 4)), schemas("t"))
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        whole = path.read_bytes()
        # As a disk does that gives back something else.
        with path.open("r+b") as file:
            file.write(bytes(len(whole)))
        # Only who does not remember the pages reads them again.
        storage._database._is_doubtful = True
        for _ in range(2):
            with pytest.raises(
                TableMetaStoreError, match=r"is not a database|is damaged"
            ):
                storage.append(of.id, ddl(at(1, 50)))
        with path.open("r+b") as file:
            file.write(whole)
        assert storage.append(of.id, ddl(at(1, 50)))
        assert storage.segments() == [of]


def test_owner_only(path: Path) -> None:
    """Files and new folders are for their owner only."""
    with opened(path) as storage:
        storage.begin(segment(at(1, 4)), schemas("t"))
        for file in (*path.parent.iterdir(), path.parent):
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0
        assert len(list(path.parent.iterdir())) == 4


# --- disks ----------------------------------------------------------------------------


def test_a_file_in_the_way(path: Path) -> None:
    """A folder that cannot be created is reported."""
    path.parent.parent.mkdir(parents=True)
    path.parent.write_text("a file")
    assert "a file has the name of a folder" in refused(path)


def run_faults(*arguments: object) -> str:
    """Run the program of faults, by way of another one; returns what it prints."""
    prefix, command = arguments[:-3], arguments[-3:]
    faults = (sys.executable, program("history_faults.py"))
    found = subprocess.run(
        [str(each) for each in (*prefix, *faults, *command) if each != ""],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode and prefix and "history_faults" not in found.stderr:
        pytest.skip(f"{prefix[0]} is not allowed here: {found.stderr.strip()}")
    assert found.returncode == 0, found.stderr
    return found.stdout


# A private mount namespace; its root user is us.
OWN_MOUNTS = ("unshare", *(() if os.getuid() == 0 else ("-r",)), "-m", "sh", "-ec")
# Root for whom the rights of files count.
UNPRIVILEGED = (
    ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if os.getuid() == 0 else ()
)


@pytest.mark.parametrize("name", [FILE_NAME, f"{FILE_NAME}.lock", ""])
def test_no_right_to_write(path: Path, name: str) -> None:
    """A read-only file or folder is reported when it is opened."""
    before = filled(path, 3)
    protected = path.parent / name
    mode = stat.S_IMODE(protected.stat().st_mode)
    protected.chmod(mode & ~0o222)
    try:
        text = run_faults(*UNPRIVILEGED, "open", path, "")
    finally:
        protected.chmod(mode)
    assert f"cannot open the table history {path}: " in text
    assert "give the user that runs the server permission to read and write" in text
    assert run_faults(*UNPRIVILEGED, "open", path, "") == f"{OPENED}\n"
    assert read(path) == before


@pytest.mark.parametrize("is_there", [False, True])
def test_read_only_file_system(path: Path, is_there: bool) -> None:
    """A read-only file system is reported when it is opened."""
    folder = path.parent
    folder.mkdir(parents=True)
    before = filled(path, 3) if is_there else None
    mount = 'mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"; exec "$@"'
    text = run_faults(*OWN_MOUNTS, mount, folder, "open", path, "")
    assert f"cannot open the table history {path}: " in text
    assert "check that its file system is not mounted read-only" in text
    assert (read(path) if is_there else None) == before


@pytest.mark.slow
def test_small_disk(tmp_path: Path, rng: random.Random) -> None:
    """Every write to a full disk fails or succeeds, and works again with free space.

    Opening and moving the log into the file included; nothing is lost.
    """
    mount = 'mount -t tmpfs -o size=16m tmpfs "$0"; exec "$@"'
    seed = rng.randrange(1_000_000)
    text = run_faults(*OWN_MOUNTS, mount, tmp_path, "room", tmp_path, seed)
    refused_kinds = set(map(int, text.split()))
    print(f"refused without room: {sorted(refused_kinds)}")
    assert refused_kinds  # which ones depends on where the room ends


def within_size(bytes_max: int) -> None:
    """Let this process write no file beyond a size."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, resource.RLIM_INFINITY))


def test_full_disk(path: Path) -> None:
    """A full disk is reported, and nothing is lost; with space it works again."""
    before = filled(path, 30)
    done = 30
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(path) as storage:
        try:
            within_size(200_000)
            with pytest.raises(TableMetaStoreError) as caught:  # noqa: PT012
                for number in range(done, 500):
                    write(storage, number)
                    done += 1
                    before = content(storage)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert str(path) in str(caught.value)
        assert "room" in str(caught.value)
        assert content(storage) == before
        write(storage, done)
        after = content(storage)
        assert after != before
    assert read(path) == after
