"""A table copied by Spark: complete, restartable, with progress."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fix_mirror import table_on
from fix_source_access import access_of

from canal_server.client.range_client import RangePosition
from canal_server.errors import ConnectionLost, LakeError, SourceError
from canal_server.runtime.lifecycle import Stop

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("yaml", reason="the extra `mirror` is not installed")

import pyarrow.parquet as pq
from some_settings import settings_of

from canal_server.mirror.copy.copying import Copied, CopyJob, CopyProgress
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.session.slots import Slots
from canal_server.mirror.session.spark_session import cores_of
from canal_server.mirror.settings.mirror_settings import (
    CopySettings,
    LakeSettings,
    MirrorSettings,
    SourceSettings,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import Server

    from canal_server.mirror.settings.table_values import MirrorTable

POSITION = RangePosition(1, "binlog.000007", 1234)
ROWS = 1000
PATIENCE_S = 120.0
SERIES = (
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 1000) "
    "SELECT n, CONCAT('row ', n) FROM r"
)


def settings_with(server: Server, lake: Path, **copy: Any) -> MirrorSettings:
    """Return settings of a mirror; `copy` is of its section."""
    return settings_of(
        lake,
        source=SourceSettings(access=access_of(server)),
        copy=CopySettings(**({"connections": 4, "chunk_rows": 100} | copy)),
    )


@pytest.fixture
def table(mysql_server: Server, database: str) -> MirrorTable:
    """Give a table of a thousand rows."""
    mysql_server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(20))",
        f"INSERT INTO {database}.t {SERIES}",
        f"ANALYZE TABLE {database}.t",
    )
    return table_on(mysql_server, database, "t")


def ids_in(lake: Path, table: MirrorTable, copied: Copied) -> Counter[int]:
    """Return the ids in the files of a copy."""
    folder = lake / table.target
    return Counter(
        number
        for file in copied.files
        for number in pq.read_table(folder / file.path)["id"].to_pylist()
    )


def test_copy_and_restart(
    spark: Any, mysql_server: Server, table: MirrorTable, tmp_path: Path
) -> None:
    """All rows are in the files once; a second run has nothing to do."""
    settings = settings_with(mysql_server, tmp_path)
    progress: list[CopyProgress] = []
    copied = CopyJob(spark, settings, table, "c1", POSITION).run(
        progress.append, Stop()
    )
    assert ids_in(tmp_path, table, copied) == Counter(range(1, ROWS + 1))
    assert copied.rows == ROWS
    assert copied.schema.names == ["id", "v", "_seq", "_row", "_committed_at"]
    assert progress[0].rows == 0
    assert progress[-1][1:3] == (progress[-1].chunks, ROWS)
    assert progress[-1].chunks > 5

    again = CopyJob(spark, settings, table, "c1", POSITION).run(progress.append, Stop())
    assert again == copied
    lost = sorted((tmp_path / "_mirror/m/copies/c1").glob("chunk-*"))[:2]
    for file in lost:
        file.unlink()
    third = CopyJob(spark, settings, table, "c1", POSITION).run(progress.append, Stop())
    assert ids_in(tmp_path, table, third) == Counter(range(1, ROWS + 1))
    assert len({*third.files} - {*copied.files}) == len(lost)

    other = RangePosition(1, "binlog.000007", 9999)
    with pytest.raises(LakeError, match="at another position"):
        CopyJob(spark, settings, table, "c1", other).run(progress.append, Stop())


def workers() -> list[int]:
    """Return Spark's processes of Python below this one."""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            names[int(folder.name)] = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        parents[int(folder.name)] = int(stat[1])
    found = []
    for process, name in names.items():
        above = parents[process]
        if b"pyspark" in name and b"daemon" in names.get(above, b""):
            while above in parents and above != os.getpid():
                above = parents[above]
            if above == os.getpid():
                found.append(process)
    return found


def test_killed_workers(
    spark: Any, mysql_server: Server, table: MirrorTable, tmp_path: Path
) -> None:
    """Processes killed amid their chunks: every row is in the named files once."""
    settings = settings_with(mysql_server, tmp_path, rows_per_second=400)
    killed: list[int] = []

    def on_progress(progress: CopyProgress) -> None:
        if progress.chunks_done > 0 and not killed:
            killed.extend(workers())
            for process in killed:
                os.kill(process, signal.SIGKILL)

    copied = CopyJob(spark, settings, table, "c2", POSITION).run(on_progress, Stop())
    assert killed
    assert ids_in(tmp_path, table, copied) == Counter(range(1, ROWS + 1))


