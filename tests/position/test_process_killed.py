"""Every manager that writes, in a process that is killed during its writes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from fix_daemon import child_environ
from fix_random import longer
from position_writer import Store, settles_every
from support_paths import program

from canal_server.position.stored_meta import Writing

WRITER = program("position_writer.py")


@pytest.fixture(params=["files", "nodes"])
def location(request):
    """Return a folder, or servers of ZooKeeper with a separate tree."""
    if request.param == "files":
        return str(request.getfixturevalue("tmp_path"))
    return request.getfixturevalue("zookeeper_root")


def writer(*arguments):
    """Return a process that writes."""
    return subprocess.Popen(
        [sys.executable, str(WRITER), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environ(),
    )


def stored(location):
    """Return the number that a new manager reads; it is complete, with its GTID set."""
    store = Store(location)
    try:
        return store.get()
    finally:
        store.close()


@pytest.mark.parametrize("writing", Writing)
def test_killed_amid_writes(rng, location, writing):
    """What was stored before the kill is found, or what was being stored then."""
    last = 0
    for _ in range(longer(2)):
        with writer(location, writing.value, last + 1) as process:
            assert process.stdout
            for _ in range(rng.randint(1, 60)):
                last = int(process.stdout.readline())
            process.kill()
            for line in process.stdout:
                last = int(line) if line.endswith("\n") else last
        found = stored(location)
        assert last <= found <= last + settles_every(writing)
        last = found


def test_killed_between_the_writes(location):
    """If killed between the set and its cursor, the old pair is found."""
    store = Store(location)
    store.put(7)
    store.put(8)
    store.close()
    for _ in range(2):
        with writer(location, Writing.AT_ONCE.value, 9, "between") as process:
            assert process.wait() == -signal.SIGKILL
        assert stored(location) == 8
