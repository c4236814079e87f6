"""Binlog files as a source of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from canal_server.errors import DecodeError
from canal_server.source.read.binlog_files import FileSource

if TYPE_CHECKING:
    from pathlib import Path


def all_of(source: FileSource) -> bytes:
    """Read to the end."""
    space = memoryview(bytearray(4))
    data = b""
    while count := source.try_receive_into(space):
        data += space[:count]
    return data


def test_content(tmp_path: Path) -> None:
    """Everything after the magic number is returned, then zero."""
    path = tmp_path / "bin.000001"
    path.write_bytes(b"\xfebin" + b"0123456789")
    with FileSource(path) as source:
        assert all_of(source) == b"0123456789"
        assert source.receive_into(memoryview(bytearray(4)), None) == 0


@pytest.mark.parametrize(
    ("position", "content"), [(0, b"0123"), (4, b"0123"), (6, b"23")]
)
def test_from_an_offset(tmp_path: Path, position: int, content: bytes) -> None:
    """Reading starts at an offset of the file, never inside its magic number."""
    path = tmp_path / "bin.000001"
    path.write_bytes(b"\xfebin0123")
    with FileSource(path, position) as source:
        assert all_of(source) == content


def test_a_file_that_grows(tmp_path: Path) -> None:
    """The next call returns what is appended after the end."""
    path = tmp_path / "bin.000001"
    path.write_bytes(b"\xfebin")
    with FileSource(path) as source, path.open("ab", buffering=0) as writer:
        assert all_of(source) == b""
        writer.write(b"more")
        assert all_of(source) == b"more"


@pytest.mark.parametrize("content", [b"", b"\xfebi", b"bin\xfe1234"])
def test_no_binlog(tmp_path: Path, content: bytes) -> None:
    """The error for a file that is not a binlog names it; the file is closed."""
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(DecodeError) as caught:
        FileSource(path)
    assert str(caught.value) == (
        f"{path} is not a binlog file, which starts with the bytes fe 62 69 6e: name a"
        " file that SHOW BINARY LOGS lists on the server, such as binlog.000001"
    )


def test_an_encrypted_binlog(tmp_path: Path) -> None:
    """The error for an encrypted file says so, and how to read it."""
    path = tmp_path / "binlog.000001"
    path.write_bytes(b"\xfdbin" + bytes(100))
    with pytest.raises(DecodeError, match=r"is encrypted .* from the server with --f"):
        FileSource(path)


def test_missing_file(tmp_path: Path) -> None:
    """A missing file raises an OSError for the caller."""
    with pytest.raises(FileNotFoundError):
        FileSource(tmp_path / "none")
