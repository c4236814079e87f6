"""A table history that is out of reach for a while: queries wait, and lose nothing."""

from __future__ import annotations

import re
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest
from fix_pipeline import DESTINATION, Pipeline
from fix_source_access import PATIENCE_S
from fix_store import in_thread
from fix_tablemeta_storage import PASSWORD, mysql_database

from canal_server.client.range_client import NOT_HERE
from canal_server.errors import ClientError
from canal_server.spark.driver import StreamDriver
from canal_server.spark.options.servers import Channel
from canal_server.spark.options.source_options import read_options
from canal_server.spark.reading.range_tasks import Range, pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from fix_proxy import Proxy

    from canal_server.spark.options.source_options import SourceOptions

pytestmark = pytest.mark.slow
SAYS = "the table history in .* cannot be read or written"


class Scene:
    """A server that reads all ranges of the binlog again, and its table history."""

    def __init__(self, pipeline: Pipeline, history: Proxy) -> None:
        self.pipeline = pipeline
        self.history = history

    def options(self, retry_ms: float, **more: str) -> SourceOptions:
        """Return the options of a stream."""
        options = {
            "servers": f"127.0.0.1:{self.pipeline.server_port}",
            "destination": DESTINATION,
            "subscription": "lake",
            "retryTimeoutMs": str(round(retry_ms)),
        }
        return read_options(options | more, streaming=True)

    @contextmanager
    def without_history(self) -> Iterator[None]:
        """Make the server unavailable."""
        with self.history.refuse():
            self.history.end_all()
            yield

    def waiting(self, call: Callable[[], Any], what: str) -> Any:
        """Return what a call does that began without, once the server has refused."""
        with self.without_history():
            done = in_thread(call)
            self.pipeline.process.wait_for_log(f"refused a {what} .*{SAYS}")
            assert not done.done()
        return done.result(PATIENCE_S)


@pytest.fixture
def scene(make_pipeline, mysql_server, database, make_proxy) -> Iterator[Scene]:
    """Give a running pipeline with one table, in which something was changed."""
    proxy = make_proxy(mysql_server)
    mysql_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    with mysql_database(mysql_server) as (access, name):
        settings = {
            "canal.instance.ranged.memory.bytes": "0",
            "canal.instance.tsdb.url": f"jdbc:mysql://127.0.0.1:{proxy.port}/{name}",
            "canal.instance.tsdb.dbUsername": access.credentials.user,
            "canal.instance.tsdb.dbPassword": PASSWORD,
        }
        made = make_pipeline(mysql_server, database, settings)
        made.start()
        yield Scene(made, proxy)
        made.close()


def test_a_query_waits_for_the_table_history(scene) -> None:
    """Its planning and its tasks resume when it is back; nothing is read twice."""
    options = scene.options(PATIENCE_S * 1000)
    with closing(StreamDriver(options)) as driver:
        at = driver.initial()
        scene.pipeline.source.execute(
            f"INSERT INTO {scene.pipeline.schema}.t VALUES (1), (2)"
        )
        end = scene.waiting(lambda: driver.latest(at), "RangeHead")
        assert end != at
    part = Range(DESTINATION, at[DESTINATION], end[DESTINATION])

    def read() -> list[bytes]:
        with closing(Channel(options, DESTINATION)) as channel:
            return [bytes(piece) for piece in pieces(channel, options, part)]

    assert scene.waiting(read, "RangeRead") == read()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_query_gives_up_and_skips_nothing(scene, fails) -> None:
    """A long outage is reported; the query resumes afterwards."""
    more = {"failOnDataLoss": fails}
    with closing(StreamDriver(scene.options(100, **more))) as driver:
        at = driver.initial()
        scene.pipeline.source.execute(
            f"INSERT INTO {scene.pipeline.schema}.t VALUES (1), (2)"
        )
        with scene.without_history(), pytest.raises(ClientError) as given_up:
            driver.latest(at)
    assert given_up.value.code == NOT_HERE
    assert re.search(f"last answer was: {SAYS}", str(given_up.value))
    # By these words a mirror knows a loss.
    assert "are no longer available" not in str(given_up.value)
    with closing(StreamDriver(scene.options(PATIENCE_S * 1000, **more))) as driver:
        end = driver.latest(at)
        (part,) = driver.plan(at, end)
        assert part.start == at[DESTINATION]


def test_each_server_is_reported_with_its_answer() -> None:
    """One that does not run a destination does not hide why the other cannot answer."""
    options = read_options(
        {
            "servers": "one:1,two:2",
            "destination": DESTINATION,
            "subscription": "lake",
            "retryTimeoutMs": "50",
        },
        streaming=True,
    )
    answers = {
        "one": ClientError("the table history is away", code=NOT_HERE),
        "two": ClientError("it does not run here", code=NOT_HERE),
    }

    class Asked(Channel):
        def _connected(self) -> Any:
            raise answers[self.server.host]

    channel = Asked(options, DESTINATION)
    with pytest.raises(ClientError) as given_up:
        channel.call(lambda client: client)
    shown = str(given_up.value)
    assert "one:1: the table history is away" in shown
    assert "two:2: it does not run here" in shown
