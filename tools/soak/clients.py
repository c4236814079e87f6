"""Clients of all kinds, each on a thread of its own, with a checker of what it gets."""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.client import CanalClient
from canal_server.errors import CanalError
from canal_server.model.running import decode
from canal_server.model.znodes import running_path
from soak.checker import Follower, Violation
from soak.reader import EntryReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.doors.zookeeper import ZooKeeper
    from soak.ledger import Ledger
    from soak.sources import Source

TIMEOUT_S = 20.0
SUBSCRIBE_S = 90.0
GET_S = 1.0


@dataclass(frozen=True, slots=True)
class Habit:
    """How a client behaves; times in seconds, each up to so long at random."""

    name: str
    client_id: int
    filter: str  # after the schema's name and a dot
    batch: int = 200
    finds_by_zookeeper: bool = False
    pause_s: float = 0.0  # between two messages, now and then
    stays_s: float = 0.0  # until it goes; 0: it stays
    away_s: float = 0.0
    rolls_back: float = 0.0  # share of messages that it gives back


HABITS = (
    Habit("cluster client", 1001, r".*", finds_by_zookeeper=True),
    Habit("slow client", 1002, r"t\d*[02468]", batch=20, pause_s=6.0),
    Habit(
        "client that comes and goes", 1003, r"t\d*[13579],x.*",
        stays_s=20.0, away_s=20.0, rolls_back=0.02,
    ),
)  # fmt: skip


class Client:
    """A client of one destination that looks for its server again and again."""

    def __init__(
        self,
        habit: Habit,
        *,
        source: Source,
        ledger: Ledger,
        ports: list[int],
        zookeeper: ZooKeeper,
        seed: int,
    ) -> None:
        self.name = f"{habit.name} of {source.flavour}"
        self.error: BaseException | None = None
        self.refusals: dict[str, int] = {}
        parts = [rf"{source.schema}\.{each}" for each in habit.filter.split(",")]
        self._filter = ",".join(parts)
        accepts = re.compile("|".join(parts)).fullmatch
        self.follower = Follower(
            ledger,
            self.name,
            lambda table: accepts(table) is not None,
            statements=habit.filter == ".*",
        )
        begins = source.flavour == "mysql"
        self._reader = EntryReader(self.follower, begins=begins)
        self._habit, self._ports = habit, ports
        self._destination = source.flavour
        self._zookeeper = zookeeper
        self._rng = random.Random(seed)
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def subscribe(self) -> None:
        """Subscribe, so that nothing which is written from now on is passed over.

        Raises TimeoutError.
        """
        give_up_at = time.monotonic() + SUBSCRIBE_S
        while True:
            try:
                with self._connected():
                    return
            except (OSError, CanalError) as error:
                if time.monotonic() > give_up_at:
                    raise TimeoutError(f"{self.name}: {error}") from error
                time.sleep(0.2)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def hurry(self) -> None:
        """Make no pauses any more."""
        self._hurry.set()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(2 * TIMEOUT_S)

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.2):
                try:
                    with self._connected() as client:
                        self._follow(client)
                except (OSError, CanalError) as error:
                    text = re.sub(r"\d+", "N", str(error))[:160]
                    self.refusals[text] = self.refusals.get(text, 0) + 1
                self._reader.resume()
                if self._habit.away_s:
                    self._hurry.wait(self._rng.uniform(0, self._habit.away_s))
        except BaseException as error:  # noqa: BLE001  # shown by the verdict
            self.error = error

    @contextlib.contextmanager
    def _connected(self) -> Iterator[CanalClient]:
        with CanalClient(
            "127.0.0.1", self._port(), self._destination, self._habit.client_id,
            timeout_s=TIMEOUT_S,
        ) as client:  # fmt: skip
            client.subscribe(self._filter)
            yield client

    def _port(self) -> int:
        """Return where the destination is run, or may be."""
        if self._habit.finds_by_zookeeper:
            node = self._zookeeper.read(running_path(self._destination))
            if node and (running := decode(node.data)):
                return int(running.address.rpartition(":")[2])
        return self._rng.choice(self._ports)

    def _follow(self, client: CanalClient) -> None:
        habit, rng = self._habit, self._rng
        left = rng.randint(10, 200) if habit.stays_s else 0
        while not self._stop.is_set():
            message = client.get(rng.randint(1, habit.batch), GET_S)
            self._reader.take(message.entries)
            if message and rng.random() < habit.rolls_back:
                client.rollback()
                self._reader.resume()
                continue
            left -= 1
            if left == 0 and not self._hurry.is_set():
                return  # without an ack of what it has
            if message:
                client.ack(message.id)
                self._reader.acked()
            if habit.pause_s and rng.random() < 0.05:
                self._hurry.wait(rng.uniform(0, habit.pause_s))


__all__ = ["HABITS", "Client", "Habit", "Violation"]
