"""The Java server as a process, with its cursors in ZooKeeper.

It is optional: CANAL_JAVA_HOME names the folder of a deployer (with `lib` and `conf`)
that is there already, and CANAL_INTEROP=1 asks for it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fix_cluster import WIRING
from fix_interop import SWITCH
from fix_pipeline import DESTINATION, UNIT_S, Pipeline, Process, write_properties
from java_original import MAIN_CLASS, VARIABLE, java_home
from server_process import free_port
from support_paths import TESTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fix_pipeline import Settings
    from servers import Server

    from canal_server.client import CanalClient, Message

LOG_SETTINGS = TESTS / "interop" / "java" / "server-logback.xml"
START_S = 9 * UNIT_S
GET_S = 0.2
OPTIONS = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # it lives for seconds
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
    "-Dfile.encoding=UTF-8",
)
ENDED_BY_SIGTERM = 128 + signal.SIGTERM

# What a test with it is marked with.
with_java_server = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get(SWITCH) != "1" or not os.environ.get(VARIABLE),
        reason=f"{SWITCH}=1 runs the Java server in {VARIABLE}",
    ),
]


class JavaServer(Pipeline):
    """The Java server on a destination that it shares by ZooKeeper."""

    def __init__(
        self, home: Path, zookeeper: str, source: Server, schema: str, folder: Path
    ) -> None:
        self._home = home
        self._zookeeper = zookeeper
        self._wiring = WIRING
        self._replaced: dict[str, str] = {}  # in the shipped wiring
        super().__init__(source, schema, folder, {}, None)
        self.server_port = free_port()

    def configure(self, settings: Settings, *, wiring: str = WIRING) -> None:
        """Change settings of the instance; None removes one. Counts from a start on."""
        self.settings |= settings
        self._wiring = wiring

    def replace_in_wiring(self, texts: dict[str, str]) -> None:
        """Replace texts, which must be there, in the shipped `default-instance.xml`."""
        self._replaced = texts

    def start(self) -> None:
        """Start the server and wait until clients can come."""
        self.begin()
        self.process.wait_for_log("the canal server is running now", START_S)

    def begin(self) -> None:
        """Start the server."""
        assert self._running is None
        self._write_folder()
        command = [
            shutil.which("java") or "java",
            *OPTIONS,
            f"-Dcanal.conf={self.conf}/canal.properties",
            f"-Dlogback.configurationFile={LOG_SETTINGS}",
            "-classpath",
            # Ours come first: the rest of `conf` is as it was shipped.
            f"{self.conf}:{self._home}/conf:{self._home}/lib/*",
            MAIN_CLASS,
        ]
        self._running = Process(
            subprocess.Popen(
                command,
                cwd=self.conf,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def _write_folder(self) -> None:
        """Write the settings after those shipped: of a key the last value counts."""
        write_properties(self.conf / DESTINATION / "instance.properties", self.settings)
        if self._replaced:
            self._write_wiring()
        file = self.conf / "canal.properties"
        write_properties(
            file,
            {
                "canal.ip": "127.0.0.1",
                "canal.register.ip": "127.0.0.1",
                "canal.port": self.server_port,
                "canal.metrics.pull.port": free_port(),
                "canal.admin.port": "",
                "canal.zkServers": self._zookeeper,
                "canal.zookeeper.flush.period": 20,
                "canal.destinations": DESTINATION,
                "canal.conf.dir": self.conf,
                "canal.auto.scan": "false",
                "canal.instance.global.spring.xml": self._wiring,
            },
        )
        shipped = (self._home / "conf" / "canal.properties").read_text("latin-1")
        file.write_text(f"{shipped}\n{file.read_text('latin-1')}", "latin-1")

    def _write_wiring(self) -> None:
        name = Path("spring") / "default-instance.xml"
        text = (self._home / "conf" / name).read_text()
        for old, new in self._replaced.items():
            assert old in text, f"no {old} in the shipped wiring"
            text = text.replace(old, new)
        (self.conf / name).parent.mkdir(exist_ok=True)
        (self.conf / name).write_text(text)

    def stop(self) -> None:
        """End the server as an operator does."""
        process = self.process
        status = self._end(signal.SIGTERM)
        assert status in (-signal.SIGTERM, ENDED_BY_SIGTERM), (
            f"status {status}; the log is:\n{''.join(process.log)}"
        )

    def status(self) -> dict[str, Any]:
        """Return nothing: it cannot be asked."""
        return {}

    def messages(
        self, client: CanalClient, *, batch_size: int = 100
    ) -> Iterator[Message]:
        """Yield messages that are not empty; fails when nothing comes for long.

        It waits for whole batches as long as it may.
        """
        give_up_at = time.monotonic() + START_S
        while True:
            if message := client.get(batch_size, GET_S):
                yield message
                give_up_at = time.monotonic() + START_S
            assert time.monotonic() < give_up_at, f"nothing arrived in {START_S} s"


@pytest.fixture(scope="module")
def java_server_home() -> Path:
    """Give the folder of the Java server; skipped without one."""
    home = java_home()
    if home is None or not shutil.which("java"):
        pytest.skip(f"{VARIABLE} names no Java server, or there is no java")
    return home
