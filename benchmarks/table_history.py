"""Measures the table history: memory, statements a second, start-up.

    python benchmarks/table_history.py [--tables N] [--ddls N] [--columns N]
        [--server mysql|mariadb]

Prints one line per figure with its target. Only with --server it needs one, on which it
makes N tables: MYSQL_URL or MARIADB_URL name it, else a private one is started.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import named_or_private

from canal_server.config.schema import InstanceConfig
from canal_server.model.positions import EntryPosition
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.schema.base_dump import BaseDumper
from canal_server.tablemeta.history.ddl_records import made_record
from canal_server.tablemeta.history.tsdb import Retention, TableMetaTsdb
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.storage.history_storage import SourceTraits, StoredSchema
from canal_server.tablemeta.storage.sqlite_storage import (
    FILE_NAME,
    SqliteHistoryStorage,
)
from canal_server.tablemeta.tables.memory_tables import MemoryTableMeta

if TYPE_CHECKING:
    from servers import Server

SCHEMA = "canal_bench"
TRAITS = SourceTraits(version=80401, collation="utf8mb4_0900_ai_ci")
CONTEXT = Context(schema="shop", collation_server="utf8mb4_0900_ai_ci")
SOURCE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TYPES = (
    *("bigint unsigned NOT NULL", "int", "varchar(64)", "varchar(128) NOT NULL"),
    *("decimal(12,2)", "tinyint(1)", "datetime(6)", "timestamp NULL", "text", "json"),
)
STATEMENTS_DURABLE = 500


def create_text(table: int, columns: int) -> str:
    """Return a CREATE TABLE text as the server gives it, names unlike others'."""
    lines = [f"  `id` {TYPES[0]}"]
    lines += [
        f"  `c{table % 500}_{number}` {TYPES[(table + number) % len(TYPES)]}"
        for number in range(1, columns)
    ]
    body = ",\n".join([*lines, "  PRIMARY KEY (`id`)"])
    return (
        f"CREATE TABLE `t{table}` (\n{body}\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
        " COLLATE=utf8mb4_0900_ai_ci"
    )


def statement(number: int, tables: int, chance: random.Random) -> str:
    """Return an ALTER of one of the tables; columns come and go."""
    table = chance.randrange(tables)
    if number % 2:
        return f"ALTER TABLE t{table} ADD COLUMN n{number} VARCHAR({number % 200 + 1})"
    return f"ALTER TABLE t{table} ADD KEY k{number} (id), MODIFY id BIGINT NOT NULL"


def base_of(tables: int, columns: int) -> list[StoredSchema]:
    """Return a base dump."""
    texts = tuple((f"t{n}", create_text(n, columns)) for n in range(tables))
    return [StoredSchema("shop", "utf8mb4_0900_ai_ci", texts)]


def measure_memory(tables: int, columns: int) -> None:
    """Print what a process with so many tables, all of them read, takes."""
    model = MemoryTableMeta(server_version=80401)
    model.load_database("shop", "utf8mb4_0900_ai_ci")
    started_s = time.perf_counter()
    for number in range(tables):
        model.load("shop", create_text(number, columns), f"t{number}")
        found = model.find("shop", f"t{number}")
        assert found is not None
        assert len(found.columns) == columns
    read_s = time.perf_counter() - started_s
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    mib = resident * os.sysconf("SC_PAGESIZE") / 1024 / 1024
    show(
        f"{tables:,} tables of {columns} columns, all read",
        f"{mib:.0f} MB resident, {tables / read_s:,.0f} tables/s",
        "500 MB",
        mib < 500,
    )


