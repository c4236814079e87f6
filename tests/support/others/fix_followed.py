"""A client of others that finds the server by ZooKeeper, and follows it.

::

    with followed_by(cluster, driver) as seen:
        cluster.one.kill()
        seen.wait_for_more()
"""

from __future__ import annotations

import base64
import contextlib
import threading
from typing import TYPE_CHECKING, Self

from fix_pipeline import DESTINATION, UNIT_S
from load import Load

from canal_server.model.positions import binlog_file_number
from canal_server.protocol.entry_messages import decode_entry

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from fix_cluster import Cluster
    from fix_interop import Driver
    from ledger import Checker

    from canal_server.client import Entry

PATIENCE_S = 9 * UNIT_S
PAUSE_S = 0.05  # between two writes: all of it runs on the machine of the test


class Followed:
    """What one client was given, checked as it comes.

    Nothing shows when it went to another server: where the stream begins again is seen
    by its positions, which go back.
    """

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.returns = 0
        self.error: BaseException | None = None
        self._position = (0, 0)
        self._changed = threading.Condition()

    def take(self, entries: list[Entry]) -> None:
        """Check a batch."""
        with self._changed:
            for entry in entries:
                header = entry.header
                position = (
                    binlog_file_number(header.logfile_name),
                    header.logfile_offset,
                )
                if position <= self._position and entry is entries[0]:
                    self.checker.resume()
                    self.returns += 1
                self._position = position
            self.checker.take(entries)
            self._changed.notify_all()

    def failed(self, error: BaseException) -> None:
        """Keep what went wrong in the client's thread."""
        with self._changed:
            self.error = error
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something was seen."""
        with self._changed:
            self._changed.wait_for(lambda: self.error or condition(), PATIENCE_S)
            if self.error:
                raise self.error
            assert condition(), f"{what} never happened; {self.checker.done} are there"

    def wait_for_more(self, transactions: int = 20) -> None:
        """Wait until so many more transactions arrived for the first time."""
        expected = self.checker.reached + transactions
        self.wait_for(
            lambda: self.checker.reached >= expected, f"transaction {expected}"
        )


class DrivenFollower:
    """A client of others, driven by a thread until it is requested to end."""

    def __init__(
        self, driver: Driver, zookeeper: str, seen: Followed, rng: random.Random
    ) -> None:
        self._driver = driver
        self._zookeeper = zookeeper
        self._seen = seen
        self._rng = rng
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._driver.do("zookeeper", self._zookeeper, "", "", DESTINATION)
            self._driver.do("subscribe", "")
            while not self._end.is_set():
                size = self._rng.randint(1, 200)
                message = self._driver.do("get_bytes", size, 100)
                if message["id"] != self._driver.kind.empty_id:
                    self._seen.take(
                        [
                            decode_entry(base64.b64decode(each))
                            for each in message["entries"]
                        ]
                    )
                    self._driver.do("ack", message["id"])
        except BaseException as error:  # noqa: BLE001  # shown by the test's own thread
            self._seen.failed(error)


@contextlib.contextmanager
def followed_by(
    cluster: Cluster, driver: Driver, rng: random.Random
) -> Iterator[Followed]:
    """Write transactions and follow them with a client of others; check it all."""
    writer = cluster.one.writer(rng)
    seen = Followed(cluster.one.checker(writer))
    with DrivenFollower(driver, cluster.zookeeper.servers, seen, rng):
        with Load(writer, PAUSE_S):
            yield seen
        everything = len(writer.transactions)
        seen.wait_for(lambda: seen.checker.has(everything), "the last transaction")
    assert seen.error is None
    print(
        f"{everything} transactions, {seen.checker.repeated} changes arrived again in"
        f" {seen.returns} returns"
    )
