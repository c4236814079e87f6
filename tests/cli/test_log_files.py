"""Log files of the server and of its destinations."""

from __future__ import annotations

import logging
import os
from contextlib import closing

import pytest

from canal_server.cli import start
from canal_server.cli.log_files import LogFolder
from canal_server.config.schema import ServerConfig
from canal_server.errors import ConfigError
from canal_server.runtime.log_context import log_about


@pytest.fixture
def folder(tmp_path):
    """Give a folder with logs, closed after the test."""
    folder = LogFolder(tmp_path / "logs")
    folder.setFormatter(logging.Formatter("%(message)s"))
    yield folder
    folder.close()
    log_about("")


def write(folder, text, destination="") -> None:
    """Write a line about a destination, or about the server."""
    log_about(destination)
    folder.handle(logging.LogRecord("a", logging.INFO, "", 1, text, (), None))


def test_a_file_for_each(folder, tmp_path):
    """Lines about a destination are in its file, all others in the server's."""
    write(folder, "one")
    write(folder, "two", "shop")
    write(folder, "three", "crm")
    write(folder, "four", "shop")
    logs = tmp_path / "logs"
    assert (logs / "canal/canal.log").read_text() == "one\n"
    assert (logs / "shop/shop.log").read_text() == "two\nfour\n"
    assert (logs / "crm/crm.log").read_text() == "three\n"


@pytest.mark.parametrize("umask", [0o000, 0o277], ids=oct)
def test_modes(tmp_path, umask):
    """Files are for their owner only, rotated ones included, whatever the umask."""
    before = os.umask(umask)
    try:
        folder = LogFolder(tmp_path / "logs", file_bytes=10)
        folder.setFormatter(logging.Formatter("%(message)s"))
        for number in range(3):
            write(folder, f"line {number}", "shop")
        folder.close()
    finally:
        os.umask(before)
        log_about("")
    files = [each for each in (tmp_path / "logs").rglob("*") if each.is_file()]
    assert len(files) == 4
    assert not any(each.stat().st_mode & 0o077 for each in files)
    assert not any(each.parent.stat().st_mode & 0o077 for each in files)


def test_limits_of_the_settings(tmp_path, monkeypatch):
    """Size and number of files are those of canal.properties."""
    monkeypatch.setattr(start, "MEGABYTE", 10)
    server = ServerConfig(log_file_megabytes=2, log_files=2)
    folder = start.log_folder(tmp_path, server)
    folder.setFormatter(logging.Formatter("%(message)s"))
    for number in range(5):
        write(folder, f"line {number}")
    folder.close()
    found = {path.name: path.read_text() for path in (tmp_path / "canal").iterdir()}
    assert found == {
        "canal.log": "line 4\n",
        "canal.log.1": "line 2\nline 3\n",
    }


def test_rotation(tmp_path):
    """A full file is kept under another name, and the oldest one is removed."""
    folder = LogFolder(tmp_path, file_bytes=10, files=3)
    folder.setFormatter(logging.Formatter("%(message)s"))
    for number in range(5):
        write(folder, f"line {number}")
    folder.close()
    found = {path.name: path.read_text() for path in (tmp_path / "canal").iterdir()}
    assert found == {
        "canal.log": "line 4\n",
        "canal.log.1": "line 3\n",
        "canal.log.2": "line 2\n",
    }


def test_a_folder_that_cannot_be_written(tmp_path):
    """The option and the folder are named."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--log-dir .*file: cannot write there"):
        LogFolder(tmp_path / "file")


def test_a_pipe_in_place_of_a_file(tmp_path):
    """A pipe is refused at once, also if a program reads it."""
    path = tmp_path / "canal/canal.log"
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(ConfigError, match=f"{path} is not a regular file: remove it"):
        LogFolder(tmp_path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(ConfigError, match="not a regular file"):
        LogFolder(tmp_path)
    os.close(reader)


def test_a_destination_with_a_pipe_in_place_of_its_file(folder, tmp_path):
    """Its lines are in the server's file."""
    (tmp_path / "logs/shop").mkdir()
    os.mkfifo(tmp_path / "logs/shop/shop.log")
    write(folder, "one", "shop")
    assert (tmp_path / "logs/canal/canal.log").read_text() == "one\n"


def test_a_destination_whose_file_cannot_be_opened(folder, tmp_path):
    """Its lines are in the server's file."""
    (tmp_path / "logs/shop").write_text("")
    write(folder, "one", "shop")
    assert (tmp_path / "logs/canal/canal.log").read_text() == "one\n"


@pytest.mark.parametrize("name", ["../../up", "/absolute", "a/b", ".hidden", "x\0"])
def test_a_name_that_is_no_file(tmp_path, name):
    """A line about a strange name is in the server's file; nothing else is written."""
    with closing(LogFolder(tmp_path / "some/deep/logs")) as folder:
        write(folder, "one", name)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written == [tmp_path / "some/deep/logs/canal/canal.log"]
    assert written[0].read_text().endswith("one\n")
