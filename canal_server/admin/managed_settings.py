"""Keeps a copy of the settings that canal-admin hands out in the data folder.

::

    canal-admin/canal.properties
    canal-admin/instances/<destination>/instance.properties

All commands read the copy (`canal_server.config.load`), and the server starts with it
while canal-admin cannot be reached. The copy is for its owner only, because it has
passwords.
"""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.admin.settings_client import (
    ServerIdentity,
    SettingsClient,
    SettingsError,
    md5_of,
)
from canal_server.config.load import NO_START
from canal_server.config.modes import INSTANCE_FILE, is_destination_name
from canal_server.errors import ConfigError
from canal_server.ha.address import registered_ip
from canal_server.runtime.private_files import (
    make_private_folder,
    open_private,
    unwritten,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from canal_server.config.load import ManagedConf
    from canal_server.config.schema import DaemonConfig

LAST_ASCII: Final = 0x7E


@dataclass(frozen=True, slots=True)
class Changes:
    """What one round of requests changed in the copy."""

    server: bool = False
    destinations: bool = False
    refused: str = ""  # why a changed canal.properties is not used


class ManagedSettings:
    """The copy; one thread at a time."""

    def __init__(
        self,
        conf: ManagedConf,
        load: Callable[[], DaemonConfig],
        listed: Callable[[], Sequence[str]],
    ) -> None:
        """Create it without a request.

        `load` reads the copy, and raises ConfigError if the server's settings cannot be
        used; `listed` returns the destinations that they list by name.
        """
        server, ip = conf.server, registered_ip(conf.server)
        self._conf = conf
        self._load = load
        self._listed = listed
        self.client = SettingsClient(
            server.manager.address,
            server.admin_user,
            server.admin_passwd,
            ServerIdentity(
                ip=ip,
                port=server.admin_port,
                register=server.manager.register,
                cluster=server.manager.cluster,
                name=server.manager.name or socket.gethostname(),
            ),
        )
        self._me = f"{ip}:{server.admin_port}"
        self.failure = ""  # of the last round
        self._server_md5 = ""
        self._names: list[str] = []
        self._names_md5 = ""
        self._md5s: dict[str, str] = {}

    @property
    def has_copy(self) -> bool:
        """Return whether there are settings to start with."""
        return self._conf.main_file.is_file()

    def fetch(self, is_stopping: Callable[[], bool] = lambda: False) -> Changes:
        """Ask canal-admin once, and write what changed.

        Blocks. Settings of the server that cannot be used are not kept. Raises
        SettingsError if canal-admin hands out nothing, or the copy cannot be written;
        what was fetched until then is written.
        """
        try:
            changes = self._fetch(is_stopping)
        except SettingsError as error:
            self.failure = str(error)
            raise
        self.failure = ""
        return changes

    def _fetch(self, is_stopping: Callable[[], bool]) -> Changes:
        server, refused = self._fetch_server()
        destinations = False if is_stopping() else self._fetch_names()
        for name in self._all_names():
            if is_stopping():
                break
            destinations |= self._fetch_destination(name)
        return Changes(server, destinations, refused)

    def _fetch_server(self) -> tuple[bool, str]:
        content = self.client.server(self._server_md5)
        if content is None:
            if not self._server_md5:
                raise SettingsError(
                    f"canal-admin at {self.client.address} does not know this server,"
                    f" {self._me}; add it there, or set canal.admin.register.auto to"
                    " true"
                )
            return False, ""
        changed, refused = self._store_server(content)
        # Only now: what could not be stored is asked for again.
        self._server_md5 = md5_of(content)
        return changed, refused

    def _store_server(self, content: str) -> tuple[bool, str]:
        """Write the server's settings; return whether they changed, or why not."""
        path = self._conf.main_file
        before = _read(path)
        if before == _escaped(content):
            return False, ""
        had = self._usable() if before is not None else ()
        _write(path, content)
        _folder(self._conf.instances_dir)
        if before is None:
            return True, ""
        try:
            config = self._load()
        except ConfigError as error:
            problems = error.problems
        else:
            if set(had) <= set(config.destinations):
                return True, ""
            # What is wrong for instances is no error of the server's own settings.
            problems = [each for each in config.warnings if each.endswith(NO_START)]
        _write(path, before.decode("ascii"))
        return False, "; ".join(problems)

    def _usable(self) -> Sequence[str]:
        """Return the destinations whose settings can be used."""
        try:
            return self._load().destinations
        except ConfigError:
            return ()

    def _fetch_names(self) -> bool:
        """Fetch which destinations this server has; drop the copies of others."""
        content = self.client.destinations(self._names_md5)
        if content is None:
            return False
        names = [each.strip() for each in content.split(",") if each.strip()]
        for name in names:
            if not is_destination_name(name):
                raise SettingsError(
                    f"canal-admin at {self.client.address} has a destination"
                    f" {name[:100]!r}, whose name cannot be used; rename it there"
                )
        self._names = names
        kept = set(self._all_names())
        try:
            removed = [
                folder
                for folder in self._conf.instances_dir.iterdir()
                if folder.name not in kept
            ]
            for folder in removed:
                shutil.rmtree(folder)
                self._md5s.pop(folder.name, None)
        except OSError as error:
            raise _unwritten(error, self._conf.instances_dir) from error
        self._names_md5 = md5_of(content)
        return bool(removed)

    def _all_names(self) -> list[str]:
        try:
            listed = self._listed()
        except ConfigError:
            listed = ()  # the settings that have them are reported where they are used
        return list(dict.fromkeys((*listed, *self._names)))

    def _fetch_destination(self, name: str) -> bool:
        path = self._conf.instances_dir / name / INSTANCE_FILE
        content = self.client.destination(name, self._md5s.get(name, ""))
        if content is None:
            return False
        is_new = _read(path) != _escaped(content)
        if is_new:
            _write(path, content)
        self._md5s[name] = md5_of(content)
        return is_new


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unwritten(error, path.parent) from error


def _folder(path: Path) -> None:
    try:
        make_private_folder(path)
    except OSError as error:
        raise _unwritten(error, path) from error


def _write(path: Path, content: str) -> None:
    """Replace a file, all at once."""
    _folder(path.parent)
    unfinished = path.with_name(f"{path.name}.new")
    try:
        unfinished.unlink(missing_ok=True)
        fd = open_private(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(fd, "wb") as file:
            file.write(_escaped(content))
            file.flush()
            os.fsync(fd)
        unfinished.replace(path)
    except OSError as error:
        raise _unwritten(error, path.parent) from error


def _unwritten(error: OSError, folder: Path) -> SettingsError:
    return SettingsError(
        f"cannot store the settings of canal-admin: {unwritten(error, folder)}"
    )


def _escaped(content: str) -> bytes:
    r"""Return a text with \uXXXX for other characters, as property files have it."""
    units = content.encode("utf-16-be", "surrogatepass")
    return "".join(
        chr(unit) if unit <= LAST_ASCII else f"\\u{unit:04X}"
        for unit in (
            int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)
        )
    ).encode("ascii")
