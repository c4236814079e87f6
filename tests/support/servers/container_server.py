"""Servers in containers, started through `testcontainers`.

Leaves out the fixtures (`fix_containers`), so that tests without containers need not
load what is loaded here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import socket
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Self

import docker
import docker.errors
import pymysql
from servers import Server, Unavailable
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.exceptions import ContainerStartException
from zookeepers import SESSION_MAX_MS, TICK_MS, serves

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

IMAGES = {
    "mysql": "mysql:8.4",
    "mariadb": "mariadb:10.11",
    "zookeeper": "zookeeper:3.9",
}
OUR_REPOSITORY = "canal-debian"  # where tools/container_image.py puts its own
PORTS = {"mysql": 3306, "mariadb": 3306, "zookeeper": 2181}
START_SECONDS_MAX = 180.0  # the official images begin with two servers in turn
STOP_SECONDS_MAX = 60
PULL_SECONDS_MAX = 600
POLL_SECONDS = 0.1
OWNER_LABEL = "canal-server.tests.owner"

# As an operator sets them, by the manual; what the images have by default is left.
OPTIONS = (
    "--server-id=1",
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--innodb-buffer-pool-size=64M",
)
OPTIONS_OF = {"mysql": ("--gtid-mode=ON", "--enforce-gtid-consistency=ON")}


def connected() -> docker.DockerClient:
    """Return a client of the daemon. Raises Unavailable.

    What ended processes left is removed.
    """
    client, why = _client()
    if client is None:
        raise Unavailable(f"no Docker daemon: {why}")
    testcontainers_config.ryuk_disabled = True
    remove_left(client)
    return client


def _client() -> tuple[docker.DockerClient | None, str]:
    """Return a client of the daemon, or why there is none."""
    with warnings.catch_warnings():
        # One that finds no daemon leaves its socket to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return docker.from_env(timeout=PULL_SECONDS_MAX), ""
        except (docker.errors.DockerException, OSError) as error:
            why = str(error)
        gc.collect()
    return None, why


def default_image(client: docker.DockerClient, flavour: str) -> str:
    """Return the image to use when none is named."""
    for name in (IMAGES[flavour], f"{OUR_REPOSITORY}/{flavour}"):
        with contextlib.suppress(docker.errors.ImageNotFound):
            client.images.get(name)
            return name
    return IMAGES[flavour]


def provide(client: docker.DockerClient, image: str) -> None:
    """See that an image is at hand. Raises Unavailable."""
    try:
        try:
            client.images.get(image)
        except docker.errors.ImageNotFound:
            client.images.pull(image)
    # The client lets some errors of the connection through as they are.
    except (docker.errors.DockerException, OSError) as error:
        raise Unavailable(
            f"no image {image}, and it cannot be pulled: {error}; "
            "tools/container_image.py makes one"
        ) from error


class Container:
    """A container whose program serves one port, on a port of the host that stays.

    Its data live until `stop`; `kill` and `restart` keep them.
    """

    def __init__(self, image: str, port: int) -> None:
        self.image = image
        self.host = "127.0.0.1"
        self.host_port = 0
        self._port = port
        self._container = (
            DockerContainer(image)
            .with_bind_ports(port, _free_port())
            .with_kwargs(labels={OWNER_LABEL: _owner()})
        )

    def with_environment(self, **variables: str) -> Self:
        """Set variables of the program's environment, before `start`."""
        for name, value in variables.items():
            self._container.with_env(name, value)
        return self

    def with_command(self, *arguments: str) -> Self:
        """Set the program's arguments, before `start`."""
        self._container.with_command(list(arguments))
        return self

    def start(self, answers: Callable[[], bool]) -> None:
        """Start it and wait until it answers.

        Raises Unavailable when the daemon does not run it.
        """
        try:
            self._container.start()
        except (docker.errors.DockerException, ContainerStartException) as error:
            raise Unavailable(f"{self.image} does not start: {error}") from error
        self._wait(answers)

    def stop(self) -> None:
        """Remove the container and its data."""
        self._container.stop()

    def kill(self) -> None:
        """End the program as a power cut would; `restart` brings it back."""
        self._container.get_wrapped_container().kill()

    def restart(self, answers: Callable[[], bool]) -> None:
        """End the program if it runs, and start it on its data and port."""
        container = self._container.get_wrapped_container()
        container.stop(timeout=STOP_SECONDS_MAX)
        container.start()
        self._wait(answers)

    def _wait(self, answers: Callable[[], bool]) -> None:
        container = self._container.get_wrapped_container()
        give_up_at = time.monotonic() + START_SECONDS_MAX
        while True:
            container.reload()
            ended = container.status in {"exited", "dead"}
            assert not ended, f"{self.image} ended:\n{self.log_tail()}"
            with contextlib.suppress(ConnectionError):  # the port is not there yet
                host = self._container.get_container_host_ip()
                self.host = "127.0.0.1" if host == "localhost" else host
                self.host_port = self._container.get_exposed_port(self._port)
                if answers():
                    return
            assert time.monotonic() < give_up_at, (
                f"{self.image} did not answer within {START_SECONDS_MAX:g} s:\n"
                f"{self.log_tail()}"
            )
            time.sleep(POLL_SECONDS)

    def log_tail(self) -> str:
        """Return the end of what the container printed."""
        printed = self._container.get_wrapped_container().logs(tail=40)
        return str(printed.decode(errors="replace"))


