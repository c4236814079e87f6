"""A TCP server on a free port, above an event store that tests fill by hand."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import select
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import pytest

from canal_server.config.schema import ServerConfig
from canal_server.errors import ClientError, StoreError
from canal_server.model.batch import Batch
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.memory_meta import MemoryMetaManager
from canal_server.protocol.auth import Credentials
from canal_server.protocol.entry_messages import Entry, EntryType, Header
from canal_server.protocol.framing import frame_length
from canal_server.protocol.packets import Packet
from canal_server.protocol.protobuf import decode, encode, varint
from canal_server.runtime.lifecycle import Deadline
from canal_server.server.listener import Server
from canal_server.server.service import Service
from canal_server.tls.server_tls import ServerTls
from canal_server.users.user_directory import UserDirectory

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from canal_server.model.identity import ClientIdentity
    from canal_server.ports import Span, TablePredicate
    from canal_server.runtime.lifecycle import Stop

DESTINATION = "example"
# How long a test waits for what must come; only a failure waits so long.
PATIENCE_S = 30.0
CLOSED = select.POLLRDHUP | select.POLLHUP | select.POLLERR


def make_entry(number: int, kind: EntryType = EntryType.ROWDATA) -> bytes:
    """Return an entry that is distinguished from others by its offset."""
    header = Header(version=1, logfile_name="binlog.000001", logfile_offset=number)
    return encode(Entry(header=header, entry_type=kind, store_value=b"x"))


def offsets(messages: tuple[bytes, ...]) -> list[int]:
    """Return the numbers of `make_entry`."""
    return [decode(Entry, each).header.logfile_offset for each in messages]


@dataclass
class StoreCursor:
    """Where a client stands: sequences of the next entry to give and to ack."""

    got: int = 0
    acked: int = 0


class FakeStore:
    """A `ports.EventStore` in plain Python: a list, and a cursor per client.

    With `memunit`, a batch's size counts units of so many bytes, else entries.
    """

    def __init__(self, memunit: int = 0) -> None:
        self.memunit = memunit
        self.lock = threading.Lock()
        self.records: list[tuple[bytes, EntryPosition, bool]] = []
        self.cursors: dict[int, StoreCursor] = {}
        self.free_before = 0  # entries that new cursors no longer find
        self.begins: set[bytes] = set()  # records that begin a transaction
        self.waiting: list[int] = []  # eventfds of gets that wait
        self.waiting_changed = threading.Condition(self.lock)
        self.closed = False
        self.on_fetched: Callable[[], None] = lambda: None  # between take and return

    def append(self, *entries: bytes) -> None:
        """Put entries; each is read to find its position."""
        with self.lock:
            for each in entries:
                entry = decode(Entry, each)
                header = entry.header
                position = EntryPosition(
                    header.logfile_name, header.logfile_offset, header.execute_time, 1
                )
                ackable = entry.entry_type == EntryType.TRANSACTIONEND
                wrapped = b"\x12" + varint(len(each)) + each
                if entry.entry_type == EntryType.TRANSACTIONBEGIN:
                    self.begins.add(wrapped)
                self.records.append((wrapped, position, ackable))
            self.wake()

    def wait_for_getters(self, count: int) -> None:
        """Return when so many gets wait."""
        with self.lock:
            assert self.waiting_changed.wait_for(
                lambda: len(self.waiting) == count, PATIENCE_S
            )

    def wake(self) -> None:
        """Wake all gets that wait."""
        for fd in self.waiting:
            os.eventfd_write(fd, 1)

    def subscribe(
        self,
        client_id: int,
        table_filter: TablePredicate | None,
        after: EntryPosition | Mapping[int, EntryPosition] | None,
    ) -> None:
        """Give the client a cursor."""
        with self.lock:
            cursor = StoreCursor(self.free_before, self.free_before)
            self.cursors.setdefault(client_id, cursor)

    def unsubscribe(self, client_id: int) -> None:
        """Drop the cursor."""
        with self.lock:
            self.cursors.pop(client_id, None)
            self.wake()

    def get(
        self,
        client_id: int,
        batch_size: int,
        timeout_s: float | None,
        peer_fd: int | None = None,
        *,
        whole: bool = False,
    ) -> Batch | None:
        """Take entries as the port says."""
        deadline = Deadline(timeout_s)
        while True:
            with self.lock:
                cursor = self._cursor(client_id)
                if self.closed:
                    return None
                if cursor.got < len(self.records):
                    batch = self._take(cursor, batch_size, whole=whole)
                    break
                if deadline.passed():
                    return None
                fd = os.eventfd(0)
                self.waiting.append(fd)
                self.waiting_changed.notify_all()
            if not self._wait(fd, deadline, peer_fd):
                return None
        self.on_fetched()
        return batch

    def _wait(self, fd: int, deadline: Deadline, peer_fd: int | None) -> bool:
        """Wait for entries; false when the peer has closed."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if peer_fd is not None:
            poll.register(peer_fd, CLOSED)
        left_s = deadline.remaining_s()
        ready = dict(poll.poll(None if left_s is None else left_s * 1000))
        with self.lock:
            self.waiting.remove(fd)
            self.waiting_changed.notify_all()
        os.close(fd)
        return peer_fd not in ready

    def _take(self, cursor: StoreCursor, batch_size: int, *, whole: bool) -> Batch:
        first = stop = cursor.got
        size = 0
        while stop < len(self.records) and (
            size <= batch_size * self.memunit
            if self.memunit
            else stop - first < batch_size
        ):
            size += len(self.records[stop][0])
            stop += 1
        ends = [n for n in range(first, stop) if self.records[n][2]]
        if whole and ends:
            stop = ends[-1] + 1
        cursor.got = stop
        fetched = self.records[first:stop]
        acks = [position for _, position, ackable in fetched if ackable]
        return Batch(
            first,
            stop - 1,
            tuple(memoryview(wrapped) for wrapped, _, _ in fetched),
            len(fetched),
            size,
            fetched[0][1],
            fetched[-1][1],
            acks[-1] if acks else None,
            is_open=not fetched[-1][2],
            begins_anew=fetched[0][0] in self.begins,
            is_broken=any(
                each in self.begins and not before[2]
                for before, (each, _, _) in itertools.pairwise(fetched)
            ),
        )

    def ack(self, client_id: int, last_sequence: int) -> None:
        """Move the acked position."""
        with self.lock:
            cursor = self._cursor(client_id)
            if not cursor.acked <= last_sequence < cursor.got:
                raise StoreError(f"no match ack position {last_sequence}")
            cursor.acked = last_sequence + 1

    def rollback(self, client_id: int) -> None:
        """Move the position of gets back."""
        with self.lock:
            cursor = self._cursor(client_id)
            cursor.got = cursor.acked
            self.wake()

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Return the position after which the client's entries come, if any is."""
        with self.lock:
            acked = self._cursor(client_id).acked
            return self.records[acked - 1][1] if acked else None

    def _cursor(self, client_id: int) -> StoreCursor:
        if client_id not in self.cursors:
            raise StoreError(f"client {client_id} has no cursor")
        return self.cursors[client_id]

    # The pump's side is `append` here.
    def put(self, spans: Sequence[Span], stop: Stop) -> bool:
        """Fail: tests use `append`."""
        raise AssertionError("not used")

    def wake_getters(self) -> None:
        """Fail: `append` wakes."""
        raise AssertionError("not used")

    def close(self) -> None:
        """Close, and end all waits."""
        with self.lock:
            self.closed = True
            self.wake()


