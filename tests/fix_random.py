"""Randomness that can be replayed: the seed is printed at the top of each run."""

from __future__ import annotations

import os
import random

import pytest

SEED = int(os.environ.get("CANAL_TEST_SEED") or random.SystemRandom().getrandbits(32))


def pytest_report_header() -> str:
    """Tell the seed and how to use it again."""
    return f"seed: {SEED} (CANAL_TEST_SEED={SEED} replays the random tests)"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Give random numbers that depend on the seed and on the test alone."""
    seed = f"{SEED}/{request.node.nodeid}"
    print(f"seed of this test: {seed}")
    return random.Random(seed)
