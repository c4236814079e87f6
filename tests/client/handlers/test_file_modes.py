"""The modes of what handlers write, whatever the umask."""

from __future__ import annotations

import os
import stat

import pytest
from change_messages import Maker

from canal_server.client.consume.dead_letters import DeadLetters
from canal_server.client.handlers.file_modes import make_folder, mode_of, open_with_mode
from canal_server.client.handlers.json_lines_file import JsonLines
from canal_server.client.handlers.parquet_files import ParquetFiles


@pytest.fixture(params=[0o000, 0o022, 0o277], ids=oct, autouse=True)
def _umask(request):
    """Run with a umask."""
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture(params=["default", "0640"])
def options(request):
    """Give the options of a handler."""
    return {} if request.param == "default" else {"mode": request.param}


def modes(folder) -> set[tuple[bool, str]]:
    """Return the modes of what is in a folder, and whether they are of folders."""
    return {
        (each.is_dir(), oct(stat.S_IMODE(each.lstat().st_mode)))
        for each in folder.rglob("*")
    }


def test_parquet(tmp_path, options):
    """Files and new folders; a table's, and those above it."""
    maker = Maker()
    files = ParquetFiles(tmp_path / "new" / "lake", **options)
    files.open()
    files.handle_message(maker.message(1, maker.insert({"id": 1})))
    files.flush()
    file, folder = ("0o640", "0o750") if options else ("0o600", "0o700")
    assert modes(tmp_path) == {(False, file), (True, folder)}


def test_json_lines(tmp_path, options):
    """The file, and the next one after it is rotated."""
    lines = JsonLines(tmp_path / "a.jsonl", rotate_bytes=1, **options)
    lines.open()
    maker = Maker()
    for change in maker.message(1, maker.insert({"id": 1})).changes():
        lines.handle(change)
    lines.flush()
    lines.close()
    assert len(list(tmp_path.iterdir())) == 2
    assert modes(tmp_path) == {(False, "0o640" if options else "0o600")}


def test_dead_letters(tmp_path):
    """They are data as well."""
    DeadLetters(tmp_path / "dead")
    assert modes(tmp_path) == {(False, "0o600")}


def test_what_exists_stays_as_it_is(tmp_path):
    """Somebody may have opened a file or a folder to others."""
    path, folder = tmp_path / "file", tmp_path / "folder"
    path.touch()
    path.chmod(0o644)
    folder.mkdir()
    folder.chmod(0o755)
    os.close(open_with_mode(path, os.O_WRONLY, 0o600))
    make_folder(folder, 0o600)
    assert modes(tmp_path) == {(False, "0o644"), (True, "0o755")}


@pytest.mark.parametrize("text", ["", "640x", "0777", "0400", "0o640", "06400", "rw"])
def test_invalid_modes(text):
    """What is no mode of a file that its owner can write is refused."""
    with pytest.raises(ValueError, match="octal digits from 0600 to 0666"):
        mode_of(text)


def test_modes():
    """The leading zero is optional."""
    assert mode_of("640") == mode_of("0640") == 0o640
