"""Destinations added, changed and removed: a real conf folder, fake instances."""

from __future__ import annotations

import logging
import os
import shutil
from typing import Any

import pytest
from fix_conf import ACCOUNT, MASTER
from fix_daemon import Makes
from fix_store import eventually

from canal_server.config.load import InstanceLoader, load
from canal_server.daemon.conf_watch import ConfWatch
from canal_server.daemon.destinations import Destinations
from canal_server.ha.single import SingleNode
from canal_server.runtime.lifecycle import Deadline

LONG = 60.0  # seconds; never waited for unless something hangs
MAIN = "canal.destinations = one\ncanal.auto.scan = true"
OTHER = f"canal.instance.master.address = other:3306\n{ACCOUNT}"


class Watched:
    """A conf folder, its destinations, and the watch, which checks on request."""

    def __init__(self, conf):
        self.conf = conf
        self.makes = Makes()
        config = load(conf, {})
        self.destinations = Destinations(
            config.instances, self.makes, lambda _: SingleNode()
        )
        self.watch = ConfWatch(
            InstanceLoader(conf, {}), self.destinations, interval_s=3600.0
        )
        self.destinations.start()
        self.settle()

    def write(self, name, text):
        """Write an instance's file."""
        (self.conf / name).mkdir(exist_ok=True)
        (self.conf / name / "instance.properties").write_text(text)

    def settle(self):
        """Check until all changes count."""
        self.watch.look()
        self.watch.look()

    def source_of(self, name):
        """Return which source a destination reads, None when it does not run."""
        instance: Any = self.destinations.running(name)
        return instance and str(instance.config.source.master.address)

    def wait_for(self, name, source):
        """Wait until a destination runs and reads this source."""
        eventually(lambda: self.source_of(name) == source)

    def close(self):
        """End all."""
        self.destinations.request_stop()
        self.destinations.join(Deadline(LONG))


@pytest.fixture
def watched(make_conf):
    """Return a conf folder with one destination, which runs."""
    made = Watched(make_conf(MAIN, one=MASTER))
    yield made
    made.close()


def errors(caplog):
    """Return the logged errors."""
    return [each.message for each in caplog.records if each.levelno >= logging.ERROR]


def test_nothing_happens(watched):
    """Destinations whose files stay the same are left unchanged."""
    watched.settle()
    assert watched.makes.calls() == {"one": ["start"]}


def test_one_comes(watched, caplog):
    """A new folder with an instance file is a destination from then on."""
    caplog.set_level(logging.INFO)
    (watched.conf / "empty").mkdir()
    watched.write("spring", OTHER)
    watched.write("two", OTHER)
    watched.settle()
    watched.wait_for("two", "other:3306")
    assert watched.destinations.names() == ["one", "two"]
    assert "destination two was added" in caplog.text
    watched.settle()
    assert len(watched.makes.made) == 2


def test_one_goes(watched, caplog):
    """Without its file a destination ends and is removed; others continue."""
    caplog.set_level(logging.INFO)
    watched.write("two", OTHER)
    watched.settle()
    watched.wait_for("two", "other:3306")
    shutil.rmtree(watched.conf / "two")
    watched.settle()
    assert not watched.destinations.is_configured("two")
    eventually(lambda: watched.makes.made[1].calls == ["start", "request_stop", "join"])
    assert watched.source_of("one") == "db:3306"
    assert "destination two was removed" in caplog.text


def test_one_changes(watched):
    """It ends, then starts with the new settings."""
    watched.write("one", OTHER)
    watched.settle()
    watched.wait_for("one", "other:3306")
    first, second = watched.makes.made
    assert first.calls == ["start", "request_stop", "join"]
    assert second.calls == ["start"]


@pytest.mark.parametrize("text", [MASTER, f"# said otherwise\n{MASTER}"])
def test_what_changes_nothing(watched, text):
    """A file that is rewritten, or equal in other words, counts as unchanged."""
    watched.write("one", text)
    path = watched.conf / "one" / "instance.properties"
    os.utime(path, ns=(1, 1))
    watched.settle()
    assert watched.makes.calls() == {"one": ["start"]}


def test_a_broken_change(watched, caplog):
    """It is logged once, the destination continues; once repaired, it counts."""
    watched.write("one", f"canal.instance.master.address = db:many\n{ACCOUNT}")
    watched.settle()
    watched.settle()
    (message,) = errors(caplog)
    assert "destination one: " in message
    assert "db:many" in message
    assert message.endswith("; it keeps its previous settings")
    assert watched.source_of("one") == "db:3306"
    assert message.endswith(watched.watch.refused()["one"])
    watched.write("one", OTHER)
    watched.settle()
    watched.wait_for("one", "other:3306")
    assert watched.watch.refused() == {}


