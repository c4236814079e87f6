"""Files that have a password."""

from __future__ import annotations

import os

import pytest

from canal_server.errors import PasswordError
from canal_server.passwords.password_file import (
    PASSWORD_BYTES_MAX,
    content_of,
    is_exposed,
)

KEY = "canal.instance.dbPassword.file"


def test_its_bytes(tmp_path):
    """The content is returned as it is, through links as well."""
    (tmp_path / "..data").write_bytes(b"geheim\n")
    link = tmp_path / "password"
    link.symlink_to("..data")
    assert content_of(KEY, link) == b"geheim\n"


def test_a_missing_file(tmp_path):
    """The error names key, file, reason and remedy."""
    path = tmp_path / "none"
    with pytest.raises(PasswordError) as caught:
        content_of(KEY, path)
    assert str(caught.value).startswith(
        f"{KEY} = {path}: cannot read: No such file or directory; write the password"
    )


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file(tmp_path, kind):
    """A folder is refused, and a named pipe does not make anybody wait."""
    path = tmp_path / kind
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(PasswordError, match="not a regular file"):
        content_of(KEY, path)


def test_a_file_of_something_else(tmp_path):
    """A large file is refused before it is in memory."""
    path = tmp_path / "large"
    path.write_bytes(b"x" * (PASSWORD_BYTES_MAX + 1))
    with pytest.raises(PasswordError, match=f"larger than {PASSWORD_BYTES_MAX}"):
        content_of(KEY, path)


def test_who_can_read_it(tmp_path):
    """It is exposed if others may read it and search all folders above it."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    path = folder / "password"
    path.touch()
    for above in folder.parents:
        if not above.stat().st_mode & 0o001 and os.access(above, os.W_OK):
            above.chmod(above.stat().st_mode | 0o001)
    for folder_mode, mode, expected in (
        (0o755, 0o644, True),
        (0o711, 0o444, True),
        (0o700, 0o644, False),
        (0o755, 0o640, False),
        (0o755, 0o400, False),
    ):
        path.chmod(mode)
        folder.chmod(folder_mode)
        assert is_exposed(path) is expected, (oct(folder_mode), oct(mode))
    assert not is_exposed(tmp_path / "none")
