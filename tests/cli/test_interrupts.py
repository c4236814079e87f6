"""Signals that end a command where it allows that."""

from __future__ import annotations

import os
import signal

import pytest

from canal_server.cli import interrupts
from canal_server.cli.interrupts import Interrupts


def send(number: signal.Signals = signal.SIGTERM) -> None:
    """Send a signal to this process; returns after its handler."""
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_where_it_is_allowed(number):
    """There a signal is raised at once; after all it does what it did before."""
    before = signal.getsignal(number)
    caught = Interrupts()
    with pytest.raises(KeyboardInterrupt), caught.caught(), caught.allowed():
        send(number)
    assert signal.getsignal(number) is before


def test_elsewhere_it_waits():
    """Elsewhere it stays pending until it is allowed."""
    caught = Interrupts()
    done = []

    def work() -> None:
        with caught.caught():
            with caught.allowed():
                done.append("what may be interrupted")
            send()
            done.append("what may not")
            with caught.allowed():
                done.append("the next")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["what may be interrupted", "what may not"]


@pytest.mark.parametrize("same_s", [interrupts.SAME_S, 0.0])
def test_once_more(monkeypatch, same_s):
    """A second one is raised wherever it comes, unless it is the first one again."""
    monkeypatch.setattr(interrupts, "SAME_S", same_s)
    caught = Interrupts()
    ended = False
    try:
        with caught.caught():
            send()
            send()
            ended = True
    except KeyboardInterrupt:
        pass
    assert ended is bool(same_s)


def test_signals_that_are_ignored():
    """One that is ignored, as SIGHUP under nohup, stays so."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        caught = Interrupts()
        with caught.caught(), caught.allowed():
            send(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
