"""What each `--help` ends with, and what errors look like."""

from __future__ import annotations

import argparse
import shlex
from types import SimpleNamespace

import pytest

from canal_server import cli
from canal_server.cli.help import EXAMPLES


def parsers():
    """Return the parser of each command and action, by its name."""
    found = {}

    def add(parser):
        found[parser.prog.removeprefix("canal-server").strip()] = parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for each in action.choices.values():
                    add(each)

    for command in cli.COMMANDS:
        add(cli.parser_for(command)[0])
    return found


def test_every_command_has_examples():
    """Commands and actions have two or three examples each, others none."""
    assert set(EXAMPLES) == set(parsers())
    assert {len(each) for each in EXAMPLES.values()} <= {2, 3}


@pytest.mark.parametrize(
    ("name", "line"),
    [(name, line) for name, each in EXAMPLES.items() for _, line in each],
)
def test_examples_are_understood(monkeypatch, name, line):
    """The command reads its own examples, which are of it or of its actions."""
    words = shlex.split(line)
    ran = []

    def run(args):
        ran.append(args)
        return 0

    parser, _ = cli.parser_for(words[0])
    command = SimpleNamespace(run=run)
    monkeypatch.setattr(cli, "parser_for", lambda _: (parser, command))
    assert cli.main(words) == 0
    (args,) = ran
    assert args.parser.prog.startswith(f"canal-server {name}".rstrip())


@pytest.mark.parametrize("width", ["40", "200"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_keep_their_lines(monkeypatch, capsys, name, width):
    """However wide the terminal, an example is a line; the exit statuses follow."""
    monkeypatch.setenv("COLUMNS", width)
    with pytest.raises(SystemExit):
        cli.main([*name.split(), "--help"])
    shown = capsys.readouterr().out
    for what, line in EXAMPLES[name]:
        assert f"\n  # {what}\n  canal-server {line}\n" in shown
    assert shown.count("Exit status:") == 1


def test_paragraphs_are_wrapped(monkeypatch, capsys):
    """Everything but examples is as wide as the terminal."""
    monkeypatch.setenv("COLUMNS", "50")
    with pytest.raises(SystemExit):
        cli.main(["status", "--help"])
    after = capsys.readouterr().out.rpartition("\n\n")[2]
    assert max(map(len, after.splitlines())) <= 50


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["schema", "show", "--foo"], "canal-server schema show: unrecognized"),
        (["tail", "--foo"], "canal-server tail: unrecognized arguments: --foo"),
        (["tail", "--port", "x"], "canal-server tail: argument --port: invalid"),
        (["position", "seek"], "canal-server position seek: the following arguments"),
        (["dance"], "canal-server: argument command: invalid choice: 'dance'"),
    ],
)
def test_errors_of_usage(capsys, arguments, expected):
    """They begin with the command, and follow how it is used."""
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith(expected)
    assert lines[0].startswith(f"usage: {expected.partition(':')[0]} [-h]")


@pytest.mark.parametrize(
    "arguments",
    [
        ["start"], ["stop"], ["status"], ["tail"], ["decode", "--from", "-1h"],
        ["position", "show"], ["position", "seek", "--to", "latest"],
        ["subscriptions", "list"], ["subscriptions", "remove", "x"],
        ["schema", "show"], ["schema", "verify"],
    ],
)  # fmt: skip
def test_errors_begin_with_the_command(capsys, tmp_path, arguments):
    """A conf folder that is not there: each line begins with command and action."""
    assert cli.main([*arguments, "--conf", str(tmp_path / "none")]) == 2
    name = " ".join(["canal-server", *arguments[:1 + (arguments[0] in
        ("position", "subscriptions", "schema"))]])  # fmt: skip
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(line.startswith(f"{name}: {tmp_path}") for line in lines)
