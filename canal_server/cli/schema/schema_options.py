"""What the actions of `canal-server schema` share: options, access to the history."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, TypeVar

from canal_server.cli.conf_options import source_of_destination
from canal_server.config.load import load
from canal_server.errors import ConfigError
from canal_server.model.moments import moment_ms
from canal_server.tablemeta.history.history_moments import parse_moment, parse_position

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import DaemonConfig, InstanceConfig
    from canal_server.model.positions import EntryPosition

T = TypeVar("T")


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
    return _parsed(parse_position, text)


def position_or_time(text: str) -> EntryPosition | int:
    """Parse an argument that is a binlog position, or a time."""
    return _parsed(parse_moment, text)


def time_ms(text: str) -> int:
    """Parse an argument that is a time; without a zone, it is local time."""
    return _parsed(moment_ms, text)


def _parsed(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None  # the cause adds nothing


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
