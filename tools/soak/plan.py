"""What goes wrong and when, from a seed alone.

Faults come one after the other, each with a time of rest after it; the last part of a
run has none, so that all can catch up. Each kind comes once before one comes again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

KINDS = (
    "kill a server",
    "pause a server",
    "stop a server",
    "fill a disk",
    "turn a clock",
    "kill a source",
    "pause a source",
    "kill a standby",
    "fail over",
    "cut a link",
    "silence a link",
    "refuse a link",
    "rotate",
    "purge",
    "hand over",
    "kill ZooKeeper",
    "pause ZooKeeper",
    "kill the history of tables",
    "kill the Spark stream",
    "pause the Spark stream",
    "kill the mirror",
    "pause the mirror",
    "stop the mirror",
)
FIRST_S = 8.0  # until the first one
REST_S = (3.0, 14.0)  # after one
LENGTH_S = (1.0, 12.0)  # of those that last
LAST_SHARE = 0.12  # of a run, without faults


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is done to a part; `which` picks one where there are several."""

    kind: str
    which: int
    length_s: float
    rest_s: float

    def __str__(self) -> str:
        return f"{self.kind} ({self.which}, {self.length_s:.1f} s)"


def planned(seed: int, seconds: float, kinds: tuple[str, ...] = KINDS) -> list[Fault]:
    """Return more than enough faults for a run; who carries them out ends in time."""
    rng = random.Random(f"plan {seed}")
    found: list[Fault] = []
    while len(found) * REST_S[0] < seconds + len(kinds) * REST_S[0]:
        found += [
            Fault(kind, rng.randrange(4), rng.uniform(*LENGTH_S), rng.uniform(*REST_S))
            for kind in rng.sample(kinds, len(kinds))
        ]
    return found


def faults_end_s(seconds: float) -> float:
    """Return when the last fault may begin."""
    return seconds * (1 - LAST_SHARE)
