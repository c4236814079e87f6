"""Cursors of clients that are moved, while their destination runs or waits."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from fix_daemon import Makes
from fix_destinations import LONG, MOVED_TO, configs, stored_client
from fix_store import eventually, in_thread

from canal_server.daemon.destination_life import DestinationLife
from canal_server.errors import CanalError, ClientError
from canal_server.model.cursors import DestinationCursors
from canal_server.position.file_meta import MetaFiles


def test_a_running_instance_moves_its_clients(destinations_of):
    """The instance moves them, and returns their positions."""
    makes = Makes()
    destinations = destinations_of(configs("a"), makes)
    destinations.start()
    destinations.seek("a", [1001], MOVED_TO)
    assert makes.made[0].moved == [([1001], MOVED_TO)]
    assert destinations.cursors("a") == DestinationCursors(())
    with pytest.raises(ClientError, match="can't find destination:z"):
        destinations.seek("z", [1001], MOVED_TO)


def test_clients_of_one_that_waits_are_moved_where_stored(destinations_of, tmp_path):
    """A lazy one reads the new cursors when it starts."""
    destinations = destinations_of(stored_client(tmp_path), Makes())
    destinations.start()
    assert destinations.cursors("a") is None
    destinations.seek("a", [1001], MOVED_TO)
    (client,) = MetaFiles(tmp_path).read("a")
    assert client.cursor == MOVED_TO
    assert destinations.start_lazy("a")


def test_no_instance_starts_while_stored_cursors_are_moved(
    destinations_of, tmp_path, monkeypatch
):
    """A first client waits for the end of the move."""
    makes = Makes()
    destinations = destinations_of(stored_client(tmp_path), makes)
    destinations.start()
    moving, go_on = threading.Event(), threading.Event()

    def slow(*_):
        moving.set()
        assert go_on.wait(LONG)

    monkeypatch.setattr("canal_server.daemon.destination_life.move_stored", slow)
    seeking = in_thread(destinations.seek, "a", [1001], MOVED_TO)
    assert moving.wait(LONG)
    starting = in_thread(destinations.start_lazy, "a")
    eventually(lambda: destinations.status()[0]["life"] == "starting")
    assert makes.made[0].calls == []
    with pytest.raises(CanalError, match="is starting, try again"):
        destinations.seek("a", [1001], MOVED_TO)
    go_on.set()
    assert starting.result(LONG)
    seeking.result(LONG)


def test_one_that_a_move_left_incomplete_restarts(destinations_of):
    """An instance that stopped reading is replaced by another one."""
    makes = Makes()
    destinations = destinations_of(configs("incomplete"), makes)
    destinations.start()
    with pytest.raises(RuntimeError, match="a fault of ours"):
        destinations.seek("incomplete", [1001], MOVED_TO)
    eventually(lambda: len(makes.made) > 1 and destinations.running("incomplete"))
    assert [one.calls for one in makes.made] == [
        ["start", "request_stop", "join"],
        ["start"],
    ]


def test_a_changed_one_starts_after_a_move(destinations_of, tmp_path, monkeypatch):
    """Settings that change while stored cursors are moved wait for the move's end."""
    lives = []

    class Recorded(DestinationLife):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            lives.append(self)

    monkeypatch.setattr("canal_server.daemon.destinations.DestinationLife", Recorded)
    makes = Makes()
    destinations = destinations_of(stored_client(tmp_path), makes)
    destinations.start()
    moving, go_on = threading.Event(), threading.Event()

    def slow(*_):
        moving.set()
        assert go_on.wait(LONG)

    monkeypatch.setattr("canal_server.daemon.destination_life.move_stored", slow)
    seeking = in_thread(destinations.seek, "a", [1001], MOVED_TO)
    assert moving.wait(LONG)
    destinations.put(replace(destinations.config_of("a"), lazy=False))
    old, _ = (life for life in lives if life.destination == "a")
    with pytest.raises(CanalError, match="try again"):
        old.seek([1001], MOVED_TO)  # by a caller that found it just before
    assert not old.has_ended
    assert makes.made[-1].calls == []
    go_on.set()
    seeking.result(LONG)
    eventually(lambda: destinations.running("a"))
    with pytest.raises(CanalError, match="a is ended, try again"):
        old.seek([1001], MOVED_TO)


def test_while_it_starts_nobody_is_moved(destinations_of):
    """A move during a start is refused with the advice to try again."""
    makes = Makes()
    destinations = destinations_of(configs("a", lazy="a"), makes)
    makes.made[0].may_start.clear()
    destinations.start()
    starting = in_thread(destinations.start_lazy, "a")
    assert makes.made[0].entered.wait(LONG)
    with pytest.raises(CanalError, match="destination a is starting, try again"):
        destinations.seek("a", [1001], MOVED_TO)
    makes.made[0].may_start.set()
    assert starting.result(LONG)
