"""Slots for reading ranges: a stalled reader is cut off when others wait."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import pytest
from fix_store import PATIENCE_S, in_thread

from canal_server.config.schema import InstanceConfig
from canal_server.errors import ClientError
from canal_server.ranges import range_access
from canal_server.ranges.range_access import DUMPS_MAX, RangeAccess

NOBODY: Any = None  # no subscription is used


@pytest.fixture
def access() -> RangeAccess:
    """Yield the slots of a destination."""
    return RangeAccess(InstanceConfig(destination="example"), NOBODY)


class Stalled:
    """A reader that accepts nothing until it is cut off."""

    def __init__(self, access: RangeAccess) -> None:
        self.was_cut, self.sends = threading.Event(), threading.Event()
        self.done = in_thread(self._read, access)
        assert self.sends.wait(PATIENCE_S)

    def _read(self, access: RangeAccess) -> None:
        with access.slot(), access.sending(self.was_cut.set):
            self.sends.set()
            assert self.was_cut.wait(PATIENCE_S)


def test_stalled_readers_do_not_hold_up_others(access, monkeypatch, caplog):
    """With all slots held by stalled readers, the oldest one is cut off."""
    monkeypatch.setattr(range_access, "STALL_S", 0.0)
    readers = [Stalled(access) for _ in range(DUMPS_MAX)]
    with access.slot():
        assert readers[0].was_cut.is_set()
        assert not any(each.was_cut.is_set() for each in readers[2:])
    assert "closed the connection of a reader" in caplog.text
    for each in readers:
        each.was_cut.set()
        each.done.result(PATIENCE_S)


def test_readers_that_accept_data_are_not_cut_off(access, monkeypatch):
    """A reader that just started to send keeps its slot; others wait, then fail."""
    monkeypatch.setattr(range_access, "DUMP_WAIT_S", 0.05)
    readers = [Stalled(access) for _ in range(2)]
    with ExitStack() as turns:
        for _ in range(DUMPS_MAX - 2):
            turns.enter_context(access.slot())
        with pytest.raises(ClientError, match="ranges of destination example are"):
            turns.enter_context(access.slot())
    for each in readers:
        assert not each.was_cut.is_set()
        each.was_cut.set()
        each.done.result(PATIENCE_S)


def test_waiting_ends_with_the_destination(access, monkeypatch):
    """A stop ends the wait for a slot."""
    monkeypatch.setattr(range_access, "STALL_S", 0.0)
    was_cut = threading.Event()  # by whoever waits
    with ExitStack() as turns:
        for _ in range(DUMPS_MAX):
            turns.enter_context(access.slot())
        turns.enter_context(access.sending(was_cut.set))
        waiting = in_thread(lambda: access.slot().__enter__())
        assert was_cut.wait(PATIENCE_S)
        access.request_stop()
        with pytest.raises(ClientError, match="while the destination is stopping"):
            waiting.result(PATIENCE_S)
