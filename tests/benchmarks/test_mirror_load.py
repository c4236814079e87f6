"""The delays that the benchmark of the mirror tells are those of its observations."""

from __future__ import annotations

import threading

import pytest
from mirror_load import PlaceWatch, Written


def test_delays() -> None:
    """A change is there with the first place that is not before its end."""
    watch = PlaceWatch(lambda: 0)
    watch.times, watch.places = [10.0, 11.0, 12.5], [5, 20, 40]
    written = Written([9.5, 9.75, 10.5, 12.0], [5, 6, 20, 21])
    assert watch.delays(written) == [0.5, 1.25, 0.5, 0.5]
    assert watch.when(20) == 11.0
    # The lake may have a change before the writer hears that it is committed.
    assert watch.delays(Written([10.2], [5])) == [0.0]


def test_watch() -> None:
    """Places are noted as they move, and waited for."""
    place = 1
    gone_on = threading.Event()

    def look() -> int:
        gone_on.set()
        return place

    with PlaceWatch(look) as watch:
        assert gone_on.wait(30)
        place = 7
        at = watch.wait_for(7, 30)
    assert watch.places in ([1, 7], [7])
    assert watch.times[-1] == at


def test_watch_that_fails() -> None:
    """A place that cannot be looked at ends the waiting with its reason."""

    def look() -> int:
        raise OSError("no such lake")

    with PlaceWatch(look) as watch, pytest.raises(OSError, match="no such lake"):
        watch.wait_for(7, 30)
