"""`canal-server mirror verify` and `plot`: how good the copies are, and how late.

The work is done by the package `mirror`, which is loaded by name when it is asked for.
"""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canal_server.cli.start import log_to_stderr
from canal_server.errors import CanalError, ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

ROWS_SHOWN = 10
WAIT_S = 60.0


def add_parsers(
    actions: argparse._SubParsersAction[Any],
    add_conf: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add the options of these actions."""
    parser = actions.add_parser(
        "verify",
        help="compare source and copies",
        description="Compare counts and checksums of tables and their copies at one "
        "place of the binlog, while both go on, and show the first rows that differ. "
        "Exit status: 0 all are equal (a table that the source has dropped is no "
        "difference), 1 one is not, or could not be compared.",
    )
    add_conf(parser)
    add = parser.add_argument
    add("table", nargs="*", default=[], help="schema.table (default: all)")
    add("--json", action="store_true", help="print JSON, for programs")
    add("--rows", type=int, default=ROWS_SHOWN, metavar="N", help="show so many rows "
        "of a table that differ (default: %(default)s)")  # fmt: skip
    add("--wait", type=float, default=WAIT_S, metavar="SECONDS", help="wait so long "
        "for a copy that lags; what changed behind it is left out then (default: "
        "%(default)g)")  # fmt: skip
    parser = actions.add_parser(
        "plot",
        help="draw delay and throughput over time",
        description="Tell delay and throughput over time, from the history that the "
        "mirror keeps in the lake.",
    )
    add_conf(parser)
    add = parser.add_argument
    add("--hours", type=float, default=0.0, help="of the last so many hours (default: "
        "all that is kept)")  # fmt: skip
    add("--output", metavar="FILE.svg", help="write a picture, too")


def verify(args: argparse.Namespace, settings: Any) -> int:
    """Compare tables with their copies. Raises CanalError."""
    names = _names(args.table)
    log_to_stderr("warning")
    for name in ("py4j", "pyspark"):
        logging.getLogger(name).setLevel(logging.ERROR)
    module = importlib.import_module("canal_server.mirror.verify.verify")
    report = importlib.import_module("canal_server.mirror.verify.verify_report")
    wishes = module.Wishes(rows_shown=args.rows, wait_s=args.wait)

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    found = module.run(settings, names, wishes, tell)
    if args.json:
        print(report.as_json(found))
    elif found:
        print(report.as_text(found))
    else:
        print("the mirror has no table yet")
    return int(report.exit_status(found))


def _names(texts: Sequence[str]) -> list[Any]:
    model = importlib.import_module("canal_server.mirror.settings.table_values")
    parts = [text.partition(".") for text in texts]
    problems = [
        f"table {text}: write schema.table"
        for text, (schema, _, table) in zip(texts, parts, strict=True)
        if not schema or not table
    ]
    if problems:
        raise ConfigError(problems)
    return [model.TableName(schema, table) for schema, _, table in parts]


def plot(args: argparse.Namespace, settings: Any) -> int:
    """Print a plot, and draw it where that is wanted. Raises CanalError."""
    module = importlib.import_module("canal_server.mirror.report.plot")
    found = module.plot(settings, args.hours)
    print(found.text())
    if args.output:
        try:
            Path(args.output).write_text(found.picture())
        except OSError as error:
            raise CanalError(
                f"{args.output} cannot be written: {error.strerror}"
            ) from None
        print(f"{args.output} shows it")
    return 0
