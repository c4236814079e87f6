"""The control socket of a running server, and the lock of its data folder.

Both are files in the data folder, for their owner only: `canal-server.sock` and
`canal-server.lock`. A connection has one request and one reply, each a line of JSON of
at most `LINE_BYTES_MAX` bytes::

    {"command": "status"}
    {"ok": true, "pid": 4711, …}

    {"command": "seek", "destination": "example", …}
    {"ok": true, …}

    {"command": "nonsense"}
    {"ok": false, "error": "unknown command nonsense; known commands: status, stop"}

The connection of a `stop` stays open until the server has ended, which its end reports.
A connection that sends nothing, or does not read its reply, delays no other. Requests
that take time run in separate threads, a few at a time, so that `status` and `stop` are
answered meanwhile.
Leaves out what the commands do (`canal_server.daemon.daemon`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import select
import socket
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from canal_server.errors import CanalError
from canal_server.messages import daemon_messages
from canal_server.runtime.lifecycle import Deadline, Stop
from canal_server.runtime.local_peers import paused_peer_text, peer_account
from canal_server.runtime.private_files import (
    FILE_OWNER_ONLY,
    make_private_folder,
    open_private,
    reason_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

log = logging.getLogger(__name__)

SOCKET_NAME = "canal-server.sock"
LOCK_NAME = "canal-server.lock"
LINE_BYTES_MAX = 4 * 1024 * 1024  # a status grows with the number of instances
REQUEST_BYTES_MAX = 64 * 1024
REQUEST_TIMEOUT_S = 5.0  # for a connection to send its request and read the reply
ASK_TIMEOUT_S = 15.0  # for the reply, after those to others
PAUSED_AFTER_S = 2.0  # without a reply, whether the server is paused is looked up
SHORTEST_WAIT_S = 0.001
REQUESTS_MAX = 4  # that are carried out at a time
WAITING_MAX = 16  # connections of `stop` that wait for the end
CONNECTIONS_MAX = 64  # that send a request or read their reply
ACCEPT_PAUSE_S = 1.0  # when there are no descriptors, for example

ACCOUNT = "account"  # of the peer; a field of each request that a handler gets

# The fields of a request other than its command.
Arguments = Mapping[str, Any]


class ControlError(CanalError):
    """A running server cannot be asked, or another one runs already."""


class NoServer(ControlError):  # noqa: N818  # the name says what happened
    """No server runs with a data folder."""


class NoAnswer(ControlError):  # noqa: N818  # the same
    """A server runs, but does not answer in time."""


class _Conversation:
    """One connection: the bytes received so far, and those still to be sent."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.received = bytearray()
        self.reply = memoryview(b"")
        self.waits_for_end = False  # it asked for a stop
        self.deadline = Deadline(REQUEST_TIMEOUT_S)

    def receive(self) -> bytes | None:
        """Return the request; None: incomplete. Raises OSError when too long."""
        try:
            part = self.connection.recv(REQUEST_BYTES_MAX)
        except BlockingIOError:
            return None
        self.received += part
        if part and b"\n" not in self.received:
            if len(self.received) > REQUEST_BYTES_MAX:
                raise OSError(f"the request is longer than {REQUEST_BYTES_MAX} bytes")
            return None
        return bytes(self.received.partition(b"\n")[0])

    def send(self) -> bool:
        """Send what can be sent now; true when all is sent. Raises OSError."""
        while self.reply:
            try:
                self.reply = self.reply[self.connection.send(self.reply) :]
            except BlockingIOError:
                return False
        return True


