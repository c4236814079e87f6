"""What each `--help` ends with, examples and exit statuses, and errors of usage."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import Final, NoReturn

USAGE: Final = 2  # exit status, as argparse has it

# By command and action: what it does, and the command line, which begins with
# `canal-server` and is read by the parser that shows it.
EXAMPLES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "": (
        ("run the server with the settings in /etc/canal", "start --conf /etc/canal"),
        ("watch changes of the last hour", "tail --from -1h"),
        ("see what the server does", "status"),
    ),
    "start": (
        ("settings in ./conf, or in the folder that CANAL_CONF names", "start"),
        ("settings elsewhere, and more in the log",
         "start --conf /etc/canal --log-level debug"),
    ),
    "stop": (
        ("end the server of ./conf", "stop"),
        ("give clients and the disk two minutes",
         "stop --conf /etc/canal --timeout 2m"),
    ),
    "status": (
        ("all destinations of the server of ./conf", "status"),
        ("for a probe: exit status 6 if reading is a minute late",
         "status --check --max-lag 60s"),
        ("for a program", "status --conf /etc/canal --json"),
    ),
    "position": (
        ("where all clients stand", "position show"),
        ("repeat the last hour for client 1001",
         "position seek --destination shop --client 1001 --to -1h"),
    ),
    "position show": (
        ("all destinations", "position show"),
        ("one, for a program", "position show --destination shop --json"),
    ),
    "position seek": (
        ("see what repeating the last hour would do",
         "position seek --destination shop --to -1h --dry-run"),
        ("move one client, without being asked",
         "position seek --client 1001 --to binlog.000003:4711 --yes"),
        ("skip everything up to now", "position seek --destination shop --to latest"),
    ),
    "subscriptions": (
        ("who reads ranges, and where", "subscriptions list"),
        ("forget one whose query is gone for good",
         "subscriptions remove --destination shop orders"),
    ),
    "subscriptions list": (
        ("of all destinations", "subscriptions list"),
        ("of one, for a program", "subscriptions list --destination shop --json"),
    ),
    "subscriptions remove": (
        ("one of the only destination", "subscriptions remove orders"),
        ("several", "subscriptions remove --destination shop orders customers"),
    ),
    "tail": (
        ("what comes from now on, of the server of ./conf", "tail"),
        ("the last hour of one table", "tail --from -1h --filter 'shop\\.orders'"),
        ("ten changes of a server elsewhere, as JSON",
         "tail --host db-cdc --destination shop --count 10 --json"),
    ),
    "unsubscribe": (
        ("a client of the server of ./conf",
         "unsubscribe --destination shop --client-id 1001"),
        ("of a server elsewhere that asks for a password",
         "unsubscribe --host db-cdc --client-id 1001 --password-file canal.password"),
    ),
    "decode": (
        ("the changes in two files", "decode binlog.000003 binlog.000004"),
        ("what a destination's source wrote in the last hour to one table",
         "decode --destination shop --from -1h --filter 'shop\\.orders'"),
        ("a damaged event of a file, with all its bytes",
         "decode binlog.000003 --unreadable raw --entries"),
    ),
    "mirror": (
        ("see what the settings would do, then do it", "mirror --dry-run"),
        ("settings elsewhere", "mirror --conf /etc/canal/mirror.yml"),
        ("copy a table again", "mirror copy shop.orders"),
    ),
    "mirror status": (
        ("the mirror of ./mirror.yml", "mirror status"),
        ("for a program", "mirror status --conf /etc/canal/mirror.yml --json"),
    ),
    "mirror copy": (
        ("two tables", "mirror copy shop.orders shop.customers"),
        ("all of them", "mirror copy --all"),
    ),
    "mirror verify": (
        ("all tables", "mirror verify"),
        ("one, with up to 20 rows that differ", "mirror verify shop.orders --rows 20"),
    ),
    "mirror plot": (
        ("the last day", "mirror plot --hours 24"),
        ("with a picture", "mirror plot --output mirror.svg"),
    ),
    "schema": (
        ("the columns of a table an hour ago",
         "schema show --destination shop --table shop.orders --at -1h"),
        ("who changed it", "schema history --destination shop --table shop.orders"),
    ),
    "schema show": (
        ("all tables as they are now, but for those of the server itself",
         "schema show --destination shop"),
        ("one as it was at a position",
         "schema show --table shop.orders --at binlog.000003:4711"),
        ("some, for a program", "schema show --table 'shop\\..*' --json"),
    ),
    "schema history": (
        ("all that changed a table", "schema history --table shop.orders"),
        ("in the last two days", "schema history --table shop.orders --since -2d"),
    ),
    "schema verify": (
        ("all tables", "schema verify --destination shop"),
        ("one, for a program", "schema verify --table shop.orders --json"),
    ),
    "schema export": (
        ("the tables of now", "schema export --destination shop shop-tables.json"),
        ("those of a position",
         "schema export --at binlog.000003:4711 shop-tables.json"),
    ),
    "schema import": (
        ("what `schema export` wrote",
         "schema import --destination shop shop-tables.json"),
        ("a dump of mysqldump --no-data, taken at a position",
         "schema import --at binlog.000003:4711 shop.sql"),
    ),
    "version": (
        ("for people", "version"),
        ("for a program", "version --json"),
    ),
}  # fmt: skip


class Parser(argparse.ArgumentParser):
    """Tells errors of usage as the commands tell theirs."""

    def error(self, message: str) -> NoReturn:
        """Print how the command is used, and what is wrong; ends the process."""
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


class _Formatter(argparse.HelpFormatter):
    """Wraps paragraphs, but keeps lines that are indented."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        del indent  # argparse gives none
        return "\n".join(
            line if line.startswith("  ") else textwrap.fill(line, width)
            for line in text.splitlines()
        )


def complete_help(parser: argparse.ArgumentParser, exit_status: str) -> None:
    """Have the help of a parser and of its actions end with examples and statuses."""
    program, _, command = parser.prog.partition(" ")
    parser.formatter_class = _Formatter
    parser.set_defaults(parser=parser)
    parts = [parser.epilog or ""]
    if "Exit status:" not in f"{parser.description or ''}{parser.epilog or ''}":
        parts.append(exit_status)
    if command in EXAMPLES:
        parts.insert(0, "Examples:\n" + "\n".join(
            f"  # {what}\n  {program} {line}" for what, line in EXAMPLES[command]
        ))  # fmt: skip
    parser.epilog = "\n\n".join(filter(None, parts))
    for action in parser._actions:  # noqa: SLF001  # no other way to the actions
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # likewise
            for each in action.choices.values():
                complete_help(each, exit_status)
