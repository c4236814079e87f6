"""A source and its standby, of which one is written to, with a proxy before each."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from replicas import OPTIONS_OF, Replicas
from servers import CANAL, PrivateServer
from tcp_proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from soak.load import Load

MORE_OPTIONS = (
    "--max-allowed-packet=64M",
    "--innodb-lock-wait-timeout=20",
    # Else a run of hours fills the disk; nobody stays back for so long.
    "--max-binlog-size=64M",
    "--binlog-expire-logs-seconds=1800",
    # For replicas: prepared XA transactions would lock gaps that a transaction before
    # their end may need. Writers set another level.
    "--transaction-isolation=READ-COMMITTED",
)


class Source:
    """Two servers of one flavour, and what can happen to them."""

    def __init__(self, flavour: str) -> None:
        self.flavour = flavour
        self.schema = f"soak_{flavour}"
        self.settling = threading.Lock()  # held while the roles change
        self._running = ExitStack()
        options = (*OPTIONS_OF[flavour], *MORE_OPTIONS)
        self.servers = [PrivateServer(flavour, options) for _ in range(2)]
        self.proxies: list[Proxy] = []
        self.writes: Proxy  # leads to the one that is written to

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            for server in self.servers:
                opened.enter_context(server)
                self.proxies.append(self._proxy(opened, server))
            self.replicas = Replicas(*self.servers)
            self.replicas.follow()
            if self.flavour == "mariadb":
                grant = f"GRANT REPLICA MONITOR ON *.* TO '{CANAL[0]}'@'%'"
                self.servers[0].execute(grant)
            self.writes = self._proxy(opened, self.servers[0])
            self.replicas.catch_up()
            self._running = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def now(self) -> PrivateServer:
        """Return the server that is written to."""
        return self.replicas.source

    def way(self) -> Proxy:
        """Return the proxy before the server that is written to."""
        return self.proxies[self.servers.index(self.now)]

    def kill(self) -> None:
        """Kill the server that is written to, and start it again."""
        self.now.kill()
        self.now.restart()

    def kill_standby(self) -> None:
        """Kill the standby, and start it again.

        A MariaDB that dies in the middle of a DDL completes it at the start, under a
        GTID of its own, with which it cannot follow any more.
        """
        replica = self.replicas.replica
        if self.flavour == "mariadb":
            replica.execute("STOP REPLICA SQL_THREAD")
        replica.kill()
        replica.restart()
        replica.execute("START REPLICA")

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Have the server that is written to stand still inside."""
        with standing_still(self.now.pid):
            yield

    def fail_over(self, load: Load) -> None:
        """Let the standby take over all that was written, and the old one follow it."""
        with load.rest():
            self.replicas.catch_up()
            self.now.kill()
            self.replicas.take_over()
            load.server = self.now
            self.writes.target = (self.now.host, self.now.port)
            self.writes.end_all()
        self.replicas.rejoin()

    def rotate(self) -> None:
        """Begin a new binlog file."""
        self.now.execute("FLUSH BINARY LOGS")

    def binlog_files(self) -> list[str]:
        """Return the names of the binlog files of the server that is written to."""
        return [str(row[0]) for row in self.now.execute("SHOW BINARY LOGS")]

    def purge_to(self, file: str) -> None:
        """Remove the binlog files before one."""
        self.now.execute(f"PURGE BINARY LOGS TO '{file}'")

    def _proxy(self, opened: ExitStack, server: PrivateServer) -> Proxy:
        proxy = Proxy(server.host, server.port)
        opened.callback(proxy.close)
        return proxy


@contextlib.contextmanager
def standing_still(pid: int | None) -> Iterator[None]:
    """Have a process of ours stand still inside."""
    if pid is None:
        yield
        return
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
