"""A folder of the lake's storage: small files written whole, large ones streamed.

The lake is a folder of a file system that all processes see, or of S3. Leaves out what
is in the files.
"""

from __future__ import annotations

import os
import posixpath
import uuid
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pyarrow import fs

from canal_server.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

_LOCAL: Final = "file://"
_S3: Final = ("s3://", "s3a://")
_TEMPORARY: Final = ".tmp"

# Of S3: pyarrow's names by those that delta-rs knows, which may begin with `aws_`.
_S3_OPTIONS: Final = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "region": "region",
    "default_region": "region",
    "endpoint": "endpoint_override",
    "endpoint_url": "endpoint_override",
}


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, which need not be there yet; travels to other processes.

    Every method may raise LakeError.
    """

    root: str  # a path, or s3://bucket/folder
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.root

    def below(self, name: str) -> Folder:
        """Return a folder in this one."""
        return replace(self, root=f"{self.root.rstrip('/')}/{name}")

    def write(self, name: str, data: bytes) -> None:
        """Write a file, so that it is there as a whole or not at all."""
        files, path = self._at(name)
        try:
            if not isinstance(files, fs.LocalFileSystem):
                with files.open_output_stream(path) as stream:
                    stream.write(data)
                return
            files.create_dir(posixpath.dirname(path))
            passing = f"{path}.{uuid.uuid4().hex}{_TEMPORARY}"
            with open(passing, "xb") as file:  # noqa: PTH123
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(passing, path)  # noqa: PTH105
        except OSError as error:
            raise self._failed("write", name, error) from error

    def read(self, name: str) -> bytes | None:
        """Return what a file holds; None when there is none."""
        files, path = self._at(name)
        try:
            with files.open_input_stream(path) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("read", name, error) from error

    def names(self) -> dict[str, int]:
        """Return the names of the files here, with their sizes."""
        files, path = self._at("")
        selector = fs.FileSelector(path.rstrip("/"), allow_not_found=True)
        try:
            return {
                info.base_name: int(info.size)
                for info in files.get_file_info(selector)
                if info.is_file and not info.base_name.endswith(_TEMPORARY)
            }
        except OSError as error:
            raise self._failed("list", "", error) from error

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a new file for writing; a reader may see a part of it."""
        files, path = self._at(name)
        try:
            files.create_dir(posixpath.dirname(path))
            return files.open_output_stream(path)
        except OSError as error:
            raise self._failed("write", name, error) from error

    def keep(self, name: str) -> None:
        """Have a file, which was written and closed, survive the machine's end."""
        files, path = self._at(name)
        if not isinstance(files, fs.LocalFileSystem):
            return
        try:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._failed("write", name, error) from error

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        files, path = self._at(name)
        try:
            files.delete_file(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failed("delete", name, error) from error

    def _at(self, name: str) -> tuple[fs.FileSystem, str]:
        options = tuple(sorted(self.options.items()))
        files, path = _opened(self.root.rstrip("/"), options)
        return files, f"{path}/{name}"

    def _failed(self, verb: str, name: str, error: OSError) -> LakeError:
        path = f"{self.root}/{name}" if name else self.root
        return LakeError(f"cannot {verb} {path} of the lake: {error}")


@lru_cache(maxsize=64)
def _opened(
    root: str, options: tuple[tuple[str, str], ...]
) -> tuple[fs.FileSystem, str]:
    for prefix in _S3:
        if root.startswith(prefix):
            return _s3(dict(options)), root.removeprefix(prefix)
    return fs.LocalFileSystem(), os.path.abspath(root.removeprefix(_LOCAL))  # noqa: PTH100


def _s3(options: dict[str, str]) -> fs.FileSystem:
    arguments = {}
    for key, value in options.items():
        name = _S3_OPTIONS.get(key.lower().removeprefix("aws_"))
        if name is not None:
            arguments[name] = value
    if arguments.get("endpoint_override", "").startswith("http://"):
        arguments["scheme"] = "http"
    return fs.S3FileSystem(**arguments)
