"""Which status an error of the server has, by what it is."""

from __future__ import annotations

import pytest

from canal_server.errors import (
    CanalError,
    ClientError,
    ConfigError,
    TableMetaError,
    UnknownDestination,
    UnknownSubscription,
    UnknownTable,
)
from canal_server.web.problem_details import problem_of


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError(["to: not a position"]), 422),
        (UnknownDestination("any words"), 404),
        (UnknownTable("any words"), 404),
        (UnknownSubscription("any words"), 404),
        (TableMetaError("unknown table, says a source"), 409),
        (ClientError("shop has no subscription of this kind now"), 409),
        (CanalError("it is starting, try again"), 409),
    ],
)
def test_status(error, status):
    """The class decides, and the words do not."""
    found = problem_of(error)
    assert found.status == status
    assert found.detail == str(error)
