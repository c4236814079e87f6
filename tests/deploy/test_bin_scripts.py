"""The scripts with the names of the Java server's, in a folder beside `conf`."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import fix_daemon
import pytest
from fix_conf import MASTER
from fix_daemon import child_environ

SCRIPTS = Path(__file__).parents[2] / "deploy/bin"
MAIN = "canal.ip = 127.0.0.1\ncanal.port = 0\ncanal.destinations = example\n"
WAIT_S = 240


class Home:
    """A folder as that of an unpacked Java server: bin, conf, and later logs."""

    def __init__(self, folder: Path, conf: Path) -> None:
        self.bin = folder / "bin"
        self.pid_file = self.bin / "canal.pid"
        self.log = folder / "logs/canal/canal.log"
        folder.mkdir()
        shutil.copytree(SCRIPTS, self.bin)
        conf.rename(folder / "conf")
        self.command = folder / "command"
        program = shlex.join([sys.executable, fix_daemon.__file__])
        self.command.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        self.command.chmod(0o755)
        self.environ = child_environ() | {"CANAL_SERVER": str(self.command)}

    def run(self, script: str, *options: str, folder: Path | None = None):
        """Run a script to its end; returns its result."""
        return subprocess.run(
            [str((folder or self.bin) / script), *options],
            capture_output=True,
            text=True,
            check=False,
            env=self.environ,
            timeout=WAIT_S,
        )

    def pid(self) -> int:
        """Return the process that runs."""
        return int(self.pid_file.read_text())


@pytest.fixture
def home(make_conf, tmp_path):
    """Give a folder with the scripts; what still runs is stopped."""
    made = Home(tmp_path / "canal server", make_conf(MAIN, example=MASTER))
    yield made
    made.run("stop.sh")


def test_start_and_stop(home):
    """1. startup.sh: it serves, and logs; 2. again: refused; 3. stop.sh; 4. again."""
    done = home.run("startup.sh")
    assert (done.returncode, done.stderr) == (0, "")
    pid = home.pid()
    assert f"as process {pid}" in done.stdout
    assert "listening on 127.0.0.1" in home.log.read_text()

    done = home.run("startup.sh")
    assert done.returncode == 1
    assert f"process {pid}" in done.stderr
    assert home.pid() == pid

    assert home.run("stop.sh").returncode == 0
    assert not home.pid_file.exists()
    done = home.run("stop.sh")
    assert done.returncode == 1
    assert f"no server runs with the pid file {home.pid_file}" in done.stderr


@pytest.mark.slow
def test_restart(home):
    """Whether a server runs, was killed, or never ran: one runs afterwards."""
    assert home.run("restart.sh").returncode == 0
    first = home.pid()
    assert home.run("restart.sh").returncode == 0
    second = home.pid()
    assert second != first
    assert "shut down" in home.log.read_text()

    os.kill(second, 9)
    assert home.run("restart.sh", "--log-format", "json").returncode == 0
    assert home.pid() not in (first, second)
    assert '"level": "info"' in home.log.read_text()


@pytest.mark.slow
def test_by_a_link(home, tmp_path):
    """A link to a script, as in /usr/local/bin, leads to the folder of the script."""
    links = tmp_path / "links"
    links.mkdir()
    for name in ("startup.sh", "stop.sh"):
        (links / name).symlink_to(home.bin / name)
    assert home.run("startup.sh", folder=links).returncode == 0
    assert home.pid() > 0
    assert home.run("stop.sh", folder=links).returncode == 0


def test_which_command(home):
    """Without the variable it is that of the folder `venv`, else the one of $PATH."""
    del home.environ["CANAL_SERVER"]
    here = home.bin.parent / "venv/bin/canal-server"
    elsewhere = home.bin.parent / "elsewhere/canal-server"
    for path in (here, elsewhere):
        path.parent.mkdir(parents=True)
        path.write_text(f'#!/bin/sh\necho {path.parent.name} "$1"\n')
        path.chmod(0o755)
    home.environ["PATH"] = f"{elsewhere.parent}:{home.environ['PATH']}"
    assert home.run("stop.sh").stdout == "bin stop\n"
    here.unlink()
    assert home.run("startup.sh").stdout == "elsewhere start\n"
