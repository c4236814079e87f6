"""Private brokers of RabbitMQ from Debian's packages, for the delivery to one.

Each runs in a folder of its own, with its own cookie, name and port mapper, on free
ports of the loopback interface, and ends with the process that started it. All programs
run with the C library of their own tree.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final, Self

from server_folders import Unavailable, claim_folder
from server_packages import package_tree
from server_spawner import SPAWNER
from servers import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PACKAGES: Final = ("rabbitmq-server", "erlang-nox")
ACCOUNT: Final = ("canal", "s3cret-of-canal")
START_S: Final = 180.0
STOP_S: Final = 10.0
# A command starts a virtual machine of Erlang; a slow machine may have more time.
CONTROL_S: Final = 6 * float(os.environ.get("CANAL_TEST_UNIT_S", "20"))
POLL_S: Final = 0.1
LOG_BYTES: Final = 4000
GREETING: Final = b"AMQP\x00\x00\x09\x01"
# What `erl` and the emulator start by path.
_OF_ERLANG: Final = (
    "beam.smp", "epmd", "erl_child_setup", "erlexec", "inet_gethost",
)  # fmt: skip


class Rabbit:
    """A broker that can be killed and started again; its queues are durable."""

    def __init__(self, *more: str) -> None:
        """Choose ports; `more` are lines of rabbitmq.conf."""
        self.user, self.password = ACCOUNT
        self.port, self._epmd_port, self._node_port = _free_ports(3)
        self._more = more
        self._queues: set[str] = set()  # that tests use, as below; they are deleted
        self.exchanges: set[str] = set()
        self._readers: set[str] = set()
        self._followers: list[Any] = []  # connections
        self._folder: Path | None = None
        self._owned: int | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Return what `rabbitmq.host` is to be."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start it, and wait until it answers. Raises Unavailable with its log."""
        if self._folder is None:
            self._folder, self._owned = claim_folder("rabbitmq")
            self._write_files(self._folder)
        if self._epmd is None:
            port = ("-port", str(self._epmd_port), "-address", "127.0.0.1")
            self._epmd = self._spawn(str(self._folder / "bin/epmd"), *port)
        self._process = self._spawn(str(_sbin() / "rabbitmq-server"))
        give_up_at = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                text = self._log.read_bytes()[-LOG_BYTES:].decode(errors="replace")
                self.stop()
                raise Unavailable(f"RabbitMQ does not start:\n{text}")
            time.sleep(POLL_S)
        return self

    def kill(self) -> None:
        """End it at once; `start` brings it back, with its queues."""
        _end(self._process)
        self._process = None

    def pause(self) -> None:
        """Let it fall silent with its connections open, until `resume`."""
        assert self._process is not None, "it is not started"
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def resume(self) -> None:
        """Let it continue after `pause`."""
        assert self._process is not None, "it is not started"
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it, and remove its folder."""
        self._close_followers()
        self.kill()
        _end(self._epmd)
        self._epmd = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._owned is not None:
            os.close(self._owned)
        self._folder = self._owned = None

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl; returns its output."""
        done = subprocess.run(
            ["env", *self._environ(), str(_sbin() / "rabbitmqctl"), *arguments],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=CONTROL_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def add_reader(self, user: str, password: str) -> None:
        """Create an account that may read all, and write nothing."""
        self.control("add_user", user, password)
        self._readers.add(user)
        self.control("set_permissions", user, "", "", ".*")

    def connection(self) -> Any:
        """Open a connection with the account of the administrator."""
        import pika  # noqa: PLC0415  # the extra may be missing

        credentials = pika.PlainCredentials(self.user, self.password)
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", self.port, credentials=credentials, heartbeat=0
            )
        )

    def create(
        self,
        queue: str,
        exchange: str = "",
        key: str = "#",
        arguments: dict[str, object] | None = None,
    ) -> None:
        """Create a durable queue, and bind it to a topic exchange."""
        self._queues.add(queue)
        with contextlib.closing(self.connection()) as connection:
            channel = connection.channel()
            channel.queue_declare(queue, durable=True, arguments=arguments)
            if exchange:
                self.exchanges.add(exchange)
                channel.exchange_declare(exchange, "topic", durable=True)
                channel.queue_bind(queue, exchange, key)

    def delete(self, queue: str) -> None:
        """Delete a queue."""
        with contextlib.closing(self.connection()) as connection:
            connection.channel().queue_delete(queue)

    def messages(self, queue: str) -> list[bytes]:
        """Return what a queue has, and take it."""
        read = self.follow(queue)
        found = list(read())
        self._followers.pop().close()
        return found

    def restore(self) -> None:
        """Have it run again, without what tests created and followed."""
        self._close_followers()
        if self._process is None:
            self.start()
        self.resume()
        with contextlib.closing(self.connection()) as connection:
            channel = connection.channel()
            for queue in self._queues:
                channel.queue_delete(queue)
            for exchange in self.exchanges:
                channel.exchange_delete(exchange)
        for user in self._readers:
            self.control("delete_user", user)
        self._queues.clear()
        self.exchanges.clear()
        self._readers.clear()

    def _close_followers(self) -> None:
        import pika  # noqa: PLC0415  # the extra may be missing

        for each in self._followers:
            with contextlib.suppress(pika.exceptions.AMQPError, OSError):
                each.close()
        self._followers.clear()

    def follow(self, queue: str) -> Callable[[], Iterator[bytes]]:
        """Return a function that yields what came to a queue since the last call.

        The queue loses it. Nothing comes while the broker is away.
        """
        import pika  # noqa: PLC0415  # the extra may be missing

        self._queues.add(queue)
        channels: list[Any] = []

        def read() -> Iterator[bytes]:
            with contextlib.suppress(pika.exceptions.AMQPError, OSError):
                if not channels:
                    self._followers.append(self.connection())
                    channels.append(self._followers[-1].channel())
                while (found := channels[0].basic_get(queue, auto_ack=True))[0]:
                    yield found[2]
                return
            channels.clear()

        return read

    @property
    def _log(self) -> Path:
        assert self._folder is not None, "`start` claims it"
        return self._folder / "server.log"

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        assert self._folder is not None, "`start` claims it"
        return SPAWNER.spawn(
            ["env", *self._environ(), *command], self._folder, self._log
        )

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.settimeout(5)
                connection.sendall(GREETING)
                return connection.recv(1) == b"\x01"
        except OSError:
            return False

    def _environ(self) -> list[str]:
        folder = self._folder
        return [
            f"PATH={folder}/bin:{os.environ['PATH']}",
            f"HOME={folder}",
            "RUNNING_UNDER_SYSTEMD=true",  # no shell stays between us and the broker
            f"RABBITMQ_NODENAME=canal{self.port}@localhost",
            f"RABBITMQ_DIST_PORT={self._node_port}",
            f"RABBITMQ_CTL_DIST_PORT_MIN={self._node_port + 1}",
            f"RABBITMQ_CTL_DIST_PORT_MAX={self._node_port + 50}",
            f"RABBITMQ_MNESIA_BASE={folder}/data",
            f"RABBITMQ_LOG_BASE={folder}/log",
            f"RABBITMQ_CONFIG_FILE={folder}/rabbitmq.conf",
            f"RABBITMQ_CONF_ENV_FILE={folder}/none",
            f"RABBITMQ_ENABLED_PLUGINS_FILE={folder}/plugins",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 1:1",
            f"ERL_EPMD_PORT={self._epmd_port}",
            "ERL_EPMD_ADDRESS=127.0.0.1",
        ]

    def _write_files(self, folder: Path) -> None:
        """Write the settings, and programs that run those of the tree."""
        (folder / "plugins").write_text("[].\n")
        lines = (
            f"listeners.tcp.1 = 127.0.0.1:{self.port}",
            f"default_user = {self.user}",
            f"default_pass = {self.password}",
            "log.file = false",
            "log.console = true",
            "disk_free_limit.absolute = 1MB",
            *self._more,
        )
        (folder / "rabbitmq.conf").write_text("".join(f"{each}\n" for each in lines))
        programs = folder / "bin"
        programs.mkdir()
        tree = _tree()
        erlang = tree / "usr/lib/erlang"
        loaders = [*tree.glob("usr/lib/*/ld-linux-*"), *tree.glob("lib/*/ld-linux-*")]
        runs = sorted(erlang.glob("erts-*/bin"))
        if not loaders or not runs:
            raise Unavailable(f"{tree} is not complete: remove it, it is fetched again")
        libraries = f"{tree}/usr/lib/{loaders[0].parent.name}:{loaders[0].parent}"
        for name in _OF_ERLANG:
            loaded = (str(loaders[0]), "--library-path", libraries, f"{runs[0]}/{name}")
            _write_program(programs / name, f'exec {shlex.join(loaded)} "$@"')
        _write_program(
            programs / "erl",
            f"export ROOTDIR={shlex.quote(str(erlang))}"
            f" BINDIR={shlex.quote(str(programs))} EMU=beam PROGNAME=erl",
            f'exec {shlex.quote(str(programs / "erlexec"))} "$@"',
        )


def _tree() -> Path:
    return package_tree("rabbitmq", *PACKAGES)


def _sbin() -> Path:
    found = sorted(_tree().glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin"))
    if not found:
        raise Unavailable(f"{_tree()} is not complete: remove it, it is fetched again")
    return found[-1]


def _write_program(path: Path, *lines: str) -> None:
    path.write_text("".join(f"{each}\n" for each in ("#!/bin/sh", *lines)))
    path.chmod(0o755)


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        if (port := free_port()) not in found:
            found.append(port)
    return found


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait(STOP_S)
