"""What the actions of `canal-server schema` share: options, access to the history."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.cli.conf_options import source_of_destination
from canal_server.config.load import load
from canal_server.errors import ConfigError, TableMetaError
from canal_server.filters.table_filters import TableFilter
from canal_server.model.moments import WRITTEN_AS, moment_ms, time_text
from canal_server.model.positions import EntryPosition
from canal_server.source.read.available_positions import base_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.config.schema import DaemonConfig, InstanceConfig
    from canal_server.ports import TablePredicate
    from canal_server.tablemeta.history.opened_history import History
    from canal_server.tablemeta.model.operations import Name
    from canal_server.tablemeta.storage.history_storage import (
        BinlogSegment,
    )
    from canal_server.tablemeta.tables.schemas import FrozenTables

_POSITION: Final = re.compile(r"(?P<file>[^\s:]+):(?P<offset>\d+)")
_NEAREST: Final = 3  # similar names suggested for an unknown one
_CONTROLS: Final = {
    code: f"\\x{code:02x}"
    for code in (*range(32), *range(127, 160))
    if code not in (9, 10)
}


@dataclass(frozen=True, slots=True)
class Moment:
    """A position in a binlog segment, and the tables at it."""

    segment: BinlogSegment
    position: EntryPosition
    image: FrozenTables


def add_at_option(parser: argparse.ArgumentParser) -> None:
    """Add `--at`, as `args.at`: a position, a time in ms, or None."""
    parser.add_argument(
        "--at",
        metavar="POSITION|TIME",
        type=position_or_time,
        help="binlog.000003:4711 (includes events before it), a time such as "
        "2026-11-21T10:00:00 with or without a zone, relative to now such as -1h, or "
        "in milliseconds since 1970; default: the end of the history",
    )


def add_format_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, which is short for `--format json`."""
    parser.add_argument(
        "--json",
        action="store_const",
        const="json",
        dest="format",
        default=argparse.SUPPRESS,
        help="same as --format json",
    )


def add_table_option(parser: argparse.ArgumentParser) -> None:
    """Add `--table`, as `args.table`: a list of regular expressions."""
    parser.add_argument(
        "--table",
        metavar="NAME",
        action="append",
        default=[],
        help="schema.table, or a regular expression for it; repeatable",
    )


def position_option(text: str) -> EntryPosition:
    """Parse an argument that is a binlog position."""
    found = _POSITION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(
            "expected a position such as binlog.000003:4711"
        )
    return EntryPosition(found["file"], int(found["offset"]))


def position_or_time(text: str) -> EntryPosition | int:
    """Parse an argument that is a binlog position, or a time."""
    if text.isascii() and text.isdecimal():
        return time_ms(text)  # its error is more specific
    for read in (time_ms, position_option):
        with contextlib.suppress(argparse.ArgumentTypeError):
            return read(text)
    raise argparse.ArgumentTypeError(
        f"expected a position such as binlog.000003:4711, or {WRITTEN_AS}"
    )


def time_ms(text: str) -> int:
    """Parse an argument that is a time; without a zone, it is local time."""
    try:
        return moment_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None  # the cause adds nothing


def printable(text: str) -> str:
    """Return a text without control characters that affect a terminal."""
    return text.translate(_CONTROLS)


# --- the history ----------------------------------------------------------------------


def load_config(args: argparse.Namespace) -> tuple[DaemonConfig, InstanceConfig]:
    """Return all settings, and those of the destination. Raises ConfigError."""
    config = load(args.conf, os.environ)
    instance = source_of_destination(config, args.destination)
    if not instance.table_meta.enable:
        raise ConfigError(
            [
                (
                    f"destination {instance.destination} keeps no table history:"
                    " canal.instance.tsdb.enable is false"
                )
            ]
        )
    return config, instance


def moment_at(history: History, at: EntryPosition | int | None) -> Moment:
    """Return the tables at a position or time, by default at the end of the history.

    Raises TableMetaError when the history does not cover it.
    """
    tsdb = history.tsdb
    segments = tsdb.segments()
    if at is None:
        segment = segments[-1]
        position = segment.last
    elif isinstance(at, int):
        if not any((each.first.timestamp or 0) <= at for each in segments):
            raise _not_covered(history, time_text(at))
        segment, position = tsdb.position_at(at)
    else:
        segment, position = _segment_at(history, at), at
    return Moment(segment, position, tsdb.at(position, segment))


def _segment_at(history: History, at: EntryPosition) -> BinlogSegment:
    for segment in reversed(history.tsdb.segments()):
        same_name = base_name(segment.last.journal_name or "") == base_name(
            at.journal_name or ""
        )
        if same_name and segment.first.order() <= at.order() <= segment.last.order():
            return segment
    hint = ""
    last = history.tsdb.segments()[-1].last
    same_name = base_name(last.journal_name or "") == base_name(at.journal_name or "")
    if same_name and at.order() > last.order():
        hint = (
            "; events that a server has read after that end changed no table: leave out"
            " --at for the tables at the end"
        )
    raise _not_covered(history, str(at), hint)


def _not_covered(history: History, requested: str, hint: str = "") -> TableMetaError:
    covered = "; ".join(
        f"{_position_text(each.first)} to {_position_text(each.last)} of server "
        f"{each.source}"
        for each in history.tsdb.segments()
    )
    return TableMetaError(
        f"the table history of destination {history.config.destination} does not cover"
        f" {requested}; it covers {covered}{hint}"
    )


def _position_text(position: EntryPosition) -> str:
    when = time_text(position.timestamp)
    return f"{position} ({when})" if when else str(position)


# --- selection of tables-------------------------------------------------------------


def chosen_tables(names: Iterable[Name], requested: list[str]) -> list[Name]:
    """Return the names that match `requested`, in order; all if it is empty.

    Raises TableMetaError for an expression that matches no table, with similar names.
    """
    known = sorted(names)
    if not requested:
        return known
    chosen: set[Name] = set()
    for expression in requested:
        # A plain name stands for itself, whatever it matches as an expression.
        found = {name for name in known if ".".join(name) == expression}
        if not found:
            accepts = _accepting(expression)
            found = {name for name in known if accepts((name,))}
        if not found:
            raise unknown_table(expression, known)
        chosen |= found
    return sorted(chosen)


def unknown_table(requested: str, known: Iterable[Name]) -> TableMetaError:
    """Return the error for an unknown table, with similar names."""
    names = {".".join(name).lower(): ".".join(name) for name in known}
    nearest = difflib.get_close_matches(requested.lower(), names, _NEAREST)
    text = f"unknown table {requested}"
    if nearest:
        text += f"; similar names: {', '.join(names[each] for each in nearest)}"
    elif "." not in requested:
        text += "; expected schema.table"
    return TableMetaError(text)


def _accepting(expression: str) -> TablePredicate:
    try:
        return TableFilter(expression, "").accepts
    except ValueError as error:
        raise ConfigError([f"--table {expression}: {error}"]) from error