def measure_history(tables: int, ddls: int, columns: int) -> None:
    """Print how fast statements become durable, and how long a start takes."""
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE_NAME
        tsdb = TableMetaTsdb(SqliteHistoryStorage(path), Retention())
        tsdb.init("bench")
        first = EntryPosition("binlog.000001", 4, 1_700_000_000_000)
        segment = tsdb.begin(SOURCE, TRAITS, first, base_of(tables, columns))
        gap = ddls - STATEMENTS_DURABLE
        extra = CONTEXT.to_json()
        records = [
            made_record(position(n), "shop", statement(n, tables, chance), extra)
            for n in range(gap)
        ]
        segment = tsdb.extend(segment, records, last=position(gap))
        started_s = time.perf_counter()
        tsdb.rollback(position(gap), segment)
        replayed_s = time.perf_counter() - started_s
        rate = gap / replayed_s
        show("statements replayed, /s", f"{rate:,.0f}", "2,000", rate >= 2000)

        texts = [statement(n, tables, chance) for n in range(gap, ddls)]
        started_s = time.perf_counter()
        for number, text in enumerate(texts, gap):
            tsdb.apply(made_record(position(number), "shop", text, extra))
        applied_s = time.perf_counter() - started_s
        durable = STATEMENTS_DURABLE / applied_s
        show("statements applied and durable, /s", f"{durable:,.0f}", "", True)
        tsdb.close()
        size = sum(each.stat().st_size for each in Path(folder).iterdir())
        print(f"  the file: {size / 1024 / 1024:.0f} MB")
        start(path, ddls)


def start(path: Path, ddls: int) -> None:
    """Print how long it takes to stand at the end of a history again."""
    code = (
        "import sys,time;b=time.perf_counter();"
        "from table_history import *;i=time.perf_counter();"
        "t=TableMetaTsdb(SqliteHistoryStorage(Path(sys.argv[1])));t.init('bench');"
        "t.rollback(position(int(sys.argv[2])-1));t.find('shop','t1');"
        "print(time.perf_counter()-i)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(path), str(ddls)],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = float(found.stdout)
    show("start-up: open, roll back to the end", f"{seconds:.2f} s", "1 s", seconds < 1)


def measure_base(flavour: str, tables: int) -> None:
    """Print how long it takes to read the definitions of so many tables."""
    options = ["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"]
    with named_or_private(flavour, options) as server:
        server.execute(f"DROP DATABASE IF EXISTS {SCHEMA}", f"CREATE DATABASE {SCHEMA}")
        try:
            with server.connect(database=SCHEMA).cursor() as cursor:
                for number in range(tables):
                    cursor.execute(
                        create_text(number, 20).replace("0900_ai", "general")
                    )
            dump_base(server, tables)
        finally:
            server.execute(f"DROP DATABASE {SCHEMA}")


def dump_base(server: Server, tables: int) -> None:
    """Take a base dump and print what it took."""
    access = Access(
        address=Address(server.host, server.port),
        credentials=Credentials(server.user, server.password),
    )
    scanner = DdlScanner(InstanceConfig(destination="bench"), access, Stop())
    started_s = time.perf_counter()
    with ControlConnection(access) as control:
        dump = BaseDumper(control, read_server_info(control), scanner).take()
    took_s = time.perf_counter() - started_s
    assert sum(len(schema.tables) for schema in dump.schemas) >= tables
    show(
        f"base dump of {tables:,} tables, {server.flavour}", f"{took_s:.1f} s", "", True
    )


def position(number: int) -> EntryPosition:
    """Return where the nth statement begins."""
    file, offset = divmod(number, 1000)
    return EntryPosition(
        f"binlog.{file + 1:06}", 100 + offset * 200, 1_700_000_000_000 + number * 1000
    )


def show(what: str, figure: str, target: str, reached: bool) -> None:
    """Print a figure with its target."""
    mark = ("PASS" if reached else "miss") if target else "    "
    print(f"{mark}  {what}: {figure}{f' (target: {target})' if target else ''}")


def main() -> None:
    """Measure; memory in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--ddls", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--server", choices=["mysql", "mariadb"])
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        measure_memory(options.memory, options.columns)
        return
    subprocess.run(
        [
            sys.executable,
            __file__,
            "--memory",
            "100000",
            "--columns",
            str(options.columns),
        ],
        check=True,
    )
    measure_history(options.tables, options.ddls, options.columns)
    if options.server:
        measure_base(options.server, options.tables)


if __name__ == "__main__":
    main()
