"""The control socket, over real sockets."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import socket
import stat
import threading

import pytest

from canal_server.daemon import control
from canal_server.daemon.control import (
    SOCKET_NAME,
    ControlError,
    ControlServer,
    NoAnswer,
    ask,
    ask_to_stop,
)
from canal_server.errors import CanalError
from canal_server.runtime.lifecycle import Deadline

LONG = 60.0  # seconds; never waited for unless something hangs


@contextlib.contextmanager
def serving(data_dir, **commands):
    """Run a control server with these commands."""
    server = ControlServer(data_dir, commands)
    server.start()
    try:
        yield server
    finally:
        server.request_stop()
        assert server.join(Deadline(LONG))


def status():
    """Answer a command."""
    return {"pid": 1, "instances": [{"destination": "größe"}]}


def raw_ask(data_dir, content: bytes, *, half_close=False):
    """Send bytes and return the reply as a value."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LONG)
        connection.connect(str(data_dir / control.SOCKET_NAME))
        connection.sendall(content)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        return json.loads(connection.makefile("rb").readline())


def test_a_command_is_answered(tmp_path):
    """The reply is what the command returned, besides `ok`."""
    with serving(tmp_path, status=status):
        assert ask(tmp_path, "status") == {"ok": True, **status()}


def test_a_long_path(tmp_path):
    """A data folder may have a longer path than a socket may."""
    folder = tmp_path / ("x" * 120) / ("y" * 120)
    with serving(folder, status=status):
        assert ask(folder, "status")["ok"] is True


def test_only_the_owner_may_connect(tmp_path):
    """Socket and lock are for their owner, whatever the umask."""
    before = os.umask(0)
    try:
        with serving(tmp_path):
            for name in (control.SOCKET_NAME, control.LOCK_NAME):
                assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("request_line", "error"),
    [
        (
            b'{"command": "nonsense"}\n',
            "unknown command nonsense; known commands: status",
        ),
        (b"{}\n", "not a request"),
        (b"[]\n", "not a request"),
        (b"\xff\n", "not a request"),
        (b"\n", "not a request"),
        (b"[" * 60_000 + b"\n", "not a request"),
    ],
)
def test_bad_requests_are_refused(tmp_path, request_line, error):
    """Whatever is sent is refused, and the server continues."""
    with serving(tmp_path, status=status):
        reply = raw_ask(tmp_path, request_line)
        assert reply["ok"] is False
        assert error in reply["error"]
        assert ask(tmp_path, "status")["ok"] is True


def test_a_request_without_a_line_end(tmp_path):
    """The end of the stream ends a request as well."""
    with serving(tmp_path, status=status):
        reply = raw_ask(tmp_path, b'{"command": "status"}', half_close=True)
        assert reply["ok"] is True


def test_an_endless_request_is_cut_off(tmp_path):
    """A request beyond the limit closes its connection, and the server continues."""
    with serving(tmp_path, status=status):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(LONG)
            connection.connect(str(tmp_path / control.SOCKET_NAME))
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"x" * 16 * control.REQUEST_BYTES_MAX)
            with contextlib.suppress(ConnectionError):
                assert connection.recv(1) == b""
        assert ask(tmp_path, "status")["ok"] is True


def test_a_second_server_is_refused(tmp_path):
    """One data folder has one server, and the refusal names it."""
    with serving(tmp_path, status=status):
        second = ControlServer(tmp_path, {})
        with pytest.raises(ControlError, match=rf"process {os.getpid()}\).*data\.dir"):
            second.start()
        assert ask(tmp_path, "status")["ok"] is True


def test_what_a_killed_server_left_is_no_hindrance(tmp_path):
    """Files of a server that ended without cleaning up are reused."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / control.SOCKET_NAME))
    (tmp_path / control.LOCK_NAME).write_text("4711\n")
    with pytest.raises(ControlError, match="no server runs"):
        ask(tmp_path, "status")
    with serving(tmp_path, status=status):
        assert ask(tmp_path, "status")["ok"] is True


def test_nothing_is_left_after_the_end(tmp_path):
    """The socket's file and the lock are removed; the folder can be used again."""
    for _ in range(2):
        with serving(tmp_path, status=status):
            pass
        assert not (tmp_path / control.SOCKET_NAME).exists()
        with (tmp_path / control.LOCK_NAME).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    """A data folder that is a file is an error with the key to change."""
    (tmp_path / "file").touch()
    server = ControlServer(tmp_path / "file", {})
    with pytest.raises(ControlError, match=r"file: .*see canal\.file\.data\.dir"):
        server.start()


def test_asking_nobody(tmp_path):
    """Without a server the error names the folder."""
    with pytest.raises(ControlError, match=f"no server runs .*{tmp_path}"):
        ask(tmp_path / "none", "status")


