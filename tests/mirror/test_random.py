"""Random changes of rows and tables, kills in between: the lake equals the database."""

from __future__ import annotations

import threading

import pytest
from fix_failover import BY_SET, GTID_MODE
from fix_random import longer
from mirror_scene import MirrorScene
from mirror_writes import MirrorLoad
from shifting_load import ShiftingLoad

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(0)]
STEPS = 60
DDL_SHARE = 0.03  # of steps: a table that is renamed all the time is never copied


class Load:
    """Writes in a separate thread until it is ended."""

    def __init__(self, load: ShiftingLoad, pause_s: float) -> None:
        self._load = load
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self.steps = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self):
        try:
            while not self._stop.wait(self._pause_s):
                self._load.step()
                self.steps += 1
        except Exception as error:  # noqa: BLE001  # shown by the test's own thread
            self._error = error


@pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 runs it")
def test_the_lake_equals_the_database(mirror, rng) -> None:
    """With the mirror and the server killed while it copies and follows."""
    load = ShiftingLoad(
        mirror.source, mirror.pipeline.schema, rng, statements=DDL_SHARE
    )
    for _ in range(STEPS):
        load.step()
    with Load(load, 0.1) as writing:
        for _ in range(longer(1)):
            mirror.start(wait=rng.random() < 0.7)
            enough = writing.steps + rng.randrange(20, 150)
            mirror.wait_for(lambda n=enough: writing.steps >= n, "writing")
            what = rng.choice(("mirror", "server", "both"))
            print(f"killed after {writing.steps} steps: {what}")
            if what != "mirror":
                mirror.pipeline.kill()
                mirror.pipeline.start()
            if what != "server":
                mirror.kill()
            else:
                mirror.stop()
    mirror.start()
    tables = {name: ("id",) for name in load.truth() if name != "the_end"}
    mirror.agree(**tables)
    mirror.stop()


# --- whatever is killed, whatever the types ---------------------------------------

KILLS = ("mirror", "driver", "jvm", "workers", "server", "source", "stop")
WITHOUT_GTIDS = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
# Of the first writer's transactions: before how many of them a table is changed.
# Without GTIDs a table is only copied when it was left as it is for a minute.
DDL_OFTEN = 0.02
DDL_SELDOM = 0.004
# Each that is rolled back has its tables copied again.
PREPARED = 0.003


@pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 runs it")
@pytest.mark.parametrize(
    ("flavour", "options", "form"),
    [
        ("mysql", (), "delta"),
        ("mariadb", (), "delta"),
        ("mysql", WITHOUT_GTIDS, "delta"),
        ("mysql", (), "iceberg"),
        ("mariadb", (), "iceberg"),
    ],
    ids=[
        "mysql", "mariadb", "mysql-without-gtids", "mysql-iceberg", "mariadb-iceberg",
    ],
)  # fmt: skip
def test_nothing_is_lost_or_doubled(  # noqa: PLR0917  # fixtures
    flavour, options, form, own_server, make_mirror, rng
):
    """All types, keys or none, tables that change; anything is killed at any moment."""
    if form == "iceberg":
        pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
    source = own_server(flavour, options)
    schema = "shop"
    source.execute(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
    mirror = make_mirror(source, schema)
    mirror.settings["copy"] = {"chunk_rows": 100}
    mirror.settings["lake"] |= {"format": form}
    mirror.settings["stream"] |= {"max_rows": 500, "min_partition_rows": 50}
    ddl_share = DDL_SELDOM if options == WITHOUT_GTIDS else DDL_OFTEN
    load = MirrorLoad(source, schema, rng, statements=ddl_share, prepared=PREPARED)
    load.write(150)
    scene = MirrorScene(mirror, load, rng)
    with load:
        for _ in range(longer(2)):
            scene.round(rng.choice(KILLS))
    print(f"{load.commits} transactions, {dict(load.did)}, {dict(scene.kills)}")
    scene.verify(scene.settle())
    mirror.stop()


# --- a source that is replaced --------------------------------------------------------

REPLICA_OPTIONS = ("--log-bin=second",)


@pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 runs it")
def test_a_source_that_is_replaced(make_scene, make_proxy, mirror_of, rng) -> None:
    """The replica becomes the source, and back, while a mirror runs or is down.

    What is written to the source is on the replica when it dies; later writes differ.
    """
    sources = make_scene(rng.choice((GTID_MODE, BY_SET)))
    sources.pipeline.keep_port()
    replicas = sources.replicas
    proxy = make_proxy(replicas.source)
    mirror = mirror_of(sources.pipeline, port=proxy.port)
    mirror.settings["stream"] |= {"max_rows": 500, "min_partition_rows": 50}
    load = MirrorLoad(
        replicas.source, mirror.pipeline.schema, rng, statements=DDL_OFTEN
    )
    load.write(100)
    scene = MirrorScene(mirror, load, rng)
    with load:
        for _ in range(longer(1)):
            if rng.random() < 0.7:
                scene.round(rng.choice(("mirror", "server", "nothing", "nothing")))
            with load.rest():
                sources.die()
                load.server = mirror.source = replicas.source
                proxy.target = (replicas.source.host, replicas.source.port)
                proxy.end_all()
            print(f"after {load.commits} transactions the source was replaced")
            scene.round(rng.choice(("mirror", "server", "nothing", "nothing")))
            replicas.rejoin()
            replicas.catch_up()
    print(f"{load.commits} transactions, {dict(load.did)}, {dict(scene.kills)}")
    scene.verify(scene.settle())
    mirror.stop()
