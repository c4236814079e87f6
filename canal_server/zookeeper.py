"""The one door to ZooKeeper: a session with it, and its nodes.

No type of kazoo leaves this module, and none of its errors. Leaves out what is in the
nodes (`canal_server.position`).
"""

from __future__ import annotations

import logging
import math
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import KazooRetry

from canal_server.errors import (
    NodeExists,
    NodeMissing,
    VersionConflict,
    ZooKeeperError,
    ZooKeeperUnavailable,
)
from canal_server.lifecycle import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.lifecycle import Stop

logger = logging.getLogger(__name__)

# kazoo warns of each attempt to connect; what matters of them is told here.
_kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
_kazoo_logger.setLevel(logging.ERROR)

SESSION_TIMEOUT_S: Final = 90.0  # what the original asks for
REQUEST_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 5.0  # to connect, and again for the first answer
RETRY_DELAY_S: Final = 0.1
RETRY_DELAY_MAX_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 2.0
PATIENCE_S: Final = 1.0  # after which waiting is worth a line in the log

_OUT_OF_REACH: Final = (
    exceptions.ConnectionLoss,
    exceptions.SessionExpiredError,  # also that of a session that was closed
    exceptions.OperationTimeoutError,
    exceptions.SessionMovedError,
    exceptions.CancelledError,
    KazooTimeoutError,
)


