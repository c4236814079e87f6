"""The page of all commands, from what their parsers know."""

# ruff: noqa: SLF001  # argparse has no other way to its arguments

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server import cli
from canal_server.cli.help import EXAMPLES
from reference.markdown import escaped, notice, table

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path("docs/reference/commands.md")
TEMPLATE = Path(__file__).parent / "templates/commands.md"
SOURCES = "tools/reference/templates/commands.md and canal_server/cli"
STATUS = "Exit status:"
LINE_MAX = 88
# What all commands have.
_COMMON = argparse._HelpAction | argparse._VersionAction


def pages() -> dict[Path, str]:
    """Return the page by its path."""
    text = "\n".join(
        [TEMPLATE.read_text(), "## The commands\n", overview()]
        + [section(parser) for parser in parsers()]
    )
    return {PAGE: notice(SOURCES) + text.rstrip() + "\n"}


def parsers() -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of each command, and after it those of its actions."""
    for command in cli.COMMANDS:
        (choices,) = _choices(cli.parser_for(command)[0])
        yield choices[command]
        for actions in _choices(choices[command]):
            yield from actions.values()


def overview() -> str:
    """Return the commands with what each is for."""
    rows = [
        (f"[`{name}`](#canal-server-{name})", escaped(text))
        for name, text in cli.COMMANDS.items()
    ]
    return table(("command", "what it does"), rows)


def section(parser: argparse.ArgumentParser) -> str:
    """Return usage, description, options, examples and exit statuses of a command."""
    name = parser.prog
    level = "##" if len(name.split()) <= 2 else "###"
    parts = [f"{level} `{name}`\n", f"```\n{usage(parser)}\n```\n"]
    text, status = description_of(parser)
    if text:
        parts.append(f"{escaped(text)}\n")
    rows = [
        (_shown(action), escaped(help_of(parser, action)))
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction | _COMMON)
    ]
    if rows:
        parts.append(table(("argument", "meaning"), rows))
    rows = [
        (f"[`{each.dest}`](#{name.replace(' ', '-')}-{each.dest})",
         escaped(each.help or ""))
        for actions in _action_lists(parser)
        for each in actions._choices_actions
    ]  # fmt: skip
    if rows:
        parts.append(table(("action", "what it does"), rows))
    examples = EXAMPLES.get(name.partition(" ")[2], ())
    lines = "\n".join(f"# {what}\ncanal-server {line}" for what, line in examples)
    if lines:
        parts.append(f"```sh\n{lines}\n```\n")
    if status:
        parts.append(f"**{STATUS}** {escaped(status)}\n")
    return "\n".join(parts)


def usage(parser: argparse.ArgumentParser) -> str:
    """Return the command with its arguments; what can be left out is in brackets."""
    options, positionals, actions = [], [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            actions.append("action …")
        elif not action.option_strings:
            positionals.append(_positional(action))
        elif not isinstance(action, _COMMON):
            text = " ".join(
                filter(None, (action.option_strings[0], shown_value(action)))
            )
            options.append(text if action.required else f"[{text}]")
    if options:  # a command that does something without an action, too
        actions = [f"[{each}]" for each in actions]
    return _wrapped(parser.prog, [*options, *positionals, *actions])


def _wrapped(start: str, words: list[str]) -> str:
    """Return words on lines that are not too long, the later ones indented."""
    lines = [start]
    for word in words:
        if len(lines[-1]) + len(word) + 1 > LINE_MAX:
            lines.append(" " * len(start))
        lines[-1] += f" {word}"
    return "\n".join(lines)


def description_of(parser: argparse.ArgumentParser) -> tuple[str, str]:
    """Return the description of a command and its exit statuses."""
    described = " ".join((parser.description or "").split())
    before, found, status = described.partition(STATUS)
    if found:
        return before.strip(), status.strip()
    epilog = " ".join((parser.epilog or "").split())
    return described, epilog.partition(STATUS)[2].strip()


def _shown(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{_positional(action)}`"
    value = shown_value(action)
    return ", ".join(
        f"`{' '.join(filter(None, (option, value)))}`"
        for option in action.option_strings
    )


def shown_value(action: argparse.Action) -> str:
    """Return the placeholder of an option's value; none if it is a switch.

    Also that of an argument.
    """
    if not action.option_strings:
        return _positional(action)
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return str(action.metavar or action.dest.upper())


def _positional(action: argparse.Action) -> str:
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    name = str(action.metavar or action.dest)
    several = {"*": f"[{name} …]", "+": f"{name} …", "?": f"[{name}]"}
    return several.get(str(action.nargs), name)


def help_of(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the help of an argument, as one line."""
    if not action.help:
        return ""
    return " ".join(parser._get_formatter()._expand_help(action).split())


def _choices(
    parser: argparse.ArgumentParser,
) -> list[dict[str, argparse.ArgumentParser]]:
    """Return the parsers of the actions of a command, if it has some."""
    return [dict(actions.choices) for actions in _action_lists(parser)]


def _action_lists(
    parser: argparse.ArgumentParser,
) -> list[argparse._SubParsersAction[argparse.ArgumentParser]]:
    return [
        action
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
