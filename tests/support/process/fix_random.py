"""Randomness that can be replayed: the seed is printed at the top of each run.

Random tests are as long as everyday runs bear; CANAL_TEST_LONGER=10 makes each of them
ten times as long (with `--timeout=0`, as some then take more than the time of a test).
"""

from __future__ import annotations

import os
import random

import pytest

SEED = int(os.environ.get("CANAL_TEST_SEED") or random.SystemRandom().getrandbits(32))
os.environ["CANAL_TEST_SEED"] = str(SEED)  # for other processes of this run
LONGER = int(os.environ.get("CANAL_TEST_LONGER", "1"))


def longer(count: int) -> int:
    """Return how many rounds a random test is to have, where it usually has these."""
    return count * LONGER


def pytest_report_header() -> str:
    """Print the seed and how to use it again."""
    return f"seed: {SEED} (CANAL_TEST_SEED={SEED} replays the random tests)"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Give random numbers that depend on the seed and on the test alone."""
    seed = f"{SEED}/{request.node.nodeid}"
    print(f"seed of this test: {seed}")
    return random.Random(seed)
