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
    """All that stands behind the magic comes, then zero."""
    path = tmp_path / "bin.000001"
    path.write_bytes(b"\xfebin" + b"0123456789")
    with FileSource(path) as source:
        assert all_of(source) == b"0123456789"
        assert source.receive_into(memoryview(bytearray(4)), None) == 0


@pytest.mark.parametrize(
    ("position", "content"), [(0, b"0123"), (4, b"0123"), (6, b"23")]
)
def test_from_an_offset(tmp_path: Path, position: int, content: bytes) -> None:
    """Reading begins at an offset of the file, never inside of its magic."""
    path = tmp_path / "bin.000001"
    path.write_bytes(b"\xfebin0123")
    with FileSource(path, position) as source:
        assert all_of(source) == content


def test_a_file_that_grows(tmp_path: Path) -> None:
    """What is appended behind the end comes with the next call."""
    path = tmp_path / "bin.000001"
    path.write_bytes(b"\xfebin")
    with FileSource(path) as source, path.open("ab", buffering=0) as writer:
        assert all_of(source) == b""
        writer.write(b"more")
        assert all_of(source) == b"more"


@pytest.mark.parametrize("content", [b"", b"\xfebi", b"bin\xfe1234"])
def test_no_binlog(tmp_path: Path, content: bytes) -> None:
    """A file that is no binlog is refused by name, and closed."""
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(DecodeError) as caught:
        FileSource(path)
    assert str(caught.value) == (
        f"{path} is not a binlog file, whose first bytes are fe 62 69 6e: name one of"
        " those that SHOW BINARY LOGS lists on the server, as binlog.000001"
    )


def test_an_encrypted_binlog(tmp_path: Path) -> None:
    """It is told from other files, and how to read it."""
    path = tmp_path / "binlog.000001"
    path.write_bytes(b"\xfdbin" + bytes(100))
    with pytest.raises(DecodeError, match=r"is encrypted .* from the server, with --f"):
        FileSource(path)


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is the caller's to report."""
    with pytest.raises(FileNotFoundError):
        FileSource(tmp_path / "none")
