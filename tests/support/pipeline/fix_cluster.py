"""Two servers that share a destination by ZooKeeper, and what their clients see.

::

    def test_x(cluster):
        with cluster.following() as seen:
            cluster.one.kill()
            seen.wait_for_run(cluster.two)

Each server has a client of its own that asks nobody else, all under one client id, and
all the time. So a server that delivers when it must not is found out.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import pytest
from fix_pipeline import DESTINATION, UNIT_S
from fix_proxy import Proxy
from load import Load

from canal_server.doors.zookeeper import ZooKeeper
from canal_server.errors import ClientError, NodeMissing, VersionConflict
from canal_server.model.running import Running, decode
from canal_server.model.znodes import running_path
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fix_pipeline import Pipeline, Settings
    from ledger import Checker, Mark
    from servers import Server
    from zookeepers import PrivateZooKeeper, ZooKeepersOfOneMind

    from canal_server.client import CanalClient, Message

WIRING = "classpath:spring/default-instance.xml"
SESSION_S = 6.0  # outlives a machine that stands still for some seconds
LONG_SESSION_S = 10.0  # outlives the choice of a leader among ZooKeepers
DELAY_S = 0.3
AGAIN_S = 0.05  # between two tries of a client that is refused


@dataclass
class Run:
    """What a server delivered on one connection, before there was another one."""

    server: Pipeline
    client: CanalClient
    began_s: float
    acks: int = 1  # accepted ones


@dataclass
class Seen:
    """What the clients were given, checked as it comes.

    The first batch of a connection counts when its ack was accepted: then its server
    runs the destination, as far as it knows. An answer that was under way when its
    server lost the lease counts for nothing, as its ack does.
    """

    checker: Checker
    runs: list[Run] = field(default_factory=list)
    error: BaseException | None = None
    _acked: Mark | None = None  # after the last accepted ack
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def took(self, client: CanalClient, message: Message) -> bool:
        """Take a batch; false when it counts only with its ack."""
        with self._changed:
            if not self.runs or self.runs[-1].client is not client:
                return False
            self.checker.take(message.entries)
            return True

    def accepted(
        self, server: Pipeline, client: CanalClient, late: Message | None
    ) -> None:
        """Take note of an accepted ack, of this batch if that was not accepted."""
        with self._changed:
            if late is None:
                # It was sent while this was the last run: where another one began
                # since, it may well have been accepted before that.
                if self.runs[-1].client is client:
                    self.runs[-1].acks += 1
            else:
                if self.runs:
                    self._resume(server)
                self.runs.append(Run(server, client, time.monotonic()))
                self.checker.take(late.entries)
            if self.runs[-1].client is client:
                self._acked = self.checker.mark()
            self._changed.notify_all()

    def _resume(self, server: Pipeline) -> None:
        """Expect another run; one of the same server may go on amid a transaction.

        So it does where it only refused to answer while it had no proof of its lease.
        """
        if self.runs[-1].server is server:
            self.checker.resume(amid=True, acked=self._acked)
        else:
            self.checker.resume()

    def failed(self, error: BaseException) -> None:
        """Keep what went wrong in a client's thread."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something was seen."""
        with self._changed:
            self._changed.wait_for(lambda: self.error or condition(), 6 * UNIT_S)
            if self.error:
                raise self.error
            assert condition(), f"{what} never happened; seen: {self.runs}"

    def wait_for_run(self, server: Pipeline) -> float:
        """Wait until a server delivers; return when it began to."""
        self.wait_for(
            lambda: bool(self.runs) and self.runs[-1].server is server,
            f"a run of {server.conf.name}",
        )
        return self.runs[-1].began_s

    def has_run(self, server: Pipeline, timeout_s: float) -> bool:
        """Return whether a server delivers, at the latest after this time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self.error is not None or self.runs[-1].server is server,
                timeout_s,
            )

    def wait_for_acks(self, count: int) -> None:
        """Wait until the server that delivers now accepted so many more acks."""
        expected = self.acks() + count
        self.wait_for(lambda: self.acks() >= expected, f"{count} acks")

    def acks(self) -> int:
        """Return how many acks were accepted by the last server and those before."""
        return sum(run.acks for run in self.runs)

    def servers(self) -> list[str]:
        """Return who delivered, in this order."""
        names = [run.server.conf.name for run in self.runs]
        return [name for name, _ in itertools.groupby(names)]


class Follower:
    """A client that asks one server only, again and again, until it is stopped."""

    def __init__(
        self, server: Pipeline, seen: Seen, seed: int, again_s: float = AGAIN_S
    ) -> None:
        self._server = server
        self._again_s = again_s
        self._seen = seen
        self._rng = random.Random(seed)
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
            while not self._end.wait(self._again_s):
                # Elsewhere, starting, killed or paused: it is asked again.
                with (
                    contextlib.suppress(OSError, ClientError),
                    self._server.client(timeout_s=UNIT_S) as client,
                ):
                    self._follow(client)
        except BaseException as error:  # noqa: BLE001  # shown by the test's own thread
            self._seen.failed(error)

    def _follow(self, client: CanalClient) -> None:
        late: Message | None = None
        acked = False
        while not self._end.is_set():
            message = client.get(self._rng.randint(1, 200), 0.1)
            if acked:  # else an error had come instead
                self._seen.accepted(self._server, client, late)
            acked, late = bool(message), None
            if message:
                if not self._seen.took(client, message):
                    late = message
                client.ack(message.id)


class Cluster:
    """Two servers, each with a way of its own to ZooKeeper."""

    pause_s = 0.05  # between two writes of the load, which else takes all of a core
    again_s = AGAIN_S

    def __init__(
        self,
        servers: list[Pipeline],
        ways: list[Proxy],
        zookeeper: ZooKeeper,
        rng: random.Random,
        source_way: Proxy | None = None,
    ) -> None:
        self.one, self.two = self.servers = servers
        self._ways = ways
        self._source_way = source_way
        self.zookeeper = zookeeper
        self._rng = rng

    def way(self, server: Pipeline) -> Proxy:
        """Return the way of a server to ZooKeeper."""
        return self._ways[self.servers.index(server)]

    @property
    def source_way(self) -> Proxy:
        """Return the way to MySQL of a cluster that was made with one."""
        assert self._source_way
        return self._source_way

    def other(self, server: Pipeline) -> Pipeline:
        """Return the other server."""
        return self.two if server is self.one else self.one

    def address(self, server: Pipeline) -> str:
        """Return how a server is called in ZooKeeper."""
        return f"127.0.0.1:{server.server_port}"

    def running(self) -> Running | None:
        """Return what the node of the destination says."""
        node = self.zookeeper.read(running_path(DESTINATION))
        return decode(node.data) if node else None

    def ask_for(self, server: Pipeline) -> None:
        """Ask another one that runs the destination to give it up, as an operator."""
        path = running_path(DESTINATION)
        node = self.zookeeper.read(path)
        running = decode(node.data) if node else None
        if node and running and running.address != self.address(server):
            assert node.data is not None
            asked_for = node.data.replace(b"true", b"false")
            # It may be given up just now: there is nobody to ask then.
            with contextlib.suppress(VersionConflict, NodeMissing):
                self.zookeeper.write(path, asked_for, node.version)

    def hand_over(self, server: Pipeline, seen: Seen) -> None:
        """Ask until a server runs the destination, as an operator would.

        Once is enough, unless the machine stands still: who was asked waits for one
        delay more than others, then it has it again.
        """
        for _ in range(6):
            self.ask_for(server)
            if seen.has_run(server, UNIT_S):
                return
        raise AssertionError(f"{server.conf.name} was asked for, and does not run")

    @contextlib.contextmanager
    def following(self) -> Iterator[Seen]:
        """Write transactions and follow them at both servers; then check it all."""
        writer = self.one.writer(self._rng)
        seen = Seen(self.one.checker(writer))
        with contextlib.ExitStack() as running:
            for server in self.servers:
                seed = self._rng.getrandbits(32)
                running.enter_context(Follower(server, seen, seed, self.again_s))
            with Load(writer, self.pause_s):
                yield seen
            everything = len(writer.transactions)
            seen.wait_for(lambda: seen.checker.has(everything), "the last transaction")
        assert seen.error is None
        print(
            f"{everything} transactions, {seen.checker.repeated} changes arrived again"
        )


@pytest.fixture
def _make_server(
    make_pipeline: Callable[..., Pipeline], mysql_server: Server, database: str
) -> Callable[..., Pipeline]:
    """Give `make(addresses, session_s, proxy, settings)`: one more, not started."""

    def make(
        addresses: str,
        session_s: float,
        proxy: Proxy | None = None,
        settings: Settings | None = None,
    ) -> Pipeline:
        server = make_pipeline(mysql_server, database, settings, proxy=proxy)
        server.configure(
            {
                "canal.zkServers": addresses,
                "canal.zookeeper.flush.period": 20,
                "canal.zookeeper.session.timeout.ms": int(session_s * 1000),
                "canal.zookeeper.takeover.delay.ms": int(DELAY_S * 1000),
            },
            wiring=WIRING,
        )
        return server

    return make


def observer_of(addresses: str, opened: contextlib.ExitStack) -> ZooKeeper:
    """Return a session of the test's own, which ends with the stack."""
    observer = ZooKeeper(addresses)
    observer.start()
    opened.callback(observer.close)
    observer.wait_until_connected(Stop())
    return observer


