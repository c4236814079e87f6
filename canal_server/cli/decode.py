"""`canal-server decode`: print changes from binlog files or from a server's binlog."""

from __future__ import annotations

import sys
from contextlib import closing, contextmanager
from dataclasses import fields
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canal_server.cli import flat_output
from canal_server.cli.conf_options import DEFAULT, VARIABLE
from canal_server.cli.decode_source import access, position, resolved, source, tls
from canal_server.cli.filter_option import add_filter_option, filter_of
from canal_server.cli.time_options import count
from canal_server.client.entry_format import json_line
from canal_server.client.json_changes import json_lines
from canal_server.config.schema import Action
from canal_server.errors import CanalError, ConfigError
from canal_server.model.entry import EntryType
from canal_server.mysql.binlogs import current_end
from canal_server.mysql.cached_columns import CachedColumns
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.mysql.source_settings import Access
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_part import FilePosition, Part
from canal_server.source.read.file_columns import load_columns
from canal_server.tls.source_tls import TlsMode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from canal_server.decoder.events.engine import Decoder
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import TableSchemas
    from canal_server.protocol.entry_messages import Entry

DIFFERENT = 3  # exit status if --compare found differences
_DIFFERENCES_SHOWN = 100
_CONTENTS = {
    EntryType.TRANSACTIONBEGIN: ("transactionBegin", "transaction_begin"),
    EntryType.TRANSACTIONEND: ("transactionEnd", "transaction_end"),
    EntryType.ROWDATA: ("rowChange", "row_change"),
}


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "decode",
        help="print changes from binlog files or a server's binlog",
        description="Print the changes in binlog files or in part of a server's "
        "binlog, one JSON object per line.",
        epilog="Exit status: 0 success, 1 failure, 2 invalid options, 3 --compare "
        "found differences, 130 interrupted by Ctrl-C.",
    )
    add = parser.add_argument
    add("files", metavar="FILE", nargs="*", type=Path, help="binlog files, in order")
    add("--source", metavar="URL", type=source, help="server to read table definitions "
        "from, and the binlog with --from: mysql://user@host:port")  # fmt: skip
    add("--password-env", metavar="NAME", help="environment variable with the password "
        "for --source")  # fmt: skip
    add("--password-file", metavar="FILE", type=Path, help="file with the password for "
        "--source")  # fmt: skip
    add("--tls", metavar="MODE", type=tls, default=TlsMode.PREFERRED,
        help="TLS mode for --source: DISABLED, PREFERRED (default), "
            "REQUIRED")  # fmt: skip
    add("--server-public-key", metavar="FILE.pem", default="", help="public key to "
        "encrypt the password with on connections without TLS")  # fmt: skip
    add("--allow-public-key-retrieval", action="store_true", help="request the public "
        "key from the server; always allowed for a local server")  # fmt: skip
    add("--columns", metavar="FILE.json", type=Path, help="table definitions; without "
        "this and --source, they come from the table map events")  # fmt: skip
    add("--conf", metavar="DIR", type=Path, help="without --source: folder with the "
        "canal.properties that configures the source to read with --from (default: "
        f"${VARIABLE} if set, else {DEFAULT})")  # fmt: skip
    add("--destination", metavar="NAME", help="destination whose source to read; "
        "required if several are configured")  # fmt: skip
    add(
        "--standby",
        action="store_true",
        help="read the standby of the destination instead of its master",
    )
    add("--from", metavar="START", type=position, dest="start", help="read the binlog "
        "of the source from this position, by default up to its end: FILE:POS, a time "
        "(2026-11-21T10:00:00, -1h, milliseconds since 1970), a GTID set, "
        "oldest")  # fmt: skip
    add("--until", metavar="STOP", type=position, help="stop before the first event at "
        "or after this position; same formats as --from, only FILE:POS for "
        "files")  # fmt: skip
    add("--count", metavar="N", type=count, help="stop after N changes")
    add(
        "--follow",
        action="store_true",
        help="wait for new events at the end of the binlog",
    )
    add_filter_option(parser)
    add(
        "--transactions",
        action="store_true",
        help="also print the begin and end of transactions",
    )
    add("--entries", action="store_true", help="print complete entries with all fields")
    add(
        "--json",
        action="store_true",
        help="accepted for consistency; the output is always JSON lines",
    )
    add("--canal-json", action="store_true", help=flat_output.HELP)
    add("--unreadable", metavar="HOW", choices=[each.value for each in Action],
        help="how to handle events that cannot be decoded: skip omits them, raw prints "
        "their bytes; each one is logged")  # fmt: skip
    add("--compare", action="store_true", help="also read with mysql-replication, and "
        "print only the differences")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print the changes or the differences; returns the exit status."""
    _check(args)
    flat_output.check_flat_options(args)
    filter_of(args)
    if args.compare:
        import canal_server.source.read.binlog_compare  # noqa: F401, PLC0415  # an optional extra
    reached: Access | None = None
    if args.start or args.source:
        reached = access(args)
    if args.start:
        assert reached is not None, "--from has a source"
        args.start = resolved(reached, args.start, "--from")
        # Only the offset of the end matters, and it may not be written yet.
        if args.until and not isinstance(args.until, FilePosition):
            args.until = resolved(reached, args.until, "--until")
    if args.compare:
        assert reached is not None, "--compare needs --from"
        return _compare(args, reached)
    printer = _Printer(args)
    with _images(args, reached) as images:
        part = Part(
            images=images,
            take=printer.take,
            take_body=None if args.entries else printer.take_body,
            table_filter=filter_of(args).accepts,
            until=args.until,
            unreadable=Action(args.unreadable) if args.unreadable else None,
            advice=_advice,
        )
        try:
            if args.start and reached is not None:
                part.read_server(reached, args.start, Stop(), follow=args.follow)
            else:
                _read_files(part, args.files)
        finally:
            sys.stdout.flush()
    return 0


def _advice(decoder: Decoder) -> str:
    """Return the hint for an event that cannot be decoded without `--unreadable`."""
    if not decoder.is_framed:
        return "its end is unknown, so nothing after it can be read"
    return "use --unreadable skip to omit such events, or raw to print their bytes"


def _read_files(part: Part, files: list[Path]) -> None:
    for path in files:
        try:
            if not part.read_file(path):
                return
        except BrokenPipeError:
            raise  # raised by standard output
        except OSError as error:
            raise CanalError(f"{path}: {error.strerror}") from error


def _compare(args: argparse.Namespace, access: Access) -> int:
    from canal_server.source.read.binlog_compare import Comparison  # noqa: PLC0415  # an extra

    until = args.until
    if until is None:
        # Both readers must stop at the same position, but the binlog may grow.
        with ControlConnection(access) as connection:
            end = current_end(connection, read_server_info(connection))
        until = FilePosition(end.file, end.position)
    with closing(CachedColumns(ControlConnection(access))) as images:
        comparison = Comparison(images, filter_of(args).accepts)
        found = comparison.run(access, args.start, until)
    for difference in found[:_DIFFERENCES_SHOWN]:
        print(json_line(difference.as_json()))
    print(f"{comparison.counts}\n{len(found)} differences", file=sys.stderr)
    return DIFFERENT if found else 0


class _Printer:
    """Prints entries as they arrive; `take` returns false when it has enough."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._left: int | None = args.count
        self._flat = flat_output.FlatOutput() if args.canal_json else None
        self._marks: bool = args.transactions

    def take(self, entry: Entry) -> bool:
        """Print an entry with all its fields."""
        if self._left is not None and entry.entry_type == EntryType.ROWDATA:
            if self._left <= 0:
                return False
            self._left -= 1
        sys.stdout.write(json_line(entry_object(entry)) + "\n")
        return self._left is None or self._left > 0

    def take_body(self, body: bytes) -> bool:
        """Print the changes of entries."""
        limit = -1 if self._left is None else self._left
        if self._flat is not None:
            text, count, _ = self._flat.lines(body, limit)
        else:
            found = json_lines(body, marks=self._marks, limit=limit)
            text, count = found.text.decode(), found.changes
        sys.stdout.write(text)
        if self._left is not None:
            self._left -= count
        return self._left is None or self._left > 0


