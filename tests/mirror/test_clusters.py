"""A mirror on clusters of Spark, whose executors are killed while they work."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fix_clusters import ON_CLUSTERS, TWO, cluster, executors, spark_home
from fix_mirror_process import NAME, PATIENCE_S
from fix_pipeline import Process
from fix_proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fix_mirror_process import MirrorProcess

pytestmark = ON_CLUSTERS
ROWS = 20_000
CHUNK_ROWS = 2_000
ROWS_PER_S = 4_000  # so that a copy takes some seconds
AMID_BYTES = 300_000  # of an answer, which has more
GUIDE = (Path(__file__).parents[2] / "docs/howto/mirror-cluster.md").read_text()


@pytest.fixture
def make_load(make_mirror):
    """Give `make(server)`: a load, whose mirror reaches canal-server by a proxy."""
    with contextlib.ExitStack() as opened:

        def make(server):
            mirror = make_mirror(server)
            proxy = Proxy("127.0.0.1", mirror.pipeline.server_port)
            opened.callback(proxy.close)
            mirror.settings["canal"]["servers"] = f"127.0.0.1:{proxy.port}"
            return Load(mirror, proxy)

        yield make


class Load:
    """Two tables and changes of them; each step continues the previous one."""

    def __init__(self, mirror: MirrorProcess, proxy: Proxy) -> None:
        self.mirror = mirror
        self.proxy = proxy
        self.copies = mirror.path / "_mirror" / NAME / "copies"
        mirror.settings["copy"] = {
            "connections": 2,
            "tables_at_once": 1,
            "chunk_rows": CHUNK_ROWS,
            "rows_per_second": ROWS_PER_S,
        }
        mirror.settings["stream"]["min_partition_rows"] = 1
        digits = " UNION ALL ".join(f"SELECT {n} AS d" for n in range(10))
        series = ", ".join(f"({digits}) AS d{n}" for n in range(4))
        number = "d0.d + 10 * d1.d + 100 * d2.d + 1000 * d3.d"
        self._run(
            "CREATE TABLE t (id INT PRIMARY KEY, n INT, text VARCHAR(200))",
            f"INSERT INTO t SELECT {number}, 0, REPEAT('x', 100) FROM {series}",
            "INSERT INTO t SELECT id + 10000, 0, text FROM t",
            "CREATE TABLE u (n INT, text VARCHAR(20))",
            f"INSERT INTO u SELECT {number}, 'u' FROM {series}",
        )

    def _run(self, *statements: str) -> None:
        self.mirror.source.execute(f"USE {self.mirror.pipeline.schema}", *statements)

    def wait_amid_copy(self) -> None:
        """Wait until some chunks of the table with a key are copied, and others not."""

        def chunks() -> int:
            return len(list(self.copies.rglob("chunk-*.json")))

        self.mirror.wait_for(lambda: chunks() >= 2, "a chunk")
        assert chunks() < ROWS // CHUNK_ROWS

    def change_all(self) -> None:
        """Change each row in one transaction, of more bytes than are held back."""
        self._run("UPDATE t SET n = n + 1, text = REPEAT('y', 150)")

    def change_more(self) -> None:
        """Change keys and columns, and delete."""
        self._run(
            "UPDATE t SET id = id + 100000 WHERE id < 1000",
            "DELETE FROM t WHERE id BETWEEN 2000 AND 2999",
            "ALTER TABLE t ADD COLUMN c INT DEFAULT 5",
            "INSERT INTO t VALUES (-1, 0, 'z', 6)",
            "DELETE FROM u WHERE n % 3 = 0",
            "INSERT INTO u VALUES (NULL, NULL), (NULL, NULL)",
        )

    def agree(self) -> None:
        """Wait until the lake is as the database is."""
        self.mirror.agree(t=("id",), u=())

    @contextlib.contextmanager
    def verify(self) -> Iterator[Process]:
        """Have the mirror compare source and copies: all is equal when that is left."""
        mirror = self.mirror
        mirror.write_conf()
        command = [sys.executable, "-m", "canal_server", "mirror", "verify", "--json"]
        shown = mirror.folder / "verified.json"
        with shown.open("w") as output:
            popen = subprocess.Popen(
                [*command, "--conf", str(mirror.conf)],
                env=mirror.environ,
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        process = Process(popen)
        try:
            yield process
            assert process.wait(PATIENCE_S) == 0, "".join(process.log)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(popen.pid, signal.SIGKILL)
        outcomes = [each["outcome"] for each in json.loads(shown.read_text())["tables"]]
        assert outcomes == ["equal", "equal"], shown.read_text()


def survives(load: Load, *sessions: int) -> None:
    """Copy and follow, and lose executors of sessions (none: its own) meanwhile."""
    mirror = load.mirror
    mirror.start(wait=False)
    assert mirror.process is not None
    sessions = sessions or (mirror.process.pid,)

    def two() -> list[int]:
        mirror.wait_for(lambda: len(executors(*sessions)) == 2, "a second executor")
        return executors(*sessions)

    load.wait_amid_copy()
    one, other = two()
    kill(one)
    load.agree()
    both = two()
    assert one not in both
    with load.proxy.hold(AMID_BYTES) as held:
        load.change_all()
        assert held.wait(PATIENCE_S)
        assert mirror.lake("t", "id") != mirror.truth("t", "id")
        kill(*both)
    load.agree()
    assert not {one, other, *both} & {*two()}
    load.change_more()
    load.agree()


def kill(*pids: int) -> None:
    """Kill processes."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_two_executors(make_load, mysql_server) -> None:
    """One is killed while it copies, then both while they read changes."""
    load = make_load(mysql_server)
    mirror = load.mirror
    mirror.settings["spark"] |= {"spark.master": "local-cluster[2,1,1024]"} | TWO
    survives(load)
    mirror.kill()
    load.change_all()
    mirror.start()
    load.agree()
    mirror.stop()
    with load.verify():
        assert mirror.process is None  # the machine is its own


