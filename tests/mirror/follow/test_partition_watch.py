"""Partitions that are read from the source, and when they are used."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pytest

from canal_server.client.range_client import RangePosition
from canal_server.errors import SourceError
from canal_server.mirror.follow import partition_watch
from canal_server.mirror.follow.partition_watch import PartitionWatch
from canal_server.mirror.rows.copy_positions import OLD_S
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.feed import Feed
from canal_server.mirror.state.table_shape import Columns, Partition, Partitions
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TEXT = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: lake}
tables: [{match: .*}]
"""
PATIENCE_S = 60.0
T, U = TableName("shop", "t"), TableName("shop", "u")
ROWS: list[tuple[str, ...]] = [("shop", "t", "RANGE", "`id`", "p", "5")]
FOUND = Partitions("RANGE", "`id`", (Partition("p", "5"),))


class Followed:
    """A followed table, as far as its partitions go."""

    def __init__(self) -> None:
        self.columns = Columns(())
        self.statements = 0

    def use_partitions(self, partitions: Partitions | None) -> None:
        """Use partitions."""
        self.columns = self.columns._replace(partitions=partitions)


@dataclass
class Stream:
    """A stream of two tables, whose position the test moves."""

    followers: dict[TableName, Followed] = field(
        default_factory=lambda: {T: Followed(), U: Followed()}
    )
    joining: threading.Lock = field(default_factory=threading.Lock)
    at: int = 0

    @property
    def feed(self) -> Feed:
        """The stored position."""
        return Feed("example", RangePosition(0, "b.000001", self.at))

    @property
    def tables(self) -> list[TableName]:
        """The followed tables."""
        return list(self.followers)

    def follower(self, name: TableName) -> Followed | None:
        """Return a followed table."""
        return self.followers.get(name)

    def columns(self) -> dict[TableName, Columns]:
        """Return the columns of all of them."""
        return {name: each.columns for name, each in self.followers.items()}


class Source:
    """A source that stands at one position, and shows statements late or never."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 100
        self.is_visible = True
        self.problem: Exception | None = None
        self.calls: list[str] = []
        monkeypatch.setattr(partition_watch, "ControlConnection", lambda *_: self)
        monkeypatch.setattr(partition_watch, "Channel", lambda *_, **__: self)
        monkeypatch.setattr(partition_watch, "latest", self._latest)
        monkeypatch.setattr(partition_watch, "await_visible", self._await_visible)

    def _latest(self, *_: object) -> RangePosition:
        self.calls.append("latest")
        return RangePosition(0, "b.000001", self.at)

    def _await_visible(self, *_: object) -> bool:
        self.calls.append("await visible")
        return self.is_visible

    def query(self, _sql: str) -> list[tuple[str, ...]]:
        """Return the catalog's rows."""
        self.calls.append("query")
        if self.problem is not None:
            raise self.problem
        return ROWS

    def close(self) -> None:
        """End, as a channel does."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End, as a connection does."""


@dataclass
class Scene:
    """A watch over the stream and the source."""

    source: Source
    stream: Stream
    watch: PartitionWatch
    stop: Stop
    now_s: list[float]

    def until(self, done: Callable[[], bool]) -> None:
        """Take turns until something is so; the source answers in a thread."""
        give_up_at = time.monotonic() + PATIENCE_S
        pause = threading.Event()
        while True:
            self.watch.poll()
            if done():
                return
            assert time.monotonic() < give_up_at, "it never was"
            self.now_s[0] += 1
            pause.wait(0.001)

    def partitions(self) -> Partitions | None:
        """Return what is known of the partitioned table."""
        return self.stream.followers[T].columns.partitions


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Give a watch that has asked nothing yet."""
    now_s = [1e6]
    stream, stop = Stream(), Stop()
    source = Source(monkeypatch)
    settings = read(TEXT, "/conf/m.yml", {})
    watched: Any = stream
    watch = PartitionWatch(settings, stop, watched, now=lambda: now_s[0])
    yield Scene(source, stream, watch, stop, now_s)
    stop.request()
    watch.close()


def test_used_when_the_stream_is_there(scene: Scene) -> None:
    """Not before; a table that is not in the catalog has no partitions."""
    scene.watch.begin()
    scene.watch.poll()
    assert scene.partitions() is None
    scene.stream.at = 100
    scene.until(lambda: scene.partitions() == FOUND)
    assert scene.stream.followers[U].columns.partitions == Partitions()
    # In this order: the query sees what the stream had applied.
    assert scene.source.calls == ["latest", "await visible", "query", "latest"]
    for _ in range(5):
        scene.now_s[0] += 10
        scene.watch.poll()
    assert len(scene.source.calls) == 4  # all is known


@pytest.mark.parametrize("change", ["a statement", "another follower", "left"])
def test_not_used_after_a_change(scene: Scene, change: str) -> None:
    """What was read may be from before or after it: it is read again."""
    scene.watch.begin()
    if change == "a statement":
        scene.stream.followers[T].statements += 1
    elif change == "left":
        del scene.stream.followers[T]
    else:
        scene.stream.followers[T] = Followed()
    scene.stream.at = 100
    scene.watch.poll()
    if change != "left":
        assert scene.partitions() is None
        scene.until(lambda: scene.partitions() == FOUND)
    assert scene.stream.followers[U].columns.partitions == Partitions()


def test_a_batch_is_not_waited_for(scene: Scene) -> None:
    """The main loop has other duties while a batch is applied."""
    with scene.stream.joining:
        scene.watch.poll()
        assert scene.source.calls == []
    scene.watch.begin()
    scene.stream.at = 100
    with scene.stream.joining:
        scene.watch.poll()
        assert scene.partitions() is None
    scene.until(lambda: scene.partitions() == FOUND)


def test_partitions_that_were_added(scene: Scene) -> None:
    """They are read again as long as the bounds of one of them are unknown."""
    more = Partitions("RANGE", "`id`", (*FOUND.parts, Partition("q")))
    scene.stream.followers[T].use_partitions(more)
    scene.stream.followers[U].use_partitions(Partitions())
    scene.stream.at = 100
    scene.until(lambda: scene.partitions() == FOUND)


def test_a_source_that_does_not_answer(scene: Scene) -> None:
    """It is asked again."""
    scene.source.problem = SourceError("it is away")
    scene.watch.begin()
    scene.source.problem = None
    scene.stream.at = 100
    scene.until(lambda: scene.partitions() == FOUND)


def test_a_source_that_cannot_tell_what_is_visible(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then statements are given time before the query."""
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        assert "query" not in scene.source.calls
        return False

    monkeypatch.setattr(scene.stop, "wait", wait)
    scene.source.is_visible = False
    scene.watch.begin()
    assert waited == [OLD_S]
    assert scene.source.calls[-2:] == ["query", "latest"]
