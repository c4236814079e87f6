"""The option `--filter` of commands that print changes.

Stricter than the protocol: what a client may send, a person may have mistyped.
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
    r"a filter is regular expressions for schema.table with commas between them, as"
    r" '.*\..*' for all tables, 'shop\..*' for those of a schema, 'shop\.orders'"
)


def add_filter_option(parser: argparse.ArgumentParser, default: str = "") -> None:
    """Add the option; `default` says what counts without it."""
    parser.add_argument("--filter", default="", metavar="LIST", help="tables, as "
        "regular expressions for schema.table with commas between them: .*\\..* is all "
        "tables, shop\\..*,crm\\.person those of a schema and one more; statements "
        "that name no table, as CREATE DATABASE, pass every filter"
        f"{default and f'; default: {default}'}")  # fmt: skip


def filter_of(args: argparse.Namespace) -> TableFilter:
    """Return the filter of a command. Raises ConfigError, also when it is in vain."""
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
