"""`canal-server mirror sql`: statements with which an engine finds the lake's tables.

The work is done by the package `mirror`, which is loaded by name on demand.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

ENGINES: Final = ("clickhouse", "duckdb", "spark", "trino")


def add_parser(
    actions: argparse._SubParsersAction[Any],
    add_conf: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add the parser of this action."""
    parser = actions.add_parser(
        "sql",
        help="print SQL that makes the copies known to an engine",
        description="Print the statements with which an engine of SQL finds the tables "
        "of the lake by their names, and views of the rows of several tables. They are "
        "read from the lake; nothing is changed. Run the command again when tables "
        "were added, and for views and ClickHouse also when columns were.",
    )
    add_conf(parser)
    add = parser.add_argument
    add("--engine", choices=ENGINES, required=True, help="the engine")
    add("--with", dest="others", action="append", default=[], metavar="FILE",
        help="settings of another mirror, whose tables are to be known as well; may be "
        "repeated")  # fmt: skip
    add("--name", default="{schema}.{table}", metavar="TEMPLATE", help="the names of "
        "the tables in the engine, of {mirror}, {schema} and {table} (default: "
        "%(default)s)")  # fmt: skip
    add("--union", action="append", default=[], metavar="VIEW=REGEX", help="also a "
        "view, schema.name, of the rows of all tables whose schema.table matches the "
        "expression, with the columns _mirror and _table; may be repeated")  # fmt: skip
    add("--catalog", default="", metavar="NAME", help="the engine's name of the "
        "catalog: that of Iceberg tables, or in Trino that of the Delta Lake connector "
        "(default there: delta)")  # fmt: skip


def sql(args: argparse.Namespace, settings: Any) -> int:
    """Print the statements. Raises CanalError."""
    load = importlib.import_module("canal_server.mirror.settings.settings_file").load
    found = importlib.import_module("canal_server.mirror.report.lake_statements")
    dialects = importlib.import_module("canal_server.mirror.report.engine_dialects")
    mirrors = [
        settings,
        *(load(path, os.environ, has_secrets=False) for path in args.others),
    ]
    lines = found.statements(
        mirrors,
        dialects.DIALECTS[args.engine](args.catalog),
        template=args.name,
        unions=[found.Union.read(text) for text in args.union],
    )
    print("\n".join(lines))
    return 0
