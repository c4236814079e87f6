"""Spark's query: how its failures are reported."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")
pytest.importorskip("yaml", reason="the extra `mirror` is not installed")

from canal_server.client.range_client import RangePosition
from canal_server.mirror.follow.spark_query import RETRY_FIRST_S, RETRY_MAX_S, Query
from canal_server.mirror.follow.stream_start import DataLossError
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.state.state import States
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SETTINGS = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: lake}
tables: [{match: .*}]
"""
SPARKS = (
    "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data "
    "source perform latestOffset: Traceback (most recent call last):\n"
    '  File "/lib/pyspark.zip/pyspark/sql/runner.py", line 281, in main\n'
    '  File "/lib/canal_server/spark/stream.py", line 92, in latestOffset\n'
    "    end = self._driving().latest(begin, rows)\n"
    "          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
    "{}\n"
    " SQLSTATE: 38000\n"
    "=== Streaming Query ===\n"
    "Identifier: mirror shop\n"
)


class StartedSpark:
    """A session with a scripted query."""

    def __init__(self) -> None:
        self.query: Any = None

    def __getattr__(self, _name: str) -> Any:
        return self

    def __call__(self, *_: object, **__: object) -> Any:
        """Accept the parts of a stream."""
        return self

    def start(self) -> Any:
        """Give a started query."""
        self.query = SimpleNamespace(isActive=True, id=1)
        return self.query

    def end(self) -> None:
        """Have the query end as Spark does, without a failure."""
        self.query.isActive = False
        self.query.exception = lambda: None

    def fail(self, ending: str) -> None:
        """Have the query fail with a traceback that ends with a line, as Spark does."""
        self.query.isActive = False
        self.query.exception = lambda: SPARKS.replace("{}", ending)


def reached(scene: Scene) -> RangePosition | None:
    """Look at the query; returns what it has reached."""
    scene.query.look()
    return scene.query.reached


class Scene:
    """A query that was started, and its clock.

    It ends at the positions that are the ends of the binlog at its starts, if any.
    """

    def __init__(self, folder: Path, ends: Sequence[RangePosition] = ()) -> None:
        settings = read(SETTINGS, str(folder / "mirror.yml"), {})
        states = States(open_folder(settings.lake, settings.folder))
        self.stream: Any = SimpleNamespace(
            gap="", feed=None, joining=threading.Lock(), open=lambda _: None, apply=None
        )
        self.spark, self.reported, self.now_s = StartedSpark(), list[str](), 0.0
        self.query = Query(
            settings,
            self.spark,
            cast("Any", self.stream),
            states,
            Stop(),
            on_failure=self.reported.append,
            end=self._end if ends else None,
            now=lambda: self.now_s,
        )
        self._ends = list(ends)
        self.query.start()

    def _end(self) -> RangePosition:
        return self._ends.pop(0)

    def fail(self, ending: str, pause_s: float = RETRY_MAX_S) -> None:
        """Have the query fail; it starts again after a pause of so long at most.

        The pause is cut at random, by half of it at most.
        """
        failed = self.spark.query
        self.spark.fail(ending)
        self.query.look()
        if pause_s < RETRY_MAX_S:
            pause_s /= 2
            self.now_s += pause_s
            self.query.look()
        assert self.spark.query is failed, "it pauses"
        self.now_s += pause_s
        self.query.look()
        assert self.spark.query is not failed


def look_at(folder: Path, ending: str) -> None:
    """Look at a query whose traceback ended with a line."""
    scene = Scene(folder)
    scene.spark.fail(ending)
    scene.query.look()


@pytest.mark.parametrize(
    ("ending", "reported"),
    [
        (
            "ConnectionError: a:1 was asked for 20 s (retryTimeoutMs): [Errno 111] no",
            "a:1 was asked for 20 s (stream.retry_timeout): [Errno 111] no",
        ),
        ("canal_server.errors.ConnectionLost: it was cut off", "it was cut off"),
        ("canal_server.errors.ClientError: it is full.", "it is full"),
        ("pyspark.errors.base.PySparkRuntimeError: it ended", "it ended"),
    ],
)
def test_what_failed_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ending: str, reported: str
) -> None:
    """A failure of the stream is logged in one line, without a traceback."""
    with caplog.at_level(logging.WARNING):
        look_at(tmp_path, ending)
    assert caplog.messages == [f"the stream failed: {reported}; restarting it in 1 s"]


def test_how_it_is_is_reported(tmp_path: Path) -> None:
    """Each failure is logged; recovery is reported elsewhere."""
    scene = Scene(tmp_path)
    for ending in ("canal_server.errors.ClientError: full", "OSError: no disk"):
        scene.fail(ending)
    assert scene.reported == ["full", "no disk"]
    scene.query.look()
    assert scene.reported == ["full", "no disk"]


def test_pauses_grow_while_nothing_comes(tmp_path: Path) -> None:
    """A stream that applied a batch since its start is restarted at once."""
    scene = Scene(tmp_path)
    for feed in (None, object()):
        scene.stream.feed = feed
        for count in range(3):
            scene.fail("OSError: no disk", RETRY_FIRST_S * 2**count)


def test_what_is_lost_is_raised(tmp_path: Path) -> None:
    """Changes that are no longer available are not waited for."""
    ending = "canal_server.errors.SourceError: b.1:4 are no longer available"
    with pytest.raises(DataLossError, match=r"^b.1:4 are no longer available$"):
        look_at(tmp_path, ending)


def test_the_end_is_reached(tmp_path: Path) -> None:
    """It is the one of the last start; on request, the stream goes on from there."""
    first, second, third = (RangePosition(1, "b.1", at) for at in (4, 5, 6))
    scene = Scene(tmp_path, (first, second, third))
    assert reached(scene) is None
    scene.fail("OSError: no disk")
    assert reached(scene) is None
    scene.spark.end()
    assert reached(scene) == second
    ended = scene.spark.query
    assert reached(scene) == second
    assert scene.spark.query is ended, "it does not start by itself"
    scene.query.start_again()
    assert reached(scene) is None
    scene.spark.end()
    assert reached(scene) == third


def test_an_endless_one_has_no_end(tmp_path: Path) -> None:
    """It starts again even if Spark ends it without a failure."""
    scene = Scene(tmp_path)
    ended = scene.spark.query
    scene.spark.end()
    scene.query.look()
    scene.now_s += RETRY_MAX_S
    scene.query.look()
    assert scene.query.reached is None
    assert scene.spark.query is not ended
