"""Alarms: when they are raised and resolved, and that none is lost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fix_random import longer

from canal_server.alarms.alarm_conditions import AlarmLimits
from canal_server.alarms.alarm_watch import UNSENT_MAX, Alarms
from canal_server.errors import CanalError
from canal_server.observe.readings import Reading
from canal_server.server.request_counts import RequestCounts

NOW_S = 1_700_000_000.0


class Hook:
    """Keeps alarms; fails while it is asked to."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, str]] = []
        self.fails = False

    def send(self, alarm) -> None:
        """Take an alarm."""
        if self.fails:
            raise CanalError("canal.alarm.command: exit status 1: no route")
        self.got.append((alarm.state, alarm.kind, alarm.text))

    def take(self):
        """Return what arrived since the last call."""
        got, self.got = self.got, []
        return got


class Scene:
    """Alarms, a hook, and a clock."""

    def __init__(self, **limits) -> None:
        self.now_s = NOW_S
        self.hook = Hook()
        found = AlarmLimits(**{"after_s": 60.0, **limits})
        self.alarms = Alarms(found, [self.hook], lambda: self.now_s)

    def look(self, seconds=0.0, metrics=None, **status):
        """Look after some time; returns the alarms that arrived."""
        self.now_s += seconds
        status = {"destination": "shop", "running": True, "reads": "db2:3306"} | status
        self.alarms.look([Reading("shop", status, RequestCounts(), metrics)])
        return self.hook.take()


def metrics(lag_s=0.0, switches=0, **client_lags):
    """Return numbers of a destination with one source."""
    return SimpleNamespace(
        sources={0: SimpleNamespace(lag_s=lag_s, switches=switches)},
        clients=[
            SimpleNamespace(client_id=int(name[1:]), state="in_ring", lag_s=value)
            for name, value in client_lags.items()
        ],
    )


def test_what_lasts_is_raised_once_and_resolved_once():
    """An error shorter than the limit is none; a longer one has a beginning and end."""
    scene = Scene()
    assert scene.look(error="no route") == []
    assert scene.look(59, error="no route") == []
    assert scene.look(1, error="no route") == [("raised", "failed", "no route")]
    assert scene.look(100, error="another text of it") == []
    assert scene.look(5) == [("resolved", "failed", "no route")]
    assert scene.look(5) == []


def test_what_comes_and_goes_begins_again():
    """The time counts from the last beginning."""
    scene = Scene()
    scene.look(error="no route")
    scene.look(30)
    assert scene.look(30, error="no route") == []
    assert scene.look(59, error="no route") == []


def test_the_time_that_is_known_counts():
    """An error that began before the first look is raised at once."""
    scene = Scene()
    since_ms = (NOW_S - 100) * 1000
    assert scene.look(error="no route", error_since_ms=since_ms)
    scene = Scene()
    blocked = {"reason": "ring full, waits for client 7", "since_ms": since_ms}
    assert scene.look(blocked=blocked) == [("raised", "blocked", blocked["reason"])]


def test_lag():
    """Limits of 0 raise nothing; others do, for the source and for each client."""
    late = metrics(lag_s=120.0, c7=500.0, c8=1.0)
    assert Scene(after_s=0.0).look(metrics=late) == []
    scene = Scene(after_s=0.0, lag_s=60.0, client_lag_s=60.0)
    assert scene.look(metrics=late) == [
        ("raised", "lag", "reading lags 120 s behind the source"),
        ("raised", "client_lag", "client 7 has not acked for 500 s"),
    ]
    assert [each[:2] for each in scene.look(metrics=metrics())] == [
        ("resolved", "lag"),
        ("resolved", "client_lag"),
    ]


def test_warnings():
    """Each warning of the status is an alarm of its own."""
    scene = Scene(after_s=0.0)
    assert len(scene.look(warnings=["a", "b"])) == 2
    assert scene.look(warnings=["b", "c"]) == [
        ("raised", "warning", "c"),
        ("resolved", "warning", "a"),
    ]


def test_another_server_is_an_event():
    """A change of the source is raised at once, and never resolved."""
    scene = Scene()
    assert scene.look(metrics=metrics()) == []
    text = "reading changed to another server: db2:3306"
    found = [("raised", "source_switched", text)]
    assert scene.look(metrics=metrics(switches=1)) == found
    assert scene.look(metrics=metrics(switches=1)) == []
    assert scene.look() == []  # stopped: it counts again from 0
    assert scene.look(metrics=metrics(switches=1)) == found


def test_a_removed_destination():
    """Its alarms are resolved."""
    scene = Scene(after_s=0.0)
    scene.look(error="no route")
    scene.alarms.look([])
    assert scene.hook.take() == [("resolved", "failed", "no route")]


def test_a_hook_that_fails(caplog):
    """Alarms wait, in order, and the failure is logged once."""
    scene = Scene(after_s=0.0)
    scene.hook.fails = True
    assert scene.look(error="no route") == []
    assert scene.look() == []
    assert caplog.text.count("cannot send an alarm") == 1
    assert "no route" in caplog.text
    scene.hook.fails = False
    assert [each[0] for each in scene.look()] == ["raised", "resolved"]


def test_memory_is_bounded():
    """A hook that fails for ever keeps a bounded number of alarms."""
    scene = Scene(after_s=0.0)
    scene.hook.fails = True
    for _ in range(UNSENT_MAX):
        scene.look(error="no route")
        scene.look()
    scene.hook.fails = False
    assert len(scene.look()) == UNSENT_MAX


def test_random(rng):
    """Whatever comes and goes: raised and resolved alternate for each condition."""
    scene = Scene(after_s=rng.choice((0.0, 20.0)))
    state: dict[str, str] = {}
    for _ in range(longer(300)):
        warnings = [name for name in "abc" if rng.random() < 0.5]
        for now, _, text in scene.look(rng.uniform(0, 30), warnings=warnings):
            assert state.get(text, "resolved") != now
            state[text] = now
    state |= {text: now for now, _, text in scene.look()}
    assert set(state.values()) == {"resolved"}


@pytest.mark.parametrize("after_s", [0.0, 60.0])
def test_nothing_wrong(after_s):
    """A destination that is well raises nothing."""
    assert Scene(after_s=after_s, lag_s=1.0).look(100, metrics=metrics()) == []