class FakeInstance:
    """A `ports.RunningInstance` around a fake store and a real meta manager."""

    def __init__(self, destination: str, memunit: int = 0) -> None:
        self.destination = destination
        self.store = FakeStore(memunit)
        self.visits: list[tuple[str, int]] = []
        self.meta = MemoryMetaManager()
        self.moving = threading.Lock()
        self.lost: dict[int, str] = {}  # why, by client id
        self.refused: dict[int, str] = {}
        self.clients_max = 1000
        self.ranges = None

    def steady(self) -> threading.Lock:
        """Give what a move of cursors waits for."""
        return self.moving

    def log_position(self, position: EntryPosition) -> LogPosition:
        """Name the source."""
        return LogPosition(LogIdentity("db", 3306), position)

    def subscribed(self, identity: ClientIdentity) -> None:
        """Give the store a cursor."""
        self.store.subscribe(identity.client_id, None, None)

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Ask the store."""
        return self.store.resume_position(client_id)

    def resume_source_positions(self, client_id: int) -> dict[int, LogPosition]:
        """Return nothing: there is one source."""
        del client_id
        return {}

    def on_connect(self, client_id: int, user: str = "") -> None:
        """Take note of a connection."""
        self.visits.append(("connected", client_id))

    def on_disconnect(self, client_id: int) -> None:
        """Take note of its end."""
        self.visits.append(("disconnected", client_id))

    def why_lost(self, client_id: int) -> str:
        """Return what a test says of a client."""
        return self.lost.get(client_id, "")

    def check_subscription_limit(self, identity: ClientIdentity) -> None:
        """Refuse what a test has no room for."""
        if len(self.meta.subscriptions(self.destination)) >= self.clients_max:
            raise ClientError(f"no room for {identity.client_id}")

    def why_refused(self, client_id: int) -> str:
        """Return what a test says of a client's filter."""
        return self.refused.get(client_id, "")

    def check_filter(self, expression: str) -> None:
        """Accept what Python can compile."""
        try:
            re.compile(expression)
        except re.error as error:
            raise ClientError(f"filter {expression!r}: {error}") from error

    def unsubscribed(self, identity: ClientIdentity) -> None:
        """Drop the cursor."""
        self.store.unsubscribe(identity.client_id)


