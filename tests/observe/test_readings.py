"""The state that is shown of a destination, by what its status says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observed import instance_metrics, reading_of

from canal_server.observe.readings import READY_STATES, STATES


@pytest.mark.parametrize(
    ("life", "error", "lease_error", "state"),
    [
        ("idle", "", None, "idle"),
        ("competing", "", None, "standby"),
        ("competing", "no answer", "no answer", "no_lease"),
        ("competing", "access denied", None, "failed"),
        ("starting", "", None, "starting"),
        ("running", "", "no answer", "stopping"),
        ("stopping", "", "no answer", "stopping"),
        ("paused", "access denied", None, "failed"),
        ("stopped", "", None, "stopped"),
        ("ended", "", None, "failed"),
    ],
)
def test_one_that_does_not_run(life, error, lease_error, state):
    """Its life is its state, unless what it waits for cannot be had from anybody."""
    status = {"life": life, "error": error, "lease": {"error": lease_error}}
    found = reading_of(None, running=False, **status)
    assert found.state == state
    assert state in STATES


@pytest.mark.parametrize(
    ("status", "lag_s", "state"),
    [
        ({}, 0.0, "dumping"),
        ({}, 60.0, "catching_up"),
        ({"state": "connecting"}, None, "locating"),
        ({"state": "waiting", "error": "refused"}, None, "waiting"),
        ({"blocked": {"clients": [1]}}, 0.0, "blocked_on_client"),
        ({"blocked": {"clients": []}}, 0.0, "blocked_on_store"),
    ],
)
def test_one_that_runs(status, lag_s, state):
    """What its pump does is its state, and what blocks it."""
    metrics = instance_metrics()
    (source,) = metrics.sources.values()
    metrics = instance_metrics(sources={0: replace(source, lag_s=lag_s)})
    assert reading_of(metrics, **status).state == state


def test_ready():
    """Without ZooKeeper, or after a failure, a server is not ready."""
    assert set(STATES) - set(READY_STATES) == {
        "no_lease",
        "starting",
        "locating",
        "waiting",
        "failed",
    }
