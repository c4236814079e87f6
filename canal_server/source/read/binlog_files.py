"""Binlog files as a source of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.errors import DecodeError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

MAGIC: Final = b"\xfebin"
_SEALED: Final = b"\xfdbin"
_ENCRYPTED: Final = (
    "is encrypted (binlog_encryption): read it from the server with --from"
)
_OTHER: Final = (
    "is not a binlog file, which starts with the bytes fe 62 69 6e: name a file that"
    " SHOW BINARY LOGS lists on the server, such as binlog.000001"
)


class FileSource:
    """The events of one binlog file, from an offset on; a context manager.

    Raises DecodeError when the file is not a binlog, OSError when it cannot be read.
    """

    def __init__(self, path: Path, position: int = len(MAGIC)) -> None:
        self._file = path.open("rb")
        head = self._file.read(len(MAGIC))
        if head != MAGIC:
            self._file.close()
            raise DecodeError(f"{path} {_ENCRYPTED if head == _SEALED else _OTHER}")
        self._file.seek(max(position, len(MAGIC)))

    def receive_into(self, buffer: memoryview, timeout_s: float | None) -> int:  # noqa: ARG002
        """Read into the buffer; return 0 at the end of the file."""
        return self._file.readinto(buffer)

    def try_receive_into(self, buffer: memoryview) -> int:
        """Read into the buffer; return 0 at the end of the file."""
        return self._file.readinto(buffer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
