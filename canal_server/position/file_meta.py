"""Cursors and positions in files: a folder for each destination.

`<data dir>/<destination>/meta.dat` has the content of `meta_file`, `parse.dat` next to
it that of one position. What they cannot hold is in other files next to them
(`sidecar`, `source_positions`). All are written by `atomic_file`. Leaves out when they
are written (`stored_meta`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from canal_server.errors import MetaStoreError
from canal_server.messages import position_messages
from canal_server.position import meta_file, sidecar, source_positions
from canal_server.position.atomic_file import Disk, replace_content
from canal_server.position.gtid_cache import unchanged
from canal_server.position.stored_meta import StoredClient
from canal_server.runtime.private_files import unwritten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from canal_server.model.identity import ClientIdentity
    from canal_server.position.gtid_cache import Completed
    from canal_server.runtime.lifecycle import Stop

logger = logging.getLogger(__name__)

FILE_NAME: Final = "meta.dat"

_Content = TypeVar("_Content")


class MetaFiles:
    """Clients in `meta.dat`; a `stored_meta.MetaStorage`, without open batches."""

    def __init__(
        self,
        data_dir: Path,
        *,
        disk: Disk | None = None,
        completed: Completed = unchanged,
    ) -> None:
        """Create the storage; `completed` adds executed GTID sets to cursors."""
        self._data_dir = data_dir
        self._disk = disk or Disk()
        self._completed = completed
        self._restored: set[str] = set()  # their backup is better than their file
        self._held = sidecar.Held(completed)  # by destination and client id
        self._groups: set[str] = set()  # those with source positions
        self._encoders: dict[str, meta_file.Encoder] = {}  # by destination
        self._full_encoders: dict[str, sidecar.Encoder] = {}  # by destination

    def open(self, destinations: Sequence[str], stop: Stop) -> None:
        """Do nothing: files need no preparation."""

    def close(self) -> None:
        """Do nothing: no file stays open."""

    @property
    def silence(self) -> str:
        """Return the text of an error for a disk that does not answer."""
        return f"the disk of {self._data_dir} did not answer"

    def must_write(self, destination: str) -> bool:
        """Return whether the backup was read."""
        return destination in self._restored

    def read(self, destination: str) -> list[StoredClient]:
        """Read a destination's file, or its backup when the file is damaged."""
        path = _path(self._data_dir, destination, FILE_NAME)
        try:
            clients, restored = _read(
                self._disk,
                path,
                lambda data: meta_file.decode(destination, data),
                "restored the cursors from %s, which is older: changes acked since"
                " then are delivered again",
            )
        except FileNotFoundError:
            return []
        if restored:
            self._restored.add(destination)
        entries = _read_full(self._disk, path, sidecar.decode_clients) or {}
        positions = self._read_source_positions(destination, path)
        found = [
            StoredClient(
                identity,
                cursor
                and sidecar.completed(cursor, entries.get(identity.client_id, ())),
                source_positions=positions.get(identity.client_id, {}),
            )
            for identity, cursor in clients
        ]
        for client in found:
            if client.cursor is not None:
                self._held.stored(_key(client.identity), client.cursor)
        return found

    def write(self, destination: str, clients: list[StoredClient]) -> None:
        """Replace a destination's file; the old one becomes the backup."""
        path = _path(self._data_dir, destination, FILE_NAME)
        what = f"the cursors of {destination}"
        entries = {
            client.identity.client_id: found
            for client in clients
            if client.cursor is not None
            and (found := self._held.entries(_key(client.identity), client.cursor))
        }
        if entries:
            encoder = self._full_encoders.setdefault(destination, sidecar.Encoder())
            content = encoder.encode(entries)
            _write_full(self._disk, path, content, what=what)
        for client in clients:
            if client.cursor is not None:
                self._held.tried(_key(client.identity), client.cursor)
        self._write_source_positions(destination, path, clients)
        _write(
            self._disk,
            path,
            self._encoders.setdefault(
                destination, meta_file.Encoder(destination)
            ).encode((client.identity, client.cursor) for client in clients),
            what=what,
            # A damaged file must not replace the backup it was restored from.
            keep=destination not in self._restored,
        )
        self._restored.discard(destination)
        for client in clients:
            if client.cursor is not None:
                self._held.stored(_key(client.identity), client.cursor)

    def _read_source_positions(
        self, destination: str, path: Path
    ) -> dict[int, source_positions.SourcePositions]:
        """Read the clients' positions in the sources of a group, by client id."""
        try:
            positions, restored = _read(
                self._disk,
                path.with_name(path.name + source_positions.SUFFIX),
                source_positions.decode_clients,
                "restored the source positions from %s, which is older: changes acked"
                " since then are delivered again",
            )
        except FileNotFoundError:
            return {}
        self._groups.add(destination)
        if restored:
            self._restored.add(destination)
        return positions

    def _write_source_positions(
        self, destination: str, path: Path, clients: list[StoredClient]
    ) -> None:
        positions = {
            client.identity.client_id: {
                number: self._completed(position)
                for number, position in client.source_positions.items()
            }
            for client in clients
            if client.source_positions
        }
        if not positions and destination not in self._groups:
            return
        self._groups.add(destination)
        _write(
            self._disk,
            path.with_name(path.name + source_positions.SUFFIX),
            source_positions.encode_clients(positions),
            what=f"the source positions of {destination}",
            keep=destination not in self._restored,
        )


