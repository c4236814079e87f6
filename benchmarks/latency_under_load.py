"""From commit to client while much is written, alone and beside clients that catch up.

A private MySQL and a canal-server. A procedure of the server commits small transactions
at a pace, each with the time at which it began, and a client that has received all that
was before takes them. Measured is the time until a row has arrived: first while nobody
else is there, then while clients that lack a backlog of single-row transactions return
one after another, so that there is always one that catches up.
`python benchmarks/latency_under_load.py --help` shows the options; needs the package to
be installed, as `make bench` has it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from drain import DrainClient, DrainError
from group import drain_all
from late_readers import FIRST, LIVE, SETTINGS, take, wait_until_passed_over
from latency import BATCH_SIZE, LATE_SECONDS_MAX, WAITING_MS, Quantiles
from loads import LOADS, SCHEMA, SERVER_OPTIONS, Range, Writer
from run import machine, show
from server_process import DESTINATION, ServerProcess, require_package
from servers import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.pool import Pool

    from servers import Server

PER_SECOND = 20_000
SECONDS = 5
BACKLOG_ROWS = 300_000
CLIENTS = 12  # that return; more than catch up within the seconds
BURST = 20  # rows between two looks at the clock
PACE_MIN = 0.95  # of the pace that was asked for
MEDIAN_MS_MAX, P99_MS_MAX = 2.0, 10.0
TABLE = "paced"
MARK = re.compile(rb"paced-(\d+)@(\d+)@")

# The clock is asked for each row: NOW() would be the time of the CALL.
MICROSECONDS = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
CREATE_TABLE = f"""
    CREATE TABLE {TABLE} (
        id BIGINT UNSIGNED NOT NULL PRIMARY KEY, mark VARCHAR(64), note VARCHAR(255)
    )
"""
CREATE_PROCEDURE = f"""
    CREATE PROCEDURE insert_paced(IN first_id INT, IN stop_id INT, IN per_second INT)
    BEGIN
        DECLARE began BIGINT DEFAULT {MICROSECONDS};
        DECLARE id BIGINT DEFAULT first_id;
        DECLARE early BIGINT;
        WHILE id < stop_id DO
            INSERT INTO {TABLE} VALUES (
                id, CONCAT('paced-', id, '@', {MICROSECONDS}, '@'),
                CONCAT('a note on item number ', id)
            );
            SET id = id + 1;
            IF id % {BURST} = 0 THEN
                SET early = began + (id - first_id) * 1000000 DIV per_second
                    - {MICROSECONDS};
                IF early > 0 THEN DO SLEEP(early / 1000000); END IF;
            END IF;
        END WHILE;
    END
