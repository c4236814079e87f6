"""Spark's query: how its failures are reported."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")
pytest.importorskip("yaml", reason="the extra `mirror` is not installed")

from canal_server.mirror.follow.spark_query import Query
from canal_server.mirror.follow.stream_start import DataLossError
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.state.state import States
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
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


class Failed:
    """A query that has failed."""

    isActive = False  # noqa: N815  # Spark's name

    def __init__(self, ending: str) -> None:
        self._said = SPARKS.replace("{}", ending)

    def exception(self) -> str:
        """Return the cause, as Spark does."""
        return self._said


def look_at(folder: Path, ending: str) -> None:
    """Look at a query whose traceback ended with a line."""
    settings = read(SETTINGS, str(folder / "mirror.yml"), {})
    states = States(open_folder(settings.lake, settings.folder))
    stream: Any = SimpleNamespace(gap="", feed=None)
    query = Query(settings, None, stream, states, Stop())
    query._query = Failed(ending)
    query.look()


@pytest.mark.parametrize(
    ("ending", "told"),
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
def test_what_failed_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ending: str, told: str
) -> None:
    """A failure of the stream is logged in one line, without a traceback."""
    with caplog.at_level(logging.WARNING):
        look_at(tmp_path, ending)
    assert caplog.messages == [f"the stream failed: {told}; restarting it in 1 s"]


class Begun:
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


def test_how_it_is_is_told(tmp_path: Path) -> None:
    """Each failure is logged; recovery is reported elsewhere."""
    settings = read(SETTINGS, str(tmp_path / "mirror.yml"), {})
    states = States(open_folder(settings.lake, settings.folder))
    stream: Any = SimpleNamespace(
        gap="", feed=None, joining=threading.Lock(), open=lambda _: None, apply=None
    )
    told: list[str] = []
    spark = Begun()
    query = Query(settings, spark, stream, states, Stop(), on_failure=told.append)
    for ending in ("canal_server.errors.ClientError: full", "OSError: no disk"):
        query._query = Failed(ending)
        query.look()
        query._due = 0.0  # its pause is over
        query.look()
    assert told == ["full", "no disk"]
    query.look()
    assert told == ["full", "no disk"]


def test_pauses_grow_while_nothing_comes(tmp_path: Path) -> None:
    """A stream that applied a batch since its start is restarted at once."""
    settings = read(SETTINGS, str(tmp_path / "mirror.yml"), {})
    states = States(open_folder(settings.lake, settings.folder))
    stream: Any = SimpleNamespace(
        gap="", feed=None, joining=threading.Lock(), open=lambda _: None, apply=None
    )
    query = Query(settings, Begun(), stream, states, Stop())

    def failures() -> int:
        query._query = Failed("OSError: no disk")
        query.look()
        query._due = 0.0  # its pause is over
        query.look()
        return query._backoff.failures

    assert [failures() for _ in range(3)] == [1, 2, 3]
    stream.feed = object()
    assert [failures() for _ in range(3)] == [1, 2, 3]


def test_what_is_gone_is_raised(tmp_path: Path) -> None:
    """Changes that are no longer available are not waited for."""
    ending = "canal_server.errors.SourceError: b.1:4 are no longer available"
    with pytest.raises(DataLossError, match=r"^b.1:4 are no longer available$"):
        look_at(tmp_path, ending)
