"""A server ends amid writing its index of boundaries: what is found by it is right."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from fix_failover import TickingWriter
from fix_pipeline import POLL_S, UNIT_S
from fix_random import longer
from fix_source_access import access_of
from load import Load, allow_from, receive_until_broken, stored_cursor

from canal_server.config.schema import InstanceConfig
from canal_server.runtime.lifecycle import Stop
from canal_server.source.begin.boundary_index import FILE_NAME, BoundaryIndex
from canal_server.source.begin.search import BinlogSearch
from canal_server.source.read.binlog_scan import Scanner

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from fix_pipeline import Pipeline
    from servers import PrivateServer

TIMES = 2  # that are looked for after each kill


class RotatingWriter(TickingWriter):
    """Begins a binlog file with each call: marks are written at the end of each."""

    def write(self, count: int, *, rows: int | None = None) -> None:
        """Write transactions and end the file."""
        super().write(count, rows=rows)
        self._server.execute("FLUSH BINARY LOGS")


def test_killed(
    own_server: Callable[[str], PrivateServer],
    make_pipeline: Callable[..., Pipeline],
    rng: random.Random,
) -> None:
    """Killed amid its writes, it goes on with whole marks; zeroed, with a new file."""
    server = own_server("mysql")
    server.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
    pipeline = make_pipeline(server, "shop", {"canal.file.flush.period": 20})
    writer = RotatingWriter(server, "shop", rng)
    checker = pipeline.checker(writer)
    path = pipeline.meta_file.with_name(FILE_NAME)
    pipeline.start()
    with ThreadPoolExecutor(1) as killers:
        for _ in range(longer(2)):
            with Load(writer):
                writes = rng.randint(10, 25)
                killed = killers.submit(kill_amid_writes, pipeline, path, writes)
                receive_until_broken(pipeline, checker, rng)
                killed.result()
            marks = check_index(server, path, writer, rng)
            print(f"killed with {checker.done} done, {marks} marks in the index")
            allow_from(stored_cursor(pipeline), checker)
            pipeline.start()
            assert not log_of_index(pipeline)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    pipeline.stop()
    path.write_bytes(bytes(path.stat().st_size))
    acked = checker.done
    checker.resume(acked, acked)
    pipeline.start()
    pipeline.process.wait_for_log("recreating the index of boundaries")
    writer.write(5)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    pipeline.stop()
    assert check_index(server, path, writer, rng)


def kill_amid_writes(pipeline: Pipeline, path: Path, count: int) -> None:
    """Kill the server when its index has grown so many times, and grows on."""
    wal = path.with_name(f"{path.name}-wal")
    give_up_at = time.monotonic() + 3 * UNIT_S
    last: object = None
    for _ in range(count):
        while (now := _state(wal)) == last:
            assert time.monotonic() < give_up_at, "the index is not written to"
            time.sleep(POLL_S / 10)
        last = now
    pipeline.kill()


def _state(path: Path) -> object:
    if not path.exists():
        return None
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def log_of_index(pipeline: Pipeline) -> list[str]:
    """Return what the server had to say against its index."""
    return [line for line in pipeline.process.log if "index of boundaries" in line]


def check_index(
    server: PrivateServer, path: Path, writer: TickingWriter, rng: random.Random
) -> int:
    """Compare the index with the binlog, and searches with it with those without it."""
    ((uuid,),) = server.execute("SELECT @@server_uuid")
    files = [str(row[0]) for row in server.execute("SHOW BINARY LOGS")]
    index = BoundaryIndex(path, read_only=True)
    index.open()
    try:
        marks = sum(_check_file(server, index, str(uuid), file) for file in files)
        scanner = Scanner(
            InstanceConfig(destination="search"), access_of(server), Stop()
        )
        with_it, without = (
            BinlogSearch(scanner, mariadb=False, source=str(uuid), index=each)
            for each in (index, None)
        )
        for _ in range(TIMES):
            time_ms = (writer.now_s - rng.randrange(len(files))) * 1000
            found = with_it.boundary_before(files, time_ms)
            expected = without.boundary_before(files, time_ms)
            assert found is not None
            assert expected is not None
            assert (found.file, found.offset) == (expected.file, expected.offset)
    finally:
        index.close()
    return marks


def _check_file(
    server: PrivateServer, index: BoundaryIndex, source: str, file: str
) -> int:
    """Compare the marks of one file with its events; return how many there are."""
    key = index.key_of(source, file)
    marks = index.marks(key) if key else []
    if not marks:
        return 0
    events = server.execute(f"SHOW BINLOG EVENTS IN '{file}'")
    ends = [int(row[4]) for row in events if row[2] == "Xid"]
    reached = 0
    for mark in marks:
        assert reached <= mark.start < mark.stop
        assert mark.stop in ends
        assert mark.transactions == sum(mark.start < end <= mark.stop for end in ends)
        reached = mark.stop
    return len(marks)
