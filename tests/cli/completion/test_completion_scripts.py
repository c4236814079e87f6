"""The scripts of `canal-server completion` in the real shells, at a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
from typing import TYPE_CHECKING

import pytest

from canal_server import cli
from canal_server.cli.completion.completion_command import SCRIPTS
from canal_server.cli.completion.completion_tree import program

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 120
WIDTH = 500  # of the terminal: no line is wrapped
# Have the shell print its prompt, and at Alt-z what is typed so far, between brackets.
SETTINGS = {
    "bash": (
        "PS1='<<''prompt>>'; bind 'set enable-bracketed-paste off';"
        """bind -x '"\\ez": printf "<<%s>>\\n" "$READLINE_LINE"'; . ./canal-server"""
    ),
    "zsh": (
        "PS1='<<''prompt>>'; fpath=($PWD $fpath); autoload -Uz compinit;"
        'compinit -u -D; show() { print -r -- "<<$BUFFER>>" }; zle -N show;'
        "bindkey '\\ez' show; unsetopt zle_bracketed_paste"
    ),
}
OPTIONS = {"bash": ("--norc", "--noprofile", "-i"), "zsh": ("-f", "-i")}
FILES = {"bash": "canal-server", "zsh": "_canal-server", "fish": "canal-server.fish"}
# A line, and the word that its last one becomes.
COMPLETED = [
    ("canal-server star", "start"),
    ("canal-server position se", "seek"),
    ("canal-server --vers", "--version"),
    ("canal-server start --log-f", "--log-format"),
    ("canal-server start --log-level w", "warning"),
    ("canal-server start --log-level=w", "--log-level=warning"),
    ("canal-server start --conf co", "conf/"),
    ("canal-server start --daemon --pid", "--pid-file"),
    ("canal-server stop --pid-file start --time", "--timeout"),
    ("canal-server status --conf conf --jso", "--json"),
    ("canal-server position show --conf conf --destination sh", "shop"),
    ("canal-server position show --conf=conf --destination sh", "shop"),
    ("canal-server position seek --destination example --dry", "--dry-run"),
    ("canal-server decode binlog.0", "binlog.000001"),
    ("canal-server mirror verify --conf mirror.y", "mirror.yml"),
    ("canal-server completion f", "fish"),
]


class Terminal:
    """A shell that a person types into."""

    def __init__(self, shell: str, folder: Path) -> None:
        pid, self.fd = pty.fork()
        if not pid:
            os.chdir(folder)
            environ = os.environ | {"TERM": "dumb", "HOME": str(folder), "LC_ALL": "C"}
            environ.pop("CANAL_CONF", None)
            os.execvpe(shell, [shell, *OPTIONS[shell]], environ)
        self.pid = pid
        self.output = ""
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
        self.type(f"{SETTINGS[shell]}\r")
        self.until("<<prompt>>")

    def type(self, keys: str) -> None:
        """Press keys."""
        self.output = ""
        os.write(self.fd, keys.encode())

    def until(self, pattern: str) -> re.Match[str]:
        """Read the screen until a pattern appears."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        while not (found := re.search(pattern, self.output, re.DOTALL)):
            assert poll.poll(WAIT_S * 1000), f"{pattern} is not in {self.output!r}"
            self.output += os.read(self.fd, 65536).decode(errors="replace")
        return found

    def completed(self, line: str) -> str:
        """Return what the line becomes with the key Tab."""
        self.type(f"{line}\t\x1bz")
        found = self.until(r"<<((?!prompt)[^\r\n]*)>>")[1]
        self.type("\x15")  # Ctrl-U: deletes the line
        return found

    def close(self) -> None:
        """End the shell."""
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Give a folder with the scripts, a conf folder and some files."""
    made = tmp_path_factory.mktemp("completion")
    for destination in ("shop", "example"):
        (made / "conf" / destination).mkdir(parents=True)
        (made / "conf" / destination / "instance.properties").touch()
    (made / "conf/spring").mkdir()
    for name in ("config.txt", "binlog.000001", "mirror.yml"):
        (made / name).touch()
    for shell, script in SCRIPTS.items():
        (made / FILES[shell]).write_text(script(program()))
    return made


@pytest.fixture(scope="module")
def terminals(folder):
    """Return a function that returns a terminal with a shell, the same every time."""
    opened: dict[str, Terminal] = {}

    def terminal(shell: str) -> Terminal:
        if shell not in opened:
            opened[shell] = Terminal(shell, folder)
        return opened[shell]

    yield terminal
    for each in opened.values():
        each.close()


def needs(shell: str) -> None:
    """Skip the test if there is no such shell."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")


def fish(folder: Path, line: str) -> list[str]:
    """Return what fish offers for the last word of a line."""
    script = f"source {FILES['fish']}; complete -C '{line}'"
    shown = subprocess.run(
        ["fish", "--no-config", "-c", script],
        cwd=folder,
        env={"HOME": str(folder), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stderr == ""
    return [each.partition("\t")[0] for each in shown.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_typed(terminals, shell):
    """The key Tab completes commands, actions, options, their values and files."""
    needs(shell)
    terminal = terminals(shell)
    found = [(line, terminal.completed(line)) for line, _ in COMPLETED]
    words = [(line, each.rstrip(" =").rpartition(" ")[2]) for line, each in found]
    assert words == COMPLETED


def test_fish(folder):
    """Fish completes the same."""
    needs("fish")
    assert [(line, fish(folder, line)) for line, _ in COMPLETED] == [
        (line, [word]) for line, word in COMPLETED
    ]


def test_everything_is_offered_by_fish(folder):
    """All commands, actions and destinations are there, with what they do."""
    needs("fish")
    assert set(fish(folder, "canal-server ")) == set(cli.COMMANDS)
    assert set(fish(folder, "canal-server schema ")) == {
        "show", "history", "verify", "export", "import",
    }  # fmt: skip
    line = "canal-server tail --conf conf --destination "
    assert set(fish(folder, line)) == {"shop", "example"}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_everything_is_offered(terminals, shell):
    """The key Tab without a word lists all commands, then all actions."""
    needs(shell)
    terminal = terminals(shell)
    for line, names in [
        ("canal-server ", set(cli.COMMANDS)),
        ("canal-server schema ", {"show", "history", "verify", "export", "import"}),
        ("canal-server tail --conf conf --destination ", {"shop", "example"}),
    ]:
        terminal.type(f"{line}\t\t")
        for name in names:
            terminal.until(rf"\W{name}\W")
        terminal.completed("x")


@pytest.mark.parametrize("shell", SCRIPTS)
def test_scripts_are_valid(folder, shell):
    """The shell reads its script without an error."""
    needs(shell)
    done = subprocess.run(
        [shell, "-n", FILES[shell]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_command_prints_the_script(shell, capsys):
    """Every option of every command is in the script that the command prints."""
    assert cli.main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    for command in program().all():
        for option in command.options:
            assert option.names[-1].removeprefix("--") in shown


def test_a_shell_that_is_not_known(capsys):
    """The error lists those that are."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["completion", "tcsh"])
    assert caught.value.code == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
