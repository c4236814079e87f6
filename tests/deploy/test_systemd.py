"""The unit for systemd: valid, hardened, and notified by the server."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from fix_conf import ACCOUNT
from fix_daemon import child_environ

UNIT = Path(__file__).parents[2] / "deploy/systemd/canal-server.service"
MAIN = "canal.ip = 127.0.0.1\ncanal.port = 0\ncanal.destinations = example\n"
SOURCE = f"canal.instance.master.address = db:3306\n{ACCOUNT}"
EXPOSURE_MAX = 2.0  # of 10; what systemd calls OK ends at 4

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze"
)


@pytest.fixture
def unit(tmp_path):
    """Give the unit with a program that exists, as systemd asks for one."""
    path = tmp_path / UNIT.name
    program = "/opt/canal-server/bin/canal-server"
    path.write_text(UNIT.read_text().replace(program, "/bin/true"))
    return path


def analyze(*arguments) -> str:
    """Run systemd-analyze; returns its output."""
    done = subprocess.run(
        ["systemd-analyze", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


@needs_systemd
def test_valid(unit):
    """Systemd knows every key and value."""
    found = analyze("verify", unit).splitlines()
    assert [line for line in found if UNIT.name in line] == []


@needs_systemd
def test_hardened(unit):
    """The exposure that systemd computes is low."""
    shown = analyze("security", "--offline=true", unit)
    exposure = re.search(r"exposure level for .*: ([0-9.]+)", shown)
    assert exposure, shown
    assert float(exposure[1]) <= EXPOSURE_MAX


def test_the_server_says_when_it_is_ready(make_conf, tmp_path):
    """1. It serves clients: READY; 2. SIGTERM: STOPPING, and it ends."""
    conf = make_conf(
        MAIN, example=f"canal.instance.master.address = db:3306\n{ACCOUNT}"
    )
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(address))
        listener.settimeout(60)
        process = subprocess.Popen(
            [sys.executable, "-m", "canal_server", "start", "--conf", str(conf)],
            env=child_environ() | {"NOTIFY_SOCKET": str(address)},
            stderr=subprocess.DEVNULL,
        )
        try:
            ready = listener.recv(1000).decode()
            port = re.fullmatch(r"READY=1\nSTATUS=serving clients on port (\d+)", ready)
            assert port, ready
            socket.create_connection(("127.0.0.1", int(port[1]))).close()
            process.send_signal(signal.SIGTERM)
            assert listener.recv(1000) == b"STOPPING=1"
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
