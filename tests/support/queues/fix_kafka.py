"""A private broker of Kafka, one node, from Maven's jars; skips without them."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from fix_interop import SWITCH
from kafka_broker import START_S, Broker, KafkaMissingError, java_and_jars
from servers import free_port
from tcp_proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Kafka(Broker):
    """A broker of a test, and what tests ask of it."""

    def __init__(
        self, java: str, jars: str, folder: Path, *more: str, linked: bool = False
    ) -> None:
        """Make the folder of a broker; `more` are lines of its settings.

        `linked`: there is a proxy, `link`, for what is to come through that.
        """
        behind = free_port() if linked else 0
        self.link = Proxy("127.0.0.1", behind) if linked else None
        ports = (0, 0) if self.link is None else (behind, self.link.port)
        super().__init__(java, jars, folder, *more, linked=ports)
        self.login: dict[str, str] = {}  # of clients in here, in librdkafka's words

    def start(self) -> Kafka:
        """Start it, and wait until it accepts connections."""
        self.run()
        return self

    def pause(self) -> None:
        """Let it answer nothing, while its connections stay."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it continue."""
        self.process.send_signal(signal.SIGCONT)

    def create(
        self, topic: str, partitions: int, settings: dict[str, str] | None = None
    ) -> None:
        """Create a topic."""
        admin: Any = pytest.importorskip("confluent_kafka.admin")
        client = admin.AdminClient({"bootstrap.servers": self.servers, **self.login})
        new = admin.NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=1,
            config=settings or {},
        )
        client.create_topics([new])[topic].result(START_S)

    def topics(self) -> set[str]:
        """Return the names of all topics."""
        admin: Any = pytest.importorskip("confluent_kafka.admin")
        client = admin.AdminClient({"bootstrap.servers": self.servers, **self.login})
        return set(client.list_topics(timeout=START_S).topics)

    def alter(self, topic: str, settings: dict[str, str]) -> None:
        """Change settings of a topic."""
        admin: Any = pytest.importorskip("confluent_kafka.admin")
        client = admin.AdminClient({"bootstrap.servers": self.servers, **self.login})
        entries = [
            admin.ConfigEntry(
                name, value, incremental_operation=admin.AlterConfigOpType.SET
            )
            for name, value in settings.items()
        ]
        resource = admin.ConfigResource("topic", topic, incremental_configs=entries)
        client.incremental_alter_configs([resource])[resource].result(START_S)

    def follow(self, topic: str, partition: int) -> Callable[[], Iterator[bytes]]:
        """Return a function that yields what a partition has since the last call."""
        read = self.follow_messages(topic, partition)
        return lambda: (message.value() for message in read())

    def follow_messages(
        self, topic: str, partition: int
    ) -> Callable[[], Iterator[Any]]:
        """Return the same with keys and headers."""
        kafka: Any = pytest.importorskip("confluent_kafka")
        consumer = kafka.Consumer(
            {**self.login, "bootstrap.servers": self.servers, "group.id": "nobody",
             "enable.auto.commit": False, "auto.offset.reset": "earliest",
             "allow.auto.create.topics": True, "log_level": 0}
        )  # fmt: skip
        consumer.assign([kafka.TopicPartition(topic, partition, 0)])

        def read() -> Iterator[Any]:
            while (message := consumer.poll(0.2)) is not None:
                if not message.error():
                    yield message

        return read

    def messages(self, topic: str, expected: int) -> dict[int, list[bytes]]:
        """Return the values of a topic by partition, when there are so many."""
        kafka: Any = pytest.importorskip("confluent_kafka")
        consumer = kafka.Consumer(
            {
                **self.login,
                "bootstrap.servers": self.servers,
                "group.id": "nobody",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        found: dict[int, list[bytes]] = {}
        give_up_at = time.monotonic() + START_S
        try:
            partitions = consumer.list_topics(topic, timeout=START_S).topics[topic]
            consumer.assign(
                [
                    kafka.TopicPartition(topic, number, kafka.OFFSET_BEGINNING)
                    for number in partitions.partitions
                ]
            )
            while sum(map(len, found.values())) < expected:
                message = consumer.poll(1.0)
                if message is not None and not message.error():
                    found.setdefault(message.partition(), []).append(message.value())
                assert time.monotonic() < give_up_at, f"not {expected} in {found}"
        finally:
            consumer.close()
        return found


@pytest.fixture(scope="module")
def kafka_jars(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Give the command of Java, and the class path of a broker."""
    if SWITCH not in os.environ:
        pytest.skip(f"{SWITCH}=1 runs it")
    pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")
    try:
        return java_and_jars(tmp_path_factory.mktemp("kafka"))
    except KafkaMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def make_kafka(
    kafka_jars: tuple[str, str], tmp_path: Path
) -> Iterator[Callable[..., Kafka]]:
    """Give a function that starts a broker, which is ended after the test.

    Its arguments are lines of more settings; with `linked`, it has a proxy.
    """
    made: list[Kafka] = []

    def make(*more: str, linked: bool = False) -> Kafka:
        folder = tmp_path / f"kafka{len(made)}"
        folder.mkdir()
        made.append(Kafka(*kafka_jars, folder, *more, linked=linked))
        return made[-1].start()

    yield make
    for each in made:
        if each.link is not None:
            each.link.close()
        each.kill()