def _read(
    disk: Disk, path: Path, decode: Callable[[bytes], _Content], effect: str
) -> tuple[_Content, bool]:
    """Read a file, or its backup when the file is damaged; then return True.

    In that case `effect` is logged, with the name of the backup in it.
    Raises FileNotFoundError when there is no file, even if there is a backup.
    """
    try:
        return decode(disk.read(path)), False
    except FileNotFoundError:
        raise
    except OSError as error:
        raise MetaStoreError(f"cannot read {path}: {error}") from error
    except ValueError as error:
        damage = error
    backup = path.with_name(f"{path.name}.bak")
    try:
        content = decode(disk.read(backup))
    except (OSError, ValueError) as error:
        raise MetaStoreError(
            f"{path} is damaged ({damage}) and {backup.name} cannot be read either"
            f" ({error}); restore one of them, or remove both: clients then start"
            " without cursors"
        ) from damage
    position_messages.CURSORS_RESTORED.log(logger, path, damage, effect % backup.name)
    return content, True


def _read_full(
    disk: Disk, path: Path, decode: Callable[[bytes], _Content]
) -> _Content | None:
    """Read the file next to a file; None when it is missing or damaged."""
    beside = _beside(path)
    try:
        return decode(disk.read(beside))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MetaStoreError(f"cannot read {beside}: {error}") from error
    except ValueError as error:
        sidecar.warn_of_damage(str(beside), error)
        return None


def _write_full(disk: Disk, path: Path, content: bytes, *, what: str) -> None:
    _write(disk, _beside(path), content, what=what, keep=False)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + sidecar.SUFFIX)


def _key(identity: ClientIdentity) -> tuple[str, int]:
    return identity.destination, identity.client_id


def _write(disk: Disk, path: Path, content: bytes, *, what: str, keep: bool) -> None:
    backup = path.with_name(f"{path.name}.bak") if keep else None
    try:
        replace_content(disk, path, content, backup=backup)
    except OSError as error:
        raise MetaStoreError(
            f"cannot write {what}: {unwritten(error, path.parent)}"
        ) from error


def _path(data_dir: Path, destination: str, name: str) -> Path:
    if destination in ("", ".", "..") or "/" in destination or "\0" in destination:
        raise MetaStoreError(
            f"destination {destination!r} cannot be used as the name of a folder"
        )
    return data_dir / destination / name
