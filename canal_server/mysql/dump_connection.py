"""The dump connection: the binlog as a stream of raw bytes.

Leaves out packets and events: the reader of the stream frames it. The stream starts
with the first byte that the server sends after the dump command, a packet header.
"""

from __future__ import annotations

import select
import ssl
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.core.heartbeats import Heartbeats
from canal_server.errors import ConnectionLost
from canal_server.mysql.login_session import Session
from canal_server.mysql.replication import (
    COM_REGISTER_SLAVE,
    DumpStart,
    ReplicaId,
    dump_command,
    register_payload,
    session_settings,
)
from canal_server.mysql.server_answers import answer_about
from canal_server.mysql.sockets import BULK_WAIT_MS, Breaker, BulkReads

if TYPE_CHECKING:
    import socket
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from canal_server.mysql.source_settings import Access
    from canal_server.runtime.lifecycle import Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """How a dump behaves, for any position and server."""

    heartbeat_s: float = 15.0  # interval of the server's heartbeats
    allowance: float = 2.0  # heartbeats that may be missing before it counts as dead
    # Longest silence before the first event; 0: the same limit as later.
    silence_first_s: float = 0.0
    follow: bool = True  # wait at the end of the binlog; else the stream ends there

    @property
    def silence_max_s(self) -> float:
        """Longest silence of a live server."""
        return self.heartbeat_s * self.allowance


