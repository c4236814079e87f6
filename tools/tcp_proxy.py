"""A TCP proxy before a MySQL server, with faults as context managers.

::

    with proxy.cut(4096, 100):
        ...   # the dump is cut after 4096 bytes, the next one after 100

The faults concern dump streams, recognized by the command that asks for them; other
connections pass untouched, but for `silence` and `hold`, which concern all, and
`refuse`, which concerns new ones of all kinds. With these it is of use before other
servers, too.
Leaves out TLS: what is encrypted is no dump to it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DUMP_COMMANDS = (0x12, 0x1E)  # COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID
PIECE_BYTES = 64 * 1024
AT_ONCE = struct.pack("ii", 1, 0)  # as SO_LINGER: closing sends a reset


class Connection:
    """One client's connection to the server and the two threads that carry it."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.server = socket.create_connection(proxy.target)
        self.is_dump = False
        self._threads = [
            threading.Thread(target=self._carry, args=(way,), daemon=True)
            for way in (self._upstream, self._downstream)
        ]
        self._left = len(self._threads)
        self._lock = threading.Lock()
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until both threads have ended."""
        for thread in self._threads:
            thread.join()

    def end(self, *, reset: bool = False) -> None:
        """End it; a reset may throw away what the client has not read yet."""
        with self._lock, contextlib.suppress(OSError):  # it may have ended already
            if self._left == 0:
                return
            if reset:
                self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                self.client.shutdown(socket.SHUT_RD)
            else:
                self.client.shutdown(socket.SHUT_RDWR)
        with self._lock, contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)

    def _carry(self, way: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):  # a side went: the connection ends
            way()
        self.end()
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self.client.close()
                self.server.close()

    def _upstream(self) -> None:
        while piece := self.client.recv(PIECE_BYTES):
            self.proxy.passing.wait()
            # A command is the first packet of its conversation, hence number 0.
            if len(piece) > 4 and piece[3] == 0 and piece[4] in DUMP_COMMANDS:
                self.is_dump = True
            self.server.sendall(piece)

    def _downstream(self) -> None:
        while piece := self.server.recv(PIECE_BYTES):
            self.proxy.passing.wait()
            allowed, reset = len(piece), None
            if self.is_dump:
                self.proxy.flowing.wait()
                allowed, reset = self.proxy.spend(len(piece))
            self.client.sendall(piece[:allowed])
            self.proxy.hold_back(self, allowed)
            if reset is not None:
                self.end(reset=reset)
                return


class Proxy:
    """Listens on a free port of the loopback interface and passes on to a server."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.flowing = threading.Event()
        self.flowing.set()
        self.passing = threading.Event()
        self.passing.set()
        self.dump_bytes = 0  # passed to the client since the start
        self.cuts_done = 0
        self._cuts: list[tuple[int, bool]] = []  # bytes before it, with a reset
        self._changed = threading.Condition()  # guards the counters and the cuts
        self._hold_after = 0  # bytes; 0: nothing is held
        self._held = threading.Event()
        self._brought: dict[Connection, int] = {}  # bytes since the last `hold`
        self._refusing = False
        self._connections: list[Connection] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def cut(self, *after_bytes: int, reset: bool = False) -> Iterator[None]:
        """Cut dumps after so many bytes each, counted from the cut before it."""
        with self._changed:
            self._cuts = [(count, reset) for count in after_bytes]
        try:
            yield
        finally:
            with self._changed:
                self._cuts = []

    @contextlib.contextmanager
    def stall(self) -> Iterator[None]:
        """Hold back what dumps say; their connections stay open."""
        self.flowing.clear()
        try:
            yield
        finally:
            self.flowing.set()

    @contextlib.contextmanager
    def silence(self) -> Iterator[None]:
        """Hold back everything, both ways, as a network that lost its middle."""
        self.passing.clear()
        try:
            yield
        finally:
            self.passing.set()

    @contextlib.contextmanager
    def hold(self, after_bytes: int) -> Iterator[threading.Event]:
        """Hold back a connection that has brought its client so many bytes since.

        Yields an event that is set when there is one.
        """
        held = threading.Event()
        with self._changed:
            self._brought.clear()
            self._hold_after = after_bytes
            self._held = held
        try:
            yield held
        finally:
            with self._changed:
                self._hold_after = 0
                self._changed.notify_all()

    @contextlib.contextmanager
    def refuse(self) -> Iterator[None]:
        """Close new connections at once."""
        self._refusing = True
        try:
            yield
        finally:
            self._refusing = False

    def end_all(self) -> None:
        """End all connections."""
        for connection in self._connections:
            connection.end()

    def wait_for_cuts(self, count: int, timeout_s: float) -> None:
        """Wait until so many cuts were made since the start."""
        with self._changed:
            done = self._changed.wait_for(lambda: self.cuts_done >= count, timeout_s)
            assert done, f"{self.cuts_done} cuts of {count} in {timeout_s} s"

    def hold_back(self, connection: Connection, count: int) -> None:
        """Count bytes that a client has received; return when it may have more."""
        with self._changed:
            brought = self._brought.get(connection, 0) + count
            self._brought[connection] = brought
            if 0 < self._hold_after <= brought:
                self._held.set()
                self._changed.wait_for(lambda: not self._hold_after)

    def spend(self, count: int) -> tuple[int, bool | None]:
        """Count bytes of dumps; return how many may pass, and how to cut after them.

        None: no cut.
        """
        with self._changed:
            if not self._cuts or count < self._cuts[0][0]:
                self.dump_bytes += count
                if self._cuts:
                    left, reset = self._cuts[0]
                    self._cuts[0] = (left - count, reset)
                return count, None
            allowed, cut_with_reset = self._cuts.pop(0)
            self.dump_bytes += allowed
            self.cuts_done += 1
            self._changed.notify_all()
            return allowed, cut_with_reset

    def close(self) -> None:
        """End everything."""
        self._refusing = True
        # Wakes the accept; closing alone would not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self.flowing.set()
        self.passing.set()
        self.end_all()
        for connection in self._connections:
            connection.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            try:
                self._connections.append(Connection(self, client))
            except OSError:  # the server is down
                client.close()
