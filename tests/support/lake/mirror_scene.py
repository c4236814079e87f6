"""A mirror under random loads: what is killed of it, and that its lake is right after.

::

    scene = MirrorScene(mirror, load, rng)
    with load:
        scene.round("server")
    scene.verify(scene.settle())
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING

from fix_pipeline import UNIT_S
from mirror_kills import kill_driver, kill_jvm, kill_workers

if TYPE_CHECKING:
    import random

    from fix_mirror_process import MirrorProcess
    from mirror_writes import MirrorLoad

SETTLE_S = 30 * UNIT_S  # with tables that are copied again at the end
POLL_S = 0.5
BEGINS_S = 6 * UNIT_S  # until a table follows, while tables change
OUTRUN = "each of 5 copies in a row had to be made again"


class MirrorScene:
    """A source of the test's own, a mirror of it, and what is killed of both."""

    def __init__(
        self, mirror: MirrorProcess, load: MirrorLoad, rng: random.Random
    ) -> None:
        self.mirror = mirror
        self.load = load
        self.rng = rng
        self.kills: Counter[str] = Counter()

    def round(self, what: str) -> None:
        """Let all run for a while, and kill something."""
        mirror, load, rng = self.mirror, self.load, self.rng
        self._start()
        enough = load.commits + rng.randrange(20, 300)
        mirror.wait_for(lambda: load.commits >= enough or not load.is_well, "writing")
        if not load.is_well:
            return  # what is wrong is raised when the load ends
        print(f"{time.strftime('%X')} after {load.commits} transactions: {what}")
        self.kills[what] += 1
        if what == "mirror":
            mirror.kill()
        elif what == "driver":
            kill_driver(mirror)
        elif what == "jvm":
            said = kill_jvm(mirror)
            assert "Spark" in said, said
        elif what == "workers":
            print(f"{kill_workers(mirror, rng)} of them")
        elif what == "server":
            mirror.pipeline.kill()
            mirror.pipeline.start()
        elif what == "source":
            mirror.source.kill()
            mirror.source.restart()
        elif what == "stop":
            mirror.stop()
        else:
            assert what == "nothing", what

    def _start(self) -> None:
        """Start the mirror unless it runs; waits now and then until a table follows."""
        if self.mirror.process is None:
            self.mirror.start(wait=False)
            if self.rng.random() < 0.7:
                self._wait_for_a_table()

    def _wait_for_a_table(self) -> None:
        """Wait until a table follows, but not for ever: they may change too often."""
        process = self.mirror.process
        assert process is not None
        give_up_at = time.monotonic() + BEGINS_S
        while not any("follows the stream" in line for line in [*process.log]):
            assert process.log[-1:] != [""], "".join(process.log)  # it has ended
            if time.monotonic() > give_up_at:
                print(f"no table follows after {BEGINS_S} s")
                return
            time.sleep(POLL_S)

    def settle(self) -> set[str]:
        """Wait until each table of the source follows the stream."""
        mirror = self.mirror
        if mirror.process is None:
            mirror.start()
        expected = {
            name
            for (name,) in mirror.source.execute(
                "SELECT table_name FROM information_schema.tables"
                f" WHERE table_schema = '{mirror.pipeline.schema}'"
            )
        }
        give_up_at = time.monotonic() + SETTLE_S
        while True:
            # To ask the command all the time would take what the mirror needs.
            states = {name: mirror.phase_of(name) for name in expected}
            outrun = [name for name in expected if OUTRUN in states[name][1]]
            if outrun:
                print(f"outrun by their DDL: {outrun}")
                names = [f"{mirror.pipeline.schema}.{name}" for name in outrun]
                mirror.command("copy", *names).check_returncode()
            phases = {name: states[name][0] for name in expected}
            if all(phase == "following" for phase in phases.values()):
                shown = self.states()
                if all(shown[name][0] == "following" for name in expected):
                    return expected
            log = mirror.process.log[-80:] if mirror.process else ()
            assert time.monotonic() < give_up_at, f"{states}\n{''.join(log)}"
            time.sleep(1)

    def states(self) -> dict[str, tuple[str, str]]:
        """Return phase and message of each table that the mirror knows."""
        done = self.mirror.command("status", "--json")
        assert done.returncode == 0, done.stderr
        return {
            each["table"].partition(".")[2]: (each["phase"], each["message"])
            for each in json.loads(done.stdout)["tables"]
        }

    def verify(self, expected: set[str]) -> None:
        """Compare all tables, as an operator does."""
        names = [f"{self.mirror.pipeline.schema}.{name}" for name in expected]
        done = self.mirror.command("verify", *names, "--json")
        assert done.stdout, done.stderr
        shown = json.loads(done.stdout)
        for each in shown["tables"]:
            rows = each["source"] and each["source"]["rows"]
            print(f"{each['table']}: {each['outcome']}, {rows} rows")
        assert shown["equal"], done.stdout[:20_000]