class SessionState(StrEnum):
    """Whether there is a session, as far as this side can tell."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # no connection; the session may live on
    LOST = "lost"  # no session: its ephemeral nodes are gone


@dataclass(frozen=True, slots=True)
class Node:
    """What a node held when it was read."""

    data: bytes | None
    version: int  # grows by 1 with each write


class ZooKeeper:
    """A session that is opened anew whenever it is lost, for several users.

    Thread-safe. `start` and `close` are called once by each user: the last one that
    closes ends the session. Every request ends within `request_timeout_s`; without a
    connection it fails at once. Paths begin below the chroot of `servers`.
    """

    def __init__(
        self,
        servers: str,
        *,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self.servers = servers
        self._request_timeout_s = request_timeout_s
        self._client = _client_for(servers, session_timeout_s)
        self._client.add_listener(self._state_changed)
        self._lock = threading.Lock()  # guards the users
        self._users = 0
        # Replaced, not changed: kazoo's thread reads it without a lock, as `close`
        # waits for that thread.
        self._listeners: tuple[Callable[[SessionState], None], ...] = ()
        self._live = threading.Event()  # set while there is a connection

    def start(self) -> None:
        """Begin to connect; returns at once."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._live = self._client.start_async()

    def close(self) -> None:
        """End the session when nobody else uses it; does not wait for a dead link."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            # It may hang in an attempt to connect.
            closer = threading.Thread(
                target=self._end, name="zookeeper close", daemon=True
            )
            closer.start()
            closer.join(CLOSE_TIMEOUT_S)
            if not closer.is_alive():
                self._client.close()

    def _end(self) -> None:
        try:
            self._client.stop()
        except exceptions.KazooException as error:
            # Clean-up: without us, the session ends by its time.
            logger.warning("left the session with ZooKeeper behind: %r", error)

    @property
    def state(self) -> SessionState:
        """Return what is known of the session."""
        return SessionState(str(self._client.state).lower())

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        """Have each change of the state told, by a thread that must not wait."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def wait_until_connected(self, stop: Stop) -> None:
        """Wait for the first connection, and say so.

        Raises ZooKeeperUnavailable when a stop is asked for meanwhile, ZooKeeperError
        when the chroot does not exist.
        """
        deadline = Deadline(PATIENCE_S)
        told = False
        # Asked often, as a stop cannot wake who waits for a connection.
        while not self._live.wait(RETRY_DELAY_S):
            if stop.requested():
                raise ZooKeeperUnavailable(
                    f"stopped while waiting for ZooKeeper at {self.servers}"
                )
            if not told and deadline.passed():
                logger.warning("waiting for ZooKeeper at %s", self.servers)
                told = True
        if self._client.chroot and self.read("/") is None:
            raise ZooKeeperError(
                f"{self._client.chroot} does not exist in ZooKeeper at"
                f" {self.servers}, create it"
            )

    # --- nodes ----------------------------------------------------------------------

    def read(self, path: str) -> Node | None:
        """Return a node's content, None when there is no such node."""
        with self._translated("read", path):
            try:
                data, stat = self._ask(self._client.get_async, path)
            except exceptions.NoNodeError:
                return None
            return Node(data, int(stat.version))

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, none when there is no such node."""
        with self._translated("list", path):
            try:
                return sorted(self._ask(self._client.get_children_async, path))
            except exceptions.NoNodeError:
                return []

    def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False
    ) -> None:
        """Make a node, and those above it where they do not exist.

        An ephemeral one goes away with the session. Raises NodeExists.
        """
        try:
            self._create(path, data, ephemeral=ephemeral)
        except NodeMissing:
            parent = path.rpartition("/")[0]
            if not parent:
                raise
            self.ensure(parent)
            self._create(path, data, ephemeral=ephemeral)

    def ensure(self, path: str) -> None:
        """Make a node without content, unless it is there."""
        try:
            self.create(path)
        except NodeExists:
            return

    def write(self, path: str, data: bytes | None, version: int) -> int:
        """Replace the content of a node of this version; returns the next version.

        Raises VersionConflict and NodeMissing.
        """
        with self._translated("write", path):
            stat = self._ask(self._client.set_async, path, data, version)
            return int(stat.version)

    def delete(self, path: str) -> None:
        """Remove a node and all below it; nothing happens when it is not there."""
        for name in self.children(path):
            self.delete(f"{path}/{name}")
        with self._translated("delete", path):
            try:
                self._ask(self._client.delete_async, path)
            except exceptions.NoNodeError:
                return
            except exceptions.NotEmptyError:
                pass
            else:
                return
        # Somebody created one below it meanwhile.
        self.delete(path)

    def _create(self, path: str, data: bytes | None, *, ephemeral: bool) -> None:
        with self._translated("create", path):
            self._ask(self._client.create_async, path, data, None, ephemeral)

    def _ask(self, request: Callable[..., Any], *arguments: Any) -> Any:
        if not self._client.connected:
            # kazoo would keep the request until there is a connection again.
            raise exceptions.ConnectionLoss
        return request(*arguments).get(timeout=self._request_timeout_s)

    @contextmanager
    def _translated(self, verb: str, path: str) -> Iterator[None]:
        what = f"cannot {verb} {path} in ZooKeeper at {self.servers}"
        try:
            yield
        except _OUT_OF_REACH as error:
            reason = str(error) or type(error).__name__
            raise ZooKeeperUnavailable(f"{what}: {self.state}, {reason}") from error
        except exceptions.NodeExistsError as error:
            raise NodeExists(f"{what}: it is there") from error
        except exceptions.NoNodeError as error:
            raise NodeMissing(f"{what}: it, or what it is in, is not there") from error
        except exceptions.BadVersionError as error:
            raise VersionConflict(f"{what}: somebody else wrote it") from error
        except exceptions.NoAuthError as error:
            raise ZooKeeperError(f"{what}: its ACL does not allow that") from error
        except exceptions.KazooException as error:
            raise ZooKeeperError(f"{what}: {error!r}") from error

    # --- what kazoo's thread calls --------------------------------------------------

    def _state_changed(self, told: str) -> None:
        state = SessionState(told.lower())
        if state is SessionState.CONNECTED:
            logger.info("connected to ZooKeeper at %s", self.servers)
        elif self._users:
            logger.warning("the session with ZooKeeper at %s: %s", self.servers, state)
        for listener in self._listeners:
            listener(state)


class ZooKeepers:
    """The sessions of this process: one for each list of servers."""

    def __init__(self) -> None:
        self._sessions: dict[str, ZooKeeper] = {}

    def of(self, servers: str) -> ZooKeeper:
        """Return the session with these servers; not started by this call."""
        if servers not in self._sessions:
            self._sessions[servers] = ZooKeeper(servers)
        return self._sessions[servers]


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """Threads of kazoo, and connections that are given up in time."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Connect, within our time instead of a session's."""
        kwargs["timeout"] = min(CONNECT_TIMEOUT_S, kwargs["timeout"])
        return super().create_connection(*args, **kwargs)


def _client_for(servers: str, session_timeout_s: float) -> KazooClient:
    retry = KazooRetry(
        max_tries=-1, delay=RETRY_DELAY_S, backoff=2, max_delay=RETRY_DELAY_MAX_S
    )
    hosts, slash, chroot = servers.partition("/")
    # kazoo gives each server its part of the session's time to answer, but all of it
    # to one alone. A server that comes up may accept a connection and never answer,
    # so each is named as often as there are times to try.
    times = session_timeout_s / CONNECT_TIMEOUT_S / len(hosts.split(","))
    return KazooClient(
        hosts=",".join([hosts] * math.ceil(times)) + slash + chroot,
        handler=_Handler(),
        timeout=session_timeout_s,
        connection_retry=retry,
        logger=_kazoo_logger,
    )
