"""The binlog files of one directory, plain or compressed.

A file has the name that it had on the server, with the suffix of its compression. Other
files of the directory, such as the binlog index, are not read.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Final, cast

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.doors.zstd import ZstdError, open_inflated, plain_size
from canal_server.errors import ArchiveError
from canal_server.model.positions import base_name, binlog_file_number
from canal_server.mysql.binlogs import BinaryLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

Gtids = GtidSet | MariaGtidSet

MAGIC: Final = b"\xfebin"
_SEALED: Final = b"\xfdbin"
HEADER_BYTES: Final = 19
CHECKSUM_BYTES: Final = 4
READ_BYTES: Final = 1 << 20  # at a time
EVENT_BYTES_MAX: Final = 1 << 30
_FORMAT_DESCRIPTION: Final = 15
_PREVIOUS_GTIDS: Final = 35
_GTID_LIST: Final = 163  # MariaDB
_IN_USE_FLAG: Final = 1
# The suffix of an empty file that says: the file of this name is complete, although it
# does not end with an event that closes it.
COMPLETE: Final = ".complete"

_NAME: Final = re.compile(r"(.*\.\d+)(\.gz|\.bz2|\.xz|\.zst)?")
# What the decompressors raise for damaged data.
_DAMAGED: Final = (OSError, EOFError, lzma.LZMAError, zlib.error, ZstdError)


@dataclass(frozen=True, slots=True)
class FileHead:
    """The first events of a binlog file.

    `format` is its format description, `time_s` when that was written; `gtids` what was
    executed before the file, None when it does not say.
    """

    format: bytes
    time_s: int
    gtids: Gtids | None

    @property
    def server_id(self) -> int:
        """Return the id that the server had which wrote the file."""
        return int.from_bytes(self.format[5:9], "little")


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One binlog file; `name` is the server's name for it."""

    name: str
    path: Path

    @property
    def number(self) -> int:
        """Return the number at the end of its name."""
        return binlog_file_number(self.name)

    @property
    def is_declared_complete(self) -> bool:
        """Whether the operator confirmed that the file is complete."""
        return self.path.with_name(f"{self.name}{COMPLETE}").exists()

    def size(self) -> int:
        """Return the size of the plain file. Raises ArchiveError."""
        try:
            stat = self.path.stat()
        except OSError as error:
            raise self.damaged(str(error)) from error
        if self.path.suffix not in _OPENERS:
            return stat.st_size
        return _plain_size(self, stat.st_mtime_ns, stat.st_size)

    def open(self) -> FileBytes:
        """Return its bytes after the magic number. Raises ArchiveError."""
        return FileBytes(self)

    def head(self) -> FileHead:
        """Return its first events. Raises ArchiveError."""
        try:
            stat = self.path.stat()
        except OSError as error:
            raise self.damaged(str(error)) from error
        event, more = _head_events(self, stat.st_mtime_ns, stat.st_size)
        try:
            gtids = _set_in(more)
        except ValueError as error:
            raise self.damaged(str(error), len(MAGIC) + len(event)) from error
        return FileHead(event, int.from_bytes(event[:4], "little"), gtids)

    def damaged(self, why: str, offset: int | None = None) -> ArchiveError:
        """Return the error for a file that cannot be read."""
        where = str(self.path) if offset is None else f"{self.path} at offset {offset}"
        return ArchiveError(
            f"archived binlog file {where}: {why}; replace it with an intact copy"
        )


