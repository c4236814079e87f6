"""The one door to ZooKeeper: a session with it, and its nodes.

No type of kazoo leaves this module, and none of its errors. Leaves out the content of
the nodes (`canal_server.position`).
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
from kazoo.protocol.serialization import (
    CheckVersion,
    Connect,
    Create,
    Delete,
    SetData,
)
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from canal_server.errors import (
    LeaseLost,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NotConnected,
    VersionConflict,
    ZooKeeperError,
    ZooKeeperUnavailable,
)
from canal_server.messages import cluster_messages
from canal_server.runtime.lifecycle import Deadline, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


logger = logging.getLogger(__name__)

# kazoo warns about each attempt to connect; what matters is logged here.
_kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
_kazoo_logger.setLevel(logging.ERROR)

SESSION_TIMEOUT_S: Final = 90.0  # the Java server's value
REQUEST_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 5.0  # to connect, and again for the first reply
RETRY_DELAY_S: Final = 0.1
RETRY_DELAY_MAX_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 2.0
PATIENCE_S: Final = 1.0  # after which waiting is logged

_EPHEMERAL: Final = 1  # flag for a new node
_ANY: Final = -1  # instead of a version

_OUT_OF_REACH: Final = (
    exceptions.ConnectionLoss,
    exceptions.SessionExpiredError,  # also for a session that was closed
    exceptions.OperationTimeoutError,
    exceptions.SessionMovedError,
    exceptions.CancelledError,
    KazooTimeoutError,
)


class _Unasked(exceptions.ConnectionLoss):  # type: ignore[misc]  # kazoo is untyped
    """A request that was not sent, because there is no connection."""


class SessionState(StrEnum):
    """Whether there is a session, as far as this side knows."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # no connection; the session may still exist
    LOST = "lost"  # no session: its ephemeral nodes are deleted


@dataclass(frozen=True, slots=True)
class Node:
    """The content of a node when it was read."""

    data: bytes | None
    version: int  # incremented by each write
    owner: int = 0  # the session that deletes it at its end; 0: persistent


