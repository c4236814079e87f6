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

_EPHEMERAL: Final = 1  # flag of a node to be created
_ANY: Final = -1  # instead of a version

_OUT_OF_REACH: Final = (
    exceptions.ConnectionLoss,
    exceptions.SessionExpiredError,  # also that of a session that was closed
    exceptions.OperationTimeoutError,
    exceptions.SessionMovedError,
    exceptions.CancelledError,
    KazooTimeoutError,
)


class _Unasked(exceptions.ConnectionLoss):  # type: ignore[misc]  # kazoo is untyped
    """A request that was not made, as there is no connection."""


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
    owner: int = 0  # the session that it goes away with; 0: it stays


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
        self._asked_s = session_timeout_s
        self._lock = threading.Lock()  # guards the users
        self._users = 0
        self._was_started = False
        # Replaced, not changed: kazoo's thread reads it without a lock, as `close`
        # waits for that thread.
        self._listeners: tuple[Callable[[SessionState], None], ...] = ()
        self._live = threading.Event()  # set while there is a connection
        self._session: int | None = None
        self._make_client()

    def _make_client(self) -> None:
        self._client = client = _client_for(self.servers, self._asked_s)
        self._granted = _Granted(client, self._asked_s)
        client.add_listener(lambda told: self._state_changed(client, told))

    def start(self) -> None:
        """Begin to connect; returns at once."""
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            if self._was_started:
                # The one before may still be about to end, and would not begin anew.
                self._session = None
                self._make_client()
            self._was_started = True
            self._live = self._client.start_async()

    def close(self) -> None:
        """End the session when nobody else uses it; does not wait for a dead link."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            # It may hang in an attempt to connect.
            closer = threading.Thread(
                target=_end, args=(self._client,), name="zookeeper close", daemon=True
            )
            closer.start()
            closer.join(CLOSE_TIMEOUT_S)

    @property
    def state(self) -> SessionState:
        """Return what is known of the session."""
        return SessionState(str(self._client.state).lower())

    @property
    def session(self) -> int | None:
        """Return the session that lives, as far as known; None: there is none."""
        return self._session

    @property
    def key(self) -> tuple[int, bytes] | None:
        """Return the session with the secret by which it can be taken over."""
        number, secret = self._client.client_id or (0, b"")
        return (int(number), bytes(secret)) if number == self._session else None

    @property
    def session_timeout_s(self) -> float:
        """Return for how long a silent session lives; servers grant what they like."""
        return self._granted.timeout_s

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        """Have each change of the state told, by a thread that must not wait."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def unlisten(self, listener: Callable[[SessionState], None]) -> None:
        """Tell a listener nothing more."""
        with self._lock:
            self._listeners = tuple(
                each for each in self._listeners if each != listener
            )

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
                cluster_messages.ZOOKEEPER_UNREACHABLE.log(logger, self.servers)
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
            return Node(data, int(stat.version), int(stat.ephemeralOwner))

    def watch(self, path: str, changed: Callable[[object], None]) -> Node | None:
        """Read a node, and have it told once when it is no longer so.

        `changed` is called, maybe without reason, when the node comes, goes or
        changes, or when the connection does; by a thread that must not wait. It may be
        given for several nodes, and again.
        """
        with self._translated("watch", path):
            # Only this watches also a node that is not there.
            self._ask(self._client.exists_async, path, changed)
        return self.read(path)

    def touch(self, timeout_s: float) -> int:
        """Have the leader answer, and return the session in which it did.

        It knows then that the session lived when this was called. Raises
        ZooKeeperUnavailable.
        """
        session = self._session
        with self._translated("sync", "/"):
            # A read would be answered by a server that the others have given up.
            self._ask(self._client.sync_async, "/", timeout_s=timeout_s)
        if session is None or session != self._session:
            raise ZooKeeperUnavailable(
                f"the session with ZooKeeper at {self.servers} has ended"
            )
        return session

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, none when there is no such node."""
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
        """Make a node, and those above it where they do not exist.

        An ephemeral one goes away with the session. Raises NodeExists. For `fence`
        see `write`.
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
        """Make a node without content, unless it is there."""
        try:
            self.create(path)
        except NodeExists:
            return

    def write(
        self, path: str, data: bytes | None, version: int, *, fence: str | None = None
    ) -> int:
        """Replace the content of a node of this version; returns the next version.

        Raises VersionConflict and NodeMissing. Nothing is written unless the node
        `fence` exists at that moment; LeaseLost when it does not.
        """
        request = SetData(self._full(path), data, version)
        return int(self._request("write", path, request, fence).version)

    def delete(self, path: str, *, fence: str | None = None) -> None:
        """Remove a node and all below it; nothing happens when it is not there.

        For `fence` see `write`.
        """
        for name in self.children(path):
            self.delete(f"{path}/{name}", fence=fence)
        try:
            self._request("delete", path, Delete(self._full(path), _ANY), fence)
        except NodeMissing:
            return
        except NodeNotEmpty:
            # Somebody created one below it meanwhile.
            self.delete(path, fence=fence)

    def delete_version(self, path: str, version: int) -> None:
        """Remove a node of this version. Raises VersionConflict and NodeMissing."""
        self._request("delete", path, Delete(self._full(path), version), None)

    def _request(self, verb: str, path: str, request: Any, fence: str | None) -> Any:
        """Have a node changed, if another one exists at that moment."""
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
            # kazoo would keep the request until there is a connection again.
            raise _Unasked
        if timeout_s is None:
            timeout_s = self._request_timeout_s
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
            raise NodeExists(f"{what}: it is there") from error
        except exceptions.NoNodeError as error:
            raise NodeMissing(f"{what}: it, or what it is in, is not there") from error
        except exceptions.BadVersionError as error:
            raise VersionConflict(f"{what}: somebody else wrote it") from error
        except exceptions.NotEmptyError as error:
            raise NodeNotEmpty(f"{what}: there are nodes below it") from error
        except exceptions.NoAuthError as error:
            raise ZooKeeperError(f"{what}: its ACL does not allow that") from error
        except exceptions.KazooException as error:
            raise ZooKeeperError(f"{what}: {error!r}") from error

    # --- what kazoo's thread calls --------------------------------------------------

    def _state_changed(self, client: KazooClient, told: str) -> None:
        if client is not self._client:
            return  # of a session that was closed
        state = SessionState(told.lower())
        if state is SessionState.CONNECTED:
            # Before any request is sent in it.
            self._session = int(self._client.client_id[0])
        elif state is SessionState.LOST:
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
    """Give a session of its own, for a person who waits.

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
            ) from None  # it tells of the stop
        finally:
            timer.cancel()
        yield zookeeper
    finally:
        zookeeper.close()


def end_session(servers: str, session: int, secret: bytes, timeout_s: float) -> bool:
    """End a session whose process is dead; false when it had ended.

    Raises ZooKeeperUnavailable without an answer in time.
    """
    client = _client_for(servers, timeout_s, key=(session, secret))
    try:
        # kazoo's `start` would also ask for the chroot, in whatever state that is.
        if not client.start_async().wait(timeout_s):
            raise ZooKeeperUnavailable(
                f"ZooKeeper at {servers} did not answer in {timeout_s:g} s"
            )
        # Another one is made where that one is not known any more.
        found = client.client_id  # None when the link broke just now
        return found is not None and found[0] == session
    finally:
        _end(client)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """Threads of kazoo, and connections that are given up in time."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Connect, within our time instead of a session's."""
        kwargs["timeout"] = min(CONNECT_TIMEOUT_S, kwargs["timeout"])
        return super().create_connection(*args, **kwargs)


class _Granted:
    """What a server grants of the time that a session may be silent.

    kazoo does not tell it, so its answer to the first request is looked at.
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
    """End a session; waits as long as that takes."""
    try:
        client.stop()
    except exceptions.KazooException as error:
        # Clean-up: without us, the session ends by its time.
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
    # kazoo gives each server its part of the session's time to answer, but all of it
    # to one alone. A server that comes up may accept a connection and never answer,
    # so each is named as often as there are times to try.
    times = session_timeout_s / CONNECT_TIMEOUT_S / len(hosts.split(","))
    return KazooClient(
        hosts=",".join([hosts] * math.ceil(times)) + slash + chroot,
        handler=_Handler(),
        timeout=session_timeout_s,
        connection_retry=retry,
        client_id=key,
        logger=_kazoo_logger,
    )
