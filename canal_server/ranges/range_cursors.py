"""Named cursors of ranged reads, and the epochs that their positions belong to.

::

    Subscriptions ── in memory; each change is durable when it returns, except for
                     temporary subscriptions, which are in memory only
        SubscriptionFile    subscriptions.sqlite in the folder of the destination
        SubscriptionNodes   /otter/canal/destinations/<destination>/spark
                                epochs, as JSON
            <name>              a subscription, as JSON

One server writes them at a time: the owner of the folder, or of the destination's
lease. Leaves out what an epoch is (`canal_server.ranges.epochs`).
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from canal_server.doors.sqlite import Database, FileForm
from canal_server.errors import LeaseLost, MetaStoreError, ZooKeeperError
from canal_server.model import znodes
from canal_server.model.ranges import Epoch, EpochPosition, Subscription
from canal_server.position.node_writer import LeasedNodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from canal_server.doors.zookeeper import ZooKeeper
    from canal_server.runtime.lifecycle import Stop

FILE_NAME: Final = "subscriptions.sqlite"
SUBSCRIPTIONS_MAX: Final = 10_000  # of one destination

FORM: Final = FileForm(
    what="list of subscriptions",
    application_id=0x43414E53,  # "CANS"
    steps=(
        (
            """CREATE TABLE epoch (
                number INTEGER PRIMARY KEY,
                source TEXT NOT NULL,
                file TEXT NOT NULL,
                began_s INTEGER NOT NULL
            )""",
            """CREATE TABLE subscription (
                name TEXT PRIMARY KEY,
                filter TEXT NOT NULL,
                epoch INTEGER NOT NULL,
                journal TEXT NOT NULL,
                position INTEGER NOT NULL
            ) WITHOUT ROWID""",
        ),
        ("ALTER TABLE subscription ADD COLUMN acked_ms INTEGER NOT NULL DEFAULT 0",),
        ("ALTER TABLE subscription ADD COLUMN gtids TEXT NOT NULL DEFAULT ''",),
    ),
    without="ranged subscriptions start where their readers say",
    error=MetaStoreError,
)


class SubscriptionStorage(Protocol):
    """Where subscriptions and epochs are stored; for one thread at a time.

    Writes are durable on return. All methods raise MetaStoreError.
    """

    def open(self, stop: Stop) -> None:
        """Prepare the storage; may wait until `stop`."""

    def close(self) -> None:
        """Close the storage; may be called again."""

    def read(self) -> tuple[list[Epoch], list[Subscription]]:
        """Return everything stored."""

    def put_epochs(self, epochs: Sequence[Epoch]) -> None:
        """Store these epochs: the old ones with a new one at the end."""

    def put(self, subscription: Subscription) -> None:
        """Store the current state of a subscription."""

    def remove(self, name: str) -> None:
        """Delete a subscription."""


class Subscriptions:
    """One destination's subscriptions; thread-safe."""

    def __init__(
        self, storage: SubscriptionStorage, clock: Callable[[], float] = time.time
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._lock = threading.Lock()
        self._is_started = False
        self._epochs: list[Epoch] = []
        self._known: dict[str, Subscription] = {}

    def start(self, stop: Stop) -> None:
        """Load what is stored; may wait until `stop`. Raises MetaStoreError."""
        with self._lock:
            self._storage.open(stop)
            try:
                epochs, found = self._storage.read()
            except BaseException:
                self._storage.close()
                raise
            self._epochs = sorted(epochs, key=lambda each: each.number)
            self._known = {each.name: each for each in found}
            self._is_started = True

    def stop(self) -> None:
        """Close files and sessions; nothing is written afterwards."""
        with self._lock:
            self._is_started = False
            self._storage.close()

    def all(self) -> list[Subscription]:
        """Return all subscriptions."""
        with self._lock:
            return list(self._known.values())

    def find(self, name: str) -> Subscription | None:
        """Return a subscription, None when the name is unknown."""
        with self._lock:
            return self._known.get(name)

    def put(self, subscription: Subscription) -> None:
        """Store a subscription. Raises MetaStoreError, also beyond the limit."""
        with self._lock:
            self._put(subscription)

    def _check_started(self) -> None:
        assert self._lock.locked()
        if not self._is_started:
            raise MetaStoreError(
                "the subscriptions are closed: the destination is stopping"
            )

    def _put(self, subscription: Subscription) -> None:
        self._check_started()
        known = self._known.get(subscription.name)
        if known == subscription:
            return
        if known is None and len(self._known) >= SUBSCRIPTIONS_MAX:
            raise MetaStoreError(
                f"{SUBSCRIPTIONS_MAX} subscriptions exist, the limit: remove unused"
                " ones"
            )
        if not subscription.temporary:
            self._storage.put(subscription)
        self._known[subscription.name] = subscription

    def ack(self, name: str, position: EpochPosition) -> bool:
        """Move a cursor forward, never back; false when the name is unknown."""
        with self._lock:
            known = self._known.get(name)
            if known is None:
                return False
            if position.order() > known.cursor.order():
                now_ms = round(self._clock() * 1000)
                cursor = replace(position, begin=0)
                self._put(replace(known, cursor=cursor, acked_ms=now_ms))
            return True

    def remove(self, name: str) -> bool:
        """Delete a subscription; false when the name is unknown."""
        with self._lock:
            known = self._known.get(name)
            if known is None:
                return False
            self._check_started()
            if not known.temporary:
                self._storage.remove(name)
            del self._known[name]
            return True

    def epoch(self) -> Epoch | None:
        """Return the last epoch, None before the first."""
        with self._lock:
            return self._epochs[-1] if self._epochs else None

    def epochs(self) -> list[Epoch]:
        """Return all epochs, the last one last."""
        with self._lock:
            return list(self._epochs)

    def begin_epoch(self, source: str, file: str, began_s: int) -> Epoch:
        """Start an epoch; returns it once it is durable."""
        with self._lock:
            self._check_started()
            number = self._epochs[-1].number + 1 if self._epochs else 0
            epoch = Epoch(number, source, file, began_s)
            self._storage.put_epochs((*self._epochs, epoch))
            self._epochs.append(epoch)
            return epoch


class SubscriptionFile:
    """Subscriptions in a SQLite file."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._database = Database(path, FORM, read_only=read_only)
        self._is_open = False

    def open(self, stop: Stop) -> None:
        """Open the file; a missing file is created when it is needed."""
        del stop
        if self._path.exists():
            self._database.open()
            self._is_open = True

    def close(self) -> None:
        """Close the file."""
        self._is_open = False
        self._database.close()

    def read(self) -> tuple[list[Epoch], list[Subscription]]:
        """Return all rows."""
        if not self._is_open:
            return [], []
        epochs = self._database.query("SELECT number, source, file, began_s FROM epoch")
        rows = self._database.query(
            "SELECT name, filter, acked_ms, epoch, journal, position, gtids"
            " FROM subscription"
        )
        found = [
            Subscription(
                str(name),
                str(text),
                EpochPosition(epoch, journal, position, gtids=str(gtids)),
                int(acked_ms),
            )
            for name, text, acked_ms, epoch, journal, position, gtids in rows
        ]
        return [Epoch(*each) for each in epochs], found

    def _opened(self) -> Database:
        self._database.open()
        self._is_open = True
        return self._database

    def put_epochs(self, epochs: Sequence[Epoch]) -> None:
        """Store the last of the epochs; the others are stored already."""
        last = epochs[-1]
        with self._opened().transaction():
            self._database.execute(
                "INSERT INTO epoch (number, source, file, began_s) VALUES (?, ?, ?, ?)",
                (last.number, last.source, last.file, last.began_s),
            )

    def put(self, subscription: Subscription) -> None:
        """Insert or replace a row."""
        cursor = subscription.cursor
        with self._opened().transaction():
            self._database.execute(
                "INSERT OR REPLACE INTO subscription"
                " (name, filter, epoch, journal, position, acked_ms, gtids)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    subscription.name,
                    subscription.filter,
                    cursor.epoch,
                    cursor.journal,
                    cursor.position,
                    subscription.acked_ms,
                    cursor.gtids,
                ),
            )

    def remove(self, name: str) -> None:
        """Delete a row."""
        with self._opened().transaction():
            self._database.execute("DELETE FROM subscription WHERE name = ?", (name,))


class SubscriptionNodes(LeasedNodes):
    """Subscriptions in nodes of ZooKeeper, for a server that holds the lease."""

    def __init__(self, zookeeper: ZooKeeper, destination: str) -> None:
        path = f"{znodes.destination_path(destination)}/spark"
        super().__init__(zookeeper, destination, path)

    def read(self) -> tuple[list[Epoch], list[Subscription]]:
        """Return the content of the nodes."""
        found = self.look()
        try:
            self._check_lease()
        except (ZooKeeperError, LeaseLost) as error:
            raise MetaStoreError(f"cannot read the subscriptions: {error}") from error
        return found

    def look(self) -> tuple[list[Epoch], list[Subscription]]:
        """Return the same, for nodes that another server owns."""
        try:
            text = self._nodes.read(self._path)
            epochs = [Epoch(**each) for each in json.loads(text or b"[]")]
            names = self._zookeeper.children(self._path)
            found = [
                _subscription(name, data)
                for name in names
                if (data := self._nodes.read(f"{self._path}/{name}"))
            ]
        except ZooKeeperError as error:
            raise MetaStoreError(f"cannot read the subscriptions: {error}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise MetaStoreError(
                f"the content of {self._path} or below is not a valid subscription:"
                f" {error!r}; remove that node"
            ) from error
        return epochs, found

    def _check_lease(self) -> None:
        if self._zookeeper.read(self._fence) is None:
            raise LeaseLost(
                f"this server may no longer run destination {self._destination}"
            )

    def put_epochs(self, epochs: Sequence[Epoch]) -> None:
        """Write the epochs into the node above the subscriptions."""
        self._put(self._path, [asdict(each) for each in epochs])

    def put(self, subscription: Subscription) -> None:
        """Write a subscription's node."""
        cursor = subscription.cursor
        document: dict[str, object] = {
            "epoch": cursor.epoch,
            "journal": cursor.journal,
            "position": cursor.position,
        }
        if cursor.gtids:
            document["gtids"] = cursor.gtids
        content: dict[str, object] = {"cursor": document, "filter": subscription.filter}
        if subscription.acked_ms:
            content["acked_ms"] = subscription.acked_ms
        self._put(f"{self._path}/{subscription.name}", content)

    def remove(self, name: str) -> None:
        """Remove a subscription's node."""
        try:
            self._nodes.remove(f"{self._path}/{name}", fence=self._fence)
        except (ZooKeeperError, LeaseLost) as error:
            raise MetaStoreError(f"cannot remove subscription {name}: {error}") from (
                error
            )

    def _put(self, path: str, content: object) -> None:
        data = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        try:
            self._nodes.put(path, data, fence=self._fence)
        except (ZooKeeperError, LeaseLost) as error:
            raise MetaStoreError(f"cannot write {path}: {error}") from error


def _subscription(name: str, data: bytes) -> Subscription:
    content: dict[str, Any] = json.loads(data)
    cursor = content["cursor"]
    position = EpochPosition(
        int(cursor["epoch"]),
        str(cursor["journal"]),
        int(cursor["position"]),
        gtids=str(cursor.get("gtids", "")),
    )
    acked_ms = int(content.get("acked_ms", 0))
    return Subscription(name, str(content["filter"]), position, acked_ms)
