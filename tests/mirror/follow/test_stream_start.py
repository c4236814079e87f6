"""Where a stream begins, when the server lost what it knew of it."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from fix_mirror_process import NAME, PATIENCE_S, MirrorProcess
from fix_pipeline import DESTINATION
from purge import purge

from canal_server.client.range_client import RangedClient
from canal_server.mirror.follow.spark_query import Query
from canal_server.mirror.follow.stream_start import DataLossError, begin_stream
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.settings.settings_file import load
from canal_server.mirror.state.feed import Feed, read_feed, write_feed
from canal_server.mirror.state.state import States
from canal_server.runtime.lifecycle import Stop
from canal_server.spark.options.offsets import version_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fix_pipeline import Pipeline

    from canal_server.client.range_client import RangePosition

CURSORS = "subscriptions.sqlite"


class Started:
    """A mirror's stream, started repeatedly without Spark."""

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        self.pipeline = pipeline
        mirror = MirrorProcess(pipeline, folder)
        mirror.write_conf()
        self.settings = load(str(mirror.conf), {})
        self.folder = open_folder(self.settings.lake, self.settings.folder)

    def begin(self, *, is_followed: bool = True) -> Feed:
        """Begin as a mirror does that is started."""
        feed = begin_stream(
            self.settings, self.folder, 0, Stop(), is_followed=is_followed
        )
        write_feed(self.folder, feed)
        return feed

    def ask(self, request: Callable[[RangedClient], Any]) -> Any:
        """Return what the server answers."""
        with RangedClient("127.0.0.1", self.pipeline.server_port) as client:
            return request(client)

    def cursor(self) -> RangePosition:
        """Return where the subscription stands."""
        found: RangePosition = self.ask(lambda c: c.locate(DESTINATION, "acked", NAME))
        return found

    def remove(self) -> None:
        """Remove the subscription."""
        self.ask(lambda c: c.unsubscribe(DESTINATION, NAME))

    def fed(self) -> Feed:
        """Have the lake be where the binlog ends."""
        end = self.ask(lambda c: c.locate(DESTINATION, "latest", NAME))
        feed = replace(self.begin(), position=end)
        write_feed(self.folder, feed)
        return feed

    def write(self) -> None:
        """Change something."""
        self.pipeline.source.execute(f"INSERT INTO {self.pipeline.schema}.t VALUES ()")

    def lose(self) -> None:
        """Lose what canal-server has in its folder, its settings excepted."""
        self.pipeline.stop()
        for path in (self.pipeline.conf / DESTINATION).iterdir():
            if path.name != "instance.properties" and path.is_file():
                path.unlink()
        file, offset = self.pipeline.source.binlog_position()
        self.pipeline.configure(
            {
                "canal.instance.master.journal.name": file,
                "canal.instance.master.position": offset,
            }
        )
        self.pipeline.start()
        self.pipeline.keep_port()


def started_on(server: Any, schema: str, make_pipeline: Any, folder: Path) -> Started:
    """Return a started stream, of a schema with one table."""
    pipeline = make_pipeline(server, schema)
    server.execute(f"CREATE TABLE {schema}.t (id INT AUTO_INCREMENT PRIMARY KEY)")
    pipeline.start()
    pipeline.keep_port()
    started = Started(pipeline, folder)
    feed = started.begin(is_followed=False)
    assert feed == read_feed(started.folder, 0)
    assert feed.position == started.cursor()
    started.write()
    return started


@pytest.fixture
def started(source_server, database, make_pipeline, tmp_path) -> Started:
    """Give a started stream, of a server that other tests use as well."""
    return started_on(source_server, database, make_pipeline, tmp_path)


def test_a_subscription_that_is_there(started) -> None:
    """It stays, also before the lake's position; one that is after it is moved back."""
    first = started.cursor()
    fed = started.fed()
    assert started.begin() == fed
    assert started.cursor() == first
    started.ask(lambda c: c.ack(DESTINATION, NAME, fed.position))
    assert started.begin() == fed
    started.write()
    end = started.ask(lambda c: c.locate(DESTINATION, "latest"))
    started.ask(lambda c: c.ack(DESTINATION, NAME, end))
    assert started.begin() == fed
    assert started.cursor() == fed.position