class ZooKeeper:
    """A session that is reopened whenever it is lost, for several users.

    Thread-safe. Each user calls `start` and `close` once: the last `close` ends the
    session. Every request ends within `request_timeout_s`; without a connection it
    fails at once. Paths are relative to the chroot of `servers`.
    """

    def __init__(
        self,
        servers: str,
        *,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self.servers = servers
        self.request_timeout_s = request_timeout_s  # of those to come
        self._asked_s = session_timeout_s
        self._lock = threading.Lock()  # guards the users
        self._users = 0
        self._was_started = False
        self.expired = 0  # sessions that ended against our will
        # Replaced, not changed: kazoo's thread reads it without a lock, because `close`
        # waits for that thread.
        self._listeners: tuple[Callable[[SessionState], None], ...] = ()
        self._live = threading.Event()  # set while there is a connection
        self._session: int | None = None
        self._make_client()

    def _make_client(self) -> None:
        self._client = client = _client_for(self.servers, self._asked_s)
        self._granted = _Granted(client, self._asked_s)
        client.add_listener(lambda state: self._state_changed(client, state))

    def start(self) -> None:
        """Start to connect; returns at once."""
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            if self._was_started:
                # The previous one may still be closing, and could not be restarted.
                self._session = None
                self._make_client()
            self._was_started = True
            self._live = self._client.start_async()

    def close(self) -> None:
        """End the session when it has no other user; does not wait for a dead link."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            # It may be stuck in an attempt to connect.
            closer = threading.Thread(
                target=_end, args=(self._client,), name="zookeeper close", daemon=True
            )
            closer.start()
            closer.join(CLOSE_TIMEOUT_S)

    @property
    def state(self) -> SessionState:
        """Return the known state of the session."""
        return SessionState(str(self._client.state).lower())

    @property
    def session(self) -> int | None:
        """Return the live session, as far as known, None without one."""
        return self._session

    @property
    def key(self) -> tuple[int, bytes] | None:
        """Return the session with the secret that lets another process use it."""
        number, secret = self._client.client_id or (0, b"")
        return (int(number), bytes(secret)) if number == self._session else None

    @property
    def session_timeout_s(self) -> float:
        """Return how long a silent session lives; the servers decide."""
        return self._granted.timeout_s

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        """Call a listener for each state change, on a thread that must not wait."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def unlisten(self, listener: Callable[[SessionState], None]) -> None:
        """Remove a listener."""
        with self._lock:
            self._listeners = tuple(
                each for each in self._listeners if each != listener
            )

    def wait_until_connected(self, stop: Stop) -> None:
        """Wait for the first connection, and log it.

        Raises ZooKeeperUnavailable when a stop is requested meanwhile, ZooKeeperError
        when the chroot does not exist.
        """
        deadline = Deadline(PATIENCE_S)
        is_logged = False
        # Polled, because a stop cannot wake a wait for a connection.
        while not self._live.wait(RETRY_DELAY_S):
            if stop.requested():
                raise ZooKeeperUnavailable(
                    f"stopped while waiting for ZooKeeper at {self.servers}"
                )
            if not is_logged and deadline.passed():
                cluster_messages.ZOOKEEPER_UNREACHABLE.log(logger, self.servers)
                is_logged = True
        if self._client.chroot and self.read("/") is None:
            raise ZooKeeperError(
                f"{self._client.chroot} does not exist in ZooKeeper at"
                f" {self.servers}; create it"
            )

    def wait_for_connection(self, timeout_s: float) -> None:
        """Wait for a connection. Raises ZooKeeperUnavailable."""
        if not self._live.wait(timeout_s):
            raise ZooKeeperUnavailable(
                f"ZooKeeper at {self.servers} did not answer in {timeout_s:g} s"
            )

    # --- nodes ----------------------------------------------------------------------

    def read(self, path: str) -> Node | None:
        """Return a node's content, None when it does not exist."""
        with self._translated("read", path):
            try:
                data, stat = self._ask(self._client.get_async, path)
            except exceptions.NoNodeError:
                return None
            return Node(data, int(stat.version), int(stat.ephemeralOwner))

    def watch(self, path: str, changed: Callable[[object], None]) -> Node | None:
        """Read a node, and be called once when it changes.

        `changed` is called, maybe without reason, when the node is created, deleted or
        changed, or when the connection is; on a thread that must not wait. It may be
        passed for several nodes, and repeatedly.
        """
        with self._translated("watch", path):
            # Only this also watches a node that does not exist.
            self._ask(self._client.exists_async, path, changed)
        return self.read(path)

    def touch(self, timeout_s: float) -> int:
        """Query the leader, and return the session in which it answered.

        The session was alive when this was called. Raises ZooKeeperUnavailable.
        """
        session = self._session
        with self._translated("sync", "/"):
            # A read would be answered by a server that the others have already dropped.
            self._ask(self._client.sync_async, "/", timeout_s=timeout_s)
        if session is None or session != self._session:
            raise ZooKeeperUnavailable(
                f"the session with ZooKeeper at {self.servers} has ended"
            )
        return session

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, none when it does not exist."""
        with self._translated("list", path):
            try:
                return sorted(self._ask(self._client.get_children_async, path))
            except exceptions.NoNodeError:
                return []

    def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        fence: str | None = None,
    ) -> None:
        """Create a node, and its missing parents.

        An ephemeral one is deleted with the session. Raises NodeExists. For `fence` see
        `write`.
        """
        request = Create(
            self._full(path), data, OPEN_ACL_UNSAFE, _EPHEMERAL if ephemeral else 0
        )
        try:
            self._request("create", path, request, fence)
        except NodeMissing:
            parent = path.rpartition("/")[0]
            if not parent:
                raise
            self.ensure(parent)
            self._request("create", path, request, fence)

    def ensure(self, path: str) -> None:
        """Create a node without content, unless it exists."""
        try:
            self.create(path)
        except NodeExists:
            return

    def write(
        self, path: str, data: bytes | None, version: int, *, fence: str | None = None
    ) -> int:
        """Replace the content of a node of this version; return the next version.

        Raises VersionConflict and NodeMissing. Nothing is written unless the node
        `fence` exists at that moment; LeaseLost when it does not.
        """
        request = SetData(self._full(path), data, version)
        return int(self._request("write", path, request, fence).version)

    def delete(self, path: str, *, fence: str | None = None) -> None:
        """Delete a node and everything below it; does nothing when it does not exist.

        For `fence` see `write`.
        """
        for name in self.children(path):
            self.delete(f"{path}/{name}", fence=fence)
        try:
            self._request("delete", path, Delete(self._full(path), _ANY), fence)
        except NodeMissing:
            return
        except NodeNotEmpty:
            # Another client created a child meanwhile.
            self.delete(path, fence=fence)

    def delete_version(self, path: str, version: int) -> None:
        """Delete a node of this version. Raises VersionConflict and NodeMissing."""
        self._request("delete", path, Delete(self._full(path), version), None)

    def _request(self, verb: str, path: str, request: Any, fence: str | None) -> Any:
        """Change a node, if another one exists at that moment."""
        requests = [request]
        if fence is not None:
            requests.insert(0, CheckVersion(self._full(fence), _ANY))
        with self._translated(verb, path):
            results = self._ask(self._transaction, requests)
            if fence is not None and isinstance(results[0], exceptions.NoNodeError):
                raise LeaseLost(
                    f"cannot {verb} {path} in ZooKeeper at {self.servers}: this server"
                    " may no longer run the destination"
                )
            if isinstance(results[-1], Exception):
                raise results[-1]
            return results[-1]

    def _transaction(self, requests: list[Any]) -> Any:
        transaction = self._client.transaction()
        transaction.operations += requests
        return transaction.commit_async()

    def _full(self, path: str) -> str:
        """Return a path below the chroot as it is sent."""
        return f"{self._client.chroot}{path}"

    def _ask(
        self,
        request: Callable[..., Any],
        *arguments: Any,
        timeout_s: float | None = None,
    ) -> Any:
        if not self._client.connected:
            # kazoo would queue the request until the next connection.
            raise _Unasked
        if timeout_s is None:
            timeout_s = self.request_timeout_s
        return request(*arguments).get(timeout=timeout_s)

    @contextmanager
    def _translated(self, verb: str, path: str) -> Iterator[None]:
        what = f"cannot {verb} {path} in ZooKeeper at {self.servers}"
        try:
            yield
        except _Unasked as error:
            raise NotConnected(f"{what}: {self.state}, ConnectionLoss") from error
        except _OUT_OF_REACH as error:
            reason = str(error) or type(error).__name__
            raise ZooKeeperUnavailable(f"{what}: {self.state}, {reason}") from error
        except exceptions.NodeExistsError as error:
            raise NodeExists(f"{what}: it exists") from error
        except exceptions.NoNodeError as error:
            raise NodeMissing(f"{what}: it, or what it is in, is not there") from error
        except exceptions.BadVersionError as error:
            raise VersionConflict(f"{what}: another client wrote it") from error
        except exceptions.NotEmptyError as error:
            raise NodeNotEmpty(f"{what}: there are nodes below it") from error
        except exceptions.NoAuthError as error:
            raise ZooKeeperError(f"{what}: its ACL does not allow that") from error
        except exceptions.KazooException as error:
            raise ZooKeeperError(f"{what}: {error!r}") from error

    # --- what kazoo's thread calls --------------------------------------------------

    def _state_changed(self, client: KazooClient, kazoo_state: str) -> None:
        if client is not self._client:
            return  # of a session that was closed
        state = SessionState(kazoo_state.lower())
        if state is SessionState.CONNECTED:
            # Before any request is sent in it.
            self._session = int(self._client.client_id[0])
        elif state is SessionState.LOST:
            self.expired += self._session is not None and self._users > 0
            self._session = None
        if state is SessionState.CONNECTED:
            logger.info("connected to ZooKeeper at %s", self.servers)
        elif self._users:
            cluster_messages.ZOOKEEPER_SESSION_DISTURBED.log(
                logger, self.servers, state
            )
        for listener in self._listeners:
            listener(state)


class ZooKeepers:
    """The sessions of this process: one for each list of servers."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, float], ZooKeeper] = {}

    def of(
        self, servers: str, session_timeout_s: float = SESSION_TIMEOUT_S
    ) -> ZooKeeper:
        """Return the session with these servers; not started by this call."""
        key = servers, session_timeout_s
        if key not in self._sessions:
            self._sessions[key] = ZooKeeper(
                servers, session_timeout_s=session_timeout_s
            )
        return self._sessions[key]


@contextmanager
def session_for(servers: str, timeout_s: float) -> Iterator[ZooKeeper]:
    """Yield a separate session, for an operator who waits.

    Raises ZooKeeperUnavailable without an answer in time, ZooKeeperError when the
    chroot does not exist.
    """
    stop = Stop()
    timer = threading.Timer(timeout_s, stop.request)
    timer.daemon = True
    zookeeper = ZooKeeper(servers)
    zookeeper.start()
    try:
        timer.start()
        try:
            zookeeper.wait_until_connected(stop)
        except ZooKeeperUnavailable:
            raise ZooKeeperUnavailable(
                f"ZooKeeper at {servers} did not answer in {timeout_s:g} s"
            ) from None  # the cause mentions the stop
        finally:
            timer.cancel()
        yield zookeeper
    finally:
        zookeeper.close()


def end_session(servers: str, session: int, secret: bytes, timeout_s: float) -> bool:
    """End a session whose process is dead; false when it had ended already.

    Raises ZooKeeperUnavailable without an answer in time.
    """
    client = _client_for(servers, timeout_s, key=(session, secret))
    try:
        # kazoo's `start` would also look up the chroot, in any state.
        if not client.start_async().wait(timeout_s):
            raise ZooKeeperUnavailable(
                f"ZooKeeper at {servers} did not answer in {timeout_s:g} s"
            )
        # A new session is created where the old one is no longer known.
        found = client.client_id  # None when the link broke meanwhile
        return found is not None and found[0] == session
    finally:
        _end(client)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """Threads of kazoo, and connections with a shorter timeout."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Connect, within our time limit instead of the session's."""
        kwargs["timeout"] = min(CONNECT_TIMEOUT_S, kwargs["timeout"])
        return super().create_connection(*args, **kwargs)


class _Granted:
    """The session timeout that a server grants.

    kazoo does not expose it, so the reply to the first request is inspected.
    """

    def __init__(self, client: KazooClient, asked_s: float) -> None:
        self.timeout_s = asked_s
        self._invoke = client._connection._invoke  # noqa: SLF001  # see above
        client._connection._invoke = self._look  # noqa: SLF001

    def _look(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        result = self._invoke(timeout, request, xid)
        if isinstance(request, Connect) and result[0].time_out > 0:
            self.timeout_s = result[0].time_out / 1000
        return result


def _end(client: KazooClient) -> None:
    """End a session; waits as long as that needs."""
    try:
        client.stop()
    except exceptions.KazooException as error:
        # Clean-up: otherwise the session ends by its timeout.
        cluster_messages.ZOOKEEPER_SESSION_LEFT.log(logger, error)
    client.close()


def _client_for(
    servers: str, session_timeout_s: float, key: tuple[int, bytes] | None = None
) -> KazooClient:
    retry = KazooRetry(
        max_tries=-1,
        delay=RETRY_DELAY_S,
        backoff=2,
        max_delay=min(RETRY_DELAY_MAX_S, session_timeout_s / 20),
    )
    hosts, slash, chroot = servers.partition("/")
    # kazoo divides the session timeout among the servers, but gives all of it to a
    # single one. A starting server may accept a connection and never answer, so each
    # server is listed as often as there is time for attempts.
    times = session_timeout_s / CONNECT_TIMEOUT_S / len(hosts.split(","))
    return KazooClient(
        hosts=",".join([hosts] * math.ceil(times)) + slash + chroot,
        handler=_Handler(),
        timeout=session_timeout_s,
        connection_retry=retry,
        client_id=key,
        logger=_kazoo_logger,
    )
