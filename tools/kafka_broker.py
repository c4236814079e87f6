"""A private broker of Kafka, one node, from Maven's jars.

    with private_kafka() as broker: ... broker.servers ...

Kafka itself is in no package of Debian or PyPI: `mvn` gets its jars, and keeps them.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

POM = Path(__file__).parents[1] / "tests" / "interop" / "kafka" / "pom.xml"
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
START_S = 120.0
POLL_S = 0.1
CLUSTER = "4L6g3nShT-eMCtK--X86sw"


class KafkaMissingError(Exception):
    """There can be no broker here, and why."""


class Broker:
    """A broker that can be killed and started again; topics are made when asked for."""

    def __init__(
        self, java: str, jars: str, folder: Path, *more: str, linked: tuple[int, int]
    ) -> None:
        """Make the folder of a broker; `more` are lines of its settings.

        `linked` are the port of another listener and the one that it names to clients.
        """
        self.port, controller = free_port(), free_port()
        listeners = advertised = f"PLAINTEXT://127.0.0.1:{self.port}"
        if linked != (0, 0):
            listeners += f",LINK://127.0.0.1:{linked[0]}"
            advertised += f",LINK://127.0.0.1:{linked[1]}"
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
        command = (*self._java, "kafka.tools.StorageTool", "format",
                   "-t", CLUSTER, "-c", str(self._settings))  # fmt: skip
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """The address of the broker."""
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process, while it runs."""
        assert self._popen is not None, "it runs"
        return self._popen

    def run(self) -> None:
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
                return

    def kill(self) -> None:
        """End it at once."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            self._popen = None


def java_and_jars(folder: Path) -> tuple[str, str]:
    """Return the command of Java and the class path. Raises KafkaMissingError."""
    maven, java = shutil.which("mvn"), shutil.which("java")
    if maven is None or java is None:
        raise KafkaMissingError("Kafka's jars need mvn, and java to run")
    found = folder / "jars"
    command = (maven, "--batch-mode", "--quiet", "--file", str(POM),
               "dependency:build-classpath", f"-Dmdep.outputFile={found}")  # fmt: skip
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    if fetched.returncode:
        raise KafkaMissingError(f"Kafka cannot be had: {fetched.stdout[:200]}")
    return java, found.read_text()


@contextlib.contextmanager
def private_kafka() -> Iterator[Broker]:
    """Give a running broker. Raises KafkaMissingError."""
    with tempfile.TemporaryDirectory(prefix="canal-kafka-") as name:
        folder = Path(name)
        broker = Broker(*java_and_jars(folder), folder, linked=(0, 0))
        try:
            broker.run()
            yield broker
        finally:
            broker.kill()
