"""Measures how fast entries become columns of Arrow, beside the same work in Python.

    python benchmarks/arrow_columns.py [--rows N] [--runs N] [--python-rows N]

The entries are those of the load `inserts` on a private MySQL, decoded beforehand and
kept in memory. One core, no wire; batches are made and thrown away.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loads import LOADS, SCHEMA, SERVER_OPTIONS, TABLE, Writer

from canal_server.arrow.arrow_batches import generic_batches, typed_batches
from canal_server.arrow.arrow_columns import requested_column
from canal_server.config.schema import FilterConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.table_ids import TableIds
from canal_server.filters.column_filters import ColumnFilter
from canal_server.mysql.cached_columns import CachedColumns
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.protocol.entry_messages import decode_entry
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_files import FileSource
from canal_server.source.read.binlog_reader import Reader

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from loads import Range

    from canal_server.arrow.arrow_batches import Batches
    from canal_server.model.columns_known import TableMeta

TARGETS = {"typed": 1_000_000, "generic": 400_000}  # rows/s on one core


class Load:
    """The entries of a load, as blocks of them, and the table's columns."""

    def __init__(self, server: PrivateServer, written: Range) -> None:
        access = Access(
            address=Address(server.host, server.port),
            credentials=Credentials(server.user, server.password),
        )
        self.rows = written.rows
        self.pieces: list[bytes] = []
        path = server.data_folder / written.file
        with ControlConnection(access) as control, FileSource(path) as source:
            images = CachedColumns(control)
            reader = Reader(
                BlockPool(),
                TableIds(),
                images,
                table_filter=lambda names: names[0][1] == TABLE,
                columns=ColumnFilter("", ""),
                filters=FilterConfig(),
                packets=False,
                until=written.end,
            )
            reader.start(path.name, 4)
            reader.run(source, self._take, lambda: None, Stop())
            meta = images.find(SCHEMA, TABLE)
        assert meta is not None
        self.meta: TableMeta = meta

    def _take(self, spans: Any) -> bool:
        self.pieces += [bytes(block.slice(first, stop)) for block, first, stop in spans]
        return True

    def first(self, rows: int) -> list[bytes]:
        """Return the pieces that hold about so many of the rows."""
        count = max(1, len(self.pieces) * rows // self.rows)
        return self.pieces[:count]

    def batches(self, kind: str) -> Batches:
        """Return new batches of a kind."""
        if kind.startswith("generic"):
            payload = "json" if kind.endswith("json") else "map"
            return generic_batches("bench", payload=payload)
        columns = [requested_column(column) for column in self.meta.columns]
        return typed_batches(SCHEMA, TABLE, columns)


def run_batches(batches: Batches, pieces: list[bytes]) -> tuple[int, int]:
    """Feed all; returns rows and bytes of Arrow."""
    rows = size = 0

    def count(batch: pa.RecordBatch) -> None:
        nonlocal rows, size
        rows += batch.num_rows
        size += batch.nbytes

    for piece in pieces:
        for batch in batches.feed(piece):
            count(batch)
    rest = batches.rest()
    if rest is not None:
        count(rest)
    return rows, size


def run_python(pieces: list[bytes]) -> int:
    """Read the entries in Python, and make a dictionary of each row; returns rows."""
    rows = []
    for piece in pieces:
        for raw in decode(Messages, piece).messages:
            entry = decode_entry(raw)
            if entry.header.table_name == TABLE:
                rows += [row.after for row in entry.row_change().row_datas]
    return len(rows)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of CPU that something took, and its result."""
    started = time.thread_time()
    result = work()
    return time.thread_time() - started, result


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; returns 0 whether or not the targets were reached."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--python-rows", type=int, default=20_000)
    options = parser.parse_args(arguments)

    with (
        PrivateServer("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=True) as writer,
    ):
        load = Load(server, writer.write(replace(LOADS[0], rows=options.rows)))
    total = sum(map(len, load.pieces))
    print(f"{load.rows:,} rows, {total / load.rows:.0f} bytes each as entries")

    for kind in ("typed", "generic", "generic, json"):
        rates = []
        for _ in range(options.runs):
            batches = load.batches(kind)
            seconds, (rows, size) = timed(lambda: run_batches(batches, load.pieces))  # noqa: B023
            assert rows == load.rows, (rows, load.rows)
            rates.append(rows / seconds)
        best, median = max(rates), sorted(rates)[len(rates) // 2]
        target = TARGETS.get(kind)
        verdict = f", target {target:,}" if target else ""
        print(
            f"{kind:14} {median:12,.0f} rows/s (best {best:,.0f}{verdict}), "
            f"{size / rows:.0f} bytes a row"
        )
    pieces = load.first(options.python_rows)
    seconds, rows = timed(lambda: run_python(pieces))
    print(f"{'in Python':14} {rows / seconds:12,.0f} rows/s, dictionaries of texts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