class ContainerServer(Server):
    """A server of MySQL or MariaDB in a container of its own."""

    def __init__(self, flavour: str, image: str) -> None:
        super().__init__(flavour, "mysql://127.0.0.1")
        root_password = secrets.token_hex(8)
        self.admin = ("root", root_password)
        # The port may be seen from other machines: no password that others know.
        self.user, self.password = "canal", secrets.token_hex(8)
        self.image = image
        self._container = (
            Container(image, PORTS[flavour])
            .with_environment(MYSQL_ROOT_PASSWORD=root_password)
            .with_command(*OPTIONS, *OPTIONS_OF.get(flavour, ()))
        )

    def start(self) -> ContainerServer:
        """Start the container and wait until root is let in.

        Raises Unavailable when the daemon does not run it.
        """
        self._container.start(self._answers)
        account = f"'{self.user}'@'%'"
        self.execute(
            f"CREATE USER {account} IDENTIFIED BY '{self.password}'",
            f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}",
        )
        return self

    def stop(self) -> None:
        """Remove the container and its data."""
        self._container.stop()

    def kill(self) -> None:
        """End the server as a power cut would; `restart` brings it back."""
        self._container.kill()

    def restart(self, options: Sequence[str] | None = None) -> None:
        """End the server if it runs, and start it on its data and port."""
        assert options is None, "a container keeps its command"
        self._container.restart(self._answers)

    def _answers(self) -> bool:
        self.host, self.port = self._container.host, self._container.host_port
        try:
            self.connect().close()
        except pymysql.err.OperationalError:
            return False
        return True


class ContainerZooKeeper:
    """A ZooKeeper in a container of its own; what a private one can do."""

    def __init__(self, image: str) -> None:
        self.image = image
        self._container = Container(image, PORTS["zookeeper"]).with_environment(
            ZOO_TICK_TIME=str(TICK_MS),
            ZOO_MAX_CLIENT_CNXNS="0",
            ZOO_ADMINSERVER_ENABLED="false",
            ZOO_4LW_COMMANDS_WHITELIST="srvr",
            ZOO_CFG_EXTRA=f"maxSessionTimeout={SESSION_MAX_MS}",
            JVMFLAGS="-Xmx64m",
        )

    @property
    def servers(self) -> str:
        """Return what `canal.zkServers` is to be."""
        return f"{self._container.host}:{self._container.host_port}"

    def start(self) -> Self:
        """Start the container. Raises Unavailable when the daemon does not run it."""
        self._container.start(self._answers)
        return self

    def stop(self) -> None:
        """Remove the container and its data."""
        self._container.stop()

    def kill(self) -> None:
        """End it as a power cut would; `restart` brings it back."""
        self._container.kill()

    def restart(self) -> None:
        """End it if it runs, and start it on its data and port."""
        self._container.restart(self._answers)

    def _answers(self) -> bool:
        return serves(self._container.host, self._container.host_port)


def _owner() -> str:
    """Return what distinguishes this process from all others, of all machines."""
    return f"{socket.gethostname()} {os.getpid()} {_started(os.getpid())}"


def _started(pid: int) -> str:
    """Return when a process started, empty when there is none with this id."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]  # field 22; the name may hold blanks


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def remove_left(client: docker.DockerClient) -> None:
    """Remove containers of processes of this machine that no longer exist.

    Instead of testcontainers' own helper for this, a container that needs an
    image from the registry and the daemon's socket.
    """
    for container in client.containers.list(all=True, filters={"label": OWNER_LABEL}):
        host, pid, started = container.labels[OWNER_LABEL].rsplit(" ", 2)
        if host == socket.gethostname() and _started(int(pid)) != started:
            container.remove(force=True, v=True)
