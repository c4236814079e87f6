"""Alarms that are open at the end of a run, and what the next one makes of them."""

from __future__ import annotations

import errno
import json
import os
import socket
from dataclasses import replace

import pytest
from alarm_scene import NOW_S, Scene, metrics

from canal_server.alarms.alarm_hooks import Alarm
from canal_server.alarms.alarm_watch import TAKEN_UP_MIN_S
from canal_server.alarms.open_alarms import AlarmFile, OpenAlarms
from canal_server.position.atomic_file import Disk

RAISED = Alarm("raised", "shop", "failed", "no route", "", 7, "host-1")
RESOLVED = ("resolved", "failed", "no route")
KEY = ("shop", "failed", "")


@pytest.fixture
def file(tmp_path):
    """Give the path of a data folder's file."""
    return tmp_path / "data/canal-server.alarms.json"


def run(path, now_s=NOW_S, **limits):
    """Return the alarms of another run, as after a kill of the one before."""
    return Scene(AlarmFile(path), now_s, **limits)


def test_over_meanwhile(file):
    """What is over in the next run is resolved, when it had time to show again."""
    first = run(file)
    first.look(error="no route")
    assert first.look(60, error="no route") == [("raised", "failed", "no route")]
    second = run(file, NOW_S + 600)
    assert second.look(5) == []
    assert second.look(60) == [RESOLVED]
    assert not file.exists()
    assert run(file).look(100) == []


def test_not_over(file):
    """What lasts is not raised a second time, and is resolved when it ends."""
    first = run(file)
    first.look(error="no route")
    first.look(60, error="no route")
    second = run(file)
    assert second.look(5) == []
    assert second.look(5, error="no route, again") == []
    assert second.look(100, error="no route, again") == []
    assert second.look(5) == [RESOLVED]


def test_a_start_that_takes_long(file):
    """As long as a destination starts, nobody knows whether it is over."""
    first = run(file, after_s=0.0)
    assert first.look(error="no route")
    second = run(file, after_s=0.0)
    starting = {"running": False, "life": "starting"}
    assert second.look(10 * TAKEN_UP_MIN_S, **starting) == []
    assert second.look(5) == [RESOLVED]


def test_no_grace_for_what_is_raised_later(file):
    """What is seen to end in the same run is resolved at once."""
    first = run(file, after_s=0.0)
    first.look(error="no route")
    second = run(file, after_s=0.0)
    assert second.look(1, error="no route") == []
    assert second.look(1) == [RESOLVED]
    assert second.look(1, error="once more")
    assert second.look(1)


def test_a_destination_that_was_removed(file):
    """Its alarms are resolved at once."""
    first = run(file, after_s=0.0)
    first.look(error="no route")
    second = run(file, after_s=0.0)
    second.alarms.look([])
    assert second.hook.take() == [RESOLVED]


def test_several(file):
    """Alarms that differ by what they are about are distinguished."""
    first = run(file, after_s=0.0, client_lag_s=1.0)
    lagging = metrics(c1001=9.0, c1002=9.0)
    assert len(first.look(1, lagging, warnings=["a", "b"])) == 4
    second = run(file, after_s=0.0, client_lag_s=1.0)
    assert second.look(1, metrics(c1002=9.0), warnings=["b"]) == []
    ended = second.look(TAKEN_UP_MIN_S, metrics(c1002=9.0), warnings=["b"])
    assert ended == [
        ("resolved", "client_lag", "client 1001 has not acked for 9 s"),
        ("resolved", "warning", "a"),
    ]


def test_a_switch(file):
    """A change to another server is over when that was read steadily."""
    first = run(file)
    switched = ("source_switched", "reading changed to another server: db2:3306")
    assert first.look(5, metrics(switches=1)) == [("raised", *switched)]
    second = run(file)
    assert second.look(5, None, running=False, life="starting") == []
    assert second.look(50, metrics()) == []
    assert second.look(60, metrics()) == [("resolved", *switched)]


def test_a_switch_of_one_that_runs_elsewhere(file):
    """It is over when the destination does not run here in the next run."""
    first = run(file)
    assert first.look(5, metrics(switches=1))
    second = run(file)
    elsewhere = {"running": False, "life": "competing"}
    assert second.look(5, None, **elsewhere) == []
    assert second.look(60, None, **elsewhere)[0][:2] == ("resolved", "source_switched")


def test_what_was_not_sent(file):
    """What a hook has not accepted is sent by the next run, in order."""
    first = run(file, after_s=0.0)
    first.hook.fails = True
    first.look(error="no route")
    second = run(file, after_s=0.0)
    assert second.look(1, error="no route") == [("raised", "failed", "no route")]
    third = run(file, after_s=0.0)
    assert third.look(1, error="no route") == []


def test_the_name_of_the_host(file):
    """A host with another name resolves by the name with which it was raised."""
    AlarmFile(file).write(OpenAlarms({KEY: RAISED}))
    scene = run(file, after_s=0.0)
    scene.look(TAKEN_UP_MIN_S)
    (alarm,) = scene.hook.alarms
    assert alarm == replace(alarm, state="resolved", server="host-1")
    assert alarm.server != socket.gethostname()
    assert alarm.time_ms > RAISED.time_ms


def test_it_is_for_its_owner_only(file):
    """Texts may name what others are not to know."""
    AlarmFile(file).write(OpenAlarms({KEY: RAISED}))
    assert file.stat().st_mode & 0o777 == 0o600
    assert AlarmFile(file).read() == OpenAlarms({KEY: RAISED})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"raised": [7], "unsent": {}}',
        b'{"raised": [], "unsent": {"log": [{}]}}',
        b'{"raised": [{"about": "", "alarm": {"state": "raised"}}], "unsent": {}}',
    ],
)
def test_a_damaged_file(file, content, caplog):
    """It is reported, and replaced by the next alarm."""
    file.parent.mkdir()
    file.write_bytes(content)
    scene = run(file, after_s=0.0)
    assert "cannot read the open alarms of the last run" in caplog.text
    assert scene.look(error="no route") == [("raised", "failed", "no route")]
    assert json.loads(file.read_bytes())["raised"]


def test_random_content(rng, file):
    """No content of the file stops a server."""
    good = OpenAlarms({KEY: RAISED}, {"log": [RAISED]}).encode()
    file.parent.mkdir()
    for _ in range(300):
        content = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        file.write_bytes(content)
        AlarmFile(file).read()


class FullDisk(Disk):
    """A disk that has no space."""

    is_full = True

    def write(self, descriptor, data):
        """Fail."""
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(descriptor, data)


def test_a_full_disk(file, caplog):
    """Alarms are sent all the same; it is reported once, and written later."""
    disk = FullDisk()
    scene = Scene(AlarmFile(file, disk), after_s=0.0)
    assert scene.look(error="no route")
    assert scene.look(5, error="no route") == []
    assert caplog.text.count("the next run does not know the open alarms") == 1
    disk.is_full = False
    scene.look(5, error="no route")
    assert AlarmFile(file).read().raised


def test_a_run_that_has_ended(file):
    """It writes no more: the file is that of the next one."""
    scene = run(file, after_s=0.0)
    scene.look(error="no route")
    before = file.read_bytes()
    scene.alarms.close()
    scene.look(5)
    assert file.read_bytes() == before
