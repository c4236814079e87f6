"""The options for the file of users, its changes, and passwords from stdin."""

from __future__ import annotations

import fcntl
import getpass
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.cli.conf_options import add_conf_option
from canal_server.config.load import load_server
from canal_server.errors import CanalError, ConfigError
from canal_server.position.atomic_file import Disk, replace_content
from canal_server.protocol.auth import stored_form
from canal_server.runtime.private_files import open_private, reason_of
from canal_server.users.users_file import KEY, parse_users, read_users, users_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from canal_server.users.rights import User


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add `--conf` and `--file`."""
    add_conf_option(parser)
    parser.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        help=f"file of users (default: {KEY} in the conf folder)",
    )


def add_password_option(parser: argparse.ArgumentParser) -> None:
    """Add `--password-stdin`."""
    parser.add_argument(
        "--password-stdin",
        action="store_true",
        help="read the password from standard input, one line (default: ask for it at"
        " the terminal)",
    )


def path_of(args: argparse.Namespace) -> Path:
    """Return the file of users. Raises ConfigError."""
    if args.file is not None:
        chosen: Path = args.file
        return chosen
    found = load_server(args.conf, os.environ).users_file
    if found is None:
        problem = f"{KEY} is not set in canal.properties: set it, or name a file with"
        raise ConfigError([f"{problem} --file"])
    return found


def known_users(path: Path) -> dict[str, User]:
    """Return the users of a file; none if it does not exist. Raises ConfigError."""
    return read_users(path) if path.exists() else {}


@contextmanager
def changed_users(path: Path) -> Iterator[dict[str, User]]:
    """Yield the users to be changed, and write them at the end.

    One command changes them at a time. Raises ConfigError, CanalError.
    """
    lock = path.with_name(path.name + ".lock")
    try:
        owner = (path if path.exists() else path.parent).stat()
        descriptor = _open_lock(lock, owner)
    except OSError as error:
        raise CanalError(f"cannot write {lock}: {reason_of(error)}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        users = known_users(path)
        yield users
        text = users_text(users.values())
        parse_users(text, "the options")  # what a server would refuse is not written
        try:
            replace_content(_DiskOf(owner), path, text.encode(), backup=None)
        except OSError as error:
            raise CanalError(f"cannot write {path}: {reason_of(error)}") from error
    finally:
        os.close(descriptor)


def _open_lock(path: Path, owner: os.stat_result) -> int:
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        _give(descriptor, owner)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class _DiskOf(Disk):
    """Creates files for an account."""

    def __init__(self, owner: os.stat_result) -> None:
        self._owner = owner

    def create(self, path: Path) -> int:
        """Create a file that must not exist, for its owner only, and open it."""
        descriptor = super().create(path)
        try:
            _give(descriptor, self._owner)
        except OSError:
            self.close(descriptor)
            raise
        return descriptor


def _give(descriptor: int, owner: os.stat_result) -> None:
    """Let root write files that the server, under its own account, can read.

    By descriptor, and no file with another name: whoever may write into the folder
    could put a link to a file of root there, and would own that.
    """
    if not os.geteuid() and os.fstat(descriptor).st_nlink == 1:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def read_password(args: argparse.Namespace) -> str:
    """Return the stored form of the password that is asked for. Raises ConfigError."""
    if args.password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = getpass.getpass("password: ")
        if getpass.getpass("again: ") != password:
            raise ConfigError(["the passwords differ: nothing was changed"])
    else:
        raise ConfigError(
            ["there is no terminal to ask for the password: use --password-stdin"]
        )
    if not password:
        raise ConfigError(["the password is empty: nothing was changed"])
    return stored_form(password)


def unknown(name: str, path: Path) -> CanalError:
    """Return the error of a user who is not in the file."""
    return CanalError(
        f"user {name!r} is not in {path}; `canal-server user list --file {path}` prints"
        " the users"
    )
