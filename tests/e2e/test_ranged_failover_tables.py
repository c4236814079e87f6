"""Ranges of random tables are the same from the server that replaces the source."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fix_failover import GTID_MODE, switching_to
from fix_random import longer
from ranged_query import Query
from soak.ledger import Ledger
from soak.load import Load

from canal_server.spark.options.offsets import offset_from_json

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from fix_pipeline import Pipeline
    from fix_replicas import Replicas

REPLICA_OPTIONS = ("--log-bin=second",)
_numbers = count(1)


@pytest.mark.slow
def test_the_same_rows(
    make_pipeline: Callable[..., Pipeline],
    replicas: Replicas,
    rng: random.Random,
    tmp_path: Path,
) -> None:
    """Batches with changes of tables between them, read again after a switch."""
    schema = f"random{next(_numbers)}"
    pipeline = make_pipeline(
        replicas.source, schema, switching_to(replicas.replica) | GTID_MODE
    )
    pipeline.start()
    scene: Any = SimpleNamespace(pipeline=pipeline)
    query = Query(scene)
    ledger = Ledger(tmp_path / "values")
    load = Load(replicas.source, schema, ledger, rng, per_second=60)
    taken: list[tuple[Any, Any, Any]] = []
    with closing(ledger), closing(query):
        with load:
            while len(taken) < longer(60):
                end = query.planned(40)
                if end is None:
                    continue
                planned = query.driver.plan(*map(offset_from_json, (query.log, end)))
                taken.append(((query.log, end), planned, query.rows(planned)))
                query.driver.committed(offset_from_json(end))
                query.log = end
            with load.rest():
                replicas.catch_up()
                replicas.source.kill()
                replicas.take_over()
                load.server = replicas.source
        assert not load.errors
        query.restart()
        del taken[0]  # its start has no GTID set
        for number, (log, planned, before) in enumerate(taken):
            now = query.driver.plan(*map(offset_from_json, log))
            for parts in (planned, now):
                # A replica changes rows of tables without a key in its own order.
                found = Counter(map(str, query.rows(parts)))
                expected = Counter(map(str, before))
                assert (number, expected - found, found - expected) == (number, {}, {})
    replicas.rejoin()
