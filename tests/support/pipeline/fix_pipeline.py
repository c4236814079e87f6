"""Whole pipelines: a real source, `canal-server` as a process, clients of ours.

::

    def test_x(pipeline, rng):
        writer = pipeline.writer(rng)
        writer.write(10)
        with pipeline.client() as client:
            pipeline.receive(client, pipeline.checker(writer))
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from forked_command import ForkedCommand
from ledger import Checker, Writer

from canal_server.client import CanalClient, EntryType
from canal_server.daemon.control import ControlError, ask

if TYPE_CHECKING:
    import random
    import subprocess
    from collections.abc import Callable, Iterator

    from fix_proxy import Proxy
    from servers import Server

    from canal_server.client import Entry, Message

# The unit of patience: tests wait for multiples of it, and only for what does not
# come. A slow machine may have more.
UNIT_S = float(os.environ.get("CANAL_TEST_UNIT_S", "20"))
POLL_S = 0.01
DESTINATION = "example"
STARTED = "canal-server .* started"
FILE_WIRING = "classpath:spring/file-instance.xml"

Settings = dict[str, object]


class Process:
    """One run of a server; its log is read as it is written."""

    def __init__(self, popen: ForkedCommand | subprocess.Popen[str]) -> None:
        """Take one that was started just now, its standard error piped here."""
        self.log: list[str] = []
        self._changed = threading.Condition()
        self._popen = popen
        assert popen.stderr
        self._stderr = popen.stderr
        self.pid = self._popen.pid
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def _read_log(self) -> None:
        for line in self._stderr:
            with self._changed:
                self.log.append(line)
                self._changed.notify_all()
        with self._changed:
            self.log.append("")  # the end
            self._changed.notify_all()

    def wait_for_log(self, pattern: str, timeout_s: float = 3 * UNIT_S) -> str:
        """Return the first line in which a pattern is found, also an earlier one."""
        found: list[str] = []

        def look() -> bool:
            found.extend(line for line in self.log if re.search(pattern, line))
            return bool(found) or self.log[-1:] == [""]

        with self._changed:
            self._changed.wait_for(look, timeout_s)
        assert found, f"no {pattern!r} in the log:\n{''.join(self.log)}"
        return found[0]

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when it has ended."""
        self._popen.send_signal(number)

    def wait(self, timeout_s: float = 3 * UNIT_S) -> int:
        """Wait for its end, return its status; its log is complete then."""
        status = self._popen.wait(timeout_s)
        self._reader.join()
        self._stderr.close()
        return status

    def memory_max_mib(self) -> float:
        """Return the most memory that was resident so far."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) / 1024


class Pipeline:
    """A source, a conf folder with one destination, and a server process on it."""

    def __init__(
        self,
        source: Server,
        schema: str,
        folder: Path,
        settings: Settings,
        proxy: Proxy | None,
    ) -> None:
        self.source = source
        self.schema = schema
        self.conf = folder
        self.has_begins = source.flavour == "mysql"
        self._port = proxy.port if proxy else source.port
        self._host = "127.0.0.1" if proxy else source.host
        self._running: Process | None = None
        self.server_port_requested = 0  # a free one
        self.main_settings: Settings = {}  # more of canal.properties
        self.start_options: list[str] = []
        file, offset = source.binlog_position()
        self.settings: Settings = {
            "canal.instance.master.address": f"{self._host}:{self._port}",
            "canal.instance.dbUsername": source.user,
            "canal.instance.dbPassword": source.password,
            "canal.instance.master.journal.name": file,
            "canal.instance.master.position": offset,
            "canal.instance.filter.regex": rf"{schema}\..*",
        }
        self.configure(settings)

    def configure(self, settings: Settings, *, wiring: str = FILE_WIRING) -> None:
        """Change settings of the instance; None removes one. Counts from a start on."""
        self.settings |= settings
        write_properties(
            self.conf / "canal.properties",
            {
                "canal.ip": "127.0.0.1",
                "canal.port": self.server_port_requested,
                "canal.destinations": DESTINATION,
                "canal.instance.global.spring.xml": wiring,
                **self.main_settings,
            },
        )
        write_properties(self.conf / DESTINATION / "instance.properties", self.settings)

    def keep_port(self) -> None:
        """Have the server, which runs, listen on the same port when it starts again."""
        self.server_port_requested = self.server_port
        self.configure({})

    @property
    def meta_file(self) -> Path:
        """Return the file with the cursors."""
        return self.conf / DESTINATION / "meta.dat"

    # --- the process ------------------------------------------------------------------

    @property
    def process(self) -> Process:
        """Return the running process."""
        assert self._running, "the server does not run"
        return self._running

    def start(self) -> None:
        """Start the server and wait until clients can come."""
        assert self._running is None
        command = ["start", "--conf", str(self.conf), *self.start_options]
        self._running = Process(ForkedCommand(command))
        self._running.wait_for_log(STARTED)
        self.server_port = int(ask(self.conf, "status")["port"] or 0)  # 0: none

    def kill(self) -> None:
        """End the server as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server as an operator does."""
        process = self.process
        status = self._end(signal.SIGTERM)
        assert status == 0, f"status {status}; the log is:\n{''.join(process.log)}"

    def _end(self, number: signal.Signals) -> int:
        process, self._running = self.process, None
        process.send(number)
        return process.wait()

    def close(self) -> None:
        """End what runs and show its log, for a test that failed."""
        if self._running:
            process = self._running
            self.kill()
            print("".join(process.log))

    def status(self) -> dict[str, Any]:
        """Return what the server reports of the destination."""
        (instance,) = ask(self.conf, "status")["instances"]
        return dict(instance)

    def wait_for_status(self, expected: Callable[[dict[str, Any]], bool]) -> None:
        """Ask for the status until it is as expected."""
        give_up_at = time.monotonic() + 3 * UNIT_S
        while not expected(status := self.status()):
            assert time.monotonic() < give_up_at, f"the status stays {status}"
            time.sleep(POLL_S)

    # --- writing and reading ----------------------------------------------------------

    def writer(self, rng: random.Random, **options: Any) -> Writer:
        """Return a writer of transactions in this schema."""
        return Writer(self.source, self.schema, rng, **options)

    def checker(self, writer: Writer) -> Checker:
        """Return a checker of what a client receives of them."""
        return Checker(writer, begins=self.has_begins)

    @contextlib.contextmanager
    def client(
        self,
        client_id: int = 1001,
        filter_: str = "",
        *,
        timeout_s: float = 3 * UNIT_S,
    ) -> Iterator[CanalClient]:
        """Give a client that is connected and subscribed."""
        with self.unsubscribed_client(client_id, timeout_s=timeout_s) as client:
            client.subscribe(filter_)
            yield client

    def unsubscribed_client(
        self, client_id: int = 1001, *, timeout_s: float = 3 * UNIT_S
    ) -> CanalClient:
        """Return a client, not connected."""
        return CanalClient(
            "127.0.0.1",
            self.server_port,
            DESTINATION,
            client_id=client_id,
            timeout_s=timeout_s,
        )

    def receive(
        self,
        client: CanalClient,
        checker: Checker,
        *,
        count: int | None = None,
        batch_size: int = 100,
    ) -> None:
        """Receive and ack until so many transactions ended (None: all written)."""
        expected = len(checker.writer.transactions) if count is None else count
        for message in self.messages(client, batch_size=batch_size):
            checker.take(message.entries)
            client.ack(message.id)
            if not checker.has(expected):
                continue
            if count is None:
                assert not self._later(client, checker), "more than was written"
            self.settle(client)
            return

    def receive_some(
        self,
        client: CanalClient,
        checker: Checker,
        count: int,
        *,
        batch_size: int = 100,
    ) -> None:
        """Receive and ack so many messages that are not empty."""
        messages = self.messages(client, batch_size=batch_size)
        for message in itertools.islice(messages, count):
            checker.take(message.entries)
            client.ack(message.id)
        self.settle(client)

    def settle(self, client: CanalClient) -> None:
        """Wait until the server has dealt with all acks, which are not answered.

        Also raises what it had to say against them.
        """
        client.get(1)
        client.rollback()

    def _later(self, client: CanalClient, checker: Checker) -> tuple[Entry, ...]:
        """Return what comes after the last transaction, empty ones excepted."""
        message = client.get(1000)
        checker.take(message.entries)
        if message:
            client.ack(message.id)
        return tuple(e for e in message.entries if e.entry_type == EntryType.ROWDATA)

    def messages(
        self, client: CanalClient, *, batch_size: int = 100
    ) -> Iterator[Message]:
        """Yield messages that are not empty; fails when nothing comes for long."""
        while True:
            message = client.get(batch_size, 3 * UNIT_S)
            assert message, (
                f"nothing arrived in {3 * UNIT_S} s; the status is {self._shown()}"
            )
            yield message

    def rows(self, client: CanalClient, count: int) -> list[Entry]:
        """Receive and ack until so many entries with rows or statements arrived."""
        found: list[Entry] = []
        for message in self.messages(client):
            found += (e for e in message.entries if e.entry_type == EntryType.ROWDATA)
            client.ack(message.id)
            if len(found) >= count:
                return found
        raise AssertionError("messages never end")

    def _shown(self) -> object:
        try:
            return self.status()
        except ControlError as error:
            return error


def write_properties(file: Path, settings: Settings) -> None:
    """Write a file of settings, and its folder; None leaves a setting out."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        f"{key} = {_escaped(str(value))}\n"
        for key, value in settings.items()
        if value is not None
    ]
    file.write_text("".join(lines), encoding="latin-1")


def _escaped(value: str) -> str:
    """Write a value as Java's properties files require it."""
    return "".join(
        "\\\\" if c == "\\" else c if c < "\x80" else f"\\u{ord(c):04x}" for c in value
    )


@pytest.fixture
def make_pipeline(tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    """Give `make(server, schema, settings, proxy=…)`; what still runs is killed after.

    It begins at the current end of the binlog by default; `start` is left
    to the test.
    """
    made: list[Pipeline] = []

    def make(
        source: Server,
        schema: str,
        settings: Settings | None = None,
        *,
        proxy: Proxy | None = None,
    ) -> Pipeline:
        folder = tmp_path / f"conf{len(made)}"
        made.append(Pipeline(source, schema, folder, settings or {}, proxy))
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.close()


@pytest.fixture
def stopped(
    make_pipeline: Callable[..., Pipeline], source_server: Server, database: str
) -> Pipeline:
    """Give a pipeline from the shared MySQL, then MariaDB, that was not started."""
    return make_pipeline(source_server, database)


@pytest.fixture
def pipeline(stopped: Pipeline) -> Pipeline:
    """Give a running pipeline from the shared MySQL, then from the shared MariaDB."""
    stopped.start()
    return stopped
