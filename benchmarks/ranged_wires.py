"""Measures both forms of a ranged read: bytes, and the processor time of both sides.

    python benchmarks/ranged_wires.py [--rows N]

A private MySQL holds the load `inserts`; canal-server, a process, reads it again for
each form. This process makes record batches of it, typed and generic, and throws them
away: what an executor of Spark does. Processor time counts, as time on the clock
depends on whoever else is busy.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from loads import LOADS, SCHEMA, SERVER_OPTIONS, TABLE, Writer
from server_process import DESTINATION, ServerProcess, require_package

from canal_server.arrow.arrow_batches import generic_batches, typed_batches
from canal_server.arrow.arrow_columns import requested_column
from canal_server.client.range_client import Wire
from canal_server.model.columns_known import ColumnMeta
from canal_server.spark.options.servers import Channel
from canal_server.spark.options.source_options import read_options
from canal_server.spark.reading.raw_rows import rendered

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loads import Range

    from canal_server.arrow.arrow_batches import Batches

TICKS = os.sysconf("SC_CLK_TCK")
FILTER = rf"{SCHEMA}\.{TABLE}"


@dataclass
class Figures:
    """What one read took."""

    size: int
    server_s: float
    reader_s: float
    rows: int


def processor_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def settle(pid: int) -> None:
    """Wait until the server has read what it reads for itself."""
    before = -1.0
    while before != (now := processor_s(pid)):
        before = now
        time.sleep(1)


class Reads:
    """Reads of one load from a running server."""

    def __init__(self, load: Range, process: ServerProcess) -> None:
        self._process = process
        options = read_options(
            {
                "servers": "{}:{}".format(*process.address),
                "destination": DESTINATION,
            }
        )
        self._channel = Channel(options, DESTINATION)
        # It may take a moment until the server listens.
        self._client = self._channel.call(lambda client: client)
        positions = (
            f"file:{load.file}:{load.position}",
            f"file:{load.end_file}:{load.end}",
        )
        self._ends = [self._client.locate(DESTINATION, each) for each in positions]

    def kinds(self) -> dict[str, Callable[[], Batches]]:
        """Return what makes batches of each kind."""
        shown = self._client.schema(DESTINATION, SCHEMA, TABLE).columns
        columns = [
            requested_column(
                ColumnMeta(each.name, each.mysql_type, each.charset or None, each.key)
            )
            for each in shown
        ]
        return {
            "typed": lambda: typed_batches(SCHEMA, TABLE, columns),
            "generic": lambda: generic_batches(DESTINATION),
        }

    def read(self, wire: Wire, batches: Batches) -> Figures:
        """Read all once."""
        pid = self._process.pid
        size = rows = 0

        def counted() -> Iterator[memoryview]:
            nonlocal size
            for piece in self._client.read(
                DESTINATION, "", *self._ends, filter=FILTER, wire=wire
            ):
                size += len(piece)
                yield piece

        server_s, started = processor_s(pid), time.process_time()
        for piece in rendered(counted()):
            for batch in batches.feed(piece):
                rows += batch.num_rows
        rest = batches.rest()
        rows += rest.num_rows if rest is not None else 0
        reader_s = time.process_time() - started
        return Figures(size, processor_s(pid) - server_s, reader_s, rows)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    require_package()
    with (
        PrivateServer("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=True) as writer,
    ):
        load = writer.write(replace(LOADS[0], rows=options.rows))
        with ServerProcess(server, load) as process:
            reads = Reads(load, process)
            settle(process.pid)
            for kind, make in reads.kinds().items():
                for wire in Wire:
                    found = reads.read(wire, make())
                    per_row = 1e6 / found.rows
                    print(
                        f"{kind:8} {wire.name.lower():7} {found.rows:,} rows, "
                        f"{found.size / found.rows:6.0f} bytes a row; processor time, "
                        f"µs a row: server {found.server_s * per_row:.2f}, "
                        f"reader {found.reader_s * per_row:.2f}",
                        flush=True,
                    )
            reads.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
