"""The command: `python -m soak [--minutes N | --hours N] [--seed N]`."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from server_folders import Unavailable

from soak.drawing import drawn
from soak.run import FLAVOURS, Run, RunOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from soak.run import Result

LOST, UNAVAILABLE = 1, 2
OVERTIME_S = 1800.0  # to start, to catch up, to compare; all of these have limits
READERS = ("Spark stream", "mirror")


class OutOfTime(BaseException):  # it reads as what it says
    """A run did not end; nothing that waits for something else may take it for that."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns 0 when nothing was lost."""
    parser = argparse.ArgumentParser(
        description="Runs everything at once, with faults, and reports what was lost."
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0, help="0: a new one")
    parser.add_argument(
        "--rate", type=float, default=15.0, help="transactions a second, of each source"
    )
    parser.add_argument("--folder", type=Path, help="kept; default: a temporary one")
    parser.add_argument("--plot", type=Path, default=Path("soak.svg"))
    parser.add_argument("--sources", nargs="+", choices=FLAVOURS, default=FLAVOURS)
    parser.add_argument("--readers", nargs="*", choices=READERS, default=READERS)
    parser.add_argument("--only", nargs="+", default=(), help="kinds of faults")
    given = parser.parse_args(arguments)
    seed = given.seed or random.SystemRandom().randrange(1, 1 << 31)
    minutes = given.hours * 60 or given.minutes
    print(f"seed: {seed} (SEED={seed} replays the plan and the load)", flush=True)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="canal-soak-"))
    options = RunOptions(
        seed,
        minutes * 60,
        given.rate,
        folder,
        flavours=tuple(given.sources),
        readers=tuple(given.readers),
        only=tuple(given.only),
    )
    # So that everything which was started is ended, and unmounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(int(options.seconds + OVERTIME_S))
    try:
        result = carried_out(options, given.plot)
    except OutOfTime:
        print(f"FAILED: it did not end in time; seed {seed}, the logs are in {folder}")
        return LOST
    except Unavailable as error:
        print(f"cannot run here: {error}", file=sys.stderr)
        return UNAVAILABLE
    for fact in result.facts:
        print(fact)
    for problem in result.problems:
        print(f"LOST: {problem}")
    print(f"{given.plot} shows it; seed {seed}")
    if result.problems:
        print(f"FAILED: {len(result.problems)} problems; the logs are in {folder}")
        return LOST
    print(f"nothing was lost in {minutes:g} minutes, with {len(result.faults)} faults")
    if given.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def out_of_time(*_: object) -> None:
    """End a run that hangs, wherever that is."""
    raise OutOfTime


def carried_out(options: RunOptions, plot: Path) -> Result:
    """Carry out a run, and draw it whatever comes of it."""
    with Run(options) as run, ExitStack() as ending:
        ending.callback(
            lambda: plot.write_text(drawn(run.sampler.samples, run.result.faults))
        )
        ending.enter_context(run.sampler)
        for client in run.clients:
            client.start()
        began = time.monotonic()
        try:
            with ExitStack() as writing:
                for load in run.loads:
                    writing.enter_context(load)
                run.disturb()
            print(f"{time.monotonic() - began:7.1f} s  all is written", flush=True)
            run.settle()
            print(f"{time.monotonic() - began:7.1f} s  all is read", flush=True)
            run.compare_lake()
            run.prove_loss()
        except Exception as error:  # noqa: BLE001  # what else was found is reported, too
            run.result.problems.append(f"the run broke: {error!r}")
        run.compare()
        return run.result


if __name__ == "__main__":
    sys.exit(main())
