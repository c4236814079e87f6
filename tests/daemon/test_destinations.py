"""The destinations of a process, and the life of each."""

from __future__ import annotations

import logging
import threading
from functools import partial

import pytest
from fix_daemon import Makes
from fix_destinations import LONG, SharedLease, configs, released
from fix_store import eventually, in_thread

import canal_server.daemon.destinations
from canal_server.errors import CanalError, ConfigError
from canal_server.model.lease_problem import LeaseProblem
from canal_server.runtime.lifecycle import Deadline


def test_all_but_lazy_ones_start(destinations_of):
    """Instances start with the process, lazy ones do not run yet."""
    destinations = destinations_of(configs("a", "b", lazy="b"), Makes())
    assert destinations.running("a") is None
    destinations.start()
    running = destinations.running("a")
    assert running
    assert running.destination == "a"
    assert destinations.running("b") is None
    assert [destinations.is_configured(name) for name in "abc"] == [
        True,
        True,
        False,
    ]


def test_one_that_starts_slowly_does_not_hold_others_up(
    destinations_of, monkeypatch, caplog
):
    """Others are served while it starts; its client waits for it."""
    monkeypatch.setattr(canal_server.daemon.destinations, "SETTLE_S", 0.1)
    makes = Makes()
    destinations = destinations_of(configs("slow", "b"), makes)
    slow = next(each for each in makes.made if each.destination == "slow")
    slow.may_start.clear()
    with caplog.at_level(logging.INFO):
        destinations.start()
    assert destinations.running("slow") is None
    assert "destination slow is still starting" in caplog.text
    assert destinations.start_lazy("b")
    found: list[object] = []
    client = threading.Thread(
        target=lambda: found.append(destinations.start_lazy("slow"))
    )
    client.start()
    slow.may_start.set()
    client.join(LONG)
    assert found == [slow]


def test_a_lazy_one_starts_once(destinations_of):
    """The first client starts a lazy instance, later ones find it."""
    makes = Makes()
    destinations = destinations_of(configs("a", lazy="a"), makes)
    destinations.start()
    first = destinations.start_lazy("a")
    assert first
    assert destinations.start_lazy("a") is first
    assert destinations.running("a") is first
    assert makes.calls() == {"a": ["start"]}


def test_an_unknown_one_does_not_start(destinations_of):
    """A destination that is not configured cannot be started."""
    assert destinations_of(configs("a"), Makes()).start_lazy("b") is None


def test_two_first_clients_start_it_once(destinations_of):
    """Of two threads that start an instance at once, one waits for the other.

    Forbidden: two starts, or one thread that gets nothing.
    """
    makes = Makes()
    destinations = destinations_of(configs("a", "b", lazy="ab"), makes)
    destinations.start()
    makes.made[0].may_start.clear()
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(destinations.start_lazy("a")))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    # Another destination is not delayed meanwhile.
    assert destinations.start_lazy("b")
    assert destinations.running("a") is None
    makes.made[0].may_start.set()
    for thread in threads:
        thread.join(LONG)
    assert found == [makes.made[0]] * 2
    assert makes.made[0].calls == ["start"]


def test_a_failing_one_does_not_hold_others_up(destinations_of, caplog):
    """A failing start is logged with its reason, and the next one starts."""
    destinations = destinations_of(configs("broken", "b"), Makes())
    destinations.start()
    assert destinations.running("broken") is None
    assert destinations.running("b")
    assert "destination broken cannot start: the cursors cannot be read" in caplog.text
    broken, _ = destinations.status()
    assert broken["running"] is False
    assert str(broken["error"]).endswith("Error: the cursors cannot be read")


def test_a_failed_one_can_be_tried_again(destinations_of):
    """Each retry starts a new instance."""
    makes = Makes()
    destinations = destinations_of(configs("broken", lazy=["broken"]), makes)
    destinations.start()
    assert destinations.start_lazy("broken") is None
    assert destinations.start_lazy("broken") is None
    assert [instance.calls for instance in makes.made] == [["start"], ["start"]]


def test_a_fault_is_reported_and_tried_again(destinations_of, caplog):
    """An unexpected error in a start is logged with a traceback; the lease is free."""
    makes, lease = Makes(), SharedLease()
    destinations = destinations_of(configs("faulty"), makes, lease)
    destinations.start()
    lease.give()
    eventually(lambda: destinations.status()[0]["life"] == "paused")
    assert lease.calls == ["open", "release"]
    assert "RuntimeError: a fault of ours" in caplog.text
    assert destinations.start_lazy("faulty") is None
    eventually(lambda: lease.calls == ["open", "release", "release"])
    assert len(makes.made) == 2


