"""A run: all parts are started, disturbed, brought to rest, and compared."""

from __future__ import annotations

import random
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from servers import PrivateServer
from zookeepers import PrivateZooKeeper

from canal_server.doors.zookeeper import ZooKeeper
from canal_server.runtime.lifecycle import Stop
from soak.clients import HABITS, Client
from soak.cluster import Node, history_settings, server_settings
from soak.faults import Faults
from soak.ledger import Ledger
from soak.load import Load
from soak.lost import LostClient
from soak.plan import FIRST_S, faults_end_s, planned
from soak.purging import Binlogs
from soak.sampler import Limit, Sampler, excesses
from soak.sources import Source
from soak.verdict import ended, missing, never_committed, other_orders

if TYPE_CHECKING:
    from pathlib import Path

    from soak.checker import Follower
    from soak.lake import Lake
    from soak.readers import Reader
    from soak.spark_stream import SparkStream

FLAVOURS = ("mysql", "mariadb")
SETTLE_S = 300.0  # for all to catch up at the end
POLL_S = 0.5
SAMPLE_S = 5.0
LIMITS = (Limit("server", 900.0, 250, 600),)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run is to be."""

    seed: int
    seconds: float
    per_second: float  # transactions of each source
    folder: Path
    flavours: tuple[str, ...] = FLAVOURS
    readers: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # kinds of faults; empty: all


@dataclass
class Result:
    """The result of a run."""

    problems: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)


class Run:
    """The parts of a run; a context manager that starts and ends them."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self.result = Result()
        self._rng = random.Random(f"run {options.seed}")
        self._opened = ExitStack()
        self.sources: list[Source] = []
        self.ledgers: list[Ledger] = []
        self.loads: list[Load] = []
        self.nodes: list[Node] = []
        self.clients: list[Client] = []
        self.lost: list[LostClient] = []
        self.readers: dict[str, Reader] = {}
        self.stream: SparkStream | None = None
        self.lake: Lake | None = None
        self._binlogs: list[Binlogs] = []

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._start(opened)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _start(self, opened: ExitStack) -> None:
        folder = self.options.folder
        folder.mkdir(parents=True, exist_ok=True)
        self.zookeeper = opened.enter_context(PrivateZooKeeper())
        self.observer = ZooKeeper(self.zookeeper.servers)
        self.observer.start()
        opened.callback(self.observer.close)
        self.observer.wait_until_connected(Stop())
        for flavour in self.options.flavours:
            source = opened.enter_context(Source(flavour))
            self.sources.append(source)
            self.ledgers.append(Ledger(folder / f"{flavour}.values"))
            opened.callback(self.ledgers[-1].close)
        self._start_servers(opened)
        for source, ledger in zip(self.sources, self.ledgers, strict=True):
            for habit in HABITS:
                client = Client(
                    habit,
                    source=source,
                    ledger=ledger,
                    ports=[node.port for node in self.nodes],
                    zookeeper=self.observer,
                    seed=self._rng.getrandbits(32),
                )
                client.subscribe()
                self.clients.append(client)
            rng = random.Random(self._rng.random())
            each = self.options.per_second
            load = Load(source.now, source.schema, ledger, rng, per_second=each)
            self.loads.append(load)
            lost = LostClient(source, self.nodes)
            lost.begin()
            self.lost.append(lost)
        self._start_readers(opened)
        self._binlogs = [self._binlogs_of(n) for n in range(len(self.sources))]
        self.sampler = Sampler(folder / "samples.csv", SAMPLE_S, self._pids, self._lags)

    def _start_readers(self, opened: ExitStack) -> None:
        """Start what needs Spark; its first look is at the binlog's beginning."""
        readers, folder = self.options.readers, self.options.folder
        ports = [node.port for node in self.nodes]
        if "Spark stream" in readers:
            from soak.spark_stream import SparkStream  # noqa: PLC0415  # an extra

            self.stream = SparkStream(
                folder / "spark", ports, self.sources, self.ledgers
            )
            self.readers["Spark stream"] = self.stream
        if "mirror" in readers:
            from soak.lake import Lake  # noqa: PLC0415  # an extra

            self.lake = Lake(folder / "mirror", self.sources[0], ports)
            self.readers["mirror"] = self.lake
        for reader in self.readers.values():
            opened.callback(reader.close)
            reader.launch()

    def _start_servers(self, opened: ExitStack) -> None:
        self.history = opened.enter_context(PrivateServer("mysql"))
        history = history_settings(self.history)
        settings = server_settings(self.zookeeper.servers, self.sources)
        for number, name in enumerate(("server one", "server two")):
            port = free_port()
            node = Node(name, self.options.folder / f"server{number + 1}", port)
            opened.enter_context(node)
            node.prepare(settings, history, self.sources)
            node.launch()
            self.nodes.append(node)

    # --- the story --------------------------------------------------------------------

    def disturb(self) -> None:
        """Write and read for the requested time, and carry out faults."""
        faults = Faults(
            sources=self.sources,
            loads=self.loads,
            nodes=self.nodes,
            zookeeper=self.zookeeper,
            observer=self.observer,
            history=self.history,
            readers=self.readers,
            purgeable=self._purgeable,
        )
        began = time.monotonic()
        end = began + self.options.seconds
        kinds = self.options.only or faults.kinds
        plan = iter(planned(self.options.seed, self.options.seconds, kinds))
        rest_s = FIRST_S
        while self._wait(min(rest_s, end - time.monotonic())):
            now = time.monotonic() - began
            if now > faults_end_s(self.options.seconds):
                self._wait(end - time.monotonic())
                return
            fault = next(plan)
            rest_s = fault.rest_s
            self.result.faults.append(
                (time.monotonic() - self.sampler.began_s, fault.kind)
            )
            said = faults.carry_out(fault)
            print(f"{now:7.1f} s  {fault}: {said}", flush=True)

    def _wait(self, seconds: float) -> bool:
        """Let all run; false when the time is over or something was found."""
        give_up_at = time.monotonic() + seconds
        while time.monotonic() < give_up_at:
            if self._broken():
                return False
            for each in self._binlogs:
                each.look()
            time.sleep(min(POLL_S, max(0.0, give_up_at - time.monotonic())))
        return seconds > 0

    def _broken(self) -> bool:
        return (
            any(client.error for client in self.clients)
            or any(load.errors for load in self.loads)
            or any(reader.ended() is not None for reader in self.readers.values())
            or (self.stream is not None and self.stream.error is not None)
        )

    def settle(self) -> None:
        """Wait until everybody has everything, or has not come further for long."""
        for client in self.clients:
            client.hurry()
        give_up_at = time.monotonic() + SETTLE_S
        while time.monotonic() < give_up_at and not self._broken():
            numbers = range(len(self.sources))
            if not any(each.missing() for n in numbers for each in self._followers(n)):
                return
            time.sleep(POLL_S)

    def compare_lake(self) -> None:
        """Compare the lake with its source, which nobody writes to any more."""
        if self.lake is None or self._broken():
            return
        tables = self.loads[0].tables()
        problems = self.result.problems
        if problem := self.lake.settle(tables):
            problems.append(f"{problem}\n{self.lake.log_end()}")
            return
        if problem := self.lake.verify(tables):
            problems.append(problem)
        found, equal = self.lake.differences(tables)
        problems += [f"lake: {each}" for each in found[:20]]
        self.result.facts.append(
            f"lake: {len(tables)} tables, {equal} values compared beside verify"
        )

    def prove_loss(self) -> None:
        """Purge what one client of each source needs: it has to get an error."""
        if self._broken():
            return
        for reader in self.readers.values():
            reader.kill()  # all is compared, and they need the files, too
        for each in self.lost:
            each.purge()
        for node in self.nodes:
            node.stop()
        for node in self.nodes:
            node.launch()
        found = [problem for each in self.lost if (problem := each.verdict())]
        self.result.problems += found
        if not found:
            self.result.facts.append("who lost changes by a purge got an error")

    def compare(self) -> None:
        """Say what is missing or wrong."""
        result, broken = self.result, self._broken()
        for client in self.clients:
            client.stop()
            follower = client.follower
            result.facts.append(
                f"{client.name}: {len(follower.order)} items, {follower.repeated} "
                f"arrived again after {follower.resumes} resumes; "
                f"refused: {client.refusals}"
            )
            if client.error is not None:
                result.problems.append(f"{client.error!r:.100} {client.error}")
        if self.stream is not None:
            if self.stream.error is not None:
                result.problems.append(f"{self.stream.error}")
            for follower in self.stream.followers.values():
                result.facts.append(f"{follower.name}: {len(follower.order)} items")
            if self.stream.busy:
                result.facts.append(
                    f"Spark stream: started again {self.stream.busy} times, as Spark "
                    "did not wait long enough for a busy machine"
                )
        for load in self.loads:
            result.facts.append(f"{load.schema}: {dict(load.did)}")
            result.problems += [f"{load.schema}: {each!r}" for each in load.errors]
        result.problems += ended({**self.readers, **{n.name: n for n in self.nodes}})
        for number, ledger in enumerate(self.ledgers):
            followers = self._followers(number)
            result.problems += never_committed(ledger, followers)
            result.problems += other_orders(followers)
            if not broken:
                result.problems += missing(followers)
        result.problems += excesses(self.sampler.samples, LIMITS)

    def _followers(self, number: int) -> list[Follower]:
        """Return all followers of one source, those of its clients first."""
        source = self.sources[number]
        found = [
            client.follower
            for index, client in enumerate(self.clients)
            if index // len(HABITS) == number
        ]
        if self.stream is not None:
            found.append(self.stream.followers[source.flavour])
        return found

    # --- what others ask for ----------------------------------------------------------

    def _purgeable(self, source: Source) -> str:
        return self._binlogs[self.sources.index(source)].purgeable()

    def _binlogs_of(self, number: int) -> Binlogs:
        """Return what watches the files of a source; the mirror reads the first one."""
        source = self.sources[number]
        subscribers = int(self.stream is not None)
        subscribers += int(self.lake is not None and number == 0)
        return Binlogs(
            source,
            self.ledgers[number],
            self.nodes,
            lambda: self._followers(number),
            subscribers,
        )

    def _pids(self) -> dict[str, int | None]:
        found = {node.name: node.pid for node in self.nodes}
        found |= {name: reader.pid for name, reader in self.readers.items()}
        return found

    def _lags(self) -> dict[str, float]:
        """Return how long before the newest commit each follower's newest one was."""
        found = {}
        for number, ledger in enumerate(self.ledgers):
            items = ledger.items
            first, newest = (items[0], items[-1]) if items else (None, None)
            for follower in self._followers(number):
                if first is None or newest is None:
                    continue
                newest_at = follower.newest_at or first.committed_at
                found[follower.name] = max(0.0, newest.committed_at - newest_at)
        return found


def free_port() -> int:
    """Return a port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
