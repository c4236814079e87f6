"""The unit under a real systemd: it starts, fails, restarts, stops, and is confined.

A Debian is booted for all tests together, with the Python and the package of the tests
in /opt/canal-server. It is skipped with the reason where that is not possible.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import sys
import sysconfig
from pathlib import Path

import pytest
from booted_debian import BootedDebian
from fix_store import eventually
from received_rows import next_values
from server_folders import Unavailable

import canal_server
from canal_server.client import CanalClient

pytestmark = [pytest.mark.slow, pytest.mark.mysql]

UNIT = Path(__file__).parents[2] / "deploy/systemd/canal-server.service"
NAME = "canal-server"
PROGRAM = "/opt/canal-server/bin/canal-server"
DATA = "/var/lib/canal-server"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
# While this pipe exists the server has not started: what does systemd say meanwhile?
HELD = "/run/canal-held"
COMMAND = f"""#!/bin/sh
[ ! -p {HELD} ] || read -r go <{HELD}
export PYTHONPATH=/opt/canal-server/package:/opt/canal-server/dependencies
export LD_LIBRARY_PATH={{libraries}}
exec {{python}} -P -m canal_server "$@"
"""
MAIN = """canal.ip = 127.0.0.1
canal.port = 0
canal.metrics.pull.port = -1
canal.http.port = -1
canal.file.data.dir = /var/lib/canal-server
canal.auto.scan = true
canal.auto.scan.interval = 1
canal.instance.global.spring.xml = classpath:spring/file-instance.xml
"""
TIMEOUT_S = 60.0


def installed_into(debian: BootedDebian) -> dict[Path, str]:
    """Put the command and the unit there; returns what it needs of this machine."""
    package = Path(canal_server.__file__).parent
    needed = {
        package: "/opt/canal-server/package/canal_server",
        Path(sysconfig.get_path("purelib")): "/opt/canal-server/dependencies",
    }
    python = f"/usr/bin/{PYTHON}"  # its own, if ours is Debian's
    if sys.base_prefix != "/usr":
        needed[Path(sys.base_prefix)] = "/opt/python"
        python = f"/opt/python/bin/{PYTHON}"
    command = debian.root / PROGRAM.removeprefix("/")
    command.parent.mkdir(parents=True)
    command.write_text(COMMAND.format(python=python, libraries="/opt/python/lib"))
    command.chmod(0o755)
    shutil.copy(UNIT, debian.root / "etc/systemd/system")
    return needed


@pytest.fixture(scope="module")
def debian():
    """Give a running Debian with the user, the unit and the command."""
    made = BootedDebian()
    try:
        made.prepare().boot(installed_into(made))
        made.output("useradd", "--system", "canal")
        tried = made.run(PROGRAM, "version")
        if tried.returncode:
            pytest.skip(f"the Debian cannot run our Python: {tried.stdout}")
        yield made
    except Unavailable as error:
        pytest.skip(str(error))
    finally:
        made.close()


class Service:
    """The unit in the Debian, with a conf folder of a test's own."""

    def __init__(self, debian: BootedDebian, source, schema: str) -> None:
        self.debian = debian
        self.source = source
        self.schema = schema
        self.conf = debian.root / "etc/canal-server"
        self.data = debian.root / DATA.removeprefix("/")
        self._said_from = debian.output("date", "+%s").strip()
        file, offset = source.binlog_position()
        self.instance = (
            f"canal.instance.master.address = {source.host}:{source.port}\n"
            f"canal.instance.dbUsername = {source.user}\n"
            f"canal.instance.master.journal.name = {file}\n"
            f"canal.instance.master.position = {offset}\n"
            rf"canal.instance.filter.regex = {schema}\..*" + "\n"
        )

    def configure(self, main: str = MAIN) -> None:
        """Write the conf folder as the page says; the password is root's to read."""
        shutil.rmtree(self.conf, ignore_errors=True)
        self.conf.mkdir()
        (self.conf / "canal.properties").write_text(main)
        self.add_destination("example")
        environment = self.conf / "environment"
        environment.touch(0o600)
        environment.write_text(f"CANAL_INSTANCE_DBPASSWORD={self.source.password}\n")

    def add_destination(self, name: str) -> None:
        """Write the settings of a destination."""
        (self.conf / name).mkdir()
        (self.conf / name / "instance.properties").write_text(self.instance)

    def systemctl(self, *arguments: str):
        """Run systemctl on the unit; returns its status and output."""
        return self.debian.run("systemctl", *arguments, NAME)

    def start(self) -> None:
        """Start it, which must succeed."""
        done = self.systemctl("start")
        assert done.returncode == 0, f"{done.stdout}\n{self.journal()}"

    def shown(self, name: str) -> str:
        """Return a property of the unit."""
        return str(
            self.systemctl("show", "--value", f"--property={name}").stdout
        ).strip()

    def state(self, *names: str) -> tuple[str, ...]:
        """Return the state of the unit and further properties."""
        return tuple(self.shown(name) for name in ("ActiveState", *names))

    def journal(self) -> str:
        """Return what the journal has of the unit since this test began."""
        return self.debian.output(
            "journalctl", f"--unit={NAME}", f"--since=@{self._said_from}",
            "--output=cat", "--no-pager",
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Return the id of its main process on this machine."""
        return self.debian.outer_pid(int(self.shown("MainPID")))

    def client(self) -> CanalClient:
        """Return a client of the port that the unit shows."""
        status = self.shown("StatusText")
        port = re.fullmatch(r"serving clients on port (\d+)", status)
        assert port, f"{status!r}\n{self.journal()}"
        return CanalClient("127.0.0.1", int(port[1]), "example", timeout_s=TIMEOUT_S)


@pytest.fixture
def service(debian, mysql_server, database):
    """Give the unit, which does not run, on a source with the table `red`."""
    made = Service(debian, mysql_server, database)
    mysql_server.execute(f"CREATE TABLE {database}.red (a INT)")
    made.configure()
    yield made
    made.systemctl("stop")
    made.systemctl("reset-failed")
    shutil.rmtree(made.data, ignore_errors=True)


def test_active_when_it_serves(service):
    """1. It has started: activating; 2. it serves clients: active, with its port."""
    service.debian.output("mkfifo", HELD)
    try:
        service.systemctl("start", "--no-block")
        # The pipe opens when the main process reads from it.
        begun = service.debian.run(
            "sh", "-c", f"exec 3>{HELD}; systemctl is-active {NAME}; echo go >&3"
        )
    finally:
        service.debian.output("rm", HELD)
    assert begun.stdout == "activating\n"
    service.start()
    assert service.state("Type", "SubState") == ("active", "notify", "running")
    with service.client() as client:
        client.subscribe()


def test_serves_changes(service):
    """Confined as it is, it reads a source, serves a client and keeps its position.

    The folder of its data is of the unit's user alone, and so are all files in it.
    """
    service.start()
    with service.client() as client:
        client.subscribe()
        service.source.execute(f"INSERT INTO {service.schema}.red VALUES (1)")
        assert next_values(client, "a", TIMEOUT_S) == [1]
        client.ack()
        eventually(lambda: list(service.data.rglob("meta.dat")))
    assert stat.S_IMODE(service.data.stat().st_mode) == 0o700
    user = int(service.debian.output("id", "--user", "canal"))
    for path in (service.data, *service.data.rglob("*")):
        found = path.lstat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode) & 0o077) == (user, 0), path
    shown = service.debian.run(PROGRAM, "status", "--conf=/etc/canal-server", "--check")
    assert shown.stdout == "healthy\n", shown.stdout


def test_settings_change_while_it_runs(service):
    """It has no reload, and needs none: the same process runs a new destination."""
    service.start()
    assert service.shown("CanReload") == "no"
    before = service.pid
    service.add_destination("another")
    eventually(
        lambda: "another" in service.debian.run(
            PROGRAM, "status", "--conf=/etc/canal-server"
        ).stdout
    )  # fmt: skip
    assert service.pid == before
    assert service.shown("NRestarts") == "0"


def test_wrong_settings(service):
    """It fails with status 2 and the reason in the journal, and is not restarted.

    With the settings corrected it starts.
    """
    service.configure(MAIN.replace("canal.port = 0", "canal.port = many"))
    assert service.systemctl("start").returncode != 0
    assert service.state("Result", "ExecMainStatus", "NRestarts") == (
        "failed", "exit-code", "2", "0",
    )  # fmt: skip
    assert re.search(r"canal\.port.*many", service.journal()), service.journal()
    assert "Traceback" not in service.journal()
    service.configure()
    service.start()


def test_killed(service):
    """The process ends by SIGKILL: systemd starts it again, and nothing is lost."""
    service.start()
    with service.client() as client:
        client.subscribe()
        service.source.execute(f"INSERT INTO {service.schema}.red VALUES (1)")
        assert next_values(client, "a", TIMEOUT_S) == [1]
        before = service.pid
        os.kill(before, signal.SIGKILL)
        eventually(lambda: service.state("NRestarts") == ("active", "1"))
    assert service.pid != before
    assert "status=9/KILL" in service.journal()
    with service.client() as client:
        client.subscribe()
        assert next_values(client, "a", TIMEOUT_S) == [1]


def test_stopped(service):
    """A stop is clean, also with a client that waits: status 0, all threads ended."""
    service.start()
    with service.client() as client:
        client.subscribe()
        assert service.systemctl("stop").returncode == 0
    assert service.state("Result", "ExecMainStatus") == ("inactive", "success", "0")
    journal = service.journal()
    assert "received SIGTERM, shutting down" in journal
    assert "killing" not in journal.lower()


def test_confined(service):
    """It can write to its data alone, has no rights of root, and gains none."""
    service.start()
    lines = Path(f"/proc/{service.pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb"):
        assert int(status[f"Cap{kind}"], 16) == 0, kind
    user = service.debian.output("id", "--user", "canal").strip()
    assert set(status["Uid"].split()) == {user}
    # With the files as the server sees them even root cannot; with all others it can.
    service.debian.output("touch", "/tmp/of-others", "/etc/of-others")
    for path in ("/etc", "/etc/canal-server", "/opt", "/usr", "/var", "/var/log"):
        tried = service.debian.run_in(service.pid, "touch", f"{path}/new")
        assert "Read-only file system" in tried.stdout, (path, tried.stdout)
    for script, expected in (
        (f"touch {DATA}/new && rm {DATA}/new", ""),
        ("ls /tmp", ""),  # a folder of its own
        ("ls -A /home /root", "/home:\n\n/root:\n"),
        ("ls /dev/kmsg 2>/dev/null", ""),
        ("stat --format=%a /proc/self/environ >/dev/null && ls /proc/meminfo 2>&1",
         "ls: cannot access '/proc/meminfo': No such file or directory\n"),
    ):  # fmt: skip
        tried = service.debian.run_in(service.pid, "sh", "-c", script)
        assert tried.stdout == expected, script
