"""A private broker of Kafka, one node, from Maven's jars; skips without them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from fix_interop import SWITCH, need, run
from servers import free_port
from support_paths import TESTS
from tcp_proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

POM = TESTS / "interop" / "kafka" / "pom.xml"
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
START_S = 120.0
POLL_S = 0.1
CLUSTER = "4L6g3nShT-eMCtK--X86sw"


class Kafka:
    """A broker that can be killed and started again; topics are made when asked for."""

    def __init__(
        self, java: str, jars: str, folder: Path, *more: str, linked: bool = False
    ) -> None:
        """Make the folder of a broker; `more` are lines of its settings.

        `linked`: there is a proxy, `link`, for what is to come through that.
        """
        self.port, controller = free_port(), free_port()
        behind = free_port()
        self.link = Proxy("127.0.0.1", behind) if linked else None
        listeners = advertised = f"PLAINTEXT://127.0.0.1:{self.port}"
        if self.link is not None:
            listeners += f",LINK://127.0.0.1:{behind}"
            advertised += f",LINK://127.0.0.1:{self.link.port}"
        self._java = (java, *JVM, "-classpath", jars)
        self._folder = folder
        self._settings = folder / "server.properties"
        self._settings.write_text(
            "process.roles=broker,controller\n"
            "node.id=1\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}\n"
            f"advertised.listeners={advertised}\n"
            "controller.listener.names=CONTROLLER\n"
            "inter.broker.listener.name=PLAINTEXT\n"
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "LINK:PLAINTEXT\n"
            f"log.dirs={folder / 'data'}\n"
            "num.partitions=4\n"
            "offsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\n"
            "transaction.state.log.min.isr=1\n" + "".join(f"{line}\n" for line in more)
        )
        made = run(*self._java, "kafka.tools.StorageTool", "format",
                   "-t", CLUSTER, "-c", str(self._settings))  # fmt: skip
        assert made.returncode == 0, made.stdout + made.stderr
        self._popen: subprocess.Popen[bytes] | None = None
        self.login: dict[str, str] = {}  # of clients in here, in librdkafka's words

    @property
    def servers(self) -> str:
        """The address of the broker."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> Kafka:
        """Start it, and wait until it accepts connections."""
        with (self._folder / "log").open("ab") as log:
            self._popen = subprocess.Popen(
                (*self._java, "kafka.Kafka", str(self._settings)),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        give_up_at = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert self._popen.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < give_up_at, "the broker does not answer"
                time.sleep(POLL_S)
            else:
                return self

    def kill(self) -> None:
        """End it at once."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            self._popen = None

    def pause(self) -> None:
        """Let it answer nothing, while its connections stay."""
        assert self._popen is not None, "it runs"
        self._popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it continue."""
        assert self._popen is not None, "it runs"
        self._popen.send_signal(signal.SIGCONT)

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
    maven, java = need("mvn"), need("java")
    found = tmp_path_factory.mktemp("kafka") / "jars"
    fetched = run(
        *(maven, "--batch-mode", "--quiet", "--file", str(POM)),
        *("dependency:build-classpath", f"-Dmdep.outputFile={found}"),
    )
    if fetched.returncode:
        pytest.skip(f"Kafka cannot be had: {fetched.stdout[:200]}")
    return java, found.read_text()


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
