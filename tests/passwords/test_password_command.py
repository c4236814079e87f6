"""Commands that print a password: their output, and every way in which they fail."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from pathlib import Path

import pytest

from canal_server.errors import PasswordError
from canal_server.passwords import password_command
from canal_server.passwords.password_command import output_of
from canal_server.passwords.password_file import PASSWORD_BYTES_MAX
from canal_server.runtime.lifecycle import Stop

KEY = "canal.instance.dbPassword.command"
SECRET = "s3cr3t-in-an-argument"
PATIENCE_S = 30.0


def python(program: str) -> str:
    """Return a command line that runs a program, and has a secret in it."""
    return shlex.join([sys.executable, "-c", program, SECRET])


def failure_of(program: str) -> str:
    """Return the text of the error that a program causes."""
    with pytest.raises(PasswordError) as caught:
        output_of(KEY, python(program))
    error = caught.value
    assert SECRET not in f"{error!r} {error.__cause__!r} {vars(error)}"
    assert str(error).startswith(f"{KEY} = {sys.executable}: ")
    return str(error)


def test_its_output():
    """What it writes is returned; there is no input, and nothing of a shell."""
    assert output_of(KEY, "printf '%s ' $HOME *") == b"$HOME * "
    program = "import sys; print(sys.stdin.read() + sys.argv[1])"
    assert output_of(KEY, python(program)) == f"{SECRET}\n".encode()


def test_it_fails(capfd):
    """The status is shown, and nothing that it wrote."""
    program = "import sys; print('geheim'); sys.stderr.write('geheim'); sys.exit(7)"
    assert "failed with exit status 7; run it as the user" in failure_of(program)
    assert "geheim" not in failure_of(program)
    assert capfd.readouterr() == ("", "")


def test_it_is_killed():
    """The signal that ended it is shown."""
    text = failure_of("import os; os.kill(os.getpid(), 9)")
    assert "failed with signal 9" in text


@pytest.mark.parametrize("command", ["/no/such/program x", "''", "/tmp"])
def test_it_cannot_be_run(command):
    """A program that is missing, has no name or is a folder."""
    with pytest.raises(PasswordError, match=r"cannot run: .*; write the path"):
        output_of(KEY, command)


def test_it_writes_too_much():
    """Output without end is cut, and the command ended."""
    text = failure_of("import sys\nwhile True: sys.stdout.write('x' * 1000)")
    assert f"wrote more than {PASSWORD_BYTES_MAX} bytes" in text


def test_it_takes_too_long(monkeypatch, tmp_path):
    """After the limit it is ended, with what it has started."""
    monkeypatch.setattr(password_command, "TIMEOUT_S", 0.5)
    pids = tmp_path / "pids"
    program = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([{sys.executable!r}, '-c',"
        " 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)"
    )
    assert "did not end within 0.5 s; use a faster command" in failure_of(program)
    for pid in pids.read_text().split() if pids.exists() else ():
        assert_ends(int(pid))


def assert_ends(pid: int) -> None:
    """Wait until a process is no more, or is dead and not waited for."""
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except FileNotFoundError:
            return
        if stat.rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} still runs")


def test_a_stop_ends_it():
    """A server that stops does not wait for it."""
    stop = Stop()
    timer = threading.Timer(0.1, stop.request)
    timer.start()
    with pytest.raises(PasswordError, match="was ended, as the server stops"):
        output_of(KEY, python("import time; time.sleep(600)"), stop)
    timer.join()


def test_few_run_together(tmp_path):
    """Of many connections that need a password, only some run the command at once."""
    running = tmp_path / "running"
    running.mkdir()
    program = (
        "import os, sys, time\n"
        f"path = {str(running)!r}\n"
        "own = os.path.join(path, str(os.getpid()))\n"
        "open(own, 'w').close()\n"
        "time.sleep(0.05)\n"
        "print(len(os.listdir(path)))\n"
        "os.remove(own)\n"
    )
    counts: list[int] = []

    def run() -> None:
        counts.append(int(output_of(KEY, python(program))))

    threads = [threading.Thread(target=run) for _ in range(10)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(counts) == 10
    assert max(counts) <= password_command.AT_A_TIME
    assert list(running.iterdir()) == []
