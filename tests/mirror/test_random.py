"""Random changes of rows and tables, kills in between: the lake equals the database."""

from __future__ import annotations

import threading

import pytest
from fix_random import longer
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