def test_standalone_cluster(make_load, mariadb_server, tmp_path) -> None:
    """The same on a master and two workers; resumed by spark-submit."""
    load = make_load(mariadb_server)
    mirror = load.mirror
    with cluster(tmp_path) as started:
        mirror.settings["spark"] |= {"spark.master": started.master} | TWO
        survives(load, *started.workers)
        mirror.kill()
        load.change_all()
        del mirror.settings["spark"]["spark.master"]
        submit(mirror, "--master", started.master)
        load.agree()
        assert len(executors(*started.workers)) == 2
        mirror.settings["spark"]["spark.master"] = started.master
        with load.verify() as process:
            # All cores are the mirror's.
            process.wait_for_log("not accepted any resources", PATIENCE_S)
            mirror.kill()


def test_submitted(make_load, mysql_server) -> None:
    """With spark-submit: what ends it, from outside and in good order."""
    load = make_load(mysql_server)
    mirror = load.mirror
    mirror.settings["spark"] = {"spark.driver.memory": "900m"}
    options = ("--master", "local[2,4]", "--conf", "spark.ui.enabled=true")
    submit(mirror, *options)
    load.agree()
    mirror.process.wait_for_log("spark.driver.memory of the settings has no effect")
    mirror.process.wait_for_log("SparkUI")  # which the mirror's own settings disable

    for number in (signal.SIGKILL, signal.SIGTERM):  # to Spark's JVM
        python = driver(mirror)
        assert python != mirror.process.pid
        mirror.process.send(number)
        mirror.wait_for(lambda python=python: not is_there(python), "the end")
        assert mirror.process.wait() != 0
        load.change_all()
        submit(mirror, *options)
        load.agree()

    os.kill(driver(mirror), signal.SIGTERM)
    assert mirror.process.wait(PATIENCE_S) == 0
    mirror.process.wait_for_log("stopped")


def submit(mirror: MirrorProcess, *options: str) -> None:
    """Start the mirror by spark-submit, which writes its whole log to one stream."""
    script = mirror.folder / "run_mirror.py"
    found = re.search(r"```python\n(import sys\n.*?)```", GUIDE, re.DOTALL)
    assert found
    script.write_text(found[1])
    mirror.launcher = [
        *("sh", "-c", 'exec "$@" >&2', "sh"),
        *(str(spark_home() / "bin/spark-submit"), *options, str(script)),
    ]
    mirror.environ |= {"PYSPARK_PYTHON": sys.executable}
    mirror.start()


def driver(mirror: MirrorProcess) -> int:
    """Return the process that runs the mirror, as its status says."""
    shown = mirror.path / "_mirror" / NAME / "lock.json"
    return int(json.loads(shown.read_text())["pid"])


def is_there(pid: int) -> bool:
    """Check whether a process runs that is not a child."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
