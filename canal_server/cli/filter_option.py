"""The option `--filter` of commands that print changes.

It is stricter than the protocol: an expression that matches no table is probably a
typo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.errors import ConfigError
from canal_server.filters.doubts import names_no_table
from canal_server.filters.table_filters import (
    DOUBTS_MAX,
    TableFilter,
    doubtful_pieces,
    split_expression,
)
from canal_server.model.quoted import quoted

if TYPE_CHECKING:
    import argparse

_REMEDY: Final = (
    r"a filter is a comma-separated list of regular expressions for schema.table, such"
    r" as '.*\..*' for all tables, 'shop\..*' for all tables of a schema,"
    r" 'shop\.orders'"
)


def add_filter_option(parser: argparse.ArgumentParser, default: str = "") -> None:
    """Add the option; `default` is the default that its help shows."""
    parser.add_argument("--filter", default="", metavar="LIST", help="tables to print: "
        "comma-separated regular expressions for schema.table, such as .*\\..* for all "
        "tables, or shop\\..*,crm\\.person; statements without a table, such as CREATE "
        "DATABASE, match every filter"
        f"{default and f'; default: {default}'}")  # fmt: skip


def filter_of(args: argparse.Namespace) -> TableFilter:
    """Return the filter of a command.

    Raises ConfigError if it is invalid or cannot match any table.
    """
    text = args.filter
    where = f"--filter {quoted(text)}"
    try:
        found = TableFilter(text, "")
        doubts = doubtful_pieces(text)
        for piece in split_expression(text):
            if len(doubts) < DOUBTS_MAX and names_no_table(piece):
                doubts.append(f"{quoted(piece)} matches no table")
    except ValueError as error:
        raise ConfigError([f"{where}: {error}"]) from error
    if doubts:
        raise ConfigError([f"{where}: {'; '.join(doubts)}; {_REMEDY}"])
    return found
