"""The door to sqlite3: our database files, each with one writer at a time.

A file has a form: its owner, its version, and the steps from each version to the next.
Next to it lie SQLite's own `-wal` and `-shm`, and a `.lock` that the writer holds.
Leaves out the content of the tables.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.runtime.private_files import (
    descriptor_shortage,
    make_private_folder,
    open_private,
    refuse_link,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from canal_server.errors import CanalError

Row = tuple[Any, ...]

BUSY_TIMEOUT_S: Final = 5.0  # while another program reads the file
WAL_BYTES_MAX: Final = 4 * 1024 * 1024  # its size after a large write
CACHE_PAGES: Final = 8  # of 4 KiB
SMALLEST_BYTES: Final = 512  # one page, the minimum size of a file
LOCK_SUFFIX: Final = ".lock"
WAL_SUFFIXES: Final = ("-wal", "-shm")
FRESH_SUFFIX: Final = ".new"

_DAMAGED: Final = frozenset(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT"))
_FULL: Final = frozenset(("SQLITE_FULL", "SQLITE_TOOBIG"))
_BUSY: Final = frozenset(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"))
_RIGHTS: Final = frozenset(
    ("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_CANTOPEN")
)
_NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_NO_RIGHTS: Final = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))
_NO_DESCRIPTORS: Final = frozenset((errno.EMFILE, errno.ENFILE))
_REMEDIES: Final = {  # of `open_private`
    errno.ELOOP: "symbolic links are not followed there: remove it",
    errno.EINVAL: "a regular file is created in its place",
}
_IN_THE_WAY: Final = frozenset((errno.EEXIST, errno.ENOTDIR, errno.EISDIR))


@dataclass(frozen=True, slots=True)
class FileForm:
    """The kind of a database file.

    `steps[n]` are the statements that upgrade version n to n + 1; those of version 0
    turn an empty file into the first. `without` describes the loss of the file.
    """

    what: str  # "table history", for messages
    application_id: int
    steps: tuple[tuple[str, ...], ...]
    without: str
    error: type[CanalError]

    @property
    def version(self) -> int:
        """The newest version, the one that is written."""
        return len(self.steps)


class Database:
    """One open file; for one thread at a time. All methods raise the form's error.

    A writer creates a missing file, upgrades it to the newest version and excludes
    other writers; readers may open and close it meanwhile.

    An error does not close it: the next call tries again, and reopens the file where
    the error leaves SQLite's state in doubt.
    """

    def __init__(
        self,
        path: Path,
        form: FileForm,
        *,
        read_only: bool = False,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> None:
        self.path = path
        self._form = form
        self._read_only = read_only
        self._busy_timeout_s = busy_timeout_s
        self._connection: sqlite3.Connection | None = None
        self._is_open = False
        self._is_doubtful = False  # the state of the connection, after an error
        self.is_damaged = False  # an error reported damage of the file
        self._lock_fd = -1
        # Which file is open: its name may be reused for another one.
        self._opened_file: tuple[int, int] | None = None

    def open(self) -> None:
        """Open the file and check it, also for writing; does nothing when open."""
        if self._is_open:
            return
        self.is_damaged = False
        try:
            with self._translated("open"):
                if not self._read_only:
                    make_private_folder(self.path.parent)
                    self._lock_fd = self._locked()
                self._open_file()
        except BaseException:
            self.close()
            raise
        self._is_open = True

    def close(self) -> None:
        """Close the file; idempotent."""
        self._is_open = False
        self._close_file()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Return the rows of a statement."""
        with self._translated("read"):
            return self._open_connection().execute(sql, parameters).fetchall()

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement that writes; return how many rows it changed."""
        with self._translated("write"):
            return self._open_connection().execute(sql, parameters).rowcount

    def execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> int:
        """Run a statement for each row; return how many rows were changed."""
        with self._translated("write"):
            return self._open_connection().executemany(sql, rows).rowcount

    def insert(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Insert one row; return its id."""
        with self._translated("write"):
            found = self._open_connection().execute(sql, parameters).lastrowid
        assert found is not None, "an INSERT has a row id"
        return found

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the writes inside durable at the end, or none of them."""
        with self._translated("write"):
            self._check_identity()
            self._open_connection().execute("BEGIN IMMEDIATE")
        try:
            yield
            with self._translated("write"):
                self._open_connection().execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Run all queries inside on the same state of the file."""
        with self._translated("read"):
            self._open_connection().execute("BEGIN")
        try:
            yield
        finally:
            self._roll_back()

    def damaged(self, found: str) -> CanalError:
        """Return the error for content that differs from what was written."""
        self.is_damaged = True
        return self._form.error(
            f"{self._file} is damaged ({found}); {self._remedy_of_damage}"
        )

    # --- opening ----------------------------------------------------------------------

    def _open_file(self) -> None:
        try:
            if self._read_only:
                self._open_to_read()
            else:
                self._open_to_write()
        except BaseException:
            self._close_file()
            raise

    def _close_file(self) -> None:
        connection, self._connection = self._connection, None
        self._is_doubtful = False
        if connection is not None:
            # The commit is durable; only the clean-up can fail here.
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _open_to_write(self) -> None:
        for suffix in ("", *WAL_SUFFIXES):
            refuse_link(self.path.with_name(self.path.name + suffix))
        if not self.path.exists():
            self._create()
        self._check_rights()
        self._connect("rw")
        # First, because a file of another program must stay unchanged.
        self._check()
        # A commit returns after the disk has it, not only the operating system.
        self._pragma("synchronous = FULL")
        self._pragma("journal_mode = WAL")
        self._pragma(f"journal_size_limit = {WAL_BYTES_MAX}")
        self._migrate()
        self._save_memory()

    def _open_to_read(self) -> None:
        if not self.path.exists():
            raise self._form.error(
                f"there is no {self._form.what} {self.path}; a running server creates"
                " it, check whether the folder is the right one"
            )
        self._connect("ro")
        self._check()
        version = self._number("user_version")
        if version < self._form.version:
            raise self._form.error(
                f"{self._file} has version {version}, required is"
                f" {self._form.version}; start the server on it once to upgrade it"
            )

    def _locked(self) -> int:
        """Take the lock; return its descriptor.

        On a separate file: closing a second descriptor of the database would release
        SQLite's own locks on it.
        """
        path = self.path.with_name(self.path.name + LOCK_SUFFIX)
        descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise self._form.error(
                f"{self._file} is in use by another server (process"
                f" {pid or 'unknown'}); stop that one or give this one another folder"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _create(self) -> None:
        """Create the file under another name and rename it when it is complete."""
        fresh = self.path.with_name(self.path.name + FRESH_SUFFIX)
        for suffix in ("", "-journal", *WAL_SUFFIXES):  # left by a crash
            fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)
        os.close(open_private(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        connection = self._connected(fresh, "rw")
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {self._form.application_id}")
            _apply(connection, self._form.steps, 0)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()
        # Left from a deleted file: SQLite would use their content.
        for suffix in WAL_SUFFIXES:
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        fresh.rename(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _check_rights(self) -> None:
        """Raise PermissionError where SQLite would only read.

        SQLite would also create a `-shm` with the permissions of the file, which would
        block writers after those are corrected.
        """
        for suffix in ("", *WAL_SUFFIXES):
            path = self.path.with_name(self.path.name + suffix)
            if path.exists() and not os.access(path, os.R_OK | os.W_OK):
                number = errno.EACCES
                raise PermissionError(number, os.strerror(number), str(path))

    def _connect(self, mode: str) -> None:
        found = self.path.stat()
        # SQLite treats a shorter file as a new one.
        if found.st_size < SMALLEST_BYTES:
            raise self.damaged(f"it has {found.st_size} bytes")
        self._opened_file = found.st_dev, found.st_ino
        self._connection = self._connected(self.path, mode)
        self._pragma("trusted_schema = OFF")
        self._pragma("cell_size_check = ON")

    def _connected(self, path: Path, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=self._busy_timeout_s,
            isolation_level=None,  # transactions start explicitly
            check_same_thread=False,
        )

    def _check(self) -> None:
        """Raise when the file is not ours, too new or damaged."""
        identity = self._number("application_id")
        if identity != self._form.application_id:
            raise self._form.error(
                f"{self.path} is a database of another program (application id"
                f" {identity}), not a {self._form.what}; move it away or configure"
                " another folder"
            )
        version = self._number("user_version")
        if version > self._form.version:
            raise self._form.error(
                f"{self._file} was written by a newer canal-server (version {version},"
                f" this one supports up to {self._form.version}); start that one"
                f" again, or move the file away: without it {self._form.without}"
            )
        # Compares rows with indexes, 40 MB in 0.1 s. Not their content, which has its
        # own checksums.
        check = "PRAGMA integrity_check(1)"
        try:
            (found,) = self._open_connection().execute(check).fetchone()
        except UnicodeDecodeError as error:  # the message quotes a damaged name
            raise self.damaged(str(error)) from error
        if found != "ok":
            raise self.damaged(found)

    def _migrate(self) -> None:
        """Upgrade the file to the newest version.

        Writes even if it is up to date: a full or read-only disk is to be reported now
        and not at the first statement.
        """
        with self.transaction():
            version = self._number("user_version")
            _apply(self._open_connection(), self._form.steps, version)

    def _save_memory(self) -> None:
        """Keep few pages in memory: a process may have thousands of files open.

        What is read again comes from the cache of the operating system.
        """
        self._pragma(f"cache_size = {CACHE_PAGES}")
        self._pragma("shrink_memory")

    def _pragma(self, text: str) -> None:
        self._open_connection().execute(f"PRAGMA {text}").fetchall()

    def _number(self, pragma: str) -> int:
        (found,) = self._open_connection().execute(f"PRAGMA {pragma}").fetchone()
        return int(found)

    # --- checks and errors ------------------------------------------------------------

    def _open_connection(self) -> sqlite3.Connection:
        """Return the connection, a new one where an error left the old one in doubt."""
        connection = self._connection
        if connection is not None:
            if not self._is_doubtful or connection.in_transaction:
                return connection
            self._close_file()
        if not self._is_open:
            raise self._form.error(f"{self._file} is not open")
        self._open_file()
        assert self._connection is not None
        return self._connection

    def _check_identity(self) -> None:
        """Raise when the open file no longer has its name.

        Whatever is written into it would be lost silently.
        """
        if self._read_only or self._connection is None:
            return
        try:
            found = self.path.stat()
            is_same = (found.st_dev, found.st_ino) == self._opened_file
        except FileNotFoundError:
            is_same = False
        if not is_same:
            # The next call opens the file that exists by then.
            self._close_file()
            raise self._form.error(
                f"{self._file} was moved away or replaced while it was in use; do that"
                " only when the server is not running"
            )

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            # If this fails, SQLite has already rolled back, or does so when it opens
            # the file again.
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            if connection.in_transaction:
                self._close_file()

    @property
    def _file(self) -> str:
        return f"the {self._form.what} {self.path}"

    @property
    def _remedy_of_damage(self) -> str:
        return (
            "restore a copy of it, or move it away together with its -wal:"
            f" without it {self._form.without}"
        )

    @contextlib.contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """Translate errors of SQLite and the system into the form's."""
        try:
            yield
        except sqlite3.Error as error:
            kind = _kind(error)
            self._is_doubtful |= kind not in _BUSY
            self.is_damaged |= kind in _DAMAGED
            raise self._form.error(
                f"cannot {doing} {self._file}: {error}; {self._remedy(kind)}"
            ) from error
        except OSError as error:
            raise self._form.error(
                f"cannot {doing} {self._file}: {error.strerror or error}"
                f" ({error.filename or self.path.parent});"
                f" {self._remedy_of_system(error.errno)}"
            ) from error

    def _remedy(self, kind: str) -> str:
        if kind in _DAMAGED:
            return f"the file is damaged: {self._remedy_of_damage}"
        if kind in _FULL:
            return self._remedy_of_room
        if kind in _BUSY:
            return (
                f"another program has locked it for {self._busy_timeout_s:g} s: end"
                " that program"
            )
        if kind in _RIGHTS:
            return descriptor_shortage() or self._remedy_of_rights
        return f"check whether the disk of {self.path.parent} works and has room"

    def _remedy_of_system(self, number: int | None) -> str:
        if number in _NO_ROOM:
            return self._remedy_of_room
        if number in _REMEDIES:
            return _REMEDIES[number]
        if number in _NO_DESCRIPTORS:
            return descriptor_shortage() or "it has some again"
        if number in _NO_RIGHTS:
            return self._remedy_of_rights
        if number in _IN_THE_WAY:
            return "a file has the name of a folder, or a folder that of a file"
        return f"check whether the disk of {self.path.parent} works"

    @property
    def _remedy_of_room(self) -> str:
        return f"make room on the disk of {self.path.parent}"

    @property
    def _remedy_of_rights(self) -> str:
        return (
            "give the user that runs the server permission to read and write the file"
            f" and the folder {self.path.parent}, and check that its file system is not"
            " mounted read-only"
        )


def _kind(error: sqlite3.Error) -> str:
    """Return the error's name; "SQLITE_IOERR_WRITE" counts as "SQLITE_IOERR"."""
    name = getattr(error, "sqlite_errorname", None) or ""
    return "_".join(name.split("_")[:2])


def _apply(
    connection: sqlite3.Connection, steps: Sequence[Sequence[str]], version: int
) -> None:
    """Run the steps from a version on, inside the caller's transaction."""
    for step in steps[version:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(steps)}")
