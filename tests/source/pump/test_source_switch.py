"""The pause between two sessions, and what ends it."""

from __future__ import annotations

import threading
import time

import pytest
from fix_store import eventually

from canal_server.source.pump.source_switch import SourceSwitch

LONG_S = 60.0  # never waited for unless something hangs


@pytest.mark.parametrize("name", ["retry", "end", "request_stop"])
def test_a_pause_is_cut_short(name):
    """By a retry, a switch to another server, or a stop."""
    switch = SourceSwitch()
    pausing = threading.Thread(target=switch.pause, args=(LONG_S,))
    pausing.start()

    def ended():
        getattr(switch, name)()
        return not pausing.is_alive()

    eventually(ended)
    assert switch.stop.requested() is (name == "request_stop")
    assert switch.current.requested() is (name != "retry")


def test_an_earlier_retry():
    """A session has answered it: the pause after that is as long as it should be."""
    switch = SourceSwitch()
    switch.retry()
    switch.begin_session()
    begin_s = time.monotonic()
    switch.pause(0.05)
    assert time.monotonic() - begin_s >= 0.05


def test_a_retry_just_before_the_pause():
    """It counts, as the session before has not answered it."""
    switch = SourceSwitch()
    switch.begin_session()
    switch.retry()
    pausing = threading.Thread(target=switch.pause, args=(LONG_S,))
    pausing.start()
    pausing.join(LONG_S / 2)
    assert not pausing.is_alive()


def test_a_pause_in_a_turn_that_has_ended():
    """There is none."""
    switch = SourceSwitch()
    switch.end()
    begin_s = time.monotonic()
    switch.pause(LONG_S)
    assert time.monotonic() - begin_s < LONG_S / 2