"""


def write_paced(server: Server, keys: range, per_second: int) -> None:
    """Have the server commit a row for each key at a pace."""
    connection = server.connect(database=SCHEMA, read_timeout=600)
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "CALL insert_paced(%s, %s, %s)", (keys.start, keys.stop, per_second)
        )


def latencies(client: DrainClient, keys: range, seconds: float) -> list[float]:
    """Receive the rows of the keys; return the seconds that each took to arrive.

    Raises DrainError.
    """
    bodies: list[tuple[float, bytes]] = []
    last = b"paced-%d@" % (keys.stop - 1)
    give_up_at = time.monotonic() + 4 * seconds + LATE_SECONDS_MAX
    while not bodies or last not in bodies[-1][1]:
        got = client.get_whole(BATCH_SIZE, WAITING_MS)
        now = time.time()
        if got is not None:
            frame, body = got
            client.ack(frame.batch_id)
            bodies.append((now, body))
        elif time.monotonic() > give_up_at:
            raise DrainError(f"row {keys.stop - 1} did not come")
    # Searched afterwards: what it costs is not the server's.
    sent = {
        int(key): (at, int(micros) / 1e6)
        for at, body in bodies
        for key, micros in MARK.findall(body)
    }
    return [sent[key][0] - sent[key][1] for key in keys]


class Bench:
    """A server, a client that stays, and others that lack the backlog."""

    def __init__(self, server: Server, process: ServerProcess, per_second: int) -> None:
        self._server, self._process = server, process
        self._per_second = per_second
        self._stop = 1  # the first key that was not written

    def prepare(self, writer: Writer, live: DrainClient, rows: int) -> None:
        """Subscribe those who return later, and write what they lack."""
        connection = self._server.connect(database=SCHEMA)
        with connection, connection.cursor() as cursor:
            cursor.execute(CREATE_TABLE)
            cursor.execute(CREATE_PROCEDURE)
        ids = range(FIRST, FIRST + CLIENTS)
        for client_id in ids:
            with DrainClient(
                self._process.address, DESTINATION, client_id=str(client_id)
            ) as client:
                client.subscribe()
        load = next(each for each in LOADS if each.name == "single")
        writer.write(replace(load, rows=rows))
        drain_all(live, 1)
        writer.recreate_table()
        wait_until_passed_over(self._process, ids)

    def measure(self, live: DrainClient, seconds: int) -> tuple[Quantiles, float]:
        """Write for so long; return the latency and the rows a second."""
        keys = range(self._stop, self._stop + seconds * self._per_second)
        self._stop = keys.stop
        writing = multiprocessing.get_context("fork").Process(
            target=write_paced, args=(self._server, keys, self._per_second)
        )
        began_at = time.monotonic()
        writing.start()
        found = latencies(live, keys, seconds)
        took_s = time.monotonic() - began_at
        writing.join()
        return Quantiles.of(found), len(keys) / took_s

    @contextmanager
    def catching_up(self) -> Iterator[list[int]]:
        """Have the others return in turn; yields the list of those that have."""
        done: list[int] = []
        with multiprocessing.get_context("fork").Pool(1) as pool:
            for client_id in range(FIRST, FIRST + CLIENTS):
                self._return(pool, client_id, done)
            yield done

    def _return(self, pool: Pool, client_id: int, done: list[int]) -> None:
        pool.apply_async(
            take,
            (self._process.address, client_id, 1),
            callback=lambda _: done.append(client_id),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; status 1 when it takes longer than it may."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--per-second", type=int, default=PER_SECOND, help="(default: %(default)d)")
    add("--seconds", type=int, default=SECONDS, help="(default: %(default)d)")
    add("--rows", type=int, default=BACKLOG_ROWS, help="(default: %(default)d)")
    args = parser.parse_args(arguments)
    show(f"canal_server: {require_package()}")
    with ExitStack() as stack:
        server = stack.enter_context(PrivateServer("mysql", SERVER_OPTIONS))
        writer = stack.enter_context(Writer(server, ours=True))
        writer.recreate_table()
        here = Range(LOADS[0], 0, *server.binlog_position(), "", "", 0)
        wiring = "classpath:spring/file-instance.xml"
        process = stack.enter_context(
            ServerProcess(server, here, wiring=wiring, settings=SETTINGS)
        )
        live = stack.enter_context(
            DrainClient(process.address, DESTINATION, client_id=str(LIVE))
        )
        live.subscribe()
        bench = Bench(server, process, args.per_second)
        print(machine(server))
        bench.prepare(writer, live, args.rows)
        alone, pace = bench.measure(live, args.seconds)
        with bench.catching_up() as done:
            busy, busy_pace = bench.measure(live, args.seconds)
            caught_up = len(done)
    for when, found, reached in (
        ("alone", alone, pace),
        (f"while {caught_up} clients caught up", busy, busy_pace),
    ):
        print(
            f"{reached:,.0f} transactions a second, {when}: median"
            f" {found.median:.2f} ms, 99 % {found.p99:.2f} ms,"
            f" at most {found.highest:.0f} ms"
        )
    if caught_up == CLIENTS:
        print("all had caught up before the end: give --rows")
        return 1
    if min(pace, busy_pace) < PACE_MIN * args.per_second:
        print("the source did not keep the pace: this machine is too slow for it")
        return 1
    is_fast = busy.median <= MEDIAN_MS_MAX and busy.p99 <= P99_MS_MAX
    print("within its limits" if is_fast else "slower than it may be")
    return int(not is_fast)


if __name__ == "__main__":
    raise SystemExit(main())