class ControlServer:
    """A stage: holds the lock of a data folder and answers on its socket.

    `commands` are called on the stage's own thread, one at a time, and return the
    fields of the reply besides `ok`; they neither block nor raise. `requests` are those
    with arguments: they get what was sent, and as `ACCOUNT` which account of the
    operating system sent it; they may take time, and raise CanalError to refuse.
    """

    def __init__(
        self,
        data_dir: Path,
        commands: Mapping[str, Callable[[], Mapping[str, object]]],
        requests: Mapping[str, Callable[[Arguments], Mapping[str, object]]]
        | None = None,
    ) -> None:
        self._data_dir = data_dir
        self.account = ""  # of the peer whose command is carried out
        self._commands = commands
        self._requests = requests or {}
        self._workers: list[threading.Thread] = []  # that carry out requests
        self._stop = Stop()
        self._lock_fd = -1
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._exhausted = False  # descriptors or memory
        self._poll = select.poll()
        self._conversations: dict[
            int, _Conversation
        ] = {}  # by descriptor, oldest first
        self._waiting: list[socket.socket] = []  # of clients that asked for a stop

    def start(self) -> None:
        """Acquire the lock and listen.

        Raises ControlError when another server uses the data folder, or when the
        folder cannot be written.
        """
        assert self._thread is None, "a control socket starts once"
        try:
            make_private_folder(self._data_dir)
            self._lock_fd = _locked(self._data_dir)
            self._listener = _listen(self._data_dir)
        except OSError as error:
            self._release()
            raise ControlError(
                f"cannot use the data folder {self._data_dir}: {reason_of(error)};"
                " see canal.file.data.dir"
            ) from error
        self._thread = threading.Thread(
            target=self._serve, name="canal-control", daemon=True
        )
        self._thread.start()

    def request_stop(self) -> None:
        """Ask to stop; no further request is answered."""
        self._stop.request()

    def join(self, deadline: Deadline) -> bool:
        """Wait for the thread, then release the lock and the waiting clients."""
        if self._thread is None:
            return True
        for thread in (self._thread, *self._workers):
            thread.join(deadline.remaining_s())
            if thread.is_alive():
                return False
        self._release()
        for connection in self._waiting:
            connection.close()
        self._waiting.clear()
        return True

    def _release(self) -> None:
        """Remove the socket's file and release the lock, if it is held.

        The file is removed first: a server that starts now creates its own only after
        it has acquired the lock.
        """
        if self._lock_fd >= 0:
            with contextlib.suppress(OSError):  # clean-up: the next start repeats it
                (self._data_dir / SOCKET_NAME).unlink()
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _serve(self) -> None:
        assert self._listener is not None
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._stop, select.POLLIN)
        with self._listener:
            while True:
                ready = self._poll.poll(self._patience_ms())
                if self._stop.requested():
                    break
                for descriptor, _ in ready:
                    if descriptor in self._conversations:
                        self._continue(self._conversations[descriptor])
                self._end_overdue()
                if self._listener.fileno() in dict(ready):
                    self._accept(self._listener)
        for each in list(self._conversations.values()):
            self._end(each)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # The server itself continues. Logged once, until accepting works again.
            if not self._exhausted:
                self._exhausted = True
                daemon_messages.CONTROL_SOCKET_FAILED.log(log, reason_of(error))
            self._stop.wait(ACCEPT_PAUSE_S)
            return
        if self._exhausted:
            self._exhausted = False
            log.info("the control socket is accepting commands again")
        self._begin(connection)

    def _patience_ms(self) -> float | None:
        """Return how long the oldest connection may still be silent."""
        for each in self._conversations.values():
            return 1000 * (each.deadline.remaining_s() or 0.0)
        return None

    def _end_overdue(self) -> None:
        for each in list(self._conversations.values()):
            if not each.deadline.passed():
                return  # the others are younger
            log.debug("a control connection did not end in time")
            self._end(each)

    def _begin(self, connection: socket.socket) -> None:
        """Listen to a connection; if there are too many, end the oldest."""
        if len(self._conversations) >= CONNECTIONS_MAX:
            self._end(next(iter(self._conversations.values())))
        self._conversations[connection.fileno()] = _Conversation(connection)
        self._poll.register(connection, select.POLLIN)

    def _forget(self, each: _Conversation) -> None:
        """Hand a connection over to another thread."""
        self._poll.unregister(each.connection)
        del self._conversations[each.connection.fileno()]

    def _end(self, each: _Conversation) -> None:
        self._forget(each)
        each.connection.close()

    def _continue(self, each: _Conversation) -> None:
        """Receive or send what is possible now; errors end only this connection."""
        try:
            if not each.reply and not self._has_asked(each):
                return
            if not each.send():
                self._poll.modify(each.connection, select.POLLOUT)
                return
        except OSError as error:
            log.debug("control connection broke: %s", error)
            self._end(each)
            return
        # A client that asked for a stop sees the server end by this connection's end.
        if each.waits_for_end and len(self._waiting) < WAITING_MAX:
            self._forget(each)
            self._waiting.append(each.connection)
        else:
            self._end(each)

    def _has_asked(self, each: _Conversation) -> bool:
        """Receive a request and prepare its reply; false when it is incomplete.

        Also false when another thread carries it out and replies. Raises OSError.
        """
        line = each.receive()
        if line is None or self._begin_request(each, line):
            return False
        self.account = peer_account(each.connection)
        command, reply = self._reply(line)
        each.reply = memoryview(_line_of(reply))
        each.waits_for_end = command == "stop"
        return True

    def _begin_request(self, each: _Conversation, line: bytes) -> bool:
        """Start a thread for a command with arguments, unless too many run.

        Then the thread closes the connection.
        """
        self._workers = [worker for worker in self._workers if worker.is_alive()]
        if len(self._workers) >= REQUESTS_MAX:
            return False
        try:
            arguments = json.loads(line)
            request = self._requests.get(arguments["command"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        if request is None:
            return False
        try:
            arguments[ACCOUNT] = peer_account(each.connection)  # whatever was sent
        except OSError:
            return False
        self._forget(each)
        worker = threading.Thread(
            target=_carry_out,
            args=(each.connection, request, arguments),
            name="canal-control request",
            daemon=True,
        )
        self._workers.append(worker)
        worker.start()
        return True

    def _reply(self, line: bytes) -> tuple[str, dict[str, object]]:
        """Return the requested command and its reply."""
        try:
            request = json.loads(line)
            command = str(request["command"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return "", _refusal('not a request; send {"command": "status"}')
        if command in self._requests:
            return "", _refusal(
                f"{REQUESTS_MAX} requests are in progress, the limit; send {command}"
                " again later"
            )
        action = self._commands.get(command)
        if action is None:
            known = ", ".join((*self._commands, *self._requests))
            return "", _refusal(
                f"unknown command {command[:100]}; known commands: {known}"
            )
        return command, {"ok": True, **action()}


def _carry_out(
    connection: socket.socket,
    request: Callable[[Arguments], Mapping[str, object]],
    arguments: Arguments,
) -> None:
    """Carry a request out and answer it; the body of its thread."""
    with connection:
        try:
            reply = {"ok": True, **request(arguments)}
        except CanalError as error:
            reply = _refusal(str(error))
        except Exception as error:  # noqa: BLE001
            daemon_messages.COMMAND_FAILED.log(log, arguments["command"], exc_info=True)
            reply = _refusal(f"the command failed, see the log: {error!r}")
        try:
            _send_line(connection, Deadline(REQUEST_TIMEOUT_S), reply)
        except OSError as error:
            log.debug("control connection broke: %s", error)


def ask(
    data_dir: Path,
    command: str,
    timeout_s: float = ASK_TIMEOUT_S,
    **arguments: object,
) -> dict[str, Any]:
    """Send a command to the server of a data folder and return its reply.

    Raises NoServer when no server runs there, NoAnswer when it does not answer in
    time, ControlError when it refuses.
    """
    paused_s = PAUSED_AFTER_S
    with _connected(data_dir, command, timeout_s, arguments, paused_s) as (_, reply):
        return reply


def ask_to_stop(data_dir: Path, deadline: Deadline) -> bool:
    """Ask the server of a data folder to stop and wait for its end.

    Returns false when it still runs at the deadline, or when it did not answer at all.
    Raises ControlError when no server runs there or it refuses.
    """
    with contextlib.suppress(NoAnswer):
        return _wait_for_stop(data_dir, deadline)
    return False


def _wait_for_stop(data_dir: Path, deadline: Deadline) -> bool:
    remaining_s = deadline.remaining_s()
    answer_s = ASK_TIMEOUT_S if remaining_s is None else remaining_s
    answer_s = max(answer_s, SHORTEST_WAIT_S)
    with _connected(data_dir, "stop", answer_s) as (connection, _):
        remaining_s = deadline.remaining_s()
        # Zero would mean non-blocking, which reports no time-out.
        connection.settimeout(
            None if remaining_s is None else max(remaining_s, SHORTEST_WAIT_S)
        )
        try:
            while connection.recv(1024):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass  # a server that was killed has ended as well
        return True


@contextlib.contextmanager
def _connected(
    data_dir: Path,
    command: str,
    timeout_s: float = ASK_TIMEOUT_S,
    arguments: Mapping[str, object] | None = None,
    paused_s: float | None = None,
) -> Iterator[tuple[socket.socket, dict[str, Any]]]:
    """Send a command; its connection is open within the context.

    A paused server is waited for only `paused_s` seconds, if these are given.
    """
    deadline = Deadline(timeout_s)
    request = {"command": command, **(arguments or {})}
    paused = ""
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with connection:
            connection.settimeout(deadline.remaining_s())
            with _short_path(data_dir) as path:
                connection.connect(path)
            try:
                _send_line(connection, deadline, request)
                if paused_s is not None and paused_s < timeout_s:
                    ready, _, _ = select.select([connection], [], [], paused_s)
                    if not ready and paused_peer_text(connection):
                        raise TimeoutError  # noqa: TRY301  # as without a reply
                reply = json.loads(_receive_line(connection, deadline, LINE_BYTES_MAX))
            except TimeoutError:
                paused = paused_peer_text(connection)
                raise
            if not reply.get("ok"):
                raise ControlError(f"the server refused: {reply.get('error')}")
            yield connection, reply
    except (FileNotFoundError, ConnectionRefusedError):
        raise NoServer(f"no server runs with the data folder {data_dir}") from None
    except TimeoutError as error:
        if paused:
            raise NoAnswer(
                f"the server of {data_dir} does not answer: {paused}"
            ) from error
        raise NoAnswer(
            f"the server of {data_dir} did not answer within {timeout_s:g} s: it is"
            " stuck or paused, or this machine is very busy"
        ) from error
    except ValueError as error:
        raise ControlError(f"the server of {data_dir} sent no valid reply") from error
    except OSError as error:
        raise ControlError(
            f"cannot reach the server of {data_dir}: {error.strerror or error}"
        ) from error


def paused_text(data_dir: Path) -> str:
    """Return that the server of a data folder is paused, and the remedy, or "".

    Also "" when that cannot be determined, or no server runs.
    """
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
        _short_path(data_dir) as path,
    ):
        connection.setblocking(False)  # its queue of connections may be full
        connection.connect(path)
        return paused_peer_text(connection)
    return ""


def _receive_line(
    connection: socket.socket, deadline: Deadline, size_max: int = REQUEST_BYTES_MAX
) -> bytes:
    """Receive up to the first line end, or the end of the stream.

    Raises OSError when it does not arrive in time or is too long.
    """
    received = bytearray()
    while b"\n" not in received:
        if len(received) > size_max:
            raise OSError(f"the line is longer than {size_max} bytes")
        connection.settimeout(max(deadline.remaining_s() or 0.0, SHORTEST_WAIT_S))
        part = connection.recv(64 * 1024)
        if not part:
            break
        received += part
    return bytes(received.partition(b"\n")[0])


def _send_line(
    connection: socket.socket, deadline: Deadline, reply: Mapping[str, object]
) -> None:
    connection.settimeout(max(deadline.remaining_s() or 0.0, SHORTEST_WAIT_S))
    connection.sendall(_line_of(reply))


def _line_of(reply: Mapping[str, object]) -> bytes:
    return json.dumps(reply).encode() + b"\n"


@contextlib.contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Keep servers from using a data folder within the context.

    Raises ControlError when a server uses it, or the folder cannot be written.
    """
    try:
        fd = _locked(data_dir)
    except OSError as error:
        raise ControlError(
            f"cannot lock the data folder {data_dir}: {reason_of(error)}"
        ) from error
    try:
        yield
    finally:
        os.close(fd)


def _locked(data_dir: Path) -> int:
    """Acquire the lock of a data folder; returns its descriptor.

    The kernel releases it when the process ends, in whatever way.
    """
    fd = open_private(data_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise ControlError(
            f"another server (process {pid or 'unknown'}) runs with the data folder"
            f" {data_dir}: stop it or set another canal.file.data.dir"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _listen(data_dir: Path) -> socket.socket:
    """Create the socket. Requires the lock: an existing file is of a dead server."""
    with contextlib.suppress(FileNotFoundError):
        (data_dir / SOCKET_NAME).unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # On Linux the file inherits the mode of the socket: others can connect at no
        # moment.
        os.fchmod(listener.fileno(), FILE_OWNER_ONLY)
        with _short_path(data_dir) as path:
            listener.bind(path)
        listener.listen()
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def _short_path(data_dir: Path) -> Iterator[str]:
    """Return a short path of the socket, by its folder's descriptor.

    The path of a socket is limited to 107 bytes, that of a data folder may be longer.
    """
    fd = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET_NAME}"
    finally:
        os.close(fd)


def _refusal(error: str) -> dict[str, object]:
    return {"ok": False, "error": error}