def test_stopped(
    spark: Any, mysql_server: Server, table: MirrorTable, tmp_path: Path
) -> None:
    """A stop ends the job of Spark; what was copied until then is found again."""
    settings = settings_with(mysql_server, tmp_path, rows_per_second=40)
    stop = Stop()

    def on_progress(progress: CopyProgress) -> None:
        if progress.chunks_done:
            stop.request()

    job = CopyJob(spark, settings, table, "c3", POSITION)
    with pytest.raises(ConnectionLost, match="interrupted by a stop"):
        job.run(on_progress, stop)
    shown: list[CopyProgress] = []
    settings = settings_with(mysql_server, tmp_path)
    copied = CopyJob(spark, settings, table, "c3", POSITION).run(shown.append, Stop())
    assert 0 < shown[0].chunks_done < shown[0].chunks
    assert ids_in(tmp_path, table, copied) == Counter(range(1, ROWS + 1))


def test_what_a_task_meets(
    spark: Any, mysql_server: Server, table: MirrorTable, tmp_path: Path
) -> None:
    """An error of a task comes as it is, without what Spark says around it."""
    settings = settings_with(mysql_server, tmp_path)
    job = CopyJob(spark, settings, table, "c4", POSITION)
    mysql_server.execute(f"ALTER TABLE {table.source} RENAME COLUMN v TO w")
    with pytest.raises(SourceError, match="Unknown column 'v'") as caught:
        job.run(lambda _: None, Stop())
    assert "Traceback" not in str(caught.value)


def test_executors_with_a_folder_of_their_own(
    spark: Any, mysql_server: Server, table: MirrorTable, tmp_path: Path
) -> None:
    """Tasks that succeed but write elsewhere: the error names the lake's path."""
    settings = settings_with(mysql_server, tmp_path / "lake", chunk_rows=ROWS)
    job = CopyJob(spark, settings, table, "c6", POSITION)
    theirs = open_folder(LakeSettings(path=str(tmp_path / "theirs")))
    job._task = replace(job._task, folder=theirs, manifests=theirs.below("c6"))
    with pytest.raises(
        SourceError, match=r"lake/_mirror/m/copies/c6 here: use a lake.pat"
    ):
        job.run(lambda _: None, Stop())
    assert theirs.below("c6").names()


def test_beside_the_stream(
    spark: Any, mysql_server: Server, table: MirrorTable, tmp_path: Path
) -> None:
    """While tables follow, jobs of Spark run although a copy uses all its slots.

    A lock holds the copy's tasks; of as many connections as cores, one has to wait, so
    the other core is free.
    """
    assert cores_of(spark) == 2
    settings = settings_with(mysql_server, tmp_path, connections=4)
    slots = Slots(4, cores=lambda: cores_of(spark), is_followed=lambda: True)
    job = CopyJob(spark, settings, table, "c5", POSITION, slots=slots)
    made: list[Copied] = []
    with mysql_server.connect() as connection:
        lock = connection.cursor()

        def on_progress(progress: CopyProgress) -> None:
            if not progress.chunks_done:  # the plan is made
                lock.execute(f"LOCK TABLES {table.source} WRITE")

        copying = threading.Thread(
            target=lambda: made.append(job.run(on_progress, Stop())), daemon=True
        )
        copying.start()
        held_up = "SELECT 1 FROM information_schema.processlist WHERE state LIKE"
        wait_for(lambda: mysql_server.execute(f"{held_up} 'Waiting for table%'"))

        def others() -> None:
            for count in range(1, 6):
                assert len(spark.range(0, count, 1, 1).collect()) == count

        beside = threading.Thread(target=others, daemon=True)
        beside.start()
        beside.join(PATIENCE_S)
        is_done = not beside.is_alive()
        assert not made
        lock.execute("UNLOCK TABLES")
    copying.join(PATIENCE_S)
    assert is_done
    assert ids_in(tmp_path, table, made[0]) == Counter(range(1, ROWS + 1))


def wait_for(look: Callable[[], object]) -> None:
    """Wait until something is so."""
    waiting = threading.Event()
    for _ in range(round(PATIENCE_S / 0.1)):
        if look():
            return
        waiting.wait(0.1)
    raise AssertionError("it never happened")
