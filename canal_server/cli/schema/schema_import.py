"""`canal-server schema import`: a history that begins with the tables in a file."""

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
    opened_history,
    place,
)
from canal_server.daemon.control import ControlError, NoServer, ask
from canal_server.errors import CanalError, ConfigError
from canal_server.mysql.binlogs import binary_logs, server_time_s
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.mysql.replication import FileStart
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.available_positions import SourceFiles
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.schema.source_traits import source_of, traits_of
from canal_server.tablemeta.history.dump_text import place_in_dump, read_dump
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
        help="begin the history with the tables in a file",
        description="Begin the history with the tables of a file that `schema export` "
        "wrote, or of a schema dump of mysqldump or mariadb-dump together with the "
        "position in the binlog at which it was taken. The server must not run.",
    )
    add_destination_options(parser, "whose history")
    add_json_option(parser)
    add = parser.add_argument
    add("--at", metavar="POSITION", type=place, help="of a dump: "
        "binlog.000003:4711; default: what its --source-data or --master-data "
        "says")  # fmt: skip
    add("--schema", metavar="NAME", default="", help="of a dump that does not name it")
    add("file", metavar="FILE", type=Path, help="a file to read; - is standard input")


def run(args: argparse.Namespace) -> int:
    """Begin the history. Raises TableMetaError, SourceError or CanalError."""
    daemon, config = load_config(args)
    _refuse_running(daemon.data_dir, config)
    text = _read(args.file)
    if not text.strip():
        raise CanalError(f"cannot import {args.file}: it is empty")
    try:
        exported = _exported(args, config, text)
    except (ConfigError, ControlError):
        raise
    except CanalError as error:
        raise CanalError(f"cannot import {args.file}: {error}") from error
    with opened_history(config, read_only=False) as history:
        behind = exported.behind
        first = exported.position if behind is None else behind.position
        segment = history.tsdb.begin(
            exported.source, exported.traits, first, exported.schemas
        )
        if behind is not None:
            history.tsdb.extend(segment, (behind,), last=exported.position)
    _report(args, config, exported)
    return 0


def _report(
    args: argparse.Namespace, config: InstanceConfig, exported: Exported
) -> None:
    """Print what the history has now."""
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
        f"the table history of destination {config.destination} continues with {tables}"
        f" as of {exported.position} of server {exported.source}"
    )


def _refuse_running(data_dir: Path, config: InstanceConfig) -> None:
    try:
        status = ask(data_dir, "status")
    except NoServer:
        return
    raise CanalError(
        f"a server (process {status.get('pid')}) runs with this history of destination"
        f" {config.destination}; stop it first: canal-server stop"
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
        raise CanalError(f"{path} has more than {_BYTES_MAX} bytes; dump without rows")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CanalError(f"{path} is not UTF-8: {error}") from error


def _exported(args: argparse.Namespace, config: InstanceConfig, text: str) -> Exported:
    """Return what a file of either kind holds."""
    if not text.lstrip().startswith("{"):
        return _from_dump(args, config, text)
    if args.at is not None or args.schema:
        raise ConfigError(["import: --at and --schema are for dumps in SQL"])
    return from_document(text)


# --- a dump ---------------------------------------------------------------------------


def _from_dump(args: argparse.Namespace, config: InstanceConfig, text: str) -> Exported:
    """Read a dump of the server that the destination reads."""
    found_at = args.at or place_in_dump(text)
    if found_at is None:
        raise ConfigError(
            [
                (
                    "import: name the position in the binlog at which the dump was"
                    " taken: --at binlog.000003:4711"
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
            raise CanalError(f"{error}, with --schema") from error
        if not any(each.tables for each in found.schemas):
            raise CanalError("it holds no CREATE TABLE")
        schemas = tuple(_with_collation(each, control) for each in found.schemas)
    for problem in found.problems:
        print(f"canal-server schema import: not understood: {problem}", file=sys.stderr)
    position = replace(position, server_id=info.server_id)
    return Exported(source_of(info), traits, position, schemas)


def _checked(
    at: EntryPosition, config: InstanceConfig, control: ControlConnection
) -> EntryPosition:
    """Return the place with its time. Raises when the server does not have it."""
    files = SourceFiles(tuple(binary_logs(control)))
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
    """Return a schema with its collation of today when the dump does not tell it."""
    if schema.collation:
        return schema
    rows = control.query(
        "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA"
        " WHERE SCHEMA_NAME = %s",
        (schema.name,),
    )
    return replace(schema, collation=str(rows[0][0])) if rows else schema
