"""Which binlog files of a source nobody needs any more."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pymysql

from canal_server.daemon.control import ControlError, ask
from canal_server.model.positions import binlog_file_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from soak.checker import Follower
    from soak.cluster import Node
    from soak.ledger import Ledger
    from soak.sources import Source

KEPT_S = 60.0  # for which a file is kept after everybody was seen to have passed it
LOOK_S = 10.0


class Binlogs:
    """The files of the server that is written to, and who has passed them."""

    def __init__(
        self,
        source: Source,
        ledger: Ledger,
        nodes: Sequence[Node],
        followers: Callable[[], list[Follower]],
        subscribers: int,
    ) -> None:
        """Take who reads: followers, and so many subscriptions at the servers."""
        self._source, self._ledger, self._nodes = source, ledger, nodes
        self._followers, self._subscribers = followers, subscribers
        self._first_items: dict[
            tuple[int, str], int
        ] = {}  # items when a file was seen first
        self._passed: dict[tuple[int, str], float] = {}
        self._looked_s = 0.0

    def look(self) -> None:
        """Take note of who has passed what, now and then; a source may be stopped."""
        now = time.monotonic()
        if now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        with contextlib.suppress(OSError, pymysql.err.MySQLError, ControlError):
            self._look(now)

    def purgeable(self) -> str:
        """Return a file before which nobody needs any; empty when there is none."""
        port, now = self._source.now.port, time.monotonic()
        there = self._source.binlog_files()
        for name in reversed(there[1:]):
            if now - self._passed.get((port, name), now) > KEPT_S:
                return name
        return ""

    def _look(self, now: float) -> None:
        port = self._source.now.port
        # All that is noted later stands in this file, or in a later one.
        items = len(self._ledger.items)
        files = self._source.binlog_files()
        self._first_items.setdefault((port, files[-1]), items)
        missing = [i.number for f in self._followers() for i in f.missing()]
        reached = min(missing, default=items)
        read = self._read_by_subscribers()
        for name in files:
            first_items = self._first_items.get((port, name))
            if (
                first_items is not None
                and first_items <= reached
                and _number(name) <= read
            ):
                self._passed.setdefault((port, name), now)

    def _read_by_subscribers(self) -> int:
        """Return the number of the file that all subscriptions have come to.

        0 when that is not known, as just after the source was replaced.
        """
        if not self._subscribers:
            return 1 << 62
        for node in self._nodes:
            reply = ask(node.data, "subscriptions", destination=self._source.flavour)
            if reply["running"]:
                return read_by(reply, self._subscribers)
        return 0


def read_by(reply: dict[str, Any], count: int) -> int:
    """Return the number of the oldest file that one of so many subscriptions is in."""
    found = reply["subscriptions"]
    if len(found) < count or any(e["epoch"] != reply["epoch"] for e in found):
        return 0
    return min(_number(each["journal"]) for each in found)


def _number(name: str) -> int:
    return binlog_file_number(name) or 0
