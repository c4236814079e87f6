"""`canal-server schema import`: start the table history with the tables in a file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canal_server.capture.source_parts import access_of
from canal_server.cli.actions import (
    add_destination_options,
    add_json_option,
    print_json,
)
from canal_server.cli.schema.schema_export import STANDARD
from canal_server.cli.schema.schema_options import (
    load_config,
    position_option,
)
from canal_server.daemon.control import ControlError, NoServer, ask
from canal_server.errors import CanalError, ConfigError
from canal_server.mysql.binlogs import server_time_s
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.mysql.replication import FileStart
from canal_server.runtime.lifecycle import Stop
from canal_server.source.archive.source_binlogs import readable_logs
from canal_server.source.read.available_positions import SourceFiles
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.schema.source_traits import source_of, traits_of
from canal_server.tablemeta.history.dump_text import position_in_dump, read_dump
from canal_server.tablemeta.history.opened_history import opened_history
from canal_server.tablemeta.history.schema_document import Exported, from_document

if TYPE_CHECKING:
    import argparse

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.positions import EntryPosition
    from canal_server.tablemeta.storage.history_storage import StoredSchema

_BYTES_MAX: Final = 1 << 30


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "import",
        help="start the history with the tables in a file",
        description="Start the table history with the tables in a file of `schema "
        "export`, or in a schema dump of mysqldump or mariadb-dump together with the "
        "binlog position of the dump. The server must not be running.",
    )
    add_destination_options(parser, "destination whose history to write")
    add_json_option(parser)
    add = parser.add_argument
    add("--at", metavar="POSITION", type=position_option, help="position of a dump,"
        " such as binlog.000003:4711; default: the one that --source-data or"
        " --master-data wrote into it")  # fmt: skip
    add(
        "--schema",
        metavar="NAME",
        default="",
        help="schema of a dump that does not name one",
    )
    add("file", metavar="FILE", type=Path, help="file to read; - is standard input")


def run(args: argparse.Namespace) -> int:
    """Import the file. Raises TableMetaError, SourceError or CanalError."""
    daemon, config = load_config(args)
    _refuse_running(daemon.data_dir, config)
    text = _read(args.file)
    if not text.strip():
        raise CanalError(f"cannot import {args.file}: the file is empty")
    try:
        exported = _exported(args, config, text)
    except (ConfigError, ControlError):
        raise
    except CanalError as error:
        raise CanalError(f"cannot import {args.file}: {error}") from error
    with opened_history(config, read_only=False) as history:
        statement = exported.statement
        first = exported.position if statement is None else statement.position
        segment = history.tsdb.begin(
            exported.source, exported.traits, first, exported.schemas
        )
        if statement is not None:
            history.tsdb.extend(segment, (statement,), last=exported.position)
    _report(args, config, exported)
    return 0


def _report(
    args: argparse.Namespace, config: InstanceConfig, exported: Exported
) -> None:
    """Print the new state of the history."""
    if args.json:
        print_json(
            {
                "destination": config.destination,
                "tables": exported.count,
                "position": str(exported.position),
                "server": exported.source,
            }
        )
        return
    tables = "1 table" if exported.count == 1 else f"{exported.count} tables"
    print(
        f"the table history of destination {config.destination} now continues with"
        f" {tables} at {exported.position} of server {exported.source}"
    )


def _refuse_running(data_dir: Path, config: InstanceConfig) -> None:
    try:
        status = ask(data_dir, "status")
    except NoServer:
        return
    raise CanalError(
        f"a server (process {status.get('pid')}) uses the table history of destination"
        f" {config.destination}; stop it first with `canal-server stop"
        f" {config.conf_option}".rstrip()
        + "`"
    )


def _read(path: Path) -> str:
    try:
        if path == STANDARD:
            content = sys.stdin.buffer.read(_BYTES_MAX + 1)
        else:
            with path.open("rb") as file:
                content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise CanalError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > _BYTES_MAX:
        raise CanalError(
            f"{path} has more than {_BYTES_MAX} bytes; dump the schema without rows"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CanalError(f"{path} is not valid UTF-8: {error}") from error


def _exported(args: argparse.Namespace, config: InstanceConfig, text: str) -> Exported:
    """Return the content of a file of either format."""
    if not text.lstrip().startswith("{"):
        return _from_dump(args, config, text)
    if args.at is not None or args.schema:
        raise ConfigError(["--at and --schema are only for SQL dumps"])
    return from_document(text)


# --- a dump ---------------------------------------------------------------------------


def _from_dump(args: argparse.Namespace, config: InstanceConfig, text: str) -> Exported:
    """Read a dump of the server that the destination reads from."""
    found_at = args.at or position_in_dump(text)
    if found_at is None:
        raise ConfigError(
            [
                (
                    "the dump does not contain its binlog position; add it with"
                    " --at, such as --at binlog.000003:4711"
                )
            ]
        )
    with ControlConnection(access_of(config.source, config.destination)) as control:
        info = read_server_info(control)
        position = _checked(found_at, config, control)
        traits = traits_of(control, info)
        try:
            found = read_dump(text, traits, args.schema)
        except ValueError as error:
            raise CanalError(f"{error}; add it with --schema") from error
        if not any(each.tables for each in found.schemas):
            raise CanalError("it contains no CREATE TABLE")
        schemas = tuple(_with_collation(each, control) for each in found.schemas)
    for problem in found.problems:
        print(f"canal-server schema import: cannot parse: {problem}", file=sys.stderr)
    position = replace(position, server_id=info.server_id)
    return Exported(source_of(info), traits, position, schemas)


def _checked(
    at: EntryPosition, config: InstanceConfig, control: ControlConnection
) -> EntryPosition:
    """Return the position with its time. Raises if the server does not have it."""
    files = SourceFiles(tuple(readable_logs(control)))
    if not files.had(at.journal_name, at.position):
        raise CanalError(
            f"the binlog of {control.access.address} has no position {at}; it holds"
            f" {files}"
        )
    scanner = DdlScanner(config, control.access, Stop())
    start = FileStart(at.journal_name or "", at.position or 0)
    first = scanner.first_position(start)
    if first is not None:
        return replace(at, timestamp=first.timestamp)
    return replace(at, timestamp=server_time_s(control) * 1000)


def _with_collation(schema: StoredSchema, control: ControlConnection) -> StoredSchema:
    """Return a schema with its current collation if the dump does not contain one."""
    if schema.collation:
        return schema
    rows = control.query(
        "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA"
        " WHERE SCHEMA_NAME = %s",
        (schema.name,),
    )
    return replace(schema, collation=str(rows[0][0])) if rows else schema