def test_a_fault_of_a_lease(destinations_of, caplog):
    """A destination recovers from an unexpected error of its lease."""

    class Failing(SharedLease):
        failures = 1

        def acquire(self, stop):
            if self.failures:
                self.failures -= 1
                raise RuntimeError("a fault of ours")
            return super().acquire(stop)

    lease = Failing()
    destinations = destinations_of(configs("a"), Makes(), lease)
    destinations.start()
    eventually(lambda: destinations.status()[0]["life"] == "paused")
    assert "RuntimeError: a fault of ours" in caplog.text
    lease.give()
    assert destinations.start_lazy("a")


def test_all_wrong_settings_at_once(destinations_of):
    """Errors of all instances that cannot be made are reported together."""
    with pytest.raises(ConfigError) as caught:
        destinations_of(configs("wrong1", "a", "wrong2"), Makes())
    assert caught.value.problems == ["wrong1 is wrong", "wrong2 is wrong"]


def test_all_end(destinations_of):
    """A stop reaches every running instance, and none starts after it."""
    makes = Makes()
    destinations = destinations_of(configs("a", "b", "c", lazy="c"), makes)
    destinations.start()
    destinations.request_stop()
    assert destinations.join(Deadline(LONG))
    assert destinations.running("a") is None
    assert destinations.start_lazy("c") is None
    assert makes.calls() == {
        "a": ["start", "request_stop", "join"],
        "b": ["start", "request_stop", "join"],
        "c": [],
    }


def test_one_ends_badly(destinations_of, caplog):
    """An instance that cannot write its cursors is reported, and the others end."""
    makes = Makes()
    destinations = destinations_of(configs("a", "unwritten", "c"), makes)
    destinations.start()
    destinations.request_stop()
    with pytest.raises(CanalError, match="cannot write the cursors"):
        destinations.join(Deadline(LONG))
    assert all(calls[-1] == "join" for calls in makes.calls().values())
    assert (
        "destination unwritten failed during shutdown: cannot write the cursors"
        in caplog.text
    )


def test_a_stop_during_a_start(destinations_of):
    """An instance whose start ends after the stop is ended as well.

    Forbidden: it continues to run, or its starter gets it.
    """
    makes = Makes()
    destinations = destinations_of(configs("a", lazy="a"), makes)
    destinations.start()
    makes.made[0].may_start.clear()
    found = []
    starter = threading.Thread(
        target=lambda: found.append(destinations.start_lazy("a"))
    )
    starter.start()
    assert makes.made[0].entered.wait(LONG)
    destinations.request_stop()
    makes.made[0].may_start.set()
    starter.join(LONG)
    assert found == [None]
    assert destinations.join(Deadline(LONG))
    assert makes.made[0].calls == ["start", "request_stop", "join"]


def test_one_that_waits_in_its_start(destinations_of):
    """One with cursors in ZooKeeper delays no other, and a stop reaches its start.

    Forbidden: the others wait for it, or it waits forever.
    """
    makes = Makes()
    lease = SharedLease()
    lease.give()
    destinations = destinations_of(configs("a", "b"), makes, lease)
    makes.made[0].may_start.clear()
    destinations.start()
    assert makes.made[0].entered.wait(LONG)
    assert destinations.running("a") is None
    assert destinations.start_lazy("b")
    destinations.request_stop()
    assert makes.made[0].calls == ["start", "request_stop"]
    makes.made[0].may_start.set()
    assert destinations.join(Deadline(LONG))
    assert destinations.running("a") is None
    assert makes.made[0].calls[-1] == "join"


def test_a_stop_that_ends_a_wait_is_no_failure(destinations_of, caplog):
    """One that still waits for what decides its start just ends."""
    makes = Makes()
    destinations = destinations_of(configs("awaiting"), makes)
    makes.made[0].may_start.clear()
    starter = threading.Thread(target=destinations.start)
    starter.start()
    assert makes.made[0].entered.wait(LONG)
    destinations.request_stop()
    makes.made[0].may_start.set()
    starter.join(LONG)
    assert destinations.join(Deadline(LONG))
    assert "cannot start" not in caplog.text


def test_status(destinations_of):
    """The status of destinations has the order of the settings."""
    destinations = destinations_of(configs("b", "a", lazy="a"), Makes())
    destinations.start()
    assert destinations.status() == [
        {
            "destination": "b",
            "running": True,
            "lazy": False,
            "life": "running",
            "runs_on": None,
            "state": "fake",
        },
        {
            "destination": "a",
            "running": False,
            "lazy": True,
            "life": "idle",
            "runs_on": None,
        },
    ]


