"""`stop` and `status` against a real process."""

from __future__ import annotations

import json
import signal
import socket

import pytest
from fix_conf import ACCOUNT
from fix_store import PATIENCE_S, eventually, in_thread

from canal_server import cli
from canal_server.cli import no_answer
from canal_server.cli.tail import tail_ids

MAIN = "canal.ip = 127.0.0.1\ncanal.port = 0\ncanal.destinations = "
DESTINATION = "canal.destinations = example\n"
MASTER = f"canal.instance.master.address = db:3306\n{ACCOUNT}"


def test_stop_ends_the_server(make_conf, start_server, capsys):
    """1. start; 2. stop: it has ended when the command returns; 3. stop: no server."""
    conf = make_conf(MAIN + "example")
    server = start_server(conf)
    server.read_until("canal-server 0")
    assert cli.main(["stop", "--conf", str(conf)]) == 0
    assert server.wait() == 0
    assert "received a stop command on the control socket" in server.log
    assert cli.main(["stop", "--conf", str(conf)]) == 1
    assert f"no server runs with the data folder {conf}" in capsys.readouterr().err


def test_stop_needs_no_correct_settings(make_conf, start_server):
    """A server whose settings were broken while it runs can still be ended."""
    conf = make_conf(MAIN + "example")
    server = start_server(conf)
    server.read_until("canal-server 0")
    make_conf("canal.serverMode = nonsense\n")
    assert cli.main(["stop", "--conf", str(conf)]) == 0
    assert server.wait() == 0


def test_stop_says_that_it_takes_too_long(make_conf, start_server, capsys):
    """A server that does not stop within the timeout is reported, status 1."""
    conf = make_conf(MAIN + "stuck", stuck=MASTER)
    server = start_server(conf, FAKE_STOP_TIMEOUT_S="60")
    server.read_until("canal-server 0")
    assert cli.main(["stop", "--conf", str(conf), "--timeout", "0.1"]) == 1
    assert "still runs after 0.1 seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("tail",),
        ("unsubscribe", "--destination", "example", "--client-id", "7"),
        ("subscriptions", "list"),
        ("position", "show"),
    ],
)
def test_commands_name_a_server_that_is_frozen(
    make_conf, start_server, capsys, monkeypatch, command
):
    """They name the paused process long before they give up, also without a port."""
    monkeypatch.setattr(no_answer, "ANSWER_S", 0.1)
    monkeypatch.setattr(tail_ids, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    conf = make_conf(
        f"canal.ip = 127.0.0.1\ncanal.port = {port}\n{DESTINATION}", example=MASTER
    )
    server = start_server(conf)
    server.read_until("listening on")
    server.freeze()
    try:
        result = in_thread(cli.main, [*command, "--conf", str(conf)])
        shown: list[str] = []

        def has_printed() -> bool:
            shown.append(capsys.readouterr().err)
            return "\n" in "".join(shown)

        eventually(has_printed)
    finally:
        server.process.kill()
    assert result.result(PATIENCE_S) == 1
    assert (
        f"its process {server.process.pid} is paused (SIGSTOP); resume it with kill"
        f" -CONT {server.process.pid}\n"
    ) in "".join(shown)


def test_stop_of_a_server_that_is_frozen(make_conf, start_server, capsys):
    """It names the paused process and how to resume it; then that stops."""
    conf = make_conf(MAIN + "example")
    server = start_server(conf)
    server.read_until("canal-server 0")
    pid = server.process.pid
    server.freeze()
    try:
        assert cli.main(["stop", "--conf", str(conf), "--timeout", "0.1"]) == 1
        assert capsys.readouterr().err.endswith(
            f"the server of {conf} still runs after 0.1 seconds: its process {pid} is"
            f" paused (SIGSTOP); resume it with kill -CONT {pid}, then it stops\n"
        )
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert server.wait() == 0


def test_stop_without_a_conf_folder(tmp_path, capsys):
    """A folder without settings is an error of settings."""
    assert cli.main(["stop", "--conf", str(tmp_path)]) == 2
    assert "set the conf folder with --conf" in capsys.readouterr().err


def test_status_is_json(make_conf, start_server, capsys):
    """The state of a running server can be read by a program."""
    conf = make_conf(f"{MAIN}example, b", example=MASTER, b=MASTER)
    server = start_server(conf)
    server.read_until("canal-server 0")
    capsys.readouterr()
    assert cli.main(["status", "--json", "--conf", str(conf)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["pid"] == server.process.pid
    assert [one["destination"] for one in shown["instances"]] == ["example", "b"]