def entry_object(entry: Entry) -> dict[str, Any]:
    """Return an entry with all its fields as a JSON value.

    Names are those of the JSON form of the protocol; fields with their default value
    are omitted.
    """
    found = {
        "header": _message_object(entry.header),
        "entryType": _json_value(entry.entry_type),
    }
    if entry.entry_type in _CONTENTS:
        name, method = _CONTENTS[EntryType(entry.entry_type or 0)]
        found[name] = _message_object(getattr(entry, method)())
    return found


def _message_object(message: Any) -> dict[str, Any]:
    found = {}
    for field in fields(message):
        value = getattr(message, field.name)
        if value != field.default or (value is not None and field.default is None):
            head, *words = field.name.split("_")
            found[head + "".join(map(str.title, words))] = _json_value(value)
    return found


def _json_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_message_object(item) for item in value]
    return value.name if isinstance(value, IntEnum) else value


# --- options ----------------------------------------------------------------------


def _check(args: argparse.Namespace) -> None:
    """Raise ConfigError for options that exclude each other."""
    problems = []
    if args.standby and (args.source or not args.start):
        problems.append("--standby requires --from and excludes --source")
    if args.files and args.start:
        problems.append("files and --from exclude each other")
    if not args.files and not args.start:
        problems.append("expected binlog files, or --from such as --from -1h")
    if args.files and args.until and not isinstance(args.until, FilePosition):
        problems.append("--until must be FILE:POS for files, such as binlog.000001:4")
    if args.columns and args.source and args.files:
        problems.append("--columns and --source exclude each other for files")
    if args.follow and not args.start:
        problems.append("--follow requires --from")
    if args.compare and not args.start:
        problems.append("--compare requires --from")
    if args.compare and (args.follow or args.count or args.columns):
        problems.append("--compare excludes --follow, --count and --columns")
    if problems:
        raise ConfigError(problems)


@contextmanager
def _images(
    args: argparse.Namespace, reached: Access | None
) -> Iterator[TableSchemas | None]:
    if args.columns:
        yield load_columns(args.columns)
    elif reached is not None:
        with closing(CachedColumns(ControlConnection(reached))) as columns:
            yield columns
    else:
        yield None
