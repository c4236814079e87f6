"""`canal.mq.form = debezium-avro`, with a real broker and a real registry of schemas.

With CANAL_INTEROP=1, as both come from Maven.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from avro_messages import AvroReader
from changing_tables import TABLES, AvroTable, ChangingTables
from fix_random import longer
from load import Load
from random_shop import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fix_kafka import Kafka
    from fix_pipeline import Pipeline
    from fix_registry import Apicurio

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")
pytest.importorskip("fastavro", reason="fastavro is not installed")

PAUSE_S = 0.1  # between the writer's portions, while the registry is away
ROUTES = {
    "canal.mq.dynamicTopic": r".*\..*",
    "canal.mq.partitionsNum": 4,
    "canal.mq.partitionHash": r".*\..*:$pk$",
}


def is_blocked(status: dict[str, Any]) -> bool:
    """Return whether the delivery waits for the registry, and says so."""
    found = status["delivery"]
    return found["state"] == "blocked" and (
        "the schema registry does not answer: http://127.0.0.1:" in found["reason"]
    )


@pytest.mark.parametrize("mode", ["at least once", "exactly once"])
def test_changes_of_columns(
    stopped: Pipeline,
    make_kafka: Callable[[], Kafka],
    apicurio: Apicurio,
    rng: random.Random,
    mode: str,
) -> None:
    """Topics have each change once, in order, with the schema of its time.

    The registry dies under load, and is there again; in the exactly-once mode, the
    server dies meanwhile. Without a kill of the server, nothing comes twice in the
    other mode either: a batch is sent when the registry has all its schemas.
    """
    pipeline, kafka = stopped, make_kafka()
    is_exact = mode == "exactly once"
    pipeline.main_settings |= {
        "canal.serverMode": "kafka",
        "kafka.bootstrap.servers": kafka.servers,
        "canal.mq.form": "debezium-avro",
        "canal.mq.keys": "primaryKey",
        "canal.mq.tombstones": "true",
        "canal.mq.debezium.name": "srv",
        "canal.mq.schema.registry.url": apicurio.url,
        "canal.mq.exactlyOnce": str(is_exact).lower(),
    }
    pipeline.configure(ROUTES)
    pipeline.start()
    source = ChangingTables(pipeline.source, pipeline.schema, rng)
    read = AvroReader(apicurio.text_of)
    topics = {
        name: AvroTable(
            [
                kafka.follow_messages(f"{pipeline.schema}_{name}", number)
                for number in range(4)
            ],
            read,
        )
        for name in TABLES
    }
    orders, log = topics.values()

    def has_all() -> bool:
        return all(topic.has(source.rows(name)) for name, topic in topics.items())

    source.write(longer(60))
    wait_until(has_all, pipeline.process)
    known = len(orders.schemas)
    assert known > 1
    for _ in range(longer(1)):
        with Load(source, PAUSE_S):
            apicurio.kill()
            pipeline.wait_for_status(is_blocked)
            if is_exact:
                pipeline.kill()
                pipeline.start()
                pipeline.wait_for_status(is_blocked)
            apicurio.start()
        wait_until(has_all, pipeline.process)
    assert len(orders.schemas) > known
    assert (len(log.schemas), len(log.rows)) == (1, source.written)
    assert orders.tombstones > 0
    pipeline.wait_for_status(lambda status: status["delivery"]["in_flight"] == 0)
    found = pipeline.status()["delivery"]
    assert (found["state"], found["reason"]) == ("delivering", "")
    subjects = {
        f"{pipeline.schema}_{name}-{what}"
        for name in TABLES
        for what in ("key", "value")
    }
    assert set(apicurio.ask("/subjects")) == subjects
    versions = apicurio.ask(f"/subjects/{pipeline.schema}_orders-value/versions")
    assert len(versions) >= len(orders.schemas)
    assert len(apicurio.ask(f"/subjects/{pipeline.schema}_orders-key/versions")) == 1
    pipeline.stop()
