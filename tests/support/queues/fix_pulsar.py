"""A private broker of Pulsar, one process, from Maven's jars; skips without them."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Self

import pytest
from fix_interop import SWITCH, need, run
from servers import free_port
from support_paths import TESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

POM = TESTS / "interop" / "pulsar" / "pom.xml"
OPENED = (
    "java.base/sun.net", "java.management/sun.management", "java.base/java.nio",
    "java.base/jdk.internal.misc", "java.base/java.util.zip",
)  # fmt: skip
JVM = (
    "-Xmx320m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1", "-Dio.netty.tryReflectionSetAccessible=true",
    *(f"--add-opens={each}=ALL-UNNAMED" for each in OPENED),
)  # fmt: skip
START_S = 300.0  # a slow machine takes its time
POLL_S = 0.2
LOG_CHARACTERS = 4000


class Pulsar:
    """A broker that can be killed and started again; it creates topics when asked."""

    def __init__(
        self, java: str, jars: str, folder: Path, *more: str, token: str = ""
    ) -> None:
        """Make the folder of a broker; `more` are lines of its settings.

        `token` is that of an administrator, if it asks for one.
        """
        self._token = token
        self.port, self.web_port = free_port(), free_port()
        self._folder = folder
        settings = folder / "standalone.conf"
        settings.write_text(
            "clusterName=standalone\n"
            f"brokerServicePort={self.port}\n"
            f"webServicePort={self.web_port}\n"
            "bindAddress=127.0.0.1\n"
            "advertisedAddress=127.0.0.1\n"
            "managedLedgerDefaultEnsembleSize=1\n"
            "managedLedgerDefaultWriteQuorum=1\n"
            "managedLedgerDefaultAckQuorum=1\n"
            "managedLedgerCacheSizeMB=16\n"
            "loadBalancerEnabled=false\n"
            "numIOThreads=2\n"
            "numHttpServerThreads=8\n" + "".join(f"{line}\n" for line in more)
        )
        self._command = (
            java, *JVM, "-classpath", jars, "org.apache.pulsar.PulsarStandaloneStarter",
            "--config", str(settings), "--no-functions-worker", "--no-stream-storage",
            "--metadata-dir", str(folder / "metadata"),
            "--bookkeeper-dir", str(folder / "bookkeeper"),
            "--advertised-address", "127.0.0.1",
        )  # fmt: skip
        self._popen: subprocess.Popen[bytes] | None = None
        self._clients: list[Any] = []

    @property
    def servers(self) -> str:
        """The address of the broker."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """What `pulsarmq.serverUrl` is to be."""
        return f"pulsar://{self.servers}"

    @property
    def admin_url(self) -> str:
        """What `pulsarmq.adminServerUrl` is to be."""
        return f"http://127.0.0.1:{self.web_port}"

    def start(self) -> Self:
        """Start it, and wait until it has its namespace for topics."""
        with (self._folder / "log").open("ab") as log:
            self._popen = subprocess.Popen(
                self._command, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT
            )
        give_up_at = time.monotonic() + START_S
        while not self._answers():
            text = (self._folder / "log").read_text()[-LOG_CHARACTERS:]
            assert self._popen.poll() is None, text
            assert time.monotonic() < give_up_at, f"the broker does not answer: {text}"
            time.sleep(POLL_S)
        return self

    def kill(self) -> None:
        """End it at once."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            self._popen = None

    def stop(self) -> None:
        """End it, and those who read from it."""
        self.kill()
        for each in self._clients:
            each.close()

    def admin(self, method: str, path: str, body: str | None = None) -> bytes:
        """Ask the administrative service."""
        request = urllib.request.Request(
            f"{self.admin_url}/admin/v2/{path}",
            None if body is None else body.encode(),
            {"Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {self._token}"} if self._token else {}),
            method=method,
        )
        with urllib.request.urlopen(request, timeout=START_S) as response:
            return bytes(response.read())

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic with partitions."""
        path = f"persistent/public/default/{topic}/partitions"
        self.admin("PUT", path, str(partitions))

    def follow(self, topic: str) -> Callable[[], Iterator[bytes]]:
        """Return a function that yields what a topic or partition has since then."""
        read = self.follow_messages(topic)
        return lambda: (message.data() for message in read())

    def follow_messages(self, topic: str) -> Callable[[], Iterator[Any]]:
        """Return the same with keys and properties."""
        pulsar: Any = pytest.importorskip("pulsar")
        readers: list[Any] = []

        def read() -> Iterator[Any]:
            try:
                if not readers:
                    earliest = pulsar.MessageId.earliest
                    readers.append(self._client.create_reader(topic, earliest))
                while True:
                    yield readers[0].read_next(500)
            except pulsar.PulsarException:
                return  # there is nothing, or nobody

        return read

    def messages(self, topic: str, expected: int) -> list[Any]:
        """Return the messages of a topic or partition, when there are so many."""
        read = self.follow_messages(topic)
        found: list[Any] = []
        give_up_at = time.monotonic() + START_S
        while len(found) < expected:
            found.extend(read())
            assert time.monotonic() < give_up_at, f"not {expected}: {found}"
        return found

    @property
    def _client(self) -> Any:
        """Return the client of all readers."""
        pulsar: Any = pytest.importorskip("pulsar")
        if not self._clients:
            logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
            self._clients.append(pulsar.Client(self.url, logger=logger))
        return self._clients[-1]

    def _answers(self) -> bool:
        try:
            return b"public/default" in self.admin("GET", "namespaces/public")
        except OSError:
            return False


@pytest.fixture(scope="session")
def pulsar_jars(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Give the command of Java, and the class path of a broker."""
    if SWITCH not in os.environ:
        pytest.skip(f"{SWITCH}=1 runs it")
    pytest.importorskip("pulsar", reason="the extra `pulsar` is not installed")
    maven, java = need("mvn"), need("java")
    found = tmp_path_factory.mktemp("pulsar") / "jars"
    fetched = run(
        *(maven, "--batch-mode", "--quiet", "--file", str(POM)),
        *("dependency:build-classpath", f"-Dmdep.outputFile={found}"),
    )
    if fetched.returncode:
        pytest.skip(f"Pulsar cannot be had: {fetched.stdout[:200]}")
    return java, found.read_text()


@pytest.fixture
def make_pulsar(
    pulsar_jars: tuple[str, str], tmp_path: Path
) -> Iterator[Callable[..., Pulsar]]:
    """Give a function that starts a broker, which is ended after the test.

    Its arguments are lines of more settings, and the token of an administrator.
    """
    made: list[Pulsar] = []

    def make(*more: str, token: str = "") -> Pulsar:
        folder = tmp_path / f"pulsar{len(made)}"
        folder.mkdir()
        made.append(Pulsar(*pulsar_jars, folder, *more, token=token))
        return made[-1].start()

    yield make
    for each in made:
        each.stop()


@pytest.fixture(scope="module")
def shared_pulsar(
    pulsar_jars: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pulsar]:
    """Give a running broker that the tests of a module share."""
    shared = Pulsar(*pulsar_jars, tmp_path_factory.mktemp("pulsar"))
    try:
        yield shared.start()
    finally:
        shared.stop()
