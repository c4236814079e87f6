"""Groups of real sources merged into one destination, and a checker of their stream.

::

    def test_x(make_group, rng):
        group = make_group(server, another)
        group.pipeline.start()
        ...
"""

from __future__ import annotations

import contextlib
import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from fix_pipeline import DESTINATION
from ledger import Checker, Writer
from load import Load
from servers import PrivateServer, Unavailable

from canal_server.client import EntryType
from canal_server.model.znodes import destination_path

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from fix_pipeline import Pipeline
    from fix_proxy import Proxy
    from servers import Server

    from canal_server.client import CanalClient, Entry
    from canal_server.doors.zookeeper import ZooKeeper

GROUP_WIRING = "classpath:spring/group-instance.xml"


class Branch:
    """One source of a group: what is written to it and what arrived of it."""

    def __init__(self, number: int, server: Server, writer: Writer) -> None:
        self.number = number
        self.server = server
        self.writer = writer
        self.checker = Checker(writer, begins=server.flavour == "mysql")
        ((server_id,),) = server.execute("SELECT @@server_id")
        self.server_ids = {int(server_id)}
        self.ports = {server.port}

    @classmethod
    def like(cls, other: Branch) -> Branch:
        """Return one more of the same, for another client."""
        made = cls(other.number, other.server, other.writer)
        made.ports = other.ports
        return made


class Group:
    """Sources with a writer each, and the pipeline that merges them."""

    def __init__(self, pipeline: Pipeline, branches: list[Branch]) -> None:
        self.pipeline = pipeline
        self.branches = branches
        self.nodes: ZooKeeper | None = None  # where the positions are, instead of files
        self.turns = 0  # how often the stream went from one source to another
        self._open: Branch | None = None  # whose transaction goes on
        self._last: Branch | None = None

    def take(self, entries: Iterable[Entry]) -> None:
        """Check entries: each source's by its own checker, transactions contiguous."""
        for entry in entries:
            server_id = entry.header.server_id
            (branch,) = [b for b in self.branches if server_id in b.server_ids]
            assert self._open in (None, branch), (
                f"an entry of master{branch.number} in a transaction of another"
            )
            kind = entry.entry_type
            is_end = kind == EntryType.TRANSACTIONEND
            is_row = kind == EntryType.ROWDATA and bool(entry.row_change().row_datas)
            if kind == EntryType.TRANSACTIONBEGIN or is_row:
                self._open = branch
            elif is_end:
                self._open = None
            self.turns += self._last not in (None, branch)
            self._last = branch
            branch.checker.take([entry])

    def resume(
        self, branch: Branch, *, exact: bool = False, client_id: int = 1001
    ) -> None:
        """Allow a source's stream to begin again: where it is stored, or anywhere."""
        if self._open is branch:
            self._open = None
        position = self.positions(client_id).get(branch.number) if exact else None
        begin = branch.checker.resumes_at.get(
            (position["journalName"], position["position"]) if position else ("", 0)
        )
        if begin is None:
            branch.checker.resume()
        else:
            branch.checker.resume(begin, begin)

    def positions(self, client_id: int = 1001) -> dict[int, dict[str, Any]]:
        """Return the stored position of a client in each source, by number.

        That of its cursor goes before what stands beside it, which is written first.
        """
        in_nodes = self.nodes is not None
        beside, cursor = (self._in_nodes if in_nodes else self._in_files)(client_id)
        found = {each["number"]: each["position"]["postion"] for each in beside}
        if cursor:
            port = cursor["identity"]["sourceAddress"]["port"]
            for branch in self.branches:
                if port in branch.ports:
                    found[branch.number] = cursor["postion"]
        return found

    def _in_files(self, client_id: int) -> tuple[list[Any], Any]:
        """Return what stands beside a cursor in its file, and the cursor."""
        file = self.pipeline.meta_file
        beside: list[Any] = []
        cursor = None
        for client in _content(file.with_name("meta.dat.sources"), "clients"):
            if client["clientId"] == client_id:
                beside = client["sources"]
        for client in _content(file, "clientDatas"):
            if client["clientIdentity"]["clientId"] == client_id:
                cursor = client.get("cursor")
        return beside, cursor

    def _in_nodes(self, client_id: int) -> tuple[list[Any], Any]:
        """Return what stands beside a cursor in its node, and the cursor."""
        assert self.nodes is not None, "they are in ZooKeeper"
        path = f"{destination_path(DESTINATION)}/{client_id}/cursor"
        beside, cursor = (self.nodes.read(each) for each in (f"{path}.sources", path))
        return (
            json.loads(beside.data or b"")["sources"] if beside else [],
            json.loads(cursor.data or b"null") if cursor else None,
        )

    def receive(self, client: CanalClient, *, batch_size: int = 100) -> None:
        """Receive and ack until all arrived that is written so far."""
        expected = [len(branch.writer.transactions) for branch in self.branches]
        if self._has(expected):
            return
        self.receive_until(client, lambda: self._has(expected), batch_size=batch_size)

    def receive_until(
        self, client: CanalClient, enough: Callable[[], bool], *, batch_size: int = 100
    ) -> None:
        """Receive and ack until it is enough."""
        for message in self.pipeline.messages(client, batch_size=batch_size):
            self.take(message.entries)
            client.ack(message.id)
            if enough():
                break
        self.pipeline.settle(client)

    def _has(self, expected: list[int]) -> bool:
        pairs = zip(self.branches, expected, strict=True)
        return all(branch.checker.has(count) for branch, count in pairs)

    @contextlib.contextmanager
    def load(self) -> Iterator[None]:
        """Write to all sources inside."""
        with ExitStack() as running:
            for branch in self.branches:
                running.enter_context(Load(branch.writer))
            yield

    def wait_until_running(self) -> None:
        """Wait until all sources are read."""
        self.pipeline.wait_for_status(lambda status: status.get("state") == "running")

    def source(self, number: int) -> dict[str, Any]:
        """Return what the status says of one source."""
        (found,) = [
            each
            for each in self.pipeline.status()["sources"]
            if each["name"] == f"master{number}"
        ]
        return dict(found)


