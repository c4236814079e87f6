"""A mirror with many troubles: reported, repaired, and the lake stays correct.

One mirror has all of them, as each start of Spark costs much.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from change_logs import changes, folded
from fix_mirror_process import NAME, PATIENCE_S, MirrorProcess
from fix_mounts import mounted
from fix_pipeline import DESTINATION, Pipeline
from fix_random import longer
from fix_spark import skip_without_spark
from purge import purge
from small_disk import full

from canal_server.cli import UNUSABLE
from canal_server.client.range_client import RangedClient

deltalake = pytest.importorskip("deltalake", reason="the extra is not installed")
pa = pytest.importorskip("pyarrow", reason="the extra is not installed")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.spark]

SCHEMA = "shop"
WITHOUT_GTIDS = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
SECRET = "s3cret-word"
BLACK = "canal.instance.filter.black.regex"


class Shop(MirrorProcess):
    """A mirror of a separate database."""

    def sql(self, *statements: str) -> None:
        """Run statements in the schema."""
        self.source.execute(f"USE {SCHEMA}", *statements)

    def wait_for_phase(self, table: str, phase: str, text: str) -> str:
        """Wait until a table has such a message; returns the full text."""

        def look() -> bool:
            found = self.phase_of(table)
            return found[0] == phase and text in found[1]

        try:
            self.wait_for(look, f"{table} {phase}: {text}")
        finally:
            print(table, self.phase_of(table))
        return self.phase_of(table)[1]

    @contextmanager
    def writing(self, sql: str) -> Iterator[None]:
        """Run a statement again and again."""
        ended = threading.Event()

        def write() -> None:
            while not ended.wait(0.05):
                self.sql(sql)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def chunks(self) -> int:
        """Return how many chunks of copies that are not published yet are done."""
        done = self.command("status", "--json")
        tables = json.loads(done.stdout)["tables"]
        return sum(table["chunks_done"] for table in tables)

    def logs_agree(self) -> bool:
        """Check whether both folded logs of changes equal the tables."""
        return all(folded(self, n) == self.truth(n, "id") for n in ("cols", "texts"))

    def check_log(self) -> None:
        """Check that the log shows no traceback and no secret."""
        assert self.process
        log = "".join(self.process.log)
        # On a machine that is busy, Spark's own processes may show one.
        assert not re.search(r'File "[^"]*/canal_server/', log), log[-20_000:]
        assert not re.search(r"^\s+at \w+(\.\w+)+\(", log, re.MULTILINE), log[-20_000:]
        assert SECRET not in log


@pytest.fixture
def shop(
    own_server: Callable[..., Any], tmp_path: Path
) -> Iterator[Callable[..., Shop]]:
    """Give `make(flavour)`: a mirror that was not started, its canal-server runs."""
    skip_without_spark()
    made: list[tuple[Shop, Pipeline]] = []

    def make(
        flavour: str = "mysql", options: Sequence[str] = (), **settings: str
    ) -> Shop:
        server = own_server(flavour, options)
        server.execute(f"CREATE DATABASE {SCHEMA}")
        pipeline = Pipeline(server, SCHEMA, tmp_path / "conf", dict(settings), None)
        pipeline.start()
        pipeline.keep_port()
        shop = Shop(pipeline, tmp_path)
        made.append((shop, pipeline))
        return shop

    yield make
    for shop, pipeline in made:
        shop.close()
        pipeline.close()


def test_troubles_of_tables_and_of_the_disk(shop, tmp_path) -> None:
    """A problem with one table is shown with it, and the others continue.

    Rights, the server's filter, a foreign table in the lake, and a full disk; each one
    resumes by itself after the repair, or as its text says.
    """
    mirror = shop(**{BLACK: rf"{SCHEMA}\.hidden"})
    seen = ("t", "hidden", "other", "cols", "texts")
    mirror.settings["tables"] = [
        {"match": rf"{SCHEMA}\.cols", "format": "parquet"},
        {"match": rf"{SCHEMA}\.texts", "format": "json"},
        {"match": rf"{SCHEMA}\..*"},
    ]
    mirror.sql(
        *(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, a VARCHAR(100), b INT)"
            for name in (*seen, "part")
        ),
        *(f"INSERT INTO {name} VALUES (1, 'x', 1)" for name in (*seen, "part")),
        f"CREATE USER 'copier'@'%' IDENTIFIED BY '{SECRET}'",
        *(f"GRANT SELECT ON {SCHEMA}.{name} TO 'copier'@'%'" for name in seen),
        f"GRANT SELECT (id, a) ON {SCHEMA}.part TO 'copier'@'%'",
    )
    mirror.settings["source"] |= {"user": "copier", "password": SECRET}
    with mounted(tmp_path / "lake", "size=24m"):
        somebodys = str(mirror.path / SCHEMA / "other")
        deltalake.write_deltalake(somebodys, pa.table({"mine": [1, 2]}))
        mirror.start()
        shown = mirror.wait_for_phase("part", "copying", "denied")
        assert "run: GRANT SELECT ON *.* TO 'copier'@'%'" in shown
        assert f"table {SCHEMA}.part" in shown
        shown = mirror.wait_for_phase("hidden", "waiting", "canal-server leaves out")
        assert "everything (canal.instance.filter.black.regex)" in shown
        shown = mirror.wait_for_phase("other", "stopped", "was not made by a mirror")
        assert somebodys in shown
        assert deltalake.DeltaTable(somebodys).version() == 0
        mirror.sql(f"GRANT SELECT ON {SCHEMA}.part TO 'copier'@'%'")
        mirror.agree(t=("id",), part=("id",))
        mirror.wait_for(mirror.logs_agree, "logs")

        before = mirror.lake("t", "id"), changes(mirror, "cols")
        with full(mirror.path):
            mirror.sql(
                *(
                    f"INSERT INTO {name} VALUES ({n}, REPEAT('y', 99), 1)"
                    for n in (2, 3)
                    for name in ("t", "cols", "texts")
                ),
                "UPDATE t SET b = 2 WHERE id = 1",
                "DELETE FROM texts WHERE id = 1",
                "ALTER TABLE part DROP PRIMARY KEY, ADD PRIMARY KEY (b)",
            )
            assert mirror.process
            mirror.process.wait_for_log(
                "the stream failed.*No space left on device", PATIENCE_S
            )
            assert (mirror.lake("t", "id"), changes(mirror, "cols")) == before
        mirror.sql("INSERT INTO t VALUES (4, 'z', 4)", "TRUNCATE TABLE cols")
        mirror.agree(t=("id",), part=("b",))
        mirror.wait_for(mirror.logs_agree, "logs")
        shown = [(c["id"], c["_change_type"]) for c in changes(mirror, "texts")]
        assert shown == [(1, "insert"), (2, "insert"), (3, "insert"), (1, "delete")]
        mirror.check_log()
        mirror.stop()


@pytest.mark.timeout(0)
@pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 runs it")
def test_a_damaged_table(shop, tmp_path) -> None:
    """Files of one table are lost, then its log is damaged: only it stops."""
    mirror = shop()
    mirror.sql(
        "CREATE TABLE part (id INT PRIMARY KEY, a VARCHAR(100))",
        "CREATE TABLE t LIKE part",
        "INSERT INTO part VALUES (1, 'x')",
        "INSERT INTO t VALUES (1, 'x')",
    )
    mirror.start()
    mirror.agree(t=("id",), part=("id",))
    folder = mirror.path / SCHEMA / "part"
    for file in folder.glob("*.parquet"):
        file.unlink()
    mirror.sql("UPDATE part SET a = 'w'", "UPDATE t SET a = 'w'")
    shown = mirror.wait_for_phase("part", "stopped", "not found")
    assert "`canal-server mirror copy shop.part` makes a new copy" in shown
    mirror.agree(t=("id",))
    assert mirror.command("copy", f"{SCHEMA}.part").returncode == 0
    mirror.wait_for_phase("part", "following", "")
    mirror.agree(part=("id",))

    newest = max(folder.glob("_delta_log/*.json"))
    newest.with_stem(f"{int(newest.stem) + 1:020}").write_text("{bad")
    mirror.sql("UPDATE part SET a = 'v'", "UPDATE t SET a = 'v'")
    shown = mirror.wait_for_phase("part", "stopped", "cannot read")
    assert "if that fails in the same way, move the lake's table away first" in shown
    mirror.agree(t=("id",))
    shutil.move(folder, tmp_path / "away")  # another file system
    assert mirror.command("copy", f"{SCHEMA}.part").returncode == 0
    mirror.wait_for_phase("part", "following", "")
    mirror.agree(part=("id",))
    mirror.check_log()


@pytest.mark.timeout(0)
@pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 runs it")
@pytest.mark.parametrize(
    ("flavour", "options"),
    [("mysql", ()), ("mysql", WITHOUT_GTIDS), ("mariadb", ())],
    ids=["mysql", "mysql-without-gtids", "mariadb"],
)
def test_rows_that_move_with_partitions(shop, flavour, options) -> None:
    """No row of them is in the binlog; both tables have them in the end."""
    mirror = shop(flavour, options)
    mirror.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(100))",
        "CREATE TABLE p LIKE t",
        "ALTER TABLE p PARTITION BY RANGE (id) (PARTITION one VALUES LESS THAN (10),"
        " PARTITION two VALUES LESS THAN (20))",
        "INSERT INTO t VALUES (1, 'of t'), (2, 'of t')",
        "INSERT INTO p VALUES (3, 'of p'), (12, 'stays')",
    )
    mirror.start()
    mirror.agree(t=("id",), p=("id",))
    mirror.sql(
        "INSERT INTO t VALUES (5, 'just before')",
        "ALTER TABLE p EXCHANGE PARTITION one WITH TABLE t",
        "UPDATE t SET a = 'then'",
    )
    mirror.agree(t=("id",), p=("id",))
    assert list(mirror.lake("t", "id")) == [(3,)]
    if flavour == "mariadb":

        def knows_partitions() -> bool:
            mirror.sql("UPDATE p SET a = REVERSE(a) WHERE id = 12")  # ends a batch
            return bool(mirror.knows_partitions("p"))

        mirror.wait_for(knows_partitions, "the partitions")
        copies = mirror.state("p")["copies"]
        mirror.sql(
            "ALTER TABLE p CONVERT PARTITION one TO TABLE u",
            "INSERT INTO u VALUES (4, 'then')",
        )
        mirror.wait_for_phase("u", "following", "")
        mirror.agree(u=("id",), p=("id",))
        assert mirror.state("p")["copies"] == copies
        mirror.sql(
            "UPDATE t SET id = id + 20",
            "ALTER TABLE p CONVERT TABLE t TO PARTITION three VALUES LESS THAN (30)",
        )
        mirror.wait_for_phase("t", "dropped", "")
        mirror.agree(u=("id",), p=("id",))
    mirror.check_log()


@pytest.mark.timeout(0)
@pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 runs it")
@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_what_happened_while_it_was_down(shop, flavour) -> None:
    """DDL of all kinds, with canal-server up and down; signals amid copy and batch."""
    mirror = shop(flavour)
    mirror.settings["tables"] = [
        {"match": rf"{SCHEMA}\.stopping", "drift": "stop"},
        {"match": rf"{SCHEMA}\..*"},
    ]
    mirror.sql(
        *(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, a VARCHAR(100), b INT)"
            for name in ("t", "copied", "stopping", "gone", "renamed")
        ),
        *(
            f"INSERT INTO {name} VALUES (1, 'x', 1), (2, 'y', 2)"
            for name in ("t", "copied", "stopping", "gone", "renamed")
        ),
    )
    mirror.start()
    mirror.agree(t=("id",), gone=("id",), stopping=("id",), renamed=("id",))
    _stop_amid_batches(mirror)

    # Only the mirror is down.
    mirror.sql(
        "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7, MODIFY a VARCHAR(200)",
        "INSERT INTO t (id, a) VALUES (3, 'z')",
        *(
            f"ALTER TABLE {name} DROP PRIMARY KEY, ADD PRIMARY KEY (b)"
            for name in ("copied", "stopping")
        ),
        "UPDATE copied SET a = 'z' WHERE b = 1",
        "UPDATE stopping SET a = 'z' WHERE b = 1",
        "DROP TABLE gone",
        "RENAME TABLE renamed TO named",
        "CREATE TABLE made (id INT PRIMARY KEY)",
        "INSERT INTO made VALUES (1)",
    )
    mirror.start(wait=False)
    shown = mirror.wait_for_phase("stopping", "stopped", "PRIMARY KEY")
    assert shown.endswith("`canal-server mirror copy shop.stopping` makes a new copy")
    mirror.wait_for_phase("gone", "dropped", "")
    mirror.agree(t=("id",), copied=("b",), named=("id",), made=("id",))
    assert mirror.lake("stopping", "id")[1,]["a"] == "x"
    assert len(mirror.lake("gone", "id")) == 2
    assert mirror.command("copy", f"{SCHEMA}.stopping").returncode == 0
    mirror.agree(stopping=("b",))
    mirror.check_log()
    mirror.stop()

    # Both are down.
    mirror.pipeline.stop()
    mirror.sql(
        "ALTER TABLE t DROP COLUMN b, RENAME COLUMN c TO d",
        "INSERT INTO t VALUES (4, 'w', 8)",
        "ALTER TABLE made MODIFY id BIGINT UNSIGNED",
        "INSERT INTO made VALUES (18446744073709551615)",
    )
    mirror.pipeline.start()
    mirror.start()
    mirror.agree(t=("id",), made=("id",))
    _stop_amid_a_copy(mirror)


@pytest.mark.timeout(0)
@pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 runs it")
@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_changes_that_are_lost_and_no_server(shop, flavour) -> None:
    """A binlog that was purged while it was down ends it, and all is copied again.

    Tables with a key, without one, and logs. A missing canal-server is waited for, and
    a signal ends the waiting.
    """
    mirror = shop(flavour)
    mirror.settings["tables"] = [
        {"match": rf"{SCHEMA}\.cols", "format": "parquet"},
        {"match": rf"{SCHEMA}\.texts", "format": "json"},
        {"match": rf"{SCHEMA}\..*"},
    ]
    keys = {"t": ("id",), "u": ("id",), "keyless": ()}
    names = (*keys, "cols", "texts")
    mirror.sql(
        *(
            f"CREATE TABLE {name} (id INT {'' if name == 'keyless' else 'PRIMARY KEY'},"
            " a VARCHAR(100))"
            for name in names
        ),
        *(f"INSERT INTO {name} VALUES (1, 'x'), (2, 'y')" for name in names),
    )
    mirror.start()
    mirror.agree(**keys)
    mirror.wait_for(mirror.logs_agree, "logs")
    mirror.sql(*(f"INSERT INTO {name} VALUES (3, 'z')" for name in names))
    mirror.agree(**keys)
    mirror.wait_for(mirror.logs_agree, "logs")
    mirror.stop()

    # The binlog that it needs is purged.
    before = mirror.lake("t", "id"), changes(mirror, "cols"), changes(mirror, "texts")
    mirror.sql(
        *(f"UPDATE {name} SET a = 'gone' WHERE id = 1" for name in names),
        *(f"DELETE FROM {name} WHERE id = 2" for name in names),
        "FLUSH BINARY LOGS",
        *(f"INSERT INTO {name} VALUES (5, 'v')" for name in names),
    )
    file, _ = mirror.source.binlog_position()
    mirror.pipeline.wait_for_status(lambda status: file in str(status))
    mirror.pipeline.stop()  # what it has in memory is not lost
    purge(mirror.source, file)
    mirror.pipeline.start()
    mirror.start(wait=False)
    assert mirror.process
    assert mirror.process.wait(PATIENCE_S) == UNUSABLE
    mirror.check_log()
    message = mirror.process.log[-2]
    print(message)
    assert message.startswith("canal-server mirror: subscription copy of destination ")
    assert "are no longer available" in message
    assert "run `canal-server mirror copy --all`" in message
    assert before == (
        mirror.lake("t", "id"),
        changes(mirror, "cols"),
        changes(mirror, "texts"),
    )
    assert mirror.command("copy", "--all").returncode == 0
    mirror.start()
    mirror.agree(**keys)
    mirror.wait_for(mirror.logs_agree, "logs")
    assert [mirror.state(name)["copies"] for name in names] == [2] * len(names)
    mirror.sql(
        *(f"UPDATE {name} SET a = 'after' WHERE id = 3" for name in names),
        *(f"DELETE FROM {name} WHERE id = 5" for name in names),
    )
    mirror.agree(**keys)
    mirror.wait_for(mirror.logs_agree, "logs")

    # canal-server is stopped for a while, and for ever.
    mirror.pipeline.stop()
    mirror.sql("INSERT INTO t VALUES (7, 't')")
    mirror.process.wait_for_log("Connection refused", PATIENCE_S)
    mirror.pipeline.start()
    mirror.agree(t=("id",))
    mirror.pipeline.stop()
    mirror.process.wait_for_log("the stream failed", PATIENCE_S)
    mirror.check_log()
    mirror.stop()


@pytest.mark.timeout(0)
@pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 runs it")
@pytest.mark.parametrize("lost", ["both", "checkpoint", "subscription", "data"])
def test_what_recorded_where_the_stream_was_is_lost(shop, lost) -> None:
    """Spark's checkpoint, the server's subscription: tables continue without a gap.

    Nothing is copied again for that. Batches that start elsewhere are not applied.
    """
    mirror = shop()
    mirror.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(100))",
        "CREATE TABLE keyless (a VARCHAR(100))",
        "INSERT INTO t VALUES (1, 'x')",
        "INSERT INTO keyless VALUES ('x')",
    )
    mirror.start()
    mirror.agree(t=("id",), keyless=())
    mirror.sql("INSERT INTO t VALUES (2, 'y')", "INSERT INTO keyless VALUES ('x')")
    mirror.agree(t=("id",), keyless=())
    mirror.stop()

    mirror.sql("INSERT INTO t VALUES (3, 'z')", "INSERT INTO keyless VALUES ('x')")
    own = mirror.path / "_mirror" / NAME
    if lost != "subscription":
        shutil.rmtree(own / "checkpoint")
    if lost == "data":
        mirror.pipeline.stop()
        folder = mirror.pipeline.conf / DESTINATION
        for path in folder.glob("*.*"):
            if path.suffix != ".properties":
                path.unlink()
        mirror.pipeline.start()
    elif lost != "checkpoint":
        with RangedClient("127.0.0.1", mirror.pipeline.server_port) as client:
            client.unsubscribe(DESTINATION, NAME)
    mirror.start()
    mirror.sql("UPDATE t SET a = 'w' WHERE id = 1", "DELETE FROM keyless LIMIT 1")
    mirror.agree(t=("id",), keyless=())
    assert (mirror.state("t")["copies"], mirror.state("keyless")["copies"]) == (1, 1)
    mirror.check_log()
    mirror.stop()
    if lost != "both":
        return

    # An earlier lake with a later checkpoint, which is abandoned.
    shown = own / "stream.json"
    old = shown.read_text()
    mirror.start()
    for number in (4, 5):
        mirror.sql(f"INSERT INTO t VALUES ({number}, 'z')")
        mirror.agree(t=("id",))
    mirror.stop()
    shown.write_text(old)
    mirror.sql("INSERT INTO t VALUES (6, 'z')")
    mirror.start()
    mirror.agree(t=("id",))
    assert mirror.process
    print(mirror.process.wait_for_log("would be missing: clearing", PATIENCE_S))
    assert mirror.state("t")["copies"] == 1
    mirror.check_log()
    mirror.stop()

    # All three are lost: reported, and repaired by hand.
    shown.unlink()
    shutil.rmtree(own / "checkpoint")
    with RangedClient("127.0.0.1", mirror.pipeline.server_port) as client:
        client.unsubscribe(DESTINATION, NAME)
    mirror.sql("INSERT INTO t VALUES (7, 'z')")
    mirror.start(wait=False)
    assert mirror.process.wait(PATIENCE_S) == UNUSABLE
    mirror.check_log()
    assert "run `canal-server mirror copy --all`" in mirror.process.log[-2]
    status = mirror.command("status").stdout
    print(status)
    assert "ended: subscription copy is missing, and the lake does not record" in status
    assert len(mirror.lake("t", "id")) == 6
    assert mirror.command("copy", "--all").returncode == 0
    mirror.start()
    mirror.agree(t=("id",), keyless=())


def _stop_amid_batches(mirror: Shop) -> None:
    """End it while rows arrive all the time; only the current batch is finished."""
    with mirror.writing("UPDATE t SET b = b + 1"):
        position = mirror.lake("t", "id")[1,]["b"]
        mirror.wait_for(lambda: mirror.lake("t", "id")[1,]["b"] > position, "a batch")
        mirror.check_log()
        mirror.stop()


def _stop_amid_a_copy(mirror: Shop) -> None:
    """End it while a table is copied slowly; the rest of it is copied later."""
    mirror.stop()
    mirror.sql(
        "CREATE TABLE large (id INT PRIMARY KEY, a VARCHAR(100))",
        "INSERT INTO large WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM "
        "n WHERE i < 900) SELECT i, 'x' FROM n",
    )
    mirror.settings["copy"] = {"rows_per_second": 40, "chunk_rows": 100}
    mirror.start(wait=False)
    mirror.wait_for(lambda: mirror.chunks() > 1, "a chunk")
    mirror.check_log()
    mirror.stop()
    done = mirror.chunks()
    assert mirror.lake("large", "id") == {}
    del mirror.settings["copy"]["rows_per_second"]
    mirror.start()
    mirror.agree(large=("id",))
    assert done < 9
    mirror.stop()