class FileBytes:
    """The plain bytes of a file after its magic number; a context manager."""

    def __init__(self, file: ArchivedFile) -> None:
        self._file = file
        self._stream: IO[bytes] | None = None
        try:
            opened = _OPENERS.get(file.path.suffix, _open_plain)(file.path)
            self._stream = opened
            magic = opened.read(len(MAGIC))
        except _DAMAGED as error:
            self.close()
            raise file.damaged(str(error) or type(error).__name__) from error
        if magic == MAGIC:
            return
        self.close()
        if magic == _SEALED:
            raise file.damaged(
                "is encrypted (binlog_encryption); archive it with mysqlbinlog --raw"
                " --read-from-remote-server, which writes it in plain"
            )
        raise file.damaged("does not start with the bytes fe 62 69 6e of a binlog")

    def read_into(self, buffer: memoryview) -> int:
        """Read into a buffer; return 0 at the end. Raises ArchiveError."""
        assert self._stream is not None
        try:
            return cast("int", self._stream.readinto(buffer))  # type: ignore[attr-defined]
        except _DAMAGED as error:
            raise self._file.damaged(str(error) or type(error).__name__) from error

    def read(self, size: int) -> bytes:
        """Read so many bytes, fewer at the end. Raises ArchiveError."""
        data = bytearray(size)
        space, filled = memoryview(data), 0
        while filled < size and (count := self.read_into(space[filled:])):
            filled += count
        return bytes(data[:filled])

    def skip(self, size: int) -> int:
        """Pass over so many bytes; return how many there were."""
        assert self._stream is not None
        if self._file.path.suffix not in _OPENERS:
            at = self._stream.tell()
            end = self._stream.seek(0, 2)
            return self._stream.seek(min(at + size, end)) - at
        left = size
        space = memoryview(bytearray(min(READ_BYTES, max(left, 1))))
        while left and (count := self.read_into(space[: min(left, len(space))])):
            left -= count
        return size - left

    def close(self) -> None:
        """Close the file; idempotent."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class BinlogArchive:
    """The binlog files of one server in a directory; `key` names the setting."""

    directory: Path
    key: str

    def files(self) -> tuple[ArchivedFile, ...]:
        """Return all files, the oldest first. Raises ArchiveError."""
        found: dict[str, ArchivedFile] = {}
        try:
            paths = sorted(each for each in self.directory.iterdir() if each.is_file())
        except OSError as error:
            raise ArchiveError(
                f"{self.key} = {self.directory}: {error.strerror}; name the directory"
                " with the archived binlog files"
            ) from error
        for path in paths:
            match = _NAME.fullmatch(path.name)
            if match and match[1] not in found:  # a plain file sorts first
                found[match[1]] = ArchivedFile(match[1], path)
        bases = sorted({base_name(name) for name in found})
        if len(bases) > 1:
            raise ArchiveError(
                f"{self.key} = {self.directory}: has files of several binlogs,"
                f" {bases[0]}* and {bases[1]}*; use one directory for each server"
            )
        return tuple(sorted(found.values(), key=lambda each: each.number))

    def before(self, oldest: str) -> tuple[ArchivedFile, ...]:
        """Return the files that precede a server's oldest file without a gap.

        Raises ArchiveError.
        """
        older = [
            each
            for each in self.files()
            if base_name(each.name) == base_name(oldest)
            and each.number < binlog_file_number(oldest)
        ]
        return without_gap(older, binlog_file_number(oldest))

    def gap_before(self, oldest: str, wanted: str) -> str:
        """Return why an archived file cannot be read before a server's oldest file.

        Empty when the archive does not have it.
        """
        names = [each.name for each in self.files()]
        if wanted not in names:
            return ""
        run = self.before(oldest)
        last = (run[0].number if run else binlog_file_number(oldest)) - 1
        base = base_name(oldest)
        missing = f"{base}{last:0{len(oldest) - len(base)}}"
        return (
            f"{self.key} = {self.directory}: has {wanted}, but lacks {missing}, which"
            " comes before what can be read: add that file"
        )


def without_gap(files: Sequence[ArchivedFile], end: int) -> tuple[ArchivedFile, ...]:
    """Return the files with the numbers right before `end`, the oldest first."""
    found: list[ArchivedFile] = []
    for each in reversed(files):
        if each.number != end - len(found) - 1:
            break
        found.append(each)
    return tuple(reversed(found))


def as_logs(files: Sequence[ArchivedFile]) -> list[BinaryLog]:
    """Return files in the form in which a server lists its own."""
    return [BinaryLog(each.name, each.size()) for each in files]


# --- the first events -----------------------------------------------------------------


@lru_cache(maxsize=4096)
def _head_events(file: ArchivedFile, _mtime_ns: int, _size: int) -> tuple[bytes, bytes]:
    """Return the format description and, if there is one, the event with GTIDs."""
    with file.open() as source:
        first = _event(file, source, len(MAGIC))
        if first[4:5] != bytes([_FORMAT_DESCRIPTION]):
            raise file.damaged("does not start with a format description", len(MAGIC))
        second = _event(file, source, len(MAGIC) + len(first))
    if second[4:5] not in (bytes([_PREVIOUS_GTIDS]), bytes([_GTID_LIST])):
        return first, b""
    return first, second[:-CHECKSUM_BYTES] if others_have_checksums(first) else second


def _event(file: ArchivedFile, source: FileBytes, offset: int) -> bytes:
    """Read one event; empty at the end of the file."""
    header = source.read(HEADER_BYTES)
    if not header:
        return b""
    length = int.from_bytes(header[9:13], "little") if len(header) > 12 else 0  # noqa: PLR2004
    if not HEADER_BYTES <= length <= EVENT_BYTES_MAX:
        raise file.damaged("has no event there", offset)
    event = header + source.read(length - HEADER_BYTES)
    if len(event) < length:
        raise file.damaged("is truncated: it ends inside of this event", offset)
    return event


def _set_in(event: bytes) -> Gtids | None:
    body = event[HEADER_BYTES:]
    if not event:
        return None
    if event[4] == _GTID_LIST:
        return MariaGtidSet.decode_gtid_list(body)
    return GtidSet.decode_previous_gtids(body)


def has_checksum(format_event: bytes) -> bool:
    """Return whether a format description has a checksum; since MySQL 5.6 each has."""
    plain = _without_use(format_event)[:-CHECKSUM_BYTES]
    return zlib.crc32(plain).to_bytes(4, "little") == format_event[-CHECKSUM_BYTES:]


def others_have_checksums(format_event: bytes) -> bool:
    """Return whether the events after the first one have checksums.

    The byte before its own checksum names the algorithm; 1 is CRC32.
    """
    return has_checksum(format_event) and format_event[-CHECKSUM_BYTES - 1] == 1


def format_amid(format_event: bytes) -> bytes:
    """Return a format description for a dump that starts later in the file.

    As a server sends it: without a position, so that reading does not go back.
    """
    event = bytearray(_without_use(format_event))
    event[13:17] = bytes(4)
    if has_checksum(format_event):
        checksum = zlib.crc32(event[:-CHECKSUM_BYTES])
        event[-CHECKSUM_BYTES:] = struct.pack("<I", checksum)
    return bytes(event)


def _without_use(event: bytes) -> bytes:
    """Return an event without the flag of a file that is written to."""
    return event[:17] + bytes([event[17] & ~_IN_USE_FLAG]) + event[18:]


# --- compression ----------------------------------------------------------------------


def _open_plain(path: Path) -> IO[bytes]:
    return path.open("rb", buffering=0)


def _open_xz(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", lzma.LZMAFile(path))  # `FileBytes` closes


_OPENERS: Final[dict[str, Callable[[Path], IO[bytes]]]] = {
    ".gz": lambda path: cast("IO[bytes]", gzip.GzipFile(path, "rb")),
    ".bz2": lambda path: cast("IO[bytes]", bz2.BZ2File(path, "rb")),
    ".xz": _open_xz,
    ".zst": open_inflated,
}


@lru_cache(maxsize=4096)
def _plain_size(file: ArchivedFile, _mtime_ns: int, size: int) -> int:
    """Return the size of a compressed file's content.

    zstd's header and gzip's trailer say it, though not of parts that were compressed by
    themselves and joined; without them the file is read.
    """
    with file.path.open("rb") as raw:
        if file.path.suffix == ".zst":
            try:
                known = plain_size(raw.read(64))
            except ZstdError as error:
                raise file.damaged(str(error)) from error
            if known is not None:
                return known
        elif file.path.suffix == ".gz" and size > 18:  # noqa: PLR2004  # header, trailer
            raw.seek(-4, 2)
            return int.from_bytes(raw.read(4), "little")
    with file.open() as source:
        return len(MAGIC) + source.skip(1 << 62)