class TestSharedLease:
    """A destination that other servers may run as well."""

    def test_comes_and_goes(self, destinations_of):
        """Each time the lease is granted, a new instance starts, after the old ended.

        Forbidden: two instances at a time, or one without the lease.
        """
        makes, lease = Makes(), SharedLease()
        destinations = destinations_of(configs("a"), makes, lease)
        destinations.start()
        for number in range(3):
            lease.give(granted=False, owner="10.0.0.2:11111")
            assert destinations.start_lazy("a") is None
            eventually(partial(released, lease, number))
            lease.give()
            eventually(lambda: destinations.running("a"))
            assert destinations.running("a") is makes.made[number]
        assert [one.calls for one in makes.made] == [
            ["start", "request_stop", "join"],
            ["start", "request_stop", "join"],
            ["start"],
        ]
        destinations.request_stop()
        assert destinations.join(Deadline(LONG))
        assert lease.calls == ["open", *["release"] * 3, "close"]

    def test_what_could_not_be_written_without_it(self, destinations_of, caplog):
        """Cursors that another server has now are no error of the later stop."""
        lease = SharedLease()
        destinations = destinations_of(configs("unwritten"), Makes(), lease)
        destinations.start()
        lease.give()
        eventually(lambda: destinations.running("unwritten"))
        lease.give(granted=False, owner="10.0.0.2:11111")
        eventually(partial(released, lease, 1))
        assert "failed during shutdown: cannot write the cursors" in caplog.text
        destinations.request_stop()
        assert destinations.join(Deadline(LONG))

    def test_nothing_is_served_without_it(self, destinations_of):
        """From the moment the lease is uncertain, no request finds the instance.

        Even before the instance has noticed.
        """
        lease = SharedLease()
        destinations = destinations_of(configs("a"), Makes(), lease)
        destinations.start()
        lease.give()
        eventually(lambda: destinations.running("a"))
        lease.sure = False
        assert destinations.running("a") is None
        assert destinations.status()[0]["life"] == "running"

    def test_a_failing_start_gives_it_back(self, destinations_of):
        """Another server may try a start that fails here."""
        lease = SharedLease()
        destinations = destinations_of(configs("broken"), Makes(), lease)
        destinations.start()
        lease.give()
        eventually(lambda: destinations.status()[0]["life"] == "paused")
        assert lease.calls == ["open", "release"]

    def test_nobody_can_grant_it(self, destinations_of):
        """A destination that waits for it then shows an error, and no owner."""
        lease = SharedLease()
        destinations = destinations_of(configs("a"), Makes(), lease)
        destinations.start()
        lease.give(granted=False, owner="10.0.0.2:11111")
        (before,) = destinations.status()
        assert before["runs_on"] == "10.0.0.2:11111"
        assert "error" not in before
        lease.wrong = LeaseProblem("no answer", 7)
        (status,) = destinations.status()
        assert status["life"] == "competing"
        assert (status["error"], status["error_since_ms"]) == ("no answer", 7)
        assert status["runs_on"] is None
        lease.wrong = None
        lease.give()
        eventually(lambda: destinations.running("a"))
        assert destinations.status()[0].get("error") is None

    def test_a_failure_here_that_another_server_does_not_have(self, destinations_of):
        """What failed here is no error while another server runs the destination."""
        lease = SharedLease()
        destinations = destinations_of(configs("broken"), Makes(), lease)
        destinations.start()
        lease.give()
        eventually(lambda: destinations.status()[0]["life"] == "paused")
        assert destinations.status()[0]["error"]
        lease.give(granted=False, owner="10.0.0.2:11111")
        destinations.resume("broken")
        eventually(lambda: destinations.status()[0]["life"] == "competing")
        assert "error" not in destinations.status()[0]

    def test_a_client_waits_for_news(self, destinations_of):
        """A first client waits until it is known whether the destination runs here."""
        makes, lease = Makes(), SharedLease()
        destinations = destinations_of(configs("a", lazy="a"), makes, lease)
        destinations.start()
        first = in_thread(destinations.start_lazy, "a")
        lease.give()
        assert first.result(LONG) is makes.made[0]
        lease.give(granted=False)
        eventually(lambda: destinations.status()[0]["life"] == "competing")
        second = in_thread(destinations.start_lazy, "a")
        lease.give(granted=False, owner="10.0.0.2:11111")
        assert second.result(LONG) is None
        assert destinations.status()[0]["runs_on"] == "10.0.0.2:11111"


# --- cursors that an operator moves ---------------------------------------------------
