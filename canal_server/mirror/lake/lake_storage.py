"""Files in the lake's storage: a folder of the file system, or of an object store.

Small files are written as a whole, large ones in parts. Leaves out their contents.
"""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import fs

from canal_server.errors import LakeError
from canal_server.mirror.lake.stores.object_stores import store_of
from canal_server.mirror.lake.stores.store_errors import meaning, without_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.mirror.lake.stores.object_stores import Put
    from canal_server.mirror.settings.mirror_settings import LakeSettings

_TEMPORARY: Final = ".new"
# Bytes of a name that `write` accepts: file systems allow 255, and a file that is being
# written has a name that is longer by a point, 32 digits and a suffix.
NAME_MAX: Final = 255 - 33 - len(_TEMPORARY)
# Of file systems without hard links, or with a limit of them.
_NO_LINKS: Final = (
    errno.EPERM,
    errno.EOPNOTSUPP,
    errno.ENOSYS,
    errno.EMLINK,
    errno.EXDEV,
)


class Folder:
    """A folder, which need not exist yet; can be pickled.

    All names are paths below it. Each method may raise LakeError.
    """

    def __init__(
        self, filesystem: Any, path: str, store: str = "", put: Put | None = None
    ) -> None:
        """Set a file system of Arrow, and the path of the folder in it.

        `store`: what errors call the store, beside the path. `put` writes a whole file
        there at once, if a file of Arrow does not appear as a whole.
        """
        self._fs = filesystem
        self._path = path.rstrip("/")
        self._store = store
        self._put = put
        self._is_local = isinstance(filesystem, fs.LocalFileSystem)

    def __str__(self) -> str:
        return self._path

    @property
    def local_path(self) -> str | None:
        """The path of a folder in the file system; empty in an object store."""
        return self._path if self._is_local else None

    def below(self, name: str) -> Folder:
        """Return a folder inside this one."""
        return Folder(self._fs, f"{self._path}/{name}", self._store, self._put)

    def read(self, name: str) -> bytes | None:
        """Return a whole file; None if it does not exist.

        For files that `write` has written, which fit in memory.
        """
        path = f"{self._path}/{name}"
        try:
            with (
                self._as_lake_error("read", path),
                self._fs.open_input_stream(path) as file,
            ):
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically: readers see either the old one or the new one."""
        path = f"{self._path}/{name}"
        with self._as_lake_error("write", path):
            if self._is_local:
                self._write_locally(path, data)
                return
            if self._put is not None:
                self._put(path, data)
                return
            # An object becomes visible when it is complete, and replaces the old one.
            with self._fs.open_output_stream(path) as file:
                file.write(data)

    def _write_locally(self, path: str, data: bytes) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        temporary = f"{path}.{uuid.uuid4().hex}{_TEMPORARY}"
        with open(temporary, "xb") as file:  # noqa: PTH123  # paths are texts here
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        path = f"{self._path}/{name}"
        try:
            with self._as_lake_error("delete", path):
                self._fs.delete_file(path)
        except FileNotFoundError:
            return

    def remove(self) -> None:
        """Delete the folder and its contents, if it exists."""
        try:
            with self._as_lake_error("delete", self._path):
                self._fs.delete_dir(self._path)
        except FileNotFoundError:
            return

    def check_bucket(self) -> None:
        """Raise LakeError if the bucket of this folder does not exist."""
        bucket = self._path.partition("/")[0]
        with self._as_lake_error("open", ""):
            found = self._fs.get_file_info(bucket)
        if found.type == fs.FileType.NotFound:
            raise LakeError(self._text_of("open", "", "NoSuchBucket"))

    def names(self) -> list[str]:
        """Return the names of the files in this folder, sorted."""
        return sorted(self.sizes())

    def sizes(self) -> dict[str, int]:
        """Return the files in this folder by name, with their sizes in bytes."""
        with self._as_lake_error("list", self._path):
            selector = fs.FileSelector(self._path, allow_not_found=True)
            return {
                each.base_name: int(each.size)
                for each in self._fs.get_file_info(selector)
                if each.type == fs.FileType.File
                and not each.base_name.endswith(_TEMPORARY)
            }

    def folders(self) -> list[str]:
        """Return the names of the folders in this folder, sorted."""
        with self._as_lake_error("list", self._path):
            selector = fs.FileSelector(self._path, allow_not_found=True)
            return sorted(
                each.base_name
                for each in self._fs.get_file_info(selector)
                if each.type == fs.FileType.Directory
            )

    def below_names(self) -> list[str]:
        """Return the paths of all files in this folder and its subfolders, sorted."""
        return sorted(self.sizes_below())

    def sizes_below(self) -> dict[str, int]:
        """Return all files in this folder and its subfolders, with their sizes."""
        with self._as_lake_error("list", self._path):
            selector = fs.FileSelector(self._path, allow_not_found=True, recursive=True)
            return {
                each.path.removeprefix(self._path).lstrip("/"): int(each.size)
                for each in self._fs.get_file_info(selector)
                if each.type == fs.FileType.File
            }

    @contextmanager
    def open_input(self, name: str) -> Iterator[pa.NativeFile]:
        """Open a file for reading, until the context ends."""
        path = f"{self._path}/{name}"
        with self._as_lake_error("read", path), self._fs.open_input_file(path) as file:
            yield file

    @contextmanager
    def open_output(self, name: str) -> Iterator[pa.NativeFile]:
        """Open a file for writing; readers may see a part until the context ends.

        After that it survives a crash of the machine.
        """
        with (
            self._as_lake_error("write", f"{self._path}/{name}"),
            self.create(name) as file,
        ):
            yield file
        self.keep(name)

    def create(self, name: str) -> pa.NativeFile:
        """Open a new file for writing; the caller closes it and makes it durable."""
        path = f"{self._path}/{name}"
        with self._as_lake_error("write", path):
            if self._is_local:
                os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
            return self._fs.open_output_stream(path)

    def keep(self, name: str) -> None:
        """Make a closed file survive a crash of the machine."""
        path = f"{self._path}/{name}"
        with self._as_lake_error("write", path):
            if self._is_local:
                _sync(path)

    def move(self, name: str, to: str) -> None:
        """Rename a file, if it exists."""
        path, target = f"{self._path}/{name}", f"{self._path}/{to}"
        with self._as_lake_error("move", path):
            if self._fs.get_file_info(path).type != fs.FileType.File:
                return
            if self._is_local:
                os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
                self._fs.move(path, target)
                return
            # An object store has no other way, and Arrow lacks this one for Azure's.
            self._fs.copy_file(path, target)
            self._fs.delete_file(path)

    def move_folder(self, name: str, to: str) -> bool:
        """Rename a folder of the file system, at once; false if that is not possible.

        It is not if the new name has files, or is on another file system.
        """
        path, target = f"{self._path}/{name}", f"{self._path}/{to}"
        with self._as_lake_error("move", path):
            os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
            try:
                os.rename(path, target)  # noqa: PTH104
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EXDEV):
                    return False
                raise
        return True

    def link(self, source: Folder, name: str, to: str) -> None:
        """Make a file of another folder of the lake a file of this one as well.

        Only for files that are never written again: locally, both names may stand for
        one file. It survives a crash of the machine.
        """
        path, target = f"{source}/{name}", f"{self._path}/{to}"
        with self._as_lake_error("copy", path):
            if self._is_local:
                os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
            if not (self._is_local and _linked(path, target)):
                self._fs.copy_file(path, target)
        self.keep(to)

    @contextmanager
    def _as_lake_error(self, what: str, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            if what in ("read", "delete"):
                raise
            raise LakeError(f"cannot {what} {path}: no such file or folder") from None
        except (OSError, pa.ArrowException) as error:
            raise LakeError(self._text_of(what, path, str(error))) from error

    def _text_of(self, what: str, path: str, text: str) -> str:
        where = f"{path} in {self._store}" if self._store and path else path
        found = meaning(text) if self._store else ""
        if self._store:
            text = " ".join(without_request(text).split())
        reason = f"{found} ({text})" if found else text
        return f"cannot {what} {where or self._store}: {reason}"


def _linked(path: str, target: str) -> bool:
    """Give a file another name, if the file system can do that."""
    try:
        os.link(path, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_folder(lake: LakeSettings, path: str = "") -> Folder:
    """Return a folder below the lake's root. Raises LakeError."""
    if lake.is_local:
        root = Folder(fs.LocalFileSystem(), lake.path)
    else:
        store = store_of(lake.path, lake.storage_options)
        root = Folder(store.file_system(), store.root, store.name, store.put)
    return root.below(path) if path else root


def check_bucket(lake: LakeSettings) -> None:
    """Raise LakeError if a lake's object store does not have its bucket.

    Reading and listing find nothing there, as in an empty one.
    """
    open_folder(lake).check_bucket()
