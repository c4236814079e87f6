"""Random changes of rows and tables, kills in between: the lake equals the database."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter

import pytest
from fix_pipeline import UNIT_S
from fix_random import longer
from mirror_kills import kill_driver, kill_jvm, kill_workers
from mirror_writes import MirrorLoad
from shifting_load import ShiftingLoad

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(0)]
STEPS = 60
DDL_SHARE = 0.03  # of steps: a table that is renamed all the time is never copied


class Load:
    """Writes in a thread of its own until it is told to end."""

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
SETTLE_S = 30 * UNIT_S  # with tables that are copied again at the end
SETTLED = ("following", "stopped", "dropped")
OUTRUN = "it was copied 5 times and changed in the meantime each time"


class Scene:
    """A source of the test's own, a mirror of it, and what is killed of both."""

    def __init__(self, mirror, load, rng):
        self.mirror = mirror
        self.load = load
        self.rng = rng
        self.kills: Counter[str] = Counter()

    def round(self, what):
        """Let all run for a while, and kill something."""
        mirror, load, rng = self.mirror, self.load, self.rng
        if mirror.process is None:
            mirror.start(wait=rng.random() < 0.7)
        enough = load.commits + rng.randrange(20, 300)
        mirror.wait_for(lambda: load.commits >= enough or not load.is_well, "writing")
        print(f"{time.strftime('%X')} after {load.commits} transactions: {what}")
        self.kills[what] += 1
        if what == "mirror":
            mirror.kill()
        elif what == "driver":
            kill_driver(mirror)
        elif what == "jvm":
            status = kill_jvm(mirror)
            print(f"the mirror ended with status {status}")
        elif what == "workers":
            print(f"{kill_workers(mirror, rng)} of them")
        elif what == "server":
            mirror.pipeline.kill()
            mirror.pipeline.start()
        elif what == "source":
            mirror.source.kill()
            mirror.source.restart()
        else:
            mirror.stop()

    def settle(self):
        """Wait until each table of the source follows the stream."""
        mirror = self.mirror
        if mirror.process is None:
            mirror.start()
        wanted = {
            name
            for (name,) in mirror.source.execute(
                "SELECT table_name FROM information_schema.tables"
                f" WHERE table_schema = '{mirror.pipeline.schema}'"
            )
        }
        give_up_at = time.monotonic() + SETTLE_S
        while True:
            states = self.states()
            outrun = [n for n in wanted if OUTRUN in states.get(n, ("", ""))[1]]
            if outrun:
                print(f"outrun by their DDL: {outrun}")
                names = [f"{mirror.pipeline.schema}.{name}" for name in outrun]
                mirror.command("copy", *names).check_returncode()
            phases = {name: states.get(name, ("", ""))[0] for name in wanted}
            if all(phase == "following" for phase in phases.values()):
                return wanted
            assert time.monotonic() < give_up_at, (
                f"{states}\n{''.join(mirror.process.log[-80:])}"
            )
            time.sleep(1)

    def states(self):
        """Return phase and message of each table that the mirror knows."""
        done = self.mirror.command("status", "--json")
        assert done.returncode == 0, done.stderr
        return {
            each["table"].partition(".")[2]: (each["phase"], each["message"])
            for each in json.loads(done.stdout)["tables"]
        }

    def verify(self, wanted):
        """Compare all tables, as an operator does."""
        names = [f"{self.mirror.pipeline.schema}.{name}" for name in wanted]
        done = self.mirror.command("verify", *names, "--json")
        assert done.stdout, done.stderr
        told = json.loads(done.stdout)
        for each in told["tables"]:
            rows = each["source"] and each["source"]["rows"]
            print(f"{each['table']}: {each['outcome']}, {rows} rows")
        assert told["equal"], done.stdout[:20_000]


@pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 runs it")
@pytest.mark.parametrize(
    ("flavour", "options"),
    [("mysql", ()), ("mariadb", ()), ("mysql", WITHOUT_GTIDS)],
    ids=["mysql", "mariadb", "mysql-without-gtids"],
)
def test_nothing_is_lost_or_doubled(flavour, options, own_server, make_mirror, rng):
    """All types, keys or none, tables that change; anything is killed at any moment."""
    source = own_server(flavour, options)
    schema = "shop"
    source.execute(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
    mirror = make_mirror(source, schema)
    mirror.settings["copy"] = {"chunk_rows": 100}
    mirror.settings["stream"] |= {"max_rows": 500, "min_partition_rows": 50}
    load = MirrorLoad(source, schema, rng, statements=0.02)
    load.write(150)
    scene = Scene(mirror, load, rng)
    with load:
        for _ in range(longer(2)):
            scene.round(rng.choice(KILLS))
    print(f"{load.commits} transactions, {dict(load.did)}, {dict(scene.kills)}")
    scene.verify(scene.settle())
    mirror.stop()
