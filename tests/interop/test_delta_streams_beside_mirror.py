"""Streams of Spark's Delta connector go on beside a mirror, whatever happens to it.

Rows are written all the time. After each step the streams' copies equal the source. A
stream may end only where the documents say so, and the mirror did.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest
from fix_interop import SWITCH
from schema_changes import cut_over, gh_ost, run
from steady_writes import Writes
from table_streams import TableStream, as_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from fix_delta_streams import DeltaStreams
    from fix_mirror_process import MirrorProcess
    from table_streams import Row

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(0),
    pytest.mark.skipif(SWITCH not in os.environ, reason=f"{SWITCH}=1 runs it"),
]

SCHEMA = "shop"
TABLES = ("orders", "events")  # of the second one, rows are only added
CREATE = "CREATE TABLE {} (id INT PRIMARY KEY, n INT, name VARCHAR(20))"
FILL = (
    "INSERT INTO {} WITH RECURSIVE s AS (SELECT 1 i UNION ALL SELECT i + 1 FROM s "
    "WHERE i < 900) SELECT i, i % 7, CONCAT('row ', i) FROM s"
)
ENOUGH = 20  # transactions after each step


class Step(NamedTuple):
    """Something that happens, and what the documents say of its streams.

    `is_beside`: whether the streams run meanwhile, or are started afterwards. `ends`:
    the tables whose streams end. `spares`: those of whose streams that is said, too,
    but not of those that run. `interrupts`: those whose streams may end if they run,
    and continue when they are started again. `skips`: tables with commits that have
    updates beside new rows, so that streams of the table skip both: they lack rows
    that were written meanwhile, and no others.
    """

    name: str
    do: Callable[[Scene], None]
    is_beside: bool = True
    ends: tuple[str, ...] = ()
    spares: tuple[str, ...] = ()
    interrupts: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()


class Scene:
    """A mirror of two tables, and streams of both: of the table and of the feed."""

    def __init__(
        self, mirror: MirrorProcess, writes: Writes, streams: DeltaStreams
    ) -> None:
        self.mirror = mirror
        self.writes = writes
        self.problems: list[str] = []
        # What a stream of `events` need not give: ids, and columns up to an id.
        self._skipped: set[int] = set()
        self._empty_up_to: dict[str, int] = {}
        self._known = self._events()
        self.streams = [
            TableStream(streams, mirror.path / SCHEMA / table, feed=feed)
            for table in TABLES
            for feed in (True, False)
        ]

    def take(self, step: Step) -> None:
        """Have something happen, and compare what comes of it."""
        print(f"{time.strftime('%X')} {step.name}")
        if not step.is_beside:
            for stream in self.streams:
                stream.stop()
        before = self._log()
        step.do(self)
        self.write_some()
        self.settle(step, before)

    def settle(self, step: Step, before: list[str]) -> None:
        """Compare lake and streams with the source, while nothing is written."""
        with self.writes.rest():
            self.mirror.agree(**dict.fromkeys(TABLES, ("id",)))
            log = self._log()
            said = log[len(before) :] if log[: len(before)] == before else log
            events = self._events()
            written = events.keys() - self._known.keys()
            if "events" in step.skips:
                self._skipped |= written
            (columns, *_), (before_it, *_) = events.values(), self._known.values()
            for name in columns.keys() - before_it.keys():
                self._empty_up_to[name] = max(events)
            self._known = events
            warned = [t for t in TABLES if any(is_warning(line, t) for line in said)]
            if warned != [*(step.ends or step.spares)]:
                self.report(f"{step.name}: warnings of {warned}")
            for stream in self.streams:
                self._check(stream, step)

    def _check(self, stream: TableStream, step: Step) -> None:
        """Check what has become of a stream, and the rows that it has given."""
        where = f"{step.name}: {stream}"
        stream.interruptions.clear()
        error = stream.settle()
        print(where, stream.interruptions, error)
        if bool(error) != (stream.table in step.ends):
            self.report(f"{where} has ended: {error!r}")
        if stream.interruptions and stream.table not in step.ends + step.interrupts:
            self.report(f"{where} had to be started again: {stream.interruptions}")
        if error:
            stream.start_anew()
            if error := stream.settle():
                self.report(f"{where} does not start: {error}")
        self._compare(stream, where)

    def _compare(self, stream: TableStream, where: str) -> None:
        """Compare the rows of a stream with the source.

        A stream of a table has no updates, nor values of columns that are added later;
        one that ran when a column was dropped still has that column. All commits of
        `orders` have updates: a stream of it gives nothing to compare, and goes on.
        """
        if stream.table == "orders" and not stream.feed:
            return
        truth = self._truth(stream.table)
        wrong = [
            f"{key}: {stream.rows.get(key)} for {truth.get(key)}"
            for key in sorted(stream.rows.keys() | truth.keys())
            if not self._is_right(stream, key, truth.get(key))
        ]
        if wrong:
            self.report(f"{where}: {len(wrong)} rows, the first ones {wrong[:3]}")
            stream.stop()
            stream.start_anew()  # for what comes next
            stream.settle()

    def _is_right(self, stream: TableStream, key: int, truth: Row | None) -> bool:
        """Check a row that a stream has given, or that the source has."""
        row = stream.rows.get(key)
        if truth is None:
            return False
        if row is None:
            return not stream.feed and key in self._skipped
        wrong = {name for name, value in truth.items() if row.get(name) != value}
        if stream.feed:
            return not wrong
        return all(
            row.get(name) is None and key <= self._empty_up_to.get(name, 0)
            for name in wrong
        )

    def _events(self) -> dict[int, Row]:
        return self._truth("events")

    def _truth(self, table: str) -> dict[int, Row]:
        return {
            int(str(key)): {name: as_text(value) for name, value in row.items()}
            for (key,), row in self.mirror.truth(table, "id").items()
        }

    def report(self, problem: str) -> None:
        """Note what is wrong; the test goes on, and fails at its end."""
        print(problem)
        self.problems.append(problem)

    def write_some(self) -> None:
        """Wait until some more rows are written."""
        enough = self.writes.commits + ENOUGH
        self.mirror.wait_for(
            lambda: self.writes.commits >= enough or not self.writes.is_well,
            "writing",
        )
        assert self.writes.is_well

    def copied(self, *tables: str) -> Callable[[], bool]:
        """Return a check whether tables are copied once more than now."""
        before = {table: self.mirror.state(table)["copies"] for table in tables}
        return lambda: all(
            self.mirror.state(table)["copies"] > before[table]
            and follows(self.mirror, table)
            for table in tables
        )

    def _log(self) -> list[str]:
        process = self.mirror.process
        return [*process.log] if process else []


def follows(mirror: MirrorProcess, table: str) -> bool:
    """Check whether a table follows the stream."""
    return mirror.phase_of(table)[0] == "following"


def is_warning(line: str, table: str) -> bool:
    """Return whether a line of the log says that a table's streams end."""
    return "mirror-table-ends-streams" in line and f"{SCHEMA}.{table}:" in line


