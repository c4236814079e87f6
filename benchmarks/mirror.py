"""Measures the mirror: copying a table into Delta, following it, how late it is.

    python benchmarks/mirror.py [--quick] [--rows N] [--changes N] [--seconds S]
                                [--no-jdbc] [--keep FOLDER]

A private MySQL, canal-server and `canal-server mirror` as processes, with Spark as
local[2], share the machine. First the table is copied, by Spark's own JDBC reader into
Parquet files and by the mirror into a Delta table; both count from when their session
stands. Then changes that were made while the mirror was down are applied; then rows
are updated at a steady pace, and each counts until the lake has it. Then the table is
swapped as gh-ost does it, and copied again unchanged. In the end source and copy are
compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jdbc_copy import find_driver, url_of
from loads import LOADS, SCHEMA, SERVER_OPTIONS, TABLE, Writer
from mirror_load import PositionWatch, measure_delays
from mirror_swaps import copy_unchanged, swap
from results import Verdict
from server_process import DESTINATION, ServerProcess, require_package
from spark_source import require_spark, show
from tree_memory import TreeMemory

from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.state.run_history import read_history

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from mirror_process import NAME, MirrorProcess
from server_folders import Unavailable
from servers import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loads import Range
    from mirror_load import Delays
    from servers import Server

COPY_RATE = 150_000  # rows/s
CHANGE_RATE = 50_000
DELAY_MS_MAX = 3_000
MEMORY_MAX = 4 << 30
PER_SECOND = 1_000  # rows that are updated
NEWEST = 50_000  # keys within which the first of them are
TASKS = 4  # connections, of both ways to copy
PATIENCE_S = 1_800.0
POSITIONS = "canal-mirror/"  # begins the transactions of a Delta log with positions
SETTINGS = rf"""
tables:
  - match: {SCHEMA}\.{TABLE}
copy:
  connections: {TASKS}
spark:
  spark.master: local[2,4]
  spark.driver.memory: 1g
  spark.python.authenticate.socketTimeout: 120s  # the machine may be busy
"""


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy: its rows, and how long it took."""

    rows: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


class Subject:
    """A mirror of the table, and what its lake reports."""

    def __init__(self, process: MirrorProcess) -> None:
        self.process = process
        self.path = process.lake / SCHEMA / TABLE
        self._log = self.path / "_delta_log"
        self._next = 0  # version of the Delta table
        self._position = -1

    @property
    def phase(self) -> str:
        """What the mirror does with the table; empty before it knows it."""
        return self.phase_of(TABLE)

    def phase_of(self, table: str) -> str:
        """Return what the mirror does with a table; empty before it knows it."""
        return str(self._state(table).get("phase", ""))

    def copies(self) -> int:
        """Return how often the table was copied."""
        return int(self._state().get("copies", 0))

    def is_copied(self, times: int) -> bool:
        """Return whether it was copied so often, and follows the stream."""
        return self.copies() >= times and self.phase == "following"

    def copy(self) -> None:
        """Request another copy of the table."""
        status, output = self.process.run("copy", f"{SCHEMA}.{TABLE}")
        assert status == 0, output

    @property
    def epoch(self) -> int:
        """The number of the source, in positions."""
        return int(self._state()["place"]["epoch"])

    def _state(self, table: str = TABLE) -> dict[str, Any]:
        path = self.process.state / "tables" / f"{SCHEMA}.{table}.json"
        try:
            return dict(json.loads(path.read_text()))
        except FileNotFoundError:
            return {}

    def is_published(self) -> bool:
        """Return whether readers see the copy."""
        return (self._log / f"{0:020}.json").exists()

    def position(self) -> int:
        """Return the number of the position up to which changes are in the lake."""
        while True:
            try:
                text = (self._log / f"{self._next:020}.json").read_text()
            except FileNotFoundError:
                return self._position
            self._next += 1
            actions = [json.loads(line) for line in text.splitlines()]
            applied = [
                each["txn"]["version"]
                for each in actions
                # Others have what is no position.
                if each.get("txn", {}).get("appId", "").startswith(POSITIONS)
            ]
            self._position = max([self._position, *applied])

    def wait(self, done: Callable[[], bool], what: str) -> float:
        """Return when a condition became true."""
        self.process.wait(done, what, PATIENCE_S)
        return time.monotonic()

    def rates(self, since_ms: int) -> tuple[int, float]:
        """Return how many rows batches wrote since then, and in how many seconds."""
        lake = LakeSettings(path=str(self.process.lake))
        batches = [
            each
            for each in read_history(open_folder(lake, f"_mirror/{NAME}"))
            if each.rows and each.at_ms >= since_ms
        ]
        if not batches:
            return 0, 0.0
        begin_ms = min(each.at_ms - each.seconds * 1000 for each in batches)
        end_ms = max(each.at_ms for each in batches)
        return sum(each.rows for each in batches), (end_ms - begin_ms) / 1000