def test_a_server_that_is_paused(tmp_path):
    """A server that accepts connections but never answers is reported in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(tmp_path / SOCKET_NAME))
        silent.listen()
        with pytest.raises(
            NoAnswer, match=r"did not answer within 0\.05 s: it is stuck or paused"
        ):
            ask(tmp_path, "status", 0.05)
        assert ask_to_stop(tmp_path, Deadline(0.05)) is False
        assert ask_to_stop(tmp_path, Deadline(0)) is False


def test_stop_waits_for_the_end(tmp_path):
    """A client that asks for a stop learns that the server has ended, not before."""
    asked = threading.Event()

    def stop():
        asked.set()
        return {}

    ends: list[bool] = []
    with serving(tmp_path, stop=stop):
        assert ask_to_stop(tmp_path, Deadline(0.05)) is False
        asker = threading.Thread(
            target=lambda: ends.append(ask_to_stop(tmp_path, Deadline(LONG)))
        )
        asked.clear()
        asker.start()
        assert asked.wait(LONG)
        assert ends == []
    asker.join(LONG)
    assert ends == [True]


def test_requests_have_arguments(tmp_path):
    """A request gets what was sent, and may refuse."""

    def seek(arguments):
        if arguments["to"] == "nowhere":
            raise CanalError("no such position")
        return {"moved": arguments["to"]}

    server = ControlServer(tmp_path, {"status": status}, {"seek": seek})
    server.start()
    try:
        assert ask(tmp_path, "seek", to="here") == {"ok": True, "moved": "here"}
        with pytest.raises(ControlError, match="refused: no such position"):
            ask(tmp_path, "seek", to="nowhere")
        with pytest.raises(ControlError, match="see the log: KeyError"):
            ask(tmp_path, "seek")
        with pytest.raises(ControlError, match="known commands: status, seek"):
            ask(tmp_path, "nonsense")
    finally:
        server.request_stop()
        assert server.join(Deadline(LONG))


def test_the_account_of_the_peer(tmp_path):
    """Commands and requests know who sent them, whatever a request says."""
    account = pwd.getpwuid(os.getuid()).pw_name
    server = ControlServer(
        tmp_path,
        {"who": lambda: {"found": server.account}},
        {"seek": lambda arguments: {"found": arguments[control.ACCOUNT]}},
    )
    server.start()
    try:
        assert ask(tmp_path, "who")["found"] == account
        assert ask(tmp_path, "seek", account="another")["found"] == account
    finally:
        server.request_stop()
        assert server.join(Deadline(LONG))


def test_slow_requests_keep_nobody_waiting(tmp_path, monkeypatch):
    """During requests other commands are answered; too many requests are refused."""
    monkeypatch.setattr(control, "REQUESTS_MAX", 2)
    go_on, started = threading.Event(), threading.Semaphore(0)

    def slow(_):
        started.release()
        assert go_on.wait(LONG)
        return {"slow": True}

    server = ControlServer(tmp_path, {"status": status}, {"slow": slow})
    server.start()
    answers = []
    askers = [
        threading.Thread(target=lambda: answers.append(ask(tmp_path, "slow")))
        for _ in range(2)
    ]
    try:
        for asker in askers:
            asker.start()
            assert started.acquire(timeout=LONG)
        assert ask(tmp_path, "status")["pid"] == 1
        with pytest.raises(ControlError, match="2 requests are in progress"):
            ask(tmp_path, "slow")
    finally:
        go_on.set()
        for asker in askers:
            asker.join(LONG)
        server.request_stop()
        assert server.join(Deadline(LONG))
    assert answers == [{"ok": True, "slow": True}] * 2


def test_a_lock_keeps_servers_out(tmp_path):
    """Within it no server starts; while one runs it cannot be acquired."""
    with control.locked(tmp_path):
        server = ControlServer(tmp_path, {})
        with pytest.raises(ControlError, match="another server"):
            server.start()
    with (
        serving(tmp_path),
        pytest.raises(ControlError, match="another server"),
        control.locked(tmp_path),
    ):
        pass
    with pytest.raises(ControlError, match="cannot lock the data folder"):
        control.locked(tmp_path / "nowhere").__enter__()


def test_silent_connections_keep_nobody_waiting(tmp_path, monkeypatch):
    """A client that sends nothing, or half a line, delays no other, and is ended.

    1. more are silent than the limit: the oldest ends; 2. others are answered at once;
    3. one that does not read its long reply delays no other either.
    """
    monkeypatch.setattr(control, "REQUEST_TIMEOUT_S", LONG)
    monkeypatch.setattr(control, "CONNECTIONS_MAX", 8)

    def much():
        return {"text": "x" * 4_000_000}

    with serving(tmp_path, status=status, much=much), contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(9)]
        for each in silent:
            each.settimeout(LONG)
            each.connect(str(tmp_path / control.SOCKET_NAME))
        silent[-1].sendall(b'{"command": ')
        assert silent[0].recv(1) == b""
        assert ask(tmp_path, "status", LONG / 2)["pid"] == 1
        silent[-1].sendall(b'"much"}\n')
        assert ask(tmp_path, "status", LONG / 2)["pid"] == 1
        reply = json.loads(silent[-1].makefile("rb").readline())
        assert len(reply["text"]) == 4_000_000


def test_a_silent_connection_is_ended(tmp_path, monkeypatch):
    """Its time is limited, even when there are no other clients."""
    monkeypatch.setattr(control, "REQUEST_TIMEOUT_S", 0.05)
    with (
        serving(tmp_path, status=status),
        socket.socket(socket.AF_UNIX) as silent,
    ):
        silent.settimeout(LONG)
        silent.connect(str(tmp_path / control.SOCKET_NAME))
        assert silent.recv(1) == b""