# --- what happens ---------------------------------------------------------------------


def of_both(statement: str) -> Callable[[Scene], None]:
    """Return a statement on each table."""

    def do(scene: Scene) -> None:
        run(scene.mirror, *(statement.format(table) for table in TABLES))

    return do


def of_orders(*statements: str, copies: bool = False) -> Callable[[Scene], None]:
    """Return statements, after which the table is copied again or not."""

    def do(scene: Scene) -> None:
        is_copied = scene.copied("orders")
        run(scene.mirror, *statements)
        if copies:
            scene.mirror.wait_for(is_copied, "the copy")

    return do


def not_null(scene: Scene) -> None:
    """Make a column NOT NULL, which has the table copied again."""
    is_copied = scene.copied("orders")
    with scene.writes.rest():  # they would deadlock with the first statement
        run(scene.mirror, "UPDATE orders SET note = '' WHERE note IS NULL")
    run(
        scene.mirror,
        "ALTER TABLE orders MODIFY note VARCHAR(60) NOT NULL DEFAULT 'none'",
    )
    scene.mirror.wait_for(is_copied, "the copy")


def swap(scene: Scene) -> None:
    """Change the table as gh-ost does it."""
    mirror = scene.mirror
    found = mirror.source.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'orders'"
        f" AND table_schema = '{SCHEMA}' AND generation_expression = ''"
    )
    columns = ", ".join(name for (name,) in found)
    for statement in gh_ost(mirror, "ADD COLUMN swapped INT", columns):
        run(mirror, statement)
    cut_over(mirror, columns)
    run(mirror, "DROP TABLE IF EXISTS _orders_del")


def there_and_back(scene: Scene) -> None:
    """Give the table another name for a while: its folder moves, the streams follow."""
    mirror = scene.mirror
    streams = [stream for stream in scene.streams if stream.table == "orders"]
    for old, new in (("orders", "purchases"), ("purchases", "orders")):
        run(mirror, f"RENAME TABLE {old} TO {new}")
        mirror.wait_for(partial(follows, mirror, new), f"{new}, moved")
        for stream in streams:
            stream.stop()
            stream.path = mirror.path / SCHEMA / new
            # Nothing is written meanwhile, as there is no table `orders`.
            if new == "purchases" and (error := stream.settle()):
                scene.report(f"{stream} of {new} has ended: {error}")


