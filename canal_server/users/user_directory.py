"""The users that are in force: those of users.yml, and the one of canal.properties.

The file is checked for changes by whoever logs in, and once per second by a thread
(`UsersWatch`), so that a right that was taken away ends its sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConfigError
from canal_server.messages import server_messages
from canal_server.protocol.auth import Credentials, stored_form, verify
from canal_server.runtime.lifecycle import Stop
from canal_server.users.rights import EVERYTHING, ReadRule, User
from canal_server.users.users_file import read_users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from canal_server.runtime.lifecycle import Deadline

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0  # between two checks of the file
_READS_ALL: Final = (ReadRule(EVERYTHING),)
# A hash that no password has: so that unknown names take as long as known ones.
_NO_HASH: Final = hashlib.sha1(b"no user", usedforsecurity=False).hexdigest()


def reader_of_all(name: str, passwd: str = "") -> User:
    """Return a user with all rights to read: the one of canal.properties, or anybody.

    `passwd` is the stored form of its password.
    """
    return User(name, passwd, read=_READS_ALL, ranges=(EVERYTHING,))


class UserDirectory:
    """Finds users by what they prove; thread-safe.

    A file that was replaced by an invalid one is reported once, and the earlier users
    stay in force.
    """

    def __init__(self, path: Path | None, credentials: Credentials) -> None:
        """Read the file, if there is one. Raises ConfigError.

        `credentials` are those of canal.properties. Without them and without a file,
        everybody may log in.
        """
        self._path = path
        self._credentials = credentials
        self._lock = threading.Lock()
        self._on_change: list[Callable[[], None]] = []
        self._stamp = _stamp(path)
        self._users: Mapping[str, User] = {} if path is None else read_users(path)
        self._own: User | None = None
        if credentials.passwd or (path is None and not credentials.user):
            self._own = reader_of_all(credentials.user, credentials.passwd)

    @property
    def has_file(self) -> bool:
        """Return whether there are users of a file."""
        return self._path is not None

    @property
    def names(self) -> list[str]:
        """Return the names of the users of the file."""
        return sorted(self._users)

    def guessed_name(self, name: str) -> str:
        """Return whose password a log-in with a name tries; empty: that of any name."""
        any_name = self._own is not None and not self._credentials.user
        return "" if any_name else name

    def on_change(self, call: Callable[[], None]) -> None:
        """Call a function, by any thread, after users have changed."""
        self._on_change.append(call)

    # --- log-ins ----------------------------------------------------------------------

    def by_token(self, name: str, token: bytes, seed: bytes) -> User | None:
        """Return the user who proves a password by the protocol's token, or None."""
        self.look()
        user = self._users.get(name)
        if user is not None or self._path is not None:
            stored = (user.password_hash if user else "") or _NO_HASH
            proven = bool(token) and verify(token, stored, seed)
            if user is not None:
                return user if proven and user.password_hash else None
        if self._own is None:
            return None
        return self._own if self._credentials.allow(name, token, seed) else None

    def by_password(self, name: str, password: str) -> User | None:
        """Return the user of the file who has a password, or None."""
        self.look()
        user = self._users.get(name)
        stored = (user.password_hash if user else "") or _NO_HASH
        proven = hmac.compare_digest(stored_form(password), stored)
        return user if user is not None and user.password_hash and proven else None

    def by_certificate(self, names: Iterable[str]) -> User | None:
        """Return the user whose certificate has one of these names, or None."""
        self.look()
        proven = set(names)
        return next(
            (
                user
                for user in self._users.values()
                if not proven.isdisjoint(user.certificates)
            ),
            None,
        )

    def is_current(self, user: User) -> bool:
        """Return whether a user has exactly these rights, and this password, still."""
        return user is self._own or self._users.get(user.name) == user

    # --- changes ----------------------------------------------------------------------

    def look(self) -> None:
        """Read the file again if it has changed."""
        if self._path is None or _stamp(self._path) == self._stamp:
            return
        with self._lock:
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            try:
                users = read_users(self._path)
            except ConfigError as error:
                server_messages.USERS_RELOAD_FAILED.log(log, error)
                return
            self._users = users
        log.info("the users were read again: %s, %d users", self._path, len(users))
        for call in self._on_change:
            call()


class UsersWatch:
    """A stage: ends sessions soon after their rights were taken away."""

    def __init__(self, directory: UserDirectory) -> None:
        self._directory = directory
        self._stop = Stop()
        self._thread = threading.Thread(
            target=self._watch, name="canal-users", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request_stop(self) -> None:
        """Ask to stop."""
        self._stop.request()

    def join(self, deadline: Deadline) -> bool:
        """Wait for the thread's end."""
        if self._thread.ident is None:
            return True
        self._thread.join(deadline.remaining_s())
        return not self._thread.is_alive()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self._directory.look()
            except Exception:  # noqa: BLE001  # the outermost frame of this thread
                server_messages.USERS_WATCH_FAILED.log(log, exc_info=True)


def _stamp(path: Path | None) -> tuple[int, ...]:
    """Return what changes with the content of the file, its owner or its mode."""
    if path is None:
        return ()
    try:
        found = path.stat()
    except OSError:  # is being replaced, or deleted: that is reported
        return ()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
