"""What can be completed after each command: its options, values and actions.

Read from the parsers of all commands. Leaves out the scripts of the shells.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from canal_server import cli

if TYPE_CHECKING:
    from collections.abc import Iterator


class Kind(Enum):
    """What a value is, as far as a shell can complete it."""

    UNKNOWN = "unknown"
    CHOICE = "choice"
    FILE = "file"
    FOLDER = "folder"
    DESTINATION = "destination"  # a folder with an instance.properties in --conf


@dataclass(frozen=True, slots=True)
class Value:
    """The value of an option, or an argument."""

    name: str
    kind: Kind
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """An option with its names; one without a value is a switch."""

    names: tuple[str, ...]
    text: str
    value: Value | None
    may_repeat: bool


@dataclass(frozen=True, slots=True)
class Command:
    """The program, a command or an action, by its words after the program's name."""

    words: tuple[str, ...]
    text: str
    options: tuple[Option, ...]
    arguments: tuple[Value, ...]
    actions: tuple[Command, ...] = ()

    def all(self) -> Iterator[Command]:
        """Yield this one, and all that begin with its words."""
        yield self
        for action in self.actions:
            yield from action.all()


def program() -> Command:
    """Return the program with all of its commands."""
    commands = []
    for name, text in cli.COMMANDS.items():
        parser, _ = cli.parser_for(name)
        (actions,) = _actions_of(parser)
        commands.append(_command((name,), text, actions.choices[name]))
    parser, _ = cli.parser_for("")
    return Command((), "", _options(parser), (), tuple(commands))


def _command(
    words: tuple[str, ...], text: str, parser: argparse.ArgumentParser
) -> Command:
    actions = [
        _command((*words, name), texts.get(name, ""), each)
        for found in _actions_of(parser)
        for texts in [{each.dest: each.help or "" for each in found._choices_actions}]  # noqa: SLF001  # argparse has no other way
        for name, each in found.choices.items()
    ]
    arguments = [
        _value(action)
        for action in parser._actions  # noqa: SLF001  # likewise
        if not action.option_strings
        and not isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    ]
    return Command(words, text, _options(parser), tuple(arguments), tuple(actions))


def _actions_of(
    parser: argparse.ArgumentParser,
) -> list[argparse._SubParsersAction[argparse.ArgumentParser]]:
    return [
        action
        for action in parser._actions  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    ]


def _options(parser: argparse.ArgumentParser) -> tuple[Option, ...]:
    formatter = parser._get_formatter()  # noqa: SLF001
    return tuple(
        Option(
            tuple(action.option_strings),
            " ".join(formatter._expand_help(action).split()) if action.help else "",  # noqa: SLF001
            None if action.nargs == 0 else _value(action),
            isinstance(action, argparse._AppendAction),  # noqa: SLF001
        )
        for action in parser._actions  # noqa: SLF001
        if action.option_strings and action.help != argparse.SUPPRESS
    )


def _value(action: argparse.Action) -> Value:
    name = str(action.metavar or action.dest)
    if action.choices is not None:
        return Value(name, Kind.CHOICE, tuple(map(str, action.choices)))
    if name == "DIR":
        return Value(name, Kind.FOLDER)
    if name.partition(".")[0] == "FILE":
        return Value(name, Kind.FILE)
    if action.dest == "destination":
        return Value(name, Kind.DESTINATION)
    return Value(name, Kind.UNKNOWN)
