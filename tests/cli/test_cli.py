"""The command itself: which subcommands there are, and exit statuses."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest
from fix_daemon import child_environ

from canal_server import __version__, cli
from canal_server.errors import CanalError, ConfigError


def run_python(code):
    """Run a program and return what it printed."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=child_environ(),
    ).stdout


@pytest.mark.parametrize("argv", [["--help"], []])
def test_help_lists_every_command(capsys, argv):
    """The help names all commands; a missing command is an error of usage."""
    with pytest.raises(SystemExit) as caught:
        cli.main(argv)
    assert caught.value.code == (0 if argv else 2)
    if argv:
        shown = capsys.readouterr().out
        assert all(re.search(rf"\n    {name}\s", shown) for name in cli.COMMANDS)


def test_an_unknown_command(capsys):
    """A command that does not exist is an error of usage that lists the others."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["dance"])
    assert caught.value.code == 2
    assert "version" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["subscriptions", "position", "schema"])
def test_a_command_without_its_action(capsys, command):
    """It says which actions there are, what they do, and how to name one."""
    assert cli.main([command]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert f"usage: canal-server {command} [-h] action ..." in output.err
    shown = re.findall(r"\n    (\w+) +\w", output.err)
    line = output.err.splitlines()[-1]
    assert line.startswith(f"canal-server {command}: missing action: expected ")
    assert (
        re.findall(r"\w+", line.rpartition("expected")[2].replace(" or ", " ")) == shown
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("position", "show"), ("position", "seek"), ("subscriptions", "list"),
        ("subscriptions", "remove"), ("schema", "show"), ("schema", "import"),
    ],
)  # fmt: skip
def test_actions_have_the_same_options(capsys, arguments):
    """Each says of which conf folder and of which destination it is."""
    with pytest.raises(SystemExit):
        cli.main([*arguments, "--help"])
    shown = capsys.readouterr().out
    assert "--conf DIR" in shown
    assert "--destination NAME" in shown


def test_options_before_the_command(capsys):
    """Options belong after their command, and the error says so."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["--conf", "x", "start"])
    assert caught.value.code == 2
    assert "canal-server" in capsys.readouterr().err


def test_only_the_module_of_a_command_is_loaded():
    """Printing the version loads no server, client or foreign library."""
    shown = run_python(
        "import sys; from canal_server.cli import main; main(['version']);"
        "print([name for name in sys.modules if name.startswith('canal_server.')"
        " or name in ('pymysql', 'kazoo', 'javaproperties')])"
    )
    loaded = ast.literal_eval(shown.splitlines()[-1])
    assert sorted(loaded) == [
        "canal_server.cli",
        "canal_server.cli.help",
        "canal_server.cli.output",
        "canal_server.cli.version",
        "canal_server.errors",
    ]


def test_the_module_is_a_program():
    """`python -m canal_server` is the command."""
    shown = subprocess.run(
        [sys.executable, "-m", "canal_server", "version"],
        capture_output=True,
        text=True,
        check=True,
        env=child_environ(),
    ).stdout
    assert shown.startswith(f"canal-server {__version__} (Python 3.")


class Failing:
    """A module of a command whose work ends in an error."""

    def __init__(self, error) -> None:
        self.error = error

    def add_parser(self, subparsers):
        """Add the command."""
        subparsers.add_parser("version")

    def run(self, args):
        """Fail."""
        raise self.error


@pytest.mark.parametrize(
    ("error", "status", "shown"),
    [
        (ConfigError(["a", "b"]), 2, "{0}: a\n{0}: b\n"),
        (CanalError("no luck"), 1, "{0}: no luck\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_exit_statuses(monkeypatch, capsys, error, status, shown):
    """Errors of this package end in their status and in lines on standard error."""
    monkeypatch.setitem(sys.modules, "canal_server.cli.version", Failing(error))
    assert cli.main(["version"]) == status
    assert capsys.readouterr().err == shown.format("canal-server version")


def test_a_reader_that_goes_away():
    """Output into a closed pipe ends quietly with status 1."""
    code = (
        "import sys, types; from canal_server import cli\n"
        "def run(args):\n"
        "    for _ in range(100_000): print('line')\n"
        "module = types.SimpleNamespace(run=run,"
        " add_parser=lambda s: s.add_parser('version'))\n"
        "sys.modules['canal_server.cli.version'] = module\n"
        "raise SystemExit(cli.main(['version']))\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environ(),
    )
    assert writer.stdout
    assert writer.stderr
    assert writer.stdout.readline() == "line\n"
    writer.stdout.close()
    with writer.stderr:
        assert writer.stderr.read() == ""
    assert writer.wait() == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["tail", "--since", "-10minutes"],
        ["position", "seek", "--to", "-1x"],
        ["schema", "show", "--at", "-3 days"],
        ["decode", "--from", "-1year"],
    ],
)
def test_a_relative_time_that_is_none(capsys, arguments):
    """The error is about the invalid value, not about a missing one."""
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    output = capsys.readouterr().err.rpartition("argument --")[2]
    assert "-1h" in output
