"""The end of each `--help`, examples and exit statuses, and the parser of arguments."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import Final, NoReturn

from canal_server import __version__

USAGE: Final = 2  # exit status, as in argparse

# By command and action: what an example does, and its command line without the leading
# `canal-server`.
EXAMPLES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "": (
        ("run the server with the settings in /etc/canal", "start --conf /etc/canal"),
        ("print the changes of the last hour and new ones", "tail --from -1h"),
        ("show the state of the server", "status"),
    ),
    "init": (
        ("the folder ./conf", "init"),
        ("another folder and name", "init --conf /etc/canal --destination shop"),
    ),
    "files": (
        ("what there is", "files"),
        ("the unit for systemd", "files systemd --to /etc/systemd/system"),
        ("alert rules of a new version", ("files prometheus --to /etc/prometheus/canal "
            "--overwrite")),
    ),
    "start": (
        ("settings in ./conf, or in the folder $CANAL_CONF", "start"),
        ("another conf folder, and debug messages in the log",
         "start --conf /etc/canal --log-level debug"),
        ("in the background", ("start --conf /etc/canal --daemon --pid-file "
            "/run/canal/canal.pid")),
    ),
    "stop": (
        ("stop the server of ./conf", "stop"),
        ("wait up to two minutes",
         "stop --conf /etc/canal --timeout 2m"),
        ("the server of a pid file", "stop --pid-file /run/canal/canal.pid"),
    ),
    "check": (
        ("everything that the server of ./conf needs", "check"),
        ("one destination, as JSON",
         "check --conf /etc/canal --destination shop --json"),
    ),
    "status": (
        ("all destinations of the server of ./conf", "status"),
        ("for a probe: exit status 6 if the lag exceeds a minute",
         "status --check --max-lag 60s"),
        ("as JSON", "status --conf /etc/canal --json"),
    ),
    "position": (
        ("positions of all clients", "position show"),
        ("repeat the last hour for client 1001",
         "position seek --destination shop --client-id 1001 --to -1h"),
    ),
    "position show": (
        ("all destinations", "position show"),
        ("one destination, as JSON", "position show --destination shop --json"),
    ),
    "position seek": (
        ("preview repeating the last hour",
         "position seek --destination shop --to -1h --dry-run"),
        ("move one client without confirmation",
         "position seek --client-id 1001 --to binlog.000003:4711 --yes"),
        ("skip everything up to now", "position seek --destination shop --to latest"),
    ),
    "subscriptions": (
        ("subscriptions of all destinations", "subscriptions list"),
        ("remove the subscription of a deleted query",
         "subscriptions remove --destination shop orders"),
    ),
    "subscriptions list": (
        ("all destinations", "subscriptions list"),
        ("one destination, as JSON", "subscriptions list --destination shop --json"),
    ),
    "subscriptions remove": (
        ("one subscription of the only destination", "subscriptions remove orders"),
        ("several subscriptions", ("subscriptions remove --destination shop orders "
            "customers")),
    ),
    "user": (
        ("a user who reads one destination", "user add reporting --read shop"),
        ("all users", "user list"),
    ),
    "user add": (
        ("two tables of a destination, without a column",
         ("user add reporting --read shop --tables 'shop\\.orders,shop\\.items' "
          "--remove-columns shop.orders:card")),
        ("an operator, with the password from standard input",
         "user add ops --operate '*' --password-stdin"),
        ("a user with a certificate and no password",
         "user add bot --read 'shop_*' --certificate CN=bot --no-password"),
    ),
    "user passwd": (
        ("ask for the new password", "user passwd reporting"),
        ("read it from standard input", "user passwd reporting --password-stdin"),
    ),
    "user list": (
        ("the file of ./conf", "user list"),
        ("another file, as JSON", "user list --file users.yml --json"),
    ),
    "user remove": (
        ("of the file of ./conf", "user remove reporting"),
        ("of another file", "user remove reporting --file users.yml"),
    ),
    "tail": (
        ("new changes of the server of ./conf", "tail"),
        ("the last hour of one table", "tail --from -1h --filter 'shop\\.orders'"),
        ("ten changes of another server, as JSON",
         "tail --host db-cdc --destination shop --count 10 --json"),
    ),
    "consume": (
        ("the function `handle` in handlers.py",
         "consume --destination shop --handler handlers:handle"),
        ("a table as lines of JSON", ("consume --table shop.orders --handler "
            "json-lines --set path=orders.jsonl")),
        ("a copy in the database that $SHOP_URL names", ("consume --handler sql "
            "--set-env url=SHOP_URL --dead-letter failed.jsonl")),
    ),
    "unsubscribe": (
        ("a client of the server of ./conf",
         "unsubscribe --destination shop --client-id 1001"),
        ("a client of another server, with a password",
         "unsubscribe --host db-cdc --client-id 1001 --password-file canal.password"),
    ),
    "decode": (
        ("the changes in two files", "decode binlog.000003 binlog.000004"),
        ("changes of one table in the last hour, from the source of a destination",
         "decode --destination shop --from -1h --filter 'shop\\.orders'"),
        ("all events of a file, with the bytes of those that are damaged",
         "decode binlog.000003 --unreadable raw --entries"),
    ),
    "mirror": (
        ("preview the effect of the settings", "mirror --dry-run"),
        ("up to now, then end: for cron or a workflow",
         "mirror --once --conf /etc/canal/mirror.yml"),
        ("copy one table again", "mirror copy shop.orders"),
    ),
    "mirror status": (
        ("the mirror of ./mirror.yml", "mirror status"),
        ("as JSON", "mirror status --conf /etc/canal/mirror.yml --json"),
    ),
    "mirror copy": (
        ("two tables", "mirror copy shop.orders shop.customers"),
        ("all tables", "mirror copy --all"),
    ),
    "mirror verify": (
        ("all tables", "mirror verify"),
        ("one table, with up to 20 differing rows", ("mirror verify shop.orders --rows "
            "20")),
    ),
    "mirror plot": (
        ("the last day", "mirror plot --hours 24"),
        ("also as a picture", "mirror plot --output mirror.svg"),
    ),
    "mirror sql": (
        ("all tables, for DuckDB", "mirror sql --engine duckdb"),
        ("the tables of two mirrors in Spark, and one view of all orders",
         ("mirror sql --engine spark --with other.yml --name "
          "'{mirror}_{schema}.{table}' --union 'all.orders=shop\\.orders'")),
    ),
    "schema": (
        ("the columns of a table an hour ago",
         "schema show --destination shop --table shop.orders --at -1h"),
        ("statements that changed it", ("schema history --destination shop --table "
            "shop.orders")),
    ),
    "schema show": (
        ("all current tables, except system tables",
         "schema show --destination shop"),
        ("one table at a position",
         "schema show --table shop.orders --at binlog.000003:4711"),
        ("several tables, as JSON", "schema show --table 'shop\\..*' --json"),
    ),
    "schema history": (
        ("all changes of a table", "schema history --table shop.orders"),
        ("changes in the last two days", ("schema history --table shop.orders --since "
            "-2d")),
    ),
    "schema verify": (
        ("all tables", "schema verify --destination shop"),
        ("one table, as JSON", "schema verify --table shop.orders --json"),
    ),
    "schema export": (
        ("the current tables", "schema export --destination shop shop-tables.json"),
        ("the tables at a position",
         "schema export --at binlog.000003:4711 shop-tables.json"),
    ),
    "schema import": (
        ("a file of `schema export`",
         "schema import --destination shop shop-tables.json"),
        ("a dump of mysqldump --no-data at a position",
         "schema import --at binlog.000003:4711 shop.sql"),
    ),
    "completion": (
        ("for the current bash, with `source <(…)`", "completion bash"),
        ("for zsh; the output goes to _canal-server in a folder of $fpath",
         "completion zsh"),
    ),
    "version": (
        ("as text", "version"),
        ("as JSON", "version --json"),
    ),
}  # fmt: skip


class Parser(argparse.ArgumentParser):
    """Prints usage errors in the format of other errors."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit."""
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


class _Formatter(argparse.HelpFormatter):
    """Wraps paragraphs, but keeps indented lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        del indent  # argparse passes none
        return "\n".join(
            line if line.startswith("  ") else textwrap.fill(line, width)
            for line in text.splitlines()
        )


def add_version_option(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--version`, which is the same for all commands."""
    parser.add_argument(
        "-V",
        "--version",
        action="version",
        version=f"canal-server {__version__}",
        help=text,
    )


def complete_help(parser: argparse.ArgumentParser, exit_status: str) -> None:
    """End the help of a parser and of its actions with examples and exit statuses.

    Commands and actions get `--version`, too, which their help does not show.
    """
    program, _, command = parser.prog.partition(" ")
    parser.formatter_class = _Formatter
    if command:
        add_version_option(parser, argparse.SUPPRESS)
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
