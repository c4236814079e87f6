"""`canal-server schema export`: write the tables at a position to a portable file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canal_server.cli.actions import (
    add_destination_options,
    add_json_option,
    print_json,
)
from canal_server.cli.schema.schema_options import (
    add_at_option,
    load_config,
)
from canal_server.errors import CanalError
from canal_server.tablemeta.history.history_moments import moment_at
from canal_server.tablemeta.history.opened_history import opened_history
from canal_server.tablemeta.history.schema_document import to_document
from canal_server.tablemeta.history.schema_views import exported_at

if TYPE_CHECKING:
    import argparse

STANDARD = Path("-")  # standard output or input
_OWNER_ONLY = 0o600


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "export",
        help="write the tables at a position to a file",
        description="Write the table definitions at a position to a JSON file for "
        "`schema import`.",
    )
    add_destination_options(parser, "destination whose history to read")
    add_at_option(parser)
    add_json_option(parser)
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="file to write; - is standard output"
    )


def run(args: argparse.Namespace) -> int:
    """Write the file. Raises TableMetaError, and CanalError if it cannot be written."""
    _, config = load_config(args)
    with opened_history(config) as history:
        moment = moment_at(history, args.at)
        exported = exported_at(history, moment)
    document = to_document(exported)
    if args.file == STANDARD:
        sys.stdout.write(document)
        return 0
    try:
        _write(args.file, document)
    except OSError as error:
        raise CanalError(f"cannot write {args.file}: {error.strerror}") from error
    if args.json:
        print_json(
            {
                "file": str(args.file),
                "tables": exported.count,
                "position": str(exported.position),
            }
        )
        return 0
    tables = "1 table" if exported.count == 1 else f"{exported.count} tables"
    print(f"{tables} as of {exported.position} written to {args.file}")
    return 0


def _write(path: Path, text: str) -> None:
    """Write a file atomically, readable only by its owner."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123  # closes the descriptor
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
