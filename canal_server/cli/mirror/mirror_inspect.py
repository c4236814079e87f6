"""`canal-server mirror verify` and `plot`: correctness and delay of the copies.

The work is done by the package `mirror`, which is loaded by name on demand.
"""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canal_server.cli.start import log_to
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
    """Add the parsers of these actions."""
    parser = actions.add_parser(
        "verify",
        help="compare the copies with the source",
        description="Compare row counts and checksums of tables and their copies at "
        "one binlog position, while both continue to change, and show the first rows "
        "that differ. Exit status: 0 all are equal (a table that was dropped at the "
        "source is not a difference), 1 a table differs or could not be compared.",
    )
    add_conf(parser)
    add = parser.add_argument
    add("table", nargs="*", default=[], help="schema.table (default: all)")
    add("--json", action="store_true", help="print JSON")
    add("--rows", type=int, default=ROWS_SHOWN, metavar="N", help="number of differing "
        "rows to show per table (default: %(default)s)")  # fmt: skip
    add("--wait", type=float, default=WAIT_S, metavar="SECONDS", help="how long to "
        "wait for a copy that lags; later changes are then ignored (default: "
        "%(default)g)")  # fmt: skip
    parser = actions.add_parser(
        "plot",
        help="plot delay and throughput over time",
        description="Plot delay and throughput over time, from the history that the "
        "mirror keeps in the lake.",
    )
    add_conf(parser)
    add = parser.add_argument
    add("--hours", type=float, default=0.0, help="only the last N hours (default: "
        "everything)")  # fmt: skip
    add("--output", metavar="FILE.svg", help="also write the plot to this file")


def verify(args: argparse.Namespace, settings: Any) -> int:
    """Compare tables with their copies. Raises CanalError."""
    names = _names(args.table)
    log_to("warning")
    for name in ("py4j", "pyspark"):
        logging.getLogger(name).setLevel(logging.ERROR)
    module = importlib.import_module("canal_server.mirror.verify.verify")
    report = importlib.import_module("canal_server.mirror.verify.verify_report")
    wishes = module.Wishes(rows_shown=args.rows, wait_s=args.wait)

    def report_progress(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    found = module.run(settings, names, wishes, report_progress)
    if args.json:
        print(report.as_json(found))
    elif found:
        print(report.as_text(found))
    else:
        print("the mirror has no tables yet")
    return int(report.exit_status(found))


def _names(texts: Sequence[str]) -> list[Any]:
    model = importlib.import_module("canal_server.mirror.settings.table_values")
    parts = [text.partition(".") for text in texts]
    problems = [
        f"table {text}: expected schema.table"
        for text, (schema, _, table) in zip(texts, parts, strict=True)
        if not schema or not table
    ]
    if problems:
        raise ConfigError(problems)
    return [model.TableName(schema, table) for schema, _, table in parts]


def plot(args: argparse.Namespace, settings: Any) -> int:
    """Print a plot, and write it to a file on request. Raises CanalError."""
    module = importlib.import_module("canal_server.mirror.report.plot")
    found = module.plot(settings, args.hours)
    print(found.text())
    if args.output:
        try:
            Path(args.output).write_text(found.picture())
        except OSError as error:
            raise CanalError(f"cannot write {args.output}: {error.strerror}") from None
        print(f"wrote {args.output}")
    return 0