def copy(scene: Scene) -> None:
    """Copy the tables again, one of them with a row that the binlog does not have."""
    mirror = scene.mirror
    is_copied = scene.copied(*TABLES)
    with scene.writes.rest():
        run(
            mirror,
            "SET SESSION sql_log_bin = 0",
            "UPDATE orders SET name = 'unlogged' WHERE id < 4",
        )
    request_copies(mirror)
    mirror.wait_for(is_copied, "the copies")


def copy_and_kill(scene: Scene) -> None:
    """Kill the mirror while tables are copied again."""
    mirror = scene.mirror
    is_copied = scene.copied(*TABLES)
    request_copies(mirror)
    mirror.wait_for(
        lambda: not all(follows(mirror, table) for table in TABLES),
        "the beginning of a copy",
    )
    mirror.kill()
    mirror.start(wait=False)
    mirror.wait_for(is_copied, "the copies")


def request_copies(mirror: MirrorProcess) -> None:
    """Request copies of the tables."""
    names = (f"{SCHEMA}.{table}" for table in TABLES)
    mirror.command("copy", *names).check_returncode()


def kill_mirror(scene: Scene) -> None:
    """Kill the mirror, and start it again when more is written."""
    scene.mirror.kill()
    scene.write_some()
    scene.mirror.start(wait=False)


def kill_server(scene: Scene) -> None:
    """Kill canal-server, and start it again when more is written."""
    scene.mirror.pipeline.kill()
    scene.write_some()
    scene.mirror.pipeline.start()


def kill_source(scene: Scene) -> None:
    """Kill the database, and start it again."""
    scene.mirror.source.kill()
    scene.mirror.source.restart()


STEPS = (
    Step("the beginning", Scene.write_some, is_beside=False),
    Step(
        "a column with a default is added",
        of_both("ALTER TABLE {} ADD COLUMN price DECIMAL(9,2) NOT NULL DEFAULT 1.50"),
        interrupts=TABLES,
    ),
    Step(
        "a column is added in the middle",
        of_both("ALTER TABLE {} ADD COLUMN note VARCHAR(20) AFTER id"),
        interrupts=TABLES,
    ),
    Step("the mirror is killed", kill_mirror, is_beside=False),
    Step(
        "another default, a longer text, an index",
        of_both(
            "ALTER TABLE {} ALTER COLUMN price SET DEFAULT 2.50, MODIFY note "
            "VARCHAR(60) DEFAULT 'of the table', ADD INDEX by_n (n)"
        ),
    ),
    Step("copies", copy),
    Step("copies, and a kill", copy_and_kill, is_beside=False),
    Step("gh-ost", swap, interrupts=("orders",)),
    Step("the server is killed", kill_server),
    Step(
        "a generated column that the mirror computes",
        of_orders("ALTER TABLE orders ADD COLUMN twice BIGINT AS (n * 2) STORED"),
        interrupts=("orders",),
    ),
    Step(
        "a generated column that is copied",
        of_orders(
            "ALTER TABLE orders ADD COLUMN code VARCHAR(20) AS (HEX(n)) STORED",
            copies=True,
        ),
        is_beside=False,
    ),
    Step("the table is emptied", of_orders("TRUNCATE TABLE orders")),
    Step("the table has another name", there_and_back),
    Step(
        "a wider type",
        of_both("ALTER TABLE {} MODIFY n BIGINT"),
        ends=TABLES,
    ),
    Step("the source is killed", kill_source),
    Step(
        "NOT NULL",
        not_null,
    ),
    Step(
        "a column has another name",
        of_both("ALTER TABLE {} RENAME COLUMN note TO remark"),
        ends=TABLES,
    ),
    Step(
        "a column is dropped",
        of_both("ALTER TABLE {} DROP COLUMN name"),
        is_beside=False,
        ends=TABLES,
    ),
    Step(
        "a column is dropped beside the streams",
        of_both("ALTER TABLE {} DROP COLUMN remark"),
        spares=TABLES,
    ),
    Step("the streams are started again", Scene.write_some, is_beside=False),
    Step(
        "the table is created anew",
        of_orders(
            "CREATE TABLE orders_new_one LIKE orders",
            "DROP TABLE orders",
            "CREATE TABLE orders LIKE orders_new_one",
            "DROP TABLE orders_new_one",
        ),
    ),
)


def test_streams_go_on(own_server, make_mirror, delta_streams) -> None:
    """Statements, copies and kills end no stream, but those that are told to."""
    source = own_server("mysql")
    source.execute(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
    mirror = make_mirror(source, SCHEMA)
    for table in TABLES:
        run(mirror, CREATE.format(table), FILL.format(table))
    mirror.start()
    mirror.agree(**dict.fromkeys(TABLES, ("id",)))
    with Writes(source, SCHEMA) as writes:
        scene = Scene(mirror, writes, delta_streams)
        for step in STEPS:
            scene.take(step)
    print([str(stream) for stream in scene.streams], f"{writes.commits} transactions")
    mirror.stop()
    assert scene.problems == []