def _content(file: Path, key: str) -> list[Any]:
    """Return what a file has under a key, nothing without the file."""
    return list(json.loads(file.read_text())[key]) if file.exists() else []


@pytest.fixture
def make_group(
    make_pipeline: Callable[..., Pipeline], rng: random.Random
) -> Callable[..., Group]:
    """Give `make(schema, servers, settings, proxies=…)`; the start is left to the test.

    Each source begins at its current end, a table of its own is made in the schema.
    """

    def make(
        schema: str,
        servers: list[Server],
        settings: dict[str, object] | None = None,
        *,
        proxies: dict[int, Proxy] | None = None,
    ) -> Group:
        pipeline = make_pipeline(servers[0], schema)
        sources: dict[str, object] = {
            "canal.instance.master.address": None,
            "canal.instance.master.journal.name": None,
            "canal.instance.master.position": None,
        }
        branches = []
        for number, server in enumerate(servers, 1):
            key = f"canal.instance.master{number}"
            proxy = (proxies or {}).get(number)
            file, offset = server.binlog_position()
            host = "127.0.0.1" if proxy else server.host
            port = proxy.port if proxy else server.port
            sources |= {
                f"{key}.address": f"{host}:{port}",
                f"{key}.journal.name": file,
                f"{key}.position": offset,
            }
            writer = Writer(server, schema, rng, table=f"ledger{number}")
            branch = Branch(number, server, writer)
            branch.ports.add(port)
            branches.append(branch)
        pipeline.configure(sources | (settings or {}), wiring=GROUP_WIRING)
        return Group(pipeline, branches)

    return make


@pytest.fixture(scope="module")
def second_mysql() -> Iterator[PrivateServer]:
    """Give one more MySQL, beside the one that all tests share."""
    try:
        server = PrivateServer("mysql").start()
    except Unavailable as error:
        pytest.skip(f"no second mysql: {error}")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(
    params=[
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=[pytest.mark.mysql, pytest.mark.mariadb]),
    ]
)
def two_sources(request: pytest.FixtureRequest, mysql_server: Server) -> list[Server]:
    """Give two MySQLs, then a MySQL and a MariaDB."""
    fixture = "second_mysql" if request.param == "mysql" else "mariadb_server"
    return [mysql_server, request.getfixturevalue(fixture)]


@pytest.fixture
def common_schema(two_sources: list[Server], database: str) -> Iterator[str]:
    """Give the name of a fresh schema that is on both sources."""
    for server in two_sources:
        server.execute(
            f"CREATE DATABASE IF NOT EXISTS {database} CHARACTER SET utf8mb4"
        )
    yield database
    for server in two_sources:
        server.execute(f"DROP DATABASE IF EXISTS {database}")
