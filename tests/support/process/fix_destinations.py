"""Destinations of a process, without servers."""

from __future__ import annotations

import contextlib
import threading

import pytest

from canal_server.config.schema import InstanceConfig, PositionConfig, Wiring
from canal_server.daemon.destinations import Destinations
from canal_server.errors import CanalError
from canal_server.ha.single import SingleNode
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.file_meta import MetaFiles
from canal_server.position.stored_meta import StoredClient
from canal_server.runtime.lifecycle import Deadline

MOVED_TO = LogPosition(
    LogIdentity("db", 3306), EntryPosition("binlog.000001", 4, gtid="")
)
LONG = 60.0  # seconds; never waited for unless something hangs


def configs(*names, lazy=()):
    """Return configurations of instances."""
    return [InstanceConfig(destination=name, lazy=name in lazy) for name in names]


def stored_client(folder):
    """Store a client of the destination `a`; return the settings of `a` and `b`."""
    identity = ClientIdentity("a", 1001)
    MetaFiles(folder).write("a", [StoredClient(identity, None)])
    position = PositionConfig(wiring=Wiring.FILE, data_dir=folder)
    return [
        InstanceConfig(destination=name, lazy=True, position=position) for name in "ab"
    ]


class SharedLease(SingleNode):
    """A lease that other servers may hold; tests grant and revoke it."""

    shared = True

    def __init__(self):
        self.owner = None
        self.wrong = None
        self.sure = True
        self.calls = []
        self._granted = False
        self._woken = threading.Condition()
        self._changed = lambda: None

    def open(self, changed):
        """Record the call."""
        self.calls.append("open")
        self._changed = changed

    def give(self, *, granted=True, owner=None):
        """Grant or revoke it, and set its owner."""
        with self._woken:
            self._granted, self.owner = granted, owner
            self._woken.notify_all()
        self._changed()

    def acquire(self, stop):
        """Wait until it is granted."""
        with self._woken:
            self._woken.wait_for(lambda: self._granted or stop.requested())
            return self._granted

    def problem(self):
        """Return what is wrong."""
        return self.wrong

    def held(self):
        """Return whether it is granted."""
        return self._granted and self.sure

    def wait_until_lost(self, stop):
        """Wait until it is revoked."""
        with self._woken:
            self._woken.wait_for(lambda: not self._granted or stop.requested())
        return "taken away"

    def wake(self):
        """Make it check the stop."""
        with self._woken:
            self._woken.notify_all()

    def release(self):
        """Record the call."""
        self.calls.append("release")

    def close(self):
        """Record the call."""
        self.calls.append("close")


def released(lease, times):
    """Return whether a lease was released so many times."""
    return lease.calls.count("release") == times


@pytest.fixture
def destinations_of():
    """Return a function that makes a process's destinations, ended after the test.

    All have the same lease.
    """
    made = []

    def make(configs, makes, lease=None):
        made.append(Destinations(configs, makes, lambda _: lease or SingleNode()))
        return made[-1]

    yield make
    for destinations in made:
        destinations.request_stop()
        with contextlib.suppress(CanalError):
            destinations.join(Deadline(LONG))