@pytest.mark.parametrize("mend", ["as-before", "removed"])
def test_a_broken_change_is_reverted(watched, mend):
    """The error is remembered until the file is as before, or deleted."""
    watched.write("one", f"canal.instance.master.address = db:many\n{ACCOUNT}")
    watched.settle()
    assert list(watched.watch.refused()) == ["one"]
    if mend == "removed":
        shutil.rmtree(watched.conf / "one")
    else:
        watched.write("one", MASTER)
    watched.settle()
    assert watched.watch.refused() == {}


def test_a_broken_new_one(watched, caplog):
    """It is logged once, and starts when it is repaired."""
    watched.write("two", ACCOUNT)
    watched.write("wrong", OTHER)
    watched.settle()
    watched.settle()
    messages = errors(caplog)
    assert len(messages) == 2
    assert "no MySQL server is set" in messages[0]
    assert messages[0].endswith("; it does not start")
    assert "wrong is wrong" in messages[1]
    assert watched.destinations.names() == ["one"]
    assert list(watched.watch.refused()) == ["two", "wrong"]
    watched.write("two", OTHER)
    shutil.rmtree(watched.conf / "wrong")
    watched.settle()
    watched.wait_for("two", "other:3306")
    watched.settle()
    assert watched.watch.refused() == {}


def test_one_that_fails_to_start(watched, caplog):
    """Others continue, and its next change is tried again at once."""
    watched.write("broken2", MASTER)
    watched.settle()
    eventually(lambda: errors(caplog))
    assert "destination broken2 cannot start" in errors(caplog)[0]
    watched.write("broken2", OTHER)
    watched.settle()
    eventually(lambda: len(errors(caplog)) == 2)
    assert watched.source_of("one") == "db:3306"


def test_half_written(watched, caplog):
    """A file that an editor has not finished is not used."""
    watched.write("one", "")
    watched.watch.look()
    watched.write("one", "canal.instance.mas")
    watched.watch.look()
    (watched.conf / "one" / "instance.properties").unlink()
    watched.watch.look()
    watched.write("one", OTHER)
    watched.watch.look()
    assert watched.makes.calls() == {"one": ["start"]}
    assert errors(caplog) == []
    watched.watch.look()
    watched.wait_for("one", "other:3306")


def test_no_two_at_a_time(watched):
    """The next one starts when the last one has ended, however long that takes."""
    first = watched.makes.made[0]
    ending = first.hold_end()
    watched.write("one", OTHER)
    watched.settle()
    shutil.rmtree(watched.conf / "one")
    watched.settle()
    watched.write("one", MASTER)
    watched.settle()
    eventually(lambda: "join" in first.calls)
    assert all(each.calls == [] for each in watched.makes.made[1:])
    ending.set()
    watched.wait_for("one", "db:3306")
    assert [each.calls[:1] for each in watched.makes.made] == [["start"], [], ["start"]]


def test_a_lazy_one_that_changes(make_conf):
    """One that waits for its first client keeps waiting, a running one continues."""
    lazy = f"{MAIN}\ncanal.instance.global.lazy = true"
    watched = Watched(make_conf(lazy, one=MASTER, two=MASTER))
    try:
        assert watched.destinations.start_lazy("one")
        for name in ("one", "two"):
            watched.write(name, OTHER)
        watched.settle()
        watched.wait_for("one", "other:3306")
        assert watched.source_of("two") is None
        assert watched.destinations.start_lazy("two")
        assert watched.source_of("two") == "other:3306"
    finally:
        watched.close()


def test_the_folder_is_away(watched, caplog):
    """An unreadable folder, such as an unmounted one, ends nothing; logged once."""
    watched.conf.rename(watched.conf.with_name("away"))
    watched.settle()
    watched.settle()
    (message,) = errors(caplog)
    assert "cannot check the conf folder" in message
    assert watched.source_of("one") == "db:3306"
    watched.conf.with_name("away").rename(watched.conf)
    watched.settle()
    assert watched.makes.calls() == {"one": ["start"]}


def test_the_process_ends(watched):
    """Those that are ending are waited for, and no other starts."""
    ending = watched.makes.made[0].hold_end()
    watched.write("one", OTHER)
    watched.settle()
    watched.destinations.request_stop()
    watched.write("two", OTHER)
    watched.settle()
    assert not watched.destinations.join(Deadline(0.01))
    ending.set()
    assert watched.destinations.join(Deadline(LONG))
    assert all(each.calls == [] for each in watched.makes.made[1:])


def test_as_a_stage(make_conf):
    """The thread checks by itself, at once and after each interval, until the stop."""
    conf = make_conf(MAIN, one=MASTER)
    config = load(conf, {})
    makes = Makes()
    destinations = Destinations(config.instances, makes, lambda _: SingleNode())
    destinations.start()
    watch = ConfWatch(
        InstanceLoader(conf, {}), destinations, interval_s=0.01, settle_s=0.01
    )
    watch.start()
    try:
        (conf / "two").mkdir()
        (conf / "two" / "instance.properties").write_text(OTHER)
        eventually(lambda: destinations.running("two"))
    finally:
        watch.request_stop()
        assert watch.join(Deadline(LONG))
        destinations.request_stop()
        assert destinations.join(Deadline(LONG))
