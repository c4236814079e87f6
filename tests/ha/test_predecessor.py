"""A dead server's session is ended, and no other, against a ZooKeeper."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fix_daemon import child_environ

from canal_server.doors.zookeeper import end_session
from canal_server.ha.predecessor import Predecessor

if TYPE_CHECKING:
    from collections.abc import Callable

    from zookeepers import PrivateZooKeeper

    from canal_server.doors.zookeeper import ZooKeeper

TIMEOUT_S = 30.0  # of sessions: longer than a test takes
NODE = "/left"
# A server, as far as it matters here. Its arguments: lock, servers, time-out, node.
SERVER = """
import sys
from pathlib import Path
from canal_server.ha.predecessor import Predecessor
from canal_server.runtime.lifecycle import Stop
from canal_server.doors.zookeeper import ZooKeeper

lock, servers, timeout_s, node = sys.argv[1:]
zookeeper = ZooKeeper(servers, session_timeout_s=float(timeout_s))
zookeeper.start()
zookeeper.wait_until_connected(Stop())
zookeeper.create(node, ephemeral=True)
Predecessor(Path(lock), servers, float(timeout_s)).remember(zookeeper)
print("ready", flush=True)
sys.stdin.read()
"""


class Scene:
    """A data folder, and a session that a killed server left there."""

    def __init__(self, folder: Path, servers: str, observer: ZooKeeper) -> None:
        self.lock = folder / "canal-server.lock"
        self.lock.touch()
        self.servers = servers
        self.observer = observer
        arguments = [str(self.lock), servers, str(TIMEOUT_S), NODE]
        with subprocess.Popen(
            [sys.executable, "-c", SERVER, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environ(),
        ) as server:
            assert server.stdout
            assert server.stdout.readline() == b"ready\n"
            server.kill()
        self.path = self.predecessor().path

    def predecessor(self) -> Predecessor:
        """Return what the next server reads."""
        return Predecessor(self.lock, self.servers, TIMEOUT_S)

    def lives(self) -> bool:
        """Return whether the session exists, by its node."""
        return self.observer.read(NODE) is not None

    def change(self, **fields: object) -> None:
        """Change what is remembered."""
        found: dict[str, Any] = json.loads(self.path.read_text())
        self.path.write_text(json.dumps(found | fields))


@pytest.fixture
def scene(tmp_path: Path, zookeeper_root: str, zookeeper: ZooKeeper) -> Scene:
    """Return what a killed server left."""
    made = Scene(tmp_path, zookeeper_root, zookeeper)
    assert made.lives()
    return made


def test_a_dead_server(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Its session is ended; only the owner of the file may read its password."""
    caplog.set_level("INFO")
    assert scene.path.stat().st_mode & 0o777 == 0o600
    scene.predecessor().end()
    assert "ended the session" in caplog.text
    assert not scene.lives()
    secret = json.loads(scene.path.read_text())["secret"]
    assert secret not in caplog.text
    scene.predecessor().end()  # it had ended already
    assert caplog.text.count("ended the session") == 1


def test_a_chroot_that_was_deleted(
    scene: Scene, zookeeper_server: PrivateZooKeeper
) -> None:
    """A session is ended with or without a chroot, and without a warning."""
    left = json.loads(scene.path.read_text())
    secret = bytes.fromhex(left["secret"])
    chroot = f"{zookeeper_server.servers}/gone"
    assert end_session(chroot, left["session"], secret, TIMEOUT_S)
    assert not scene.lives()


def _copied(scene: Scene) -> None:
    """Replace the lock by another file: that of a copy of the folder."""
    copy = scene.lock.with_name("copy")
    copy.touch()
    copy.replace(scene.lock)


def _paused_before_its_end(scene: Scene) -> None:
    """Let the process exist, although it released the lock."""
    stat = Path(f"/proc/{os.getpid()}/stat").read_text()
    started = int(stat.rpartition(")")[2].split()[19])
    scene.change(process=[os.getpid(), started])


@pytest.mark.parametrize(
    "change",
    [
        _copied,
        _paused_before_its_end,
        lambda scene: scene.change(boot="another start of the machine"),
        lambda scene: scene.change(secret="00" * 16),
        lambda scene: scene.change(secret="nonsense"),
        lambda scene: scene.path.write_text("[]"),
        lambda scene: scene.path.write_text(""),
        lambda scene: scene.predecessor().forget(),
    ],
    ids=[
        "copied", "alive", "another-boot", "another-secret", "no-secret", "no-object",
        "empty", "forgotten",
    ],
)  # fmt: skip
def test_what_is_not_certain(scene: Scene, change: Callable[[Scene], object]) -> None:
    """A session that may be in use is kept, and nothing is raised."""
    change(scene)
    scene.predecessor().end()
    assert scene.lives()


def test_a_process_of_the_same_number(scene: Scene) -> None:
    """The process with that number now was started at another time: ours is dead."""
    scene.change(process=[os.getpid(), 1])
    scene.predecessor().end()
    assert not scene.lives()


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and the server continues."""
    found = Predecessor(tmp_path / "away" / "lock", scene.servers, TIMEOUT_S)
    found.remember(scene.observer)
    found.remember(scene.observer)
    (line,) = [each for each in caplog.messages if "cannot write" in each]
    assert "a restart after a kill waits" in line