def _start(servers: list[Pipeline]) -> None:
    """Start both, so that the first one runs the destination."""
    servers[0].start()
    servers[0].process.wait_for_log("is run by this server")
    servers[1].start()


@pytest.fixture
def make_cluster(
    _make_server: Callable[..., Pipeline],
    own_zookeeper: PrivateZooKeeper,
    mysql_server: Server,
    rng: random.Random,
) -> Iterator[Callable[..., Cluster]]:
    """Give `make(session_s, settings)`: two servers on a ZooKeeper of their own.

    They have started, and `one` runs the destination. `to_source`: there is a way to
    MySQL that both go, too.
    """
    with contextlib.ExitStack() as opened:

        def way(host: str, port: int) -> Proxy:
            way = Proxy(host, port)
            opened.callback(way.close)
            return way

        def server(way: Proxy, *settings: object) -> Pipeline:
            server = _make_server(f"127.0.0.1:{way.port}", *settings)
            # Before its way ends: it is not to wait for it.
            opened.callback(server.close)
            return server

        def make(
            session_s: float,
            settings: Settings | None = None,
            *,
            to_source: bool = False,
        ) -> Cluster:
            observer = observer_of(own_zookeeper.servers, opened)
            ways = [way(own_zookeeper.host, own_zookeeper.port) for _ in range(2)]
            source = way(mysql_server.host, mysql_server.port) if to_source else None
            servers = [server(each, session_s, source, settings) for each in ways]
            _start(servers)
            return Cluster(servers, ways, observer, rng, source)

        yield make


@pytest.fixture
def cluster_of_three(
    _make_server: Callable[..., Pipeline],
    three_zookeepers: ZooKeepersOfOneMind,
    rng: random.Random,
) -> Iterator[Cluster]:
    """Give two servers that run on three ZooKeepers."""
    with contextlib.ExitStack() as opened:
        observer = observer_of(three_zookeepers.servers, opened)
        servers = []
        for _ in range(2):
            servers.append(_make_server(three_zookeepers.servers, LONG_SESSION_S))
            # Before the ZooKeepers end: it is not to wait for them.
            opened.callback(servers[-1].close)
        _start(servers)
        yield Cluster(servers, [], observer, rng)


@pytest.fixture
def cluster(make_cluster: Callable[[float], Cluster]) -> Cluster:
    """Give two servers whose sessions end soon."""
    return make_cluster(SESSION_S)