@dataclass
class FakeInstances:
    """`ports.Instances`; what is in `lazy` starts with its first client."""

    started: dict[str, FakeInstance] = field(default_factory=dict)
    lazy: dict[str, FakeInstance] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)  # configured, but cannot start
    state: dict[str, object] = field(default_factory=dict)  # of all destinations

    def is_configured(self, destination: str) -> bool:
        """Return whether any of the sets names it."""
        return destination in {*self.started, *self.lazy, *self.broken}

    def running(self, destination: str) -> FakeInstance | None:
        """Return it when it is started."""
        return self.started.get(destination)

    def status_of(self, destination: str) -> dict[str, object] | None:
        """Return what the test says, and who is subscribed."""
        if not self.is_configured(destination):
            return None
        found = self.started.get(destination)
        known = found.meta.subscriptions(destination) if found else []
        clients = [each.client_id for each in known]
        return {"running": found is not None, "clients": clients} | self.state

    def start_lazy(self, destination: str) -> FakeInstance | None:
        """Start what is lazy."""
        if destination in self.lazy:
            self.started[destination] = self.lazy.pop(destination)
        return self.started.get(destination)


@pytest.fixture
def instance() -> FakeInstance:
    """Give the instance that the server of `serve` runs."""
    return FakeInstance(DESTINATION)


@pytest.fixture
def instances(instance: FakeInstance) -> FakeInstances:
    """Give the instances of the server of `serve`."""
    return FakeInstances({DESTINATION: instance})


@pytest.fixture
def serve(instances: FakeInstances) -> Iterator[Callable[..., Server]]:
    """Return a function that starts a server with these settings, on loopback.

    `among` replaces the instances that it runs.
    """
    servers: list[Server] = []

    def start(among: FakeInstances | None = None, **settings: object) -> Server:
        config = ServerConfig(ip="127.0.0.1", port=0, **settings)  # type: ignore[arg-type]
        tls = None if config.tls.cert_file is None else ServerTls(config.tls)
        credentials = Credentials(config.user, config.passwd)
        users = UserDirectory(config.users_file, credentials)
        server = Server(config, among or instances, tls, users)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.request_stop()
        assert server.join(Deadline(PATIENCE_S))


class Wire:
    """The client's end of a connection, in frames."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_hostname="127.0.0.1")

    def send(self, frame: bytes) -> None:
        """Send bytes."""
        self.sock.sendall(frame)

    def receive(self) -> bytes:
        """Return the next frame, its length included; b"" when the server closed."""
        header = self._read(4)
        return header and header + self._read(frame_length(header, 1 << 30))

    def packet(self) -> Packet:
        """Return the next packet; EOFError when the server closed."""
        frame = self.receive()
        if not frame:
            raise EOFError
        return decode(Packet, frame[4:])

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                return b""
            data += more
        return data

    def close(self) -> None:
        """Close, and end all waits."""
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def received_after(sock: socket.socket, sent: bytes) -> bytes:
    """Send bytes, say that no more follow, and return all that is received then.

    A server that does not close in time is a failure (TimeoutError).
    """
    found = bytearray()
    with contextlib.suppress(ConnectionError):  # what it did not read resets it
        sock.sendall(sent)
        # The socket below TLS: TLS would wait for the other side, or end both ways.
        with socket.socket(fileno=socket.dup(sock.fileno())) as below:
            try:
                below.shutdown(socket.SHUT_WR)
            except OSError as error:
                if error.errno != errno.ENOTCONN:  # it was reset before this
                    raise
        while data := sock.recv(1 << 16):
            found += data
    return bytes(found)


@pytest.fixture
def service(instances):
    """Give a service of the fake instances."""
    return Service(instances)


@pytest.fixture
def pool():
    """Give threads."""
    with ThreadPoolExecutor() as threads:
        yield threads
