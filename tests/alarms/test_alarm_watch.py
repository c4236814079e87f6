"""Alarms: when they are raised and resolved, and that none is lost."""

from __future__ import annotations

import pytest
from alarm_scene import NOW_S, Scene, metrics
from fix_random import longer

from canal_server.alarms.alarm_watch import UNSENT_MAX


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
    blocked = {
        "reason": "ring full, waits for client 7",
        "since_ms": since_ms,
        "clients": [7],
    }
    assert scene.look(blocked=blocked) == [("raised", "blocked", blocked["reason"])]


def test_what_blocks():
    """It is one alarm, whatever clients come to it, and says which they were."""
    scene = Scene(after_s=0.0)
    blocked = {"reason": "ring full", "since_ms": 0, "clients": [7]}
    scene.look(blocked=blocked)
    scene.look(blocked={**blocked, "clients": [7, 8]})
    scene.look()
    assert [(each.state, each.about) for each in scene.hook.alarms] == [
        ("raised", "7"),
        ("resolved", "7"),
    ]
    delivery = {"queue": "kafka at k:9092", "client_id": 7, "state": "delivering"}
    scene.look(blocked=blocked, delivery=delivery)
    assert scene.hook.alarms[-1].about == "kafka at k:9092"


@pytest.mark.parametrize("state", ["blocked", "stopped"])
def test_a_delivery_for_which_reading_waits(state):
    """It is one alarm, that of the delivery; one more if others are waited for, too."""
    scene = Scene(after_s=0.0)
    delivery = {
        "queue": "kafka at k:9092", "client_id": 1001, "state": state,
        "reason": "no answer", "since_ms": 0,
    }  # fmt: skip
    for clients in ([1001], []):
        blocked = {"reason": "ring full", "since_ms": 0, "clients": clients}
        scene.look(blocked=blocked, delivery=delivery)
    (alarm,) = scene.hook.alarms
    assert (alarm.kind, alarm.about) == ("delivery", "kafka at k:9092")
    scene.look(blocked={**blocked, "clients": [7, 1001]}, delivery=delivery)
    assert scene.hook.alarms[-1].kind == "blocked"
    assert scene.hook.alarms[-1].about == "7, kafka at k:9092"


def test_a_slow_delivery_that_begins_to_fail():
    """It is one more alarm; the others are not over, and end when they are."""
    scene = Scene(after_s=0.0, client_lag_s=60.0)
    delivery = {
        "queue": "kafka at k:9092", "client_id": 1001, "state": "delivering",
        "reason": "", "since_ms": 0,
    }  # fmt: skip
    blocked = {"reason": "ring full", "since_ms": 0, "clients": [1001]}
    late = metrics(c1001=500.0)

    def look(state, **status):
        now = delivery | {"state": state}
        return [each[:2] for each in scene.look(delivery=now, **status)]

    assert look("delivering", metrics=late, blocked=blocked) == [
        ("raised", "blocked"),
        ("raised", "client_lag"),
    ]
    assert look("blocked", metrics=late, blocked=blocked) == [("raised", "delivery")]
    assert look("delivering") == [
        ("resolved", "blocked"),
        ("resolved", "client_lag"),
        ("resolved", "delivery"),
    ]
    # If it fails first, it is one alarm, until the client lags for another reason.
    assert look("blocked", metrics=late) == [("raised", "delivery")]
    assert look("blocked", metrics=metrics(c7=500.0, c1001=500.0)) == [
        ("raised", "client_lag")
    ]
    assert look("delivering", metrics=late) == [
        ("raised", "client_lag"),
        ("resolved", "delivery"),
        ("resolved", "client_lag"),
    ]


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


SWITCHED = ("raised", "source_switched", "reading changed to another server: db2:3306")
SETTLED = ("resolved", *SWITCHED[1:])


def test_another_server():
    """A change is raised at once, and resolved when the other one is read steadily."""
    scene = Scene()
    assert scene.look(metrics=metrics()) == []
    switched = metrics(switches=1)
    assert scene.look(metrics=switched) == [SWITCHED]
    assert scene.look(59, metrics=switched) == []
    assert scene.look(1, metrics=switched) == [SETTLED]
    assert scene.look(99, metrics=switched) == []


def test_another_server_that_fails():
    """What is read with errors, or not at all, is not read steadily."""
    scene = Scene()
    switched = metrics(switches=1)
    assert scene.look(metrics=switched) == [SWITCHED]
    assert scene.look(30, metrics=switched, state="connecting") == []
    assert scene.look(30, metrics=switched, error="no route") == []
    assert scene.look(59, metrics=switched) == []
    assert scene.look(1, metrics=switched) == [SETTLED]


def test_back_to_the_first_server():
    """It is another change: the first one is resolved, and the second raised."""
    scene = Scene()
    assert scene.look(metrics=metrics(switches=1)) == [SWITCHED]
    assert scene.look(5, metrics=metrics(switches=2)) == [SETTLED, SWITCHED]
    assert scene.look(60, metrics=metrics(switches=2)) == [SETTLED]


def test_a_switched_destination_that_stops():
    """Another server may run it: it is resolved here, and counts from 0 again."""
    scene = Scene()
    assert scene.look(metrics=metrics(switches=1)) == [SWITCHED]
    assert scene.look() == [SETTLED]
    assert scene.look(metrics=metrics(switches=1)) == [SWITCHED]
    scene.alarms.look([])
    assert scene.hook.take() == [SETTLED]


def test_uncertain_tables():
    """They are an alarm until no table is uncertain, whichever these are."""
    scene = Scene(after_s=0.0)
    first = {"reason": "columns of a.t", "count": 1, "tables": ["a.t"]}
    assert scene.look(uncertain_tables=first) == [
        ("raised", "uncertain_tables", "columns of a.t")
    ]
    assert scene.look(uncertain_tables=first | {"reason": "columns of a.u"}) == []
    assert [each[:2] for each in scene.look(uncertain_tables=None)] == [
        ("resolved", "uncertain_tables")
    ]


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
