"""`start --daemon` and pid files, with real processes."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import fix_daemon
import pytest
from fix_conf import MASTER
from fix_daemon import child_environ

from canal_server import cli

MAIN = "canal.ip = 127.0.0.1\ncanal.port = 0\ncanal.destinations = example\n"
WAIT_S = 240


class Starts:
    """Runs `start --daemon` as a shell does, and stops what still runs at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid_file = folder / "canal.pid"
        self.started: list[Path] = []

    def __call__(self, conf: Path, *options: str, **environ: str):
        """Return the result of the command; its output is read to the end of pipes."""
        self.started.append(conf)
        return subprocess.run(
            self.command(conf, *options),
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=child_environ() | environ,
            timeout=WAIT_S,
        )

    def command(self, conf: Path, *options: str) -> list[str]:
        """Return the command line."""
        arguments = ["start", "--daemon", "--conf", str(conf), *options]
        return [sys.executable, fix_daemon.__file__, *arguments]


@pytest.fixture
def start_daemon(tmp_path):
    """Give the command that starts servers in the background."""
    starts = Starts(tmp_path)
    yield starts
    for conf in starts.started:
        cli.main(["stop", "--conf", str(conf)])


def status(conf, capsys):
    """Return what the server of a conf folder says of itself."""
    capsys.readouterr()
    assert cli.main(["status", "--json", "--conf", str(conf)]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_serves_when_the_command_ends(make_conf, start_daemon, capsys):
    """1. start: its output ends, the server answers, and logs to files; 2. stop."""
    conf = make_conf(MAIN)
    pid_file = start_daemon.pid_file
    done = start_daemon(conf, "--pid-file", pid_file.name)
    assert (done.returncode, done.stderr) == (0, "")
    pid = int(pid_file.read_text())
    logs = conf / "logs"
    assert done.stdout == (
        f"canal-server runs in the background as process {pid}; its log is in {logs}\n"
    )
    shown = status(conf, capsys)
    assert shown["pid"] == pid
    socket.create_connection(("127.0.0.1", shown["port"])).close()
    assert "listening on 127.0.0.1" in (logs / "canal/canal.log").read_text()

    assert cli.main(["stop", "--pid-file", str(pid_file)]) == 0
    assert not pid_file.exists()
    assert is_ended(pid)
    assert "received SIGTERM" in (logs / "canal/canal.log").read_text()


def is_ended(pid: int) -> bool:
    """Return whether a process has ended; it may not be waited for yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2]
    except FileNotFoundError:
        return True
    return status.split()[0] == b"Z"


def test_it_leaves_its_surroundings(make_conf, start_daemon, capsys):
    """It has a session that it does not lead, no terminal, and no folder of ours."""
    conf = make_conf(MAIN)
    assert start_daemon(conf, "--log-dir", "logs").returncode == 0
    pid = status(conf, capsys)["pid"]
    assert os.getsid(pid) not in (pid, os.getsid(0))
    process = Path(f"/proc/{pid}")
    assert (process / "cwd").readlink() == Path("/")
    assert (process / "fd/0").readlink() == Path("/dev/null")
    output = start_daemon.folder / "logs/canal/canal_stdout.log"
    assert [(process / f"fd/{fd}").readlink() for fd in (1, 2)] == [output, output]
    modes = [
        each.stat().st_mode & 0o777 for each in (output, *list(output.parents)[:2])
    ]
    assert modes == [0o600, 0o700, 0o700]


def test_a_substitution_of_a_shell_ends(make_conf, start_daemon):
    """No descriptor of the shell stays open, and closed ones do no harm."""
    conf = make_conf(MAIN)
    command = " ".join(start_daemon.command(conf))
    start_daemon.started.append(conf)
    done = subprocess.run(
        ["sh", "-c", f"exec 3>&1; {command} <&- >&-"],
        capture_output=True,
        text=True,
        check=False,
        env=child_environ(),
        timeout=WAIT_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("main", "expected", "text"),
    [
        ("canal.serverMode = nonsense\n", 2, "canal.serverMode"),
        (MAIN.replace("127.0.0.1", "192.0.2.1"), 2, "192.0.2.1"),
        (MAIN.replace("example", "wrong"), 2, "wrong is wrong"),
    ],
)
def test_a_failure_is_reported(make_conf, start_daemon, main, expected, text):
    """What keeps the server from starting is in the output, with its status."""
    conf = make_conf(main, example=MASTER, wrong=MASTER)
    done = start_daemon(conf, "--pid-file", start_daemon.pid_file.name)
    assert (done.returncode, done.stdout) == (expected, "")
    assert done.stderr.startswith("canal-server start: ")
    assert text in done.stderr
    assert not start_daemon.pid_file.exists()


def test_a_log_folder_that_cannot_be_written(make_conf, start_daemon):
    """The error names the option and the folder."""
    conf = make_conf(MAIN)
    done = start_daemon(conf, "--log-dir", str(conf / "canal.properties"))
    assert done.returncode == 2
    assert f"--log-dir {conf}/canal.properties: cannot write there" in done.stderr


def test_a_second_server(make_conf, start_daemon):
    """A pid file of a running server is refused, and stays."""
    conf = make_conf(MAIN)
    pid_file = start_daemon.pid_file
    options = ("--pid-file", str(pid_file))
    assert start_daemon(conf, *options).returncode == 0
    pid = int(pid_file.read_text())

    done = start_daemon(conf, *options)
    assert done.returncode == 1
    assert f"another server (process {pid}) runs with the data folder" in done.stderr
    done = start_daemon(conf, *options, CANAL_FILE_DATA_DIR=str(conf / "other"))
    assert done.returncode == 1
    assert f"belongs to a running server (process {pid})" in done.stderr
    assert int(pid_file.read_text()) == pid


def test_a_stale_pid_file(make_conf, start_daemon, capsys):
    """1. kill -9 leaves the file; 2. stop finds nobody; 3. start replaces it."""
    conf = make_conf(MAIN)
    pid_file = start_daemon.pid_file
    assert start_daemon(conf, "--pid-file", str(pid_file)).returncode == 0
    pid = int(pid_file.read_text())
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    await_end(process)

    assert cli.main(["stop", "--pid-file", str(pid_file)]) == 1
    assert f"no server runs with the pid file {pid_file}" in capsys.readouterr().err
    assert start_daemon(conf, "--pid-file", str(pid_file)).returncode == 0
    assert int(pid_file.read_text()) == status(conf, capsys)["pid"] != pid


def test_an_interrupted_start(make_conf, start_daemon, tmp_path):
    """Ctrl-C before the server is ready stops the server, too; the status is 130."""
    conf = make_conf(MAIN.replace("example", "waiting"), waiting=MASTER)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    start_daemon.started.append(conf)
    starter = subprocess.Popen(
        start_daemon.command(conf, "--pid-file", str(start_daemon.pid_file)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=child_environ() | {fix_daemon.START_FIFO: str(fifo)},
    )
    with starter, fifo.open("w"):  # from here on the server is starting
        process = os.pidfd_open(int(start_daemon.pid_file.read_text()))
        starter.send_signal(signal.SIGINT)
    assert starter.returncode == 130
    await_end(process)
    assert not start_daemon.pid_file.exists()


def await_end(process: int) -> None:
    """Wait for the end of a process, and close its descriptor."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    assert poll.poll(WAIT_S * 1000)
    os.close(process)