@pytest.mark.parametrize("how", ["removed", "lost"])
def test_a_subscription_that_was_removed(started, how, caplog) -> None:
    """It is made again where the lake is, not where the binlog ends by now."""
    fed = started.fed()
    assert bool(fed.position.gtids)
    started.write()
    started.remove() if how == "removed" else started.lose()
    assert started.begin() == fed
    assert started.cursor() == fed.position
    assert f"does not have subscription {NAME} (any more)" in caplog.text
    started.write()
    assert started.begin() == fed
    assert started.cursor() == fed.position


class Failed(Query):
    """A query of Spark that failed, and what is done then."""

    done: list[str]

    def start(self) -> None:
        """Begin, as Spark would."""
        self.done.append("start")
        self._query = SimpleNamespace(isActive=False, exception=lambda: "it failed")

    def _clear(self) -> None:
        self.done.append("clear")


def test_a_checkpoint_that_is_not_of_the_lake(started) -> None:
    """It is left, once, and the subscription, which went along with it, moved back."""
    fed = started.fed()
    stream: Any = SimpleNamespace(feed=fed, gap="")
    store = States(started.folder)
    query = Failed(started.settings, None, stream, store, Stop())
    query.done = []

    query.start()
    started.write()
    end = started.ask(lambda c: c.locate(DESTINATION, "latest"))
    started.ask(lambda c: c.ack(DESTINATION, NAME, end))
    stream.gap = "something would be missing"
    give_up_at = time.monotonic() + PATIENCE_S
    while query.done != ["start", "clear", "start"]:
        assert time.monotonic() < give_up_at, query.done
        query.look()
        time.sleep(0.02)
    assert started.cursor() == fed.position
    stream.gap = "something would be missing"
    with pytest.raises(DataLossError, match="something would be missing"):
        query.look()

    # A batch that was applied since then has shown that it continued.
    query.start()
    stream.feed = replace(fed, batch=1)
    stream.gap = "something would be missing"
    query.look()
    assert query.done[-1] == "clear"


def test_nothing_shows_where_the_lake_is(started) -> None:
    """With tables in it, a stream that is new there would miss something."""
    started.folder.delete("stream.json")
    assert started.begin().position == started.cursor()  # which exists
    started.folder.delete("stream.json")
    started.remove()
    with pytest.raises(DataLossError, match="the lake does not record"):
        started.begin()
    assert started.begin(is_followed=False).position == started.cursor()


def test_another_destination(started) -> None:
    """Positions of one mean nothing in the other."""
    write_feed(started.folder, replace(started.fed(), destination="other"))
    with pytest.raises(DataLossError, match="are of other: set it back"):
        started.begin()


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_position_that_means_something_else(
    flavour, own_server, make_pipeline, tmp_path
) -> None:
    """Purged, of another binlog, of a restarted epoch: each is an error.

    With the subscription, canal-server may have lost its epochs.
    """
    server = own_server(flavour)
    server.execute("CREATE DATABASE shop")
    started = started_on(server, "shop", make_pipeline, tmp_path)
    fed = replace(started.fed(), source="me")

    started.remove()
    write_feed(started.folder, replace(fed, position=replace(fed.position, epoch=1)))
    with pytest.raises(
        DataLossError, match="of epoch 1, but canal-server has lost its data"
    ):
        started.begin()

    # Without GTID sets the database's identity decides, which differs here.
    write_feed(started.folder, replace(fed, position=replace(fed.position, gtids="")))
    with pytest.raises(DataLossError, match="of another binlog"):
        started.begin()

    # The same file and offset, in a binlog that was reset.
    server.execute(
        "RESET BINARY LOGS AND GTIDS" if flavour == "mysql" else "RESET MASTER"
    )
    while version_of(_end(server)) <= version_of(fed.position):
        started.write()
    write_feed(started.folder, fed)
    started.lose()
    with pytest.raises(
        DataLossError, match=r"another binlog|not a position of the source"
    ):
        started.begin()

    # None of that has started anything.
    server.execute("FLUSH BINARY LOGS")
    started.lose()
    started.folder.delete("stream.json")
    fed = started.begin(is_followed=False)
    started.remove()
    server.execute("FLUSH BINARY LOGS")
    file, _ = server.binlog_position()
    started.lose()
    purge(server, file)
    with pytest.raises(DataLossError, match="are no longer available"):
        started.begin()


def _end(server: Any) -> RangePosition:
    from canal_server.client.range_client import RangePosition  # noqa: PLC0415

    return RangePosition(0, *server.binlog_position())
