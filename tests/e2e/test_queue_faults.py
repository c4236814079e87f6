"""Faults at random under load: the source, the broker, the server, both networks.

With CANAL_INTEROP=1, as Kafka comes from Maven.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from fix_random import longer
from fix_store import in_thread
from random_shop import Shop, Topic, wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fix_kafka import Kafka
    from fix_pipeline import Pipeline
    from servers import PrivateServer, Server
    from tcp_proxy import Proxy

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

ROUNDS = 2
PARTITIONS = 4
SETTINGS: dict[str, object] = {
    "canal.mq.topic": "shop",
    "canal.mq.partitionsNum": PARTITIONS,
    "canal.mq.partitionHash": r".*\..*",
}
TRANSACTIONS = (100, 300)  # that are written around a fault


class Faults:
    """A source, a broker and a server between them, each link through a proxy."""

    def __init__(self, source: PrivateServer, link: Proxy, kafka: Kafka) -> None:
        self._source, self._link, self._kafka = source, link, kafka
        self.pipeline: Pipeline | None = None

    def server_killed(self) -> None:
        """End the server as a crash would, and start it."""
        assert self.pipeline
        self.pipeline.kill()
        self.pipeline.start()

    def broker_killed(self) -> None:
        """End the broker as a crash would, and start it."""
        self._kafka.kill()
        self._kafka.start()

    def source_killed(self) -> None:
        """End the source as a crash would, and start it."""
        self._source.kill()
        self._source.restart()

    def source_cut_off(self) -> None:
        """End the connections to the source; new ones are refused for a moment."""
        with self._link.refuse():
            self._link.end_all()

    def broker_cut_off(self) -> None:
        """End the connections to the broker, some in the middle of requests."""
        assert self._kafka.link
        with self._kafka.link.refuse():
            self._kafka.link.end_all()

    def broker_silent(self) -> None:
        """End them as well when what they had sent was held back."""
        assert self._kafka.link
        with self._kafka.link.silence():
            self._kafka.link.end_all()

    @property
    def all(self) -> list[Callable[[], None]]:
        """Everything that can happen, with the one that stops the writers first."""
        return [
            self.source_killed, self.server_killed, self.broker_killed,
            self.source_cut_off, self.broker_cut_off, self.broker_silent,
        ]  # fmt: skip


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
@pytest.mark.parametrize("mode", ["exactly once", "at least once"])
def test_faults_at_random(  # noqa: PLR0917  # fixtures
    make_pipeline: Callable[..., Pipeline],
    own_server: Callable[..., PrivateServer],
    make_proxy: Callable[[Server], Proxy],
    make_kafka: Callable[..., Kafka],
    rng: random.Random,
    mode: str,
    flavour: str,
) -> None:
    """Nothing is lost, each table is in its order, and exactly once means that."""
    source, kafka = own_server(flavour), make_kafka(linked=True)
    assert kafka.link
    source.execute("CREATE DATABASE shop")
    link = make_proxy(source)
    faults = Faults(source, link, kafka)
    pipeline = faults.pipeline = make_pipeline(source, "shop", SETTINGS, proxy=link)
    pipeline.main_settings |= {
        "canal.serverMode": "kafka",
        "canal.mq.exactlyOnce": str(mode == "exactly once").lower(),
        "kafka.bootstrap.servers": f"127.0.0.1:{kafka.link.port}",
    }
    pipeline.configure({})
    topic = Topic(*(kafka.follow("shop", number) for number in range(PARTITIONS)))
    shop = Shop(pipeline, rng)
    pipeline.start()
    written = 0
    for _ in range(longer(ROUNDS)):
        happening = faults.all
        rng.shuffle(happening)
        for fault in happening:
            print(fault.__name__)
            before, more = topic.count("log"), rng.randint(*TRANSACTIONS)
            written += more
            if fault == faults.source_killed:
                shop.write(more)  # it would end the writer as well
                fault()
                continue
            writing = in_thread(shop.write, more)
            wait_until(lambda: topic.count("log") > before, pipeline.process)  # noqa: B023
            fault()
            writing.result()
    shop.write(1)
    wait_until(lambda: topic.has_all(shop), pipeline.process)
    topic.check(shop)
    ids = [int(each) for each in topic.log]
    if mode == "exactly once":
        assert ids == list(range(1, written + 2))
    assert set(ids) == set(range(1, written + 2))
    # What comes again does so from some message on, and nothing is left out.
    assert all(after <= before + 1 for before, after in itertools.pairwise(ids))
    pipeline.wait_for_status(lambda status: status["delivery"]["in_flight"] == 0)
    pipeline.stop()
