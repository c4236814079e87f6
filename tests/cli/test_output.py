"""Output that cannot be written: of every command, a closed pipe and a full disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_outputs import unwritable
from fix_daemon import child_environ

from canal_server import __version__, cli

MAIN = "canal.ip = 127.0.0.1\ncanal.port = 0\ncanal.destinations = example\n"
ACTIONS = {
    "position": ("show", "seek"),
    "subscriptions": ("list", "remove"),
    "schema": ("show", "history", "verify", "export", "import"),
    "mirror": ("status", "copy", "verify", "plot"),
}
COMMANDS = [
    (command, *action)
    for command in cli.COMMANDS
    for action in [(), *((each,) for each in ACTIONS.get(command, ()))]
]
# What prints without a server and without a source.
PRINTING = [
    ("version",),
    ("status", "--version"),
    ("completion", "bash"),
    ("--help",),
    ("status", "--help"),
    ("position", "seek", "--help"),
]


def run(arguments, *, cwd=None, **streams):
    """Run the command in its own process."""
    return subprocess.run(
        [sys.executable, "-m", "canal_server", *arguments],
        env=child_environ(),
        check=False,
        text=True,
        cwd=cwd,
        **streams,
    )


def test_what_cannot_be_written():
    """Each fails, on a full disk with one line, without a reader quietly."""
    unwritable(PRINTING)


def test_errors_that_cannot_be_written(tmp_path):
    """An error has its exit status also where standard error is full or closed."""
    with Path("/dev/full").open("w") as full:
        assert (
            run(["status", "--conf", str(tmp_path / "none")], stderr=full).returncode
            == 2
        )
    closed = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m canal_server version >&- 2>&-"],
        env=child_environ(), check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (closed.returncode, closed.stdout, closed.stderr) == (0, "", "")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_has_exit_statuses(command, capsys):
    """The help of each command and action says what its exit statuses mean."""
    with pytest.raises(SystemExit) as caught:
        cli.main([*command, "--help"])
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("Exit status: 0 ") == 1
    assert "--json" in shown or command in JSON_LESS


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("option", ["--version", "-V"])
def test_every_command_has_a_version(command, option, capsys):
    """It is that of the program, whatever else the command needs."""
    with pytest.raises(SystemExit) as caught:
        cli.main([*command, option])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"canal-server {__version__}\n"


# What prints nothing to read, or has actions that print.
JSON_LESS = [
    ("start",), ("position",), ("subscriptions",), ("schema",), ("mirror",),
    ("mirror", "plot"), ("consume",), ("completion",), ("user",),
]  # fmt: skip


def test_the_conf_folder_of_the_environment(make_conf, monkeypatch, capsys, tmp_path):
    """CANAL_CONF names the folder where --conf does not; else it is ./conf."""
    conf = make_conf(MAIN)
    monkeypatch.setenv("CANAL_CONF", str(conf))
    assert cli.main(["stop"]) == 1
    assert f"no server runs with the data folder {conf}" in capsys.readouterr().err
    assert cli.main(["stop", "--conf", str(tmp_path / "other")]) == 2
    assert str(tmp_path / "other") in capsys.readouterr().err
    monkeypatch.delenv("CANAL_CONF")
    monkeypatch.chdir(conf.parent)
    assert cli.main(["stop"]) == 1
    assert f"no server runs with the data folder {conf}" in capsys.readouterr().err
