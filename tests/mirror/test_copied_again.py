"""Tables copied from a replica, and one of them again, while the others continue."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest
from change_logs import folded
from fix_random import longer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fix_mirror_process import MirrorProcess
    from fix_pipeline import Pipeline
    from fix_replicas import Replicas
    from servers import PrivateServer

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(0)]

ACCOUNT = "copier"  # of the replica alone
CONNECTIONS = 4
ROWS = 2_000
SERIES = (
    "WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 500) "
    "SELECT i, 0 FROM n"
)
IDS = f"SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{ACCOUNT}'"


class Connections:
    """Counts the connections of an account repeatedly.

    A closed connection is visible for a moment: it counts those seen twice.
    """

    def __init__(self, server: PrivateServer) -> None:
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.most = 0

    def _run(self) -> None:
        before: set[int] = set()
        with self._server.connect() as connection, connection.cursor() as cursor:
            while not self._ended.wait(0.1):
                cursor.execute(IDS)
                now = {number for (number,) in cursor.fetchall()}
                self.most = max(self.most, len(before & now))
                before = now

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture
def mirror(
    replicas: Replicas,
    replicated_schema: str,
    make_pipeline: Callable[..., Pipeline],
    mirror_of: Callable[..., MirrorProcess],
) -> MirrorProcess:
    """Give a mirror that follows the source, and reads rows from the replica."""
    schema = replicated_schema
    pipeline = make_pipeline(replicas.source, schema)
    pipeline.start()
    pipeline.keep_port()
    mirror = mirror_of(pipeline)
    replicas.replica.execute(
        "SET SESSION sql_log_bin = 0",
        f"CREATE USER {ACCOUNT}@'%' IDENTIFIED BY 'its-own'",
        f"GRANT SELECT ON *.* TO {ACCOUNT}@'%'",
    )
    mirror.settings["source"]["replica"] = {
        "host": replicas.replica.host,
        "port": replicas.replica.port,
        "user": ACCOUNT,
        "password": "its-own",
    }
    mirror.settings["tables"] = [
        {"match": rf"{schema}\.log", "format": "parquet"},
        {"match": rf"{schema}\..*"},
    ]
    mirror.settings["copy"] = {
        "connections": CONNECTIONS,
        "chunk_rows": 400,
        "rows_per_second": ROWS,
    }
    mirror.settings["spark"]["spark.master"] = f"local[{CONNECTIONS + 1},3]"
    return mirror


@contextlib.contextmanager
def writing(mirror: MirrorProcess, *statements: str) -> Iterator[None]:
    """Run statements on the source again and again."""
    ended = threading.Event()
    errors: list[Exception] = []

    def write() -> None:
        try:
            while not ended.wait(0.05):
                run(mirror, *statements)
        except Exception as error:  # noqa: BLE001  # shown by the test's own thread
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert not errors


def run(mirror: MirrorProcess, *statements: str) -> None:
    """Run statements in the schema, on the source."""
    mirror.source.execute(f"USE {mirror.pipeline.schema}", *statements)


def log_agrees(mirror: MirrorProcess) -> bool:
    """Check whether the folded log of changes equals its table."""
    return folded(mirror, "log") == mirror.truth("log", "id")


@pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 runs it")
def test_copied_again_from_a_replica(mirror: Any, replicas: Replicas) -> None:
    """Rows come from the replica, within the limit of connections.

    While a table's new copy is held up, the others follow the source, and readers have
    the complete old copy. Verify keeps the limit, too, and reports a log.
    """
    for name in ("a", "b", "log"):
        run(mirror, f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT)")
        for number in range(0, ROWS, 500):
            run(
                mirror,
                f"INSERT INTO {name} {SERIES.replace('i, 0', f'i + {number}, 0')}",
            )
        run(mirror, f"ANALYZE TABLE {name}")
    replicas.catch_up()
    change = [f"UPDATE {n} SET n = n + 1 WHERE id % 500 = 7" for n in ("a", "b", "log")]
    with Connections(replicas.replica) as seen, writing(mirror, *change):
        mirror.start()
        for name in ("a", "b", "log"):
            mirror.wait_for(lambda n=name: mirror.phase_of(n)[0] == "following", name)
    print("connections of copies:", seen.most)
    assert CONNECTIONS // 2 < seen.most <= CONNECTIONS
    mirror.agree(a=("id",), b=("id",))
    mirror.wait_for(lambda: log_agrees(mirror), "the log")

    before = mirror.lake("a", "id")
    with replicas.replica.connect() as holding, holding.cursor() as cursor:
        cursor.execute(f"LOCK TABLES {mirror.pipeline.schema}.a WRITE")
        asked = mirror.command("copy", f"{mirror.pipeline.schema}.a")
        assert asked.returncode == 0, asked.stderr
        mirror.wait_for(lambda: mirror.phase_of("a")[0] == "copying", "copying")
        run(
            mirror,
            "DELETE FROM a WHERE id % 2 = 0",
            "UPDATE a SET id = id + 10000 WHERE id < 100",
            *change,
            "ALTER TABLE b ADD COLUMN c INT DEFAULT 3",
            "INSERT INTO log VALUES (-1, 0)",
        )
        mirror.agree(b=("id",))
        mirror.wait_for(lambda: log_agrees(mirror), "the log")
        assert mirror.phase_of("a")[0] == "copying"
        assert mirror.lake("a", "id") == before
        cursor.execute("UNLOCK TABLES")
    mirror.agree(a=("id",))
    mirror.wait_for(lambda: mirror.phase_of("a")[0] == "following", "a")
    assert (mirror.state("a")["copies"], mirror.state("b")["copies"]) == (2, 1)

    replicas.catch_up()
    with Connections(replicas.replica) as seen:
        done = mirror.command("verify", "--json")
    print("connections of verify:", seen.most, done.stdout, done.stderr)
    assert done.returncode == 0
    assert 0 < seen.most <= CONNECTIONS
    outcomes = [each["outcome"] for each in json.loads(done.stdout)["tables"]]
    assert outcomes == ["equal", "equal", "a log"]
    mirror.stop()
