"""Plans come of their seeds alone, and leave nothing out."""

from __future__ import annotations

from soak.plan import KINDS, LAST_SHARE, REST_S, faults_end_s, planned


def test_a_seed_is_a_plan():
    """One seed gives one plan, another one another."""
    assert planned(1, 600) == planned(1, 600)
    assert planned(1, 600) != planned(2, 600)


def test_every_kind_comes(rng):
    """Each kind comes once before any comes again, with all seeds."""
    plan = planned(rng.getrandbits(32), 600)
    kinds = [fault.kind for fault in plan]
    for begin in range(0, len(kinds) - len(KINDS) + 1, len(KINDS)):
        assert set(kinds[begin : begin + len(KINDS)]) == set(KINDS)


def test_enough_for_the_time(rng):
    """A plan does not end before the run, even if each fault takes no time."""
    plan = planned(rng.getrandbits(32), 7200)
    assert sum(max(fault.rest_s, REST_S[0]) for fault in plan) > 7200


def test_only_some_kinds(rng):
    """Kinds that cannot be done here are left out."""
    plan = planned(rng.getrandbits(32), 60, ("rotate",))
    assert {fault.kind for fault in plan} == {"rotate"}


def test_the_last_part_is_calm():
    """No fault begins in the last part of a run."""
    assert faults_end_s(1000) == 1000 * (1 - LAST_SHARE)
