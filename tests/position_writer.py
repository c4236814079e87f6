"""Writes positions to a place until it is killed: `position_writer.py KIND PLACE FROM`.

Each number on standard output is one that was stored for certain. KIND is `cursors` or
`positions`; PLACE a folder, or servers of ZooKeeper.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.file import MetaFiles, PositionFiles
from canal_server.position.kept import KeptLogPositionManager
from canal_server.position.mixed import MixedMetaManager, Writing
from canal_server.position.nodes import MetaNodes, PositionNodes
from canal_server.zookeeper import ZooKeeper

CLIENT = ClientIdentity("example", 1001)


def position(offset: int) -> LogPosition:
    """Return a place whose text is longer the further it is."""
    return LogPosition(
        LogIdentity("db", 3306), EntryPosition("b" * (offset % 5000), offset, 0, 1, "")
    )


class Store:
    """One number, stored at once as a cursor or as a pump's position."""

    def __init__(self, kind: str, place: str) -> None:
        folder = Path(place) if place.startswith("/") else None
        self._meta: MixedMetaManager | None = None
        self._positions: KeptLogPositionManager | None = None
        if kind == "cursors":
            clients = MetaFiles(folder) if folder else MetaNodes(ZooKeeper(place))
            self._meta = MixedMetaManager(
                clients, destinations=["example"], writing=Writing.AT_ONCE
            )
        else:
            pumps = PositionFiles(folder) if folder else PositionNodes(ZooKeeper(place))
            self._positions = KeptLogPositionManager(pumps, writing=Writing.AT_ONCE)
        for started in (self._meta, self._positions):
            if started:
                started.start()

    def put(self, number: int) -> None:
        """Store a number; it lasts when this returns."""
        if self._meta:
            self._meta.subscribe(CLIENT)
            self._meta.update_cursor(CLIENT, position(number))
        elif self._positions:
            self._positions.persist("example", position(number))

    def get(self) -> int:
        """Return the stored number, 0 when none is. Checks that it is whole."""
        if self._meta:
            found = self._meta.cursor(CLIENT)
        elif self._positions:
            found = self._positions.latest("example")
        number = found.position.position or 0 if found else 0
        assert not found or found == position(number)
        return number

    def close(self) -> None:
        """Let go of the place."""
        for started in (self._meta, self._positions):
            if started:
                started.stop()


if __name__ == "__main__":
    store = Store(*sys.argv[1:3])
    for count in itertools.count(int(sys.argv[3])):
        store.put(count)
        print(count, flush=True)
