"""`canal-server schema export`: write the tables at a position to a portable file."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
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
    moment_at,
)
from canal_server.errors import CanalError
from canal_server.tablemeta.history.opened_history import opened_history
from canal_server.tablemeta.history.replay import stored_schemas
from canal_server.tablemeta.history.schema_document import Exported, to_document

if TYPE_CHECKING:
    import argparse

    from canal_server.cli.schema.schema_options import Moment
    from canal_server.model.positions import EntryPosition
    from canal_server.tablemeta.history.opened_history import History
    from canal_server.tablemeta.storage.history_storage import DdlRecord

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
        position, statement = _beginning(history, moment)
    exported = Exported(
        moment.segment.source,
        moment.segment.traits,
        position,
        tuple(stored_schemas(moment.image)),
        statement,
    )
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


def _beginning(
    history: History, moment: Moment
) -> tuple[EntryPosition, DdlRecord | None]:
    """Return the next position where reading can start, with the same tables.

    At the end of the history, that is the position after its last statement.
    """
    segment = moment.segment
    for record in history.storage.records(segment.id, start=moment.position):
        if record.is_answer:
            continue  # no event starts there
        # Its GTID is the one of the transaction that follows.
        return replace(record.position, gtid=None), None
    event = history.tsdb.end_event(segment)
    for record in history.storage.records(segment.id, start=event, stop=segment.last):
        return segment.last, record
    return segment.last, None


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