class DumpStream:
    """One dump, from its connection to its last byte; cannot be reopened.

    For one thread, except `close`, which any thread may call at any time: it ends an
    `open` or a receive that waits.
    """

    def __init__(
        self,
        access: Access,
        replica: ReplicaId,
        start: DumpStart,
        stop: Stop,
        options: DumpOptions | None = None,
    ) -> None:
        """Store the request; `open` connects."""
        self.access = access
        self.replica = replica
        self.start = start
        self.options = options or DumpOptions()
        assert self.options.heartbeat_s > 0
        assert self.options.allowance >= 1
        self.received_bytes = 0
        self.server_version = ""
        self.connection_id = 0  # the server's id for KILL
        self.certificate_expires_at: datetime | None = (
            None  # the server's; None: no TLS
        )
        self.checksum = ""  # CRC32 or NONE, as requested from the server
        self._stop = stop
        self._breaker = Breaker()
        self._sock: socket.socket | None = None
        self._poll = select.poll()
        self._opened_at = 0.0
        self._heartbeats = Heartbeats()
        self._bulk = BulkReads()
        self._is_plain = False  # no TLS, which has bytes that the socket has not
        # Held while a thread is inside: `close` cuts the connection first, and closes
        # the descriptor only after the last poll on it.
        self._inside = threading.Lock()

    def open(self) -> None:
        """Connect, log in, register as a replica and request the binlog.

        Blocks for at most the connect timeout and one I/O timeout per round trip.
        Raises the subclasses of SourceError. A purged position is reported in the
        stream, by an error packet (see `server_errors.error_of_packet`).
        """
        with self._inside:
            assert self._sock is None
            session = Session(self.access, self._breaker, self._stop)
            try:
                self._begin(session)
            except BaseException:
                session.close()
                raise

    def _begin(self, session: Session) -> None:
        command = dump_command(self.replica, self.start, follow=self.options.follow)
        for sql, parameters in session_settings(
            self.replica, self.options.heartbeat_s, self.start
        ):
            session.query(sql, parameters)
        rows = session.query("SELECT @master_binlog_checksum")
        with answer_about("its checksums", self.access.address):
            self.checksum = str(rows[0][0] or "NONE").upper()
        self.server_version = session.server_version
        self.connection_id = session.connection_id
        self.certificate_expires_at = session.certificate_expires_at
        session.command(COM_REGISTER_SLAVE, register_payload(self.replica))

        self._sock = session.command_and_part(*command)
        self._is_plain = not isinstance(self._sock, ssl.SSLSocket)
        self._poll.register(self._sock, select.POLLIN)
        self._poll.register(self._stop, select.POLLIN)
        self._opened_at = self._heartbeats.heard_at = time.monotonic()

    def receive_into(self, buffer: memoryview, timeout_s: float | None) -> int | None:
        """Receive at least one byte and return how many; waits for them.

        Returns 0 at the end of the stream (the server or `close` ended it), None when
        nothing arrives within `timeout_s` (None: no limit) or a stop is requested.

        Raises ConnectionLost when the connection breaks, and when the server has been
        silent for longer than its heartbeats allow.
        """
        with self._inside:
            until = None if timeout_s is None else time.monotonic() + timeout_s
            while True:
                count = self._receive(buffer)
                if count is not None:
                    return count
                if self._stop.requested():
                    return None
                now = time.monotonic()
                if until is not None and now >= until:
                    return None
                self._wait(now, until)

    def try_receive_into(self, buffer: memoryview) -> int | None:
        """Receive the available bytes and return how many; does not wait for the first.

        None when nothing is available; else as `receive_into`. While much arrives, it
        is waited a millisecond for a large piece.
        """
        with self._inside:
            if self._bulk.is_on:
                self._poll.poll(BULK_WAIT_MS)
            return self._receive(buffer)

    def rest(self, limit_s: float) -> None:
        """Wait while the server only repeats its last heartbeat; reads nothing else.

        For whoever has received whole packets: the next byte is the first of one. Ends
        after `limit_s` seconds at the latest; with TLS at once.
        """
        with self._inside:
            sock, heartbeats = self._sock, self._heartbeats
            if sock is None or isinstance(sock, ssl.SSLSocket):
                return
            if heartbeats.heard_at - self._opened_at <= self.options.silence_first_s:
                return  # the limit of silence will change
            before = heartbeats.dropped_bytes
            heartbeats.wait(
                sock.fileno(),
                self._stop.fileno(),
                self.options.silence_max_s,
                limit_s,
            )
            self.received_bytes += heartbeats.dropped_bytes - before

    def _receive(self, buffer: memoryview) -> int | None:
        """Receive once; None when it would block."""
        if self._sock is None:
            return 0
        try:
            # TLS as well: bytes that the layer has already decrypted are read first,
            # and a wait happens only when it has none.
            count = self._sock.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError):
            self._bulk.end(self._sock)  # before a wait for what may be little
            return None
        except OSError as error:
            if self._breaker.was_cut():
                return 0
            raise ConnectionLost(
                f"the dump from {self.access.address} broke: {error}"
            ) from error
        if count:
            now = self._heartbeats.heard_at = time.monotonic()
            self.received_bytes += count
            if self._is_plain:
                self._bulk.note(self._sock, count, now)
        return count

    def _wait(self, now: float, until: float | None) -> None:
        """Wait until the socket or the stop is ready, or a limit is reached."""
        limit_s = self._silence_max_s()
        heard_at = self._heartbeats.heard_at
        left_s = heard_at + limit_s - now
        if left_s <= 0:
            raise ConnectionLost(
                f"{self.access.address} has sent nothing for more than "
                f"{limit_s:.1f} s, though a heartbeat is due every "
                f"{self.options.heartbeat_s:g} s: it hangs, or the network is down",
                heard_s=heard_at - self._opened_at,
            )
        if until is not None:
            left_s = min(left_s, until - now)
        # Rounded up: poll counts in ms, and 0 would make the loop spin.
        self._poll.poll(int(left_s * 1000) + 1)

    def _silence_max_s(self) -> float:
        """Return how long it may be silent now."""
        first_s, later_s = self.options.silence_first_s, self.options.silence_max_s
        if self._heartbeats.heard_at - self._opened_at > first_s:
            return later_s
        return max(first_s, later_s)

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 when not open.

        With TLS, bytes may be available although it is not readable.
        """
        return -1 if self._sock is None else self._sock.fileno()

    def silence_s(self) -> float:
        """Return the time since bytes last arrived."""
        return time.monotonic() - self._heartbeats.heard_at

    def close(self) -> None:
        """End the stream at once and free its descriptor; idempotent, any thread."""
        self._breaker.cut()
        with self._inside:
            if self._sock is not None:
                self._poll.unregister(self._sock)
                self._sock.close()
                self._sock = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