def copy_by_jdbc(server: Server, rows: int, folder: Path) -> Copied | str:
    """Copy the table as people do otherwise; returns why not where that cannot be."""
    try:
        driver = find_driver()
    except Unavailable as error:
        return str(error)
    job = {
        "driver": str(driver),
        "url": url_of(server.host, server.port, SCHEMA),
        "user": server.user,
        "password": server.password,
        "table": TABLE,
        "key": "id",
        "rows": rows,
        "tasks": TASKS,
        "folder": str(folder / "jdbc"),
    }
    path = folder / "job.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(job))
    script = Path(__file__).with_name("jdbc_copy.py")
    done = subprocess.run(
        [sys.executable, str(script), str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return f"it failed: {(done.stderr.splitlines() or ['?'])[-1]}"
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == rows
    return Copied(rows, found["seconds"])


def copy_by_mirror(subject: Subject, rows: int) -> Copied:
    """Wait until the mirror has copied the table, and follows it."""
    started = subject.wait(lambda: subject.phase == "copying", "the copy's begin")
    copied = Copied(rows, subject.wait(subject.is_published, "the copy") - started)
    show(f"  mirror: {copied.rate:,.0f} rows/s")
    subject.wait(lambda: subject.phase == "following", "the stream")
    return copied


def take_in(
    subject: Subject, server: Server, name: str, call: tuple[str, int, int]
) -> Verdict:
    """Change rows while the mirror is down, and let it take them in."""
    subject.process.stop()
    procedure, first, stop = call
    with server.connect(database=SCHEMA, read_timeout=1800) as connection:
        connection.cursor().execute(f"CALL {procedure}(%s, %s)", (first, stop))
    since_ms = round(time.time() * 1000)
    subject.process.launch()
    expected = stop - first
    subject.wait(lambda: subject.rates(since_ms)[0] >= expected, f"{expected:,} {name}")
    rows, seconds = subject.rates(since_ms)
    rate = rows / seconds
    show(f"  {name}: {rate:,.0f} rows/s")
    measured = f"{rate:,.0f} rows/s, {rows:,} in {seconds:.1f} s"
    target = f"{CHANGE_RATE:,} rows/s"
    return Verdict(f"{name} applied", target, measured, rate >= CHANGE_RATE)


def delays(
    subject: Subject, server: Server, rows: int, seconds: float
) -> Iterator[tuple[str, Delays]]:
    """Update rows steadily, within the newest keys and spread over all."""
    newest = range(max(1, rows - NEWEST), rows)
    for name, keys in (
        (f"within the newest {len(newest):,} keys", newest),
        (f"spread over {rows:,} keys", range(1, rows)),
    ):
        with PositionWatch(subject.position) as watch:
            # The first ones warm up what has just started.
            pace = PER_SECOND, seconds / 4
            measure_delays(server, watch, keys, pace, subject.epoch)
            pace = PER_SECOND, seconds
            found = measure_delays(server, watch, keys, pace, subject.epoch)
        show(f"  {name}: {found}")
        yield name, found


def measure(
    server: Server, process: ServerProcess, folder: Path, options: argparse.Namespace
) -> Iterator[Verdict | str]:
    """Yield what is found, one after the other."""
    mirror = MirrorProcess(
        folder, server, process.address, destination=DESTINATION, tables=SETTINGS
    )
    subject = Subject(mirror)
    other = (
        "left out" if options.no_jdbc else copy_by_jdbc(server, options.rows, folder)
    )
    beside = other if isinstance(other, str) else f"{other.rate:,.0f} rows/s"
    yield f"      Spark's JDBC reader into Parquet files: {beside}"
    with ExitStack() as stack:
        stack.callback(mirror.stop)
        mirror.launch()
        memory = stack.enter_context(TreeMemory(mirror.pid))
        copied = copy_by_mirror(subject, options.rows)
        measured = f"{copied.rate:,.0f} rows/s, {copied.seconds:.1f} s"
        target, reached = f"{COPY_RATE:,} rows/s", copied.rate >= COPY_RATE
        yield Verdict("copied into a Delta table", target, measured, reached)
        first, rows = options.rows + 1, options.rows + options.changes
        yield take_in(subject, server, "inserts", ("fill", first, rows + 1))
        stack.enter_context(last := TreeMemory(mirror.pid))
        yield take_in(subject, server, "updates", ("update_all", first, rows + 1))
        stack.enter_context(final := TreeMemory(mirror.pid))
        for name, found in delays(subject, server, rows, options.seconds):
            what = f"commit to lake at {PER_SECOND:,} rows/s {name}"
            if "newest" in name:
                reached = found.reached(DELAY_MS_MAX)
                yield Verdict(what, f"99 % {DELAY_MS_MAX:,} ms", str(found), reached)
            else:
                yield f"      {what}: {found}"
        yield swap(subject, server, rows)
        yield copy_unchanged(subject, rows)
        started = time.monotonic()
        status, output = mirror.run("verify")
        seconds = time.monotonic() - started
        show(output)
        yield Verdict("verify", "equal", f"{seconds:.0f} s", status == 0)
        highest = max((memory, last, final), key=lambda each: each.highest)
        yield memory_verdict(highest)


def memory_verdict(memory: TreeMemory) -> Verdict:
    """Compare what driver and executors held with what they may."""
    parts = ", ".join(
        f"{name} {size / 2**20:,.0f}" for name, size in memory.parts.items()
    )
    measured = f"{memory.highest / 2**20:,.0f} MiB ({parts})"
    reached = memory.highest < MEMORY_MAX
    return Verdict(
        "memory at its highest", f"{MEMORY_MAX >> 20:,} MiB", measured, reached
    )


def after(load: Range) -> Range:
    """Return what a server reads that begins after a load."""
    return replace(load, file=load.end_file, position=load.end)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 0 whether or not the targets were reached."""
    options = _parse(arguments)
    require_package()
    require_spark()
    with (
        tempfile.TemporaryDirectory(prefix="canal-bench-") as folder,
        PrivateServer("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=True) as writer,
    ):
        load = writer.write(replace(LOADS[0], rows=options.rows))
        with ServerProcess(server, after(load)) as process:
            where = options.keep or Path(folder)
            where.mkdir(parents=True, exist_ok=True)
            for found in measure(server, process, where.absolute(), options):
                print(found, flush=True)
            memory = process.memory()
    print(f"canal-server held {memory.highest / 2**20:,.0f} MiB at most")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], allow_abbrev=False
    )
    add = parser.add_argument
    add("--rows", type=int, default=0, help="to copy (5,000,000)")
    add("--changes", type=int, default=0, help="to take in, of a kind (1,000,000)")
    add("--seconds", type=float, default=0, help="of steady updates (30)")
    add("--quick", action="store_true", help="a few hundred thousand rows")
    add("--no-jdbc", action="store_true", help="leave out Spark's own JDBC reader")
    add("--keep", type=Path, metavar="FOLDER", help="for files that stay")
    options = parser.parse_args(arguments)
    options.rows = options.rows or (300_000 if options.quick else 5_000_000)
    options.changes = options.changes or (100_000 if options.quick else 1_000_000)
    options.seconds = options.seconds or (8 if options.quick else 30)
    return options


if __name__ == "__main__":
    sys.exit(main())
