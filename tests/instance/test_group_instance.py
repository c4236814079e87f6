"""A group of sources, wired: from real servers to what the server gets."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from fix_source_access import PATIENCE_S
from fix_store import eventually, in_thread
from golden_form import entries_of

from canal_server.config.schema import (
    BufferConfig,
    HostConfig,
    HostPort,
    InstanceConfig,
    PositionConfig,
    SourceConfig,
    TableMetaConfig,
    Wiring,
)
from canal_server.core.table_ids import TableIds
from canal_server.errors import CanalError, ClientError, StoreError
from canal_server.instance import stages
from canal_server.instance.instance import Instance
from canal_server.instance.merged_pipeline import MergedPipeline
from canal_server.model.entry import EntryType
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.mysql.binlogs import BinaryLog
from canal_server.pipeline.source_merge import Merge
from canal_server.runtime.lifecycle import Deadline
from canal_server.runtime.log_context import Subject, logged_subject
from canal_server.source.begin.position_loss import LostPosition
from canal_server.source.read.available_positions import SourceFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fix_proxy import Proxy
    from servers import Server

    from canal_server.protocol.entry_messages import Entry

CLIENT = ClientIdentity("merged", 1001)
NOWHERE = HostConfig(address=HostPort("127.0.0.1", 1))


def config_for(folder: Path, *servers: Server) -> InstanceConfig:
    """Return the settings of a group of these servers, of nobody without any."""
    sources = tuple(
        SourceConfig(
            number=number,
            master=HostConfig(address=HostPort(server.host, server.port)),
            user=server.user,
            password=server.password,
        )
        for number, server in enumerate(servers, 1)
    ) or (SourceConfig(number=1, master=NOWHERE),)
    return InstanceConfig(
        destination="merged",
        source=sources[0],
        group=sources,
        position=PositionConfig(wiring=Wiring.FILE, data_dir=folder),
        table_meta=TableMetaConfig(dir=folder / "merged"),
        buffer=BufferConfig(transaction_size=8),
    )


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., Instance]]:
    """Give `running(server, …, through={number: proxy}, **changes)`: a started group.

    The changes are those of settings of all its sources.
    """
    started: list[Instance] = []

    def start(
        *servers: Server, through: dict[int, Proxy] | None = None, **changes: object
    ) -> Instance:
        config = config_for(tmp_path, *servers)
        group = tuple(replace(each, **changes) for each in config.group)  # type: ignore[arg-type]
        config = replace(config, group=group)
        for number, proxy in (through or {}).items():
            host = HostConfig(address=HostPort("127.0.0.1", proxy.port))
            sources = list(config.group)
            sources[number - 1] = replace(sources[number - 1], master=host)
            config = replace(config, group=tuple(sources))
        instance = Instance(config)
        started.append(instance)
        instance.start()
        return instance

    yield start
    for instance in started:
        instance.request_stop()
        assert instance.join(Deadline(PATIENCE_S))


def subscribe(instance: Instance, client: ClientIdentity = CLIENT) -> None:
    """Do what the server does for a subscription."""
    instance.check_filter(client.filter)
    instance.meta.subscribe(client)
    instance.subscribed(client)


def entries_from(instance: Instance) -> Iterator[Entry]:
    """Yield the entries that come, each batch acked before the next."""
    deadline = Deadline(PATIENCE_S)
    while True:
        batch = instance.store.get(CLIENT.client_id, 100, deadline.remaining_s())
        assert batch is not None, "nothing more arrived"
        yield from entries_of(b"".join(batch.slices))
        instance.store.ack(CLIENT.client_id, batch.last_sequence)


def rows_of(instance: Instance, expected: int) -> list[Entry]:
    """Return the row entries, when there are so many; all is acked."""
    found: list[Entry] = []
    deadline = Deadline(PATIENCE_S)
    while len(found) < expected:
        batch = instance.store.get(CLIENT.client_id, 1000, deadline.remaining_s())
        assert batch is not None, f"{len(found)} of {expected} entries arrived"
        found += [
            entry
            for entry in entries_of(b"".join(batch.slices))
            if entry.entry_type == EntryType.ROWDATA and entry.row_change().row_datas
        ]
        instance.store.ack(CLIENT.client_id, batch.last_sequence)
    return found


class Subjects(logging.Handler):
    """Notes what the lines of threads are about."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Subject] = {}  # by the name of the thread

    def emit(self, record: logging.LogRecord) -> None:
        """Note a line."""
        self.found[str(record.threadName)] = logged_subject()


def test_lines_of_a_source_are_about_the_group(tmp_path: Path) -> None:
    """They are in the log of the destination, and have its level."""
    instance, handler = Instance(config_for(tmp_path)), Subjects()
    logging.getLogger().addHandler(handler)
    try:
        instance.start()
        eventually(lambda: "pump-merged/master1" in handler.found)
    finally:
        logging.getLogger().removeHandler(handler)
        instance.request_stop()
        assert instance.join(Deadline(PATIENCE_S))
    assert handler.found["pump-merged/master1"] == Subject("merged")


def test_which_pipelines(tmp_path: Path) -> None:
    """Sources of a group take turns; one that is alone does not."""
    config = config_for(tmp_path)
    assert isinstance(Instance(config).pipelines[1], MergedPipeline)
    single = replace(config, group=(), source=SourceConfig(master=NOWHERE))
    (pipeline,) = Instance(single).pipelines.values()
    assert not isinstance(pipeline, MergedPipeline)


def test_status(tmp_path: Path, running: Callable[..., Instance]) -> None:
    """It shows of each source, and of all in short."""
    instance = running()
    eventually(lambda: instance.status()["error"])
    status = instance.status()
    assert status["state"] in ("connecting", "waiting")
    assert str(status["error"]).startswith(
        "master1: ConnectionLost: cannot connect to 127.0.0.1:1"
    )
    sources = status["sources"]
    assert isinstance(sources, list)
    (source,) = sources
    assert source["name"] == "master1"
    assert source["reads"] == "master 127.0.0.1:1"


def test_positions_before_anything_is_acked(
    mysql_server: Server,
    mariadb_server: Server,
    running: Callable[..., Instance],
) -> None:
    """A client has a position in each source as soon as it is read, and a cursor."""
    instance = running(mysql_server, mariadb_server)
    subscribe(instance)
    eventually(lambda: len(instance.meta.source_positions(CLIENT)) == 2)
    positions = instance.meta.source_positions(CLIENT)
    assert [positions[number].identity.port for number in (1, 2)] == [
        mysql_server.port,
        mariadb_server.port,
    ]
    assert instance.meta.cursor(CLIENT) in positions.values()
    assert instance.resume_source_positions(1001) == positions
    position = instance.resume_position(1001)
    cursor = instance.meta.cursor(CLIENT)
    assert cursor
    assert position == cursor.position


def test_link_lost_for_long_in_a_transaction(
    mysql_server: Server,
    mariadb_server: Server,
    database: str,
    *,
    running: Callable[..., Instance],
    make_proxy: Callable[[Server], Proxy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others continue, and the transaction comes again as a whole."""
    monkeypatch.setattr(stages, "Merge", partial(Merge, grace_s=0.1))
    for server in (mysql_server, mariadb_server):
        server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY, b TEXT)")
    proxy = make_proxy(mysql_server)
    instance = running(mariadb_server, mysql_server, through={2: proxy})
    subscribe(instance)
    eventually(lambda: instance.status()["state"] == "running")
    table = f"{database}.t"
    rows = [f"INSERT INTO {table} VALUES ({n}, REPEAT('x', 500))" for n in range(99)]

    with proxy.refuse(), proxy.cut(30_000):
        mysql_server.execute("BEGIN", *rows, "COMMIT")
        proxy.wait_for_cuts(1, PATIENCE_S)
        # Else the other's may be first.
        eventually(lambda: instance.pipelines[2].sink.counters.rows > 0)
        mariadb_server.execute(f"INSERT INTO {database}.t VALUES (1, 'other')")
        coming = entries_from(instance)
        before = []
        for entry in coming:
            if entry.header.server_id != mysql_server.port:
                break
            before.append(entry.entry_type)
        # Part of the transaction, in which nobody was until it lost its turn.
        assert EntryType.TRANSACTIONBEGIN in before
        assert before[-1] == EntryType.ROWDATA

    kinds = [each.entry_type for each in coming_until_end(coming, mysql_server.port)]
    assert kinds[0] == EntryType.TRANSACTIONBEGIN
    assert kinds[1:-1] == [EntryType.ROWDATA] * 99


def coming_until_end(coming: Iterator[Entry], server_id: int) -> Iterator[Entry]:
    """Yield the entries of a server up to the first END."""
    for entry in coming:
        if entry.header.server_id != server_id:
            continue
        yield entry
        if entry.entry_type == EntryType.TRANSACTIONEND:
            return


def test_tables_of_many_names(
    mysql_server: Server,
    mariadb_server: Server,
    database: str,
    running: Callable[..., Instance],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When names are too many, old ones are dropped once no source has any left."""
    numbers = TableIds(names_max=3)
    monkeypatch.setattr(stages, "TableIds", lambda: numbers)
    instance = running(mysql_server, mariadb_server)
    subscribe(instance)
    eventually(lambda: instance.status()["state"] == "running")
    for turn in range(3):
        for server in (mysql_server, mariadb_server):
            for number in range(2):
                name = f"{database}.t{turn}_{number}"
                server.execute(
                    f"CREATE TABLE {name} (a INT PRIMARY KEY)",
                    f"INSERT INTO {name} VALUES ({turn})",
                )
        found = rows_of(instance, 4)
        tables = sorted(entry.header.table_name for entry in found)
        assert tables == sorted([f"t{turn}_{number}" for number in range(2)] * 2)
    assert numbers.epoch > 0
    lowest, _ = numbers.since(0)
    assert lowest > 1


def end_of(server: Server) -> LogPosition:
    """Return the end of a server's binlog, as a position to move clients to."""
    file, offset = server.binlog_position()
    return LogPosition(
        LogIdentity(server.host, server.port),
        EntryPosition(file, offset, included=True),
    )


def test_a_move_begins_where_clients_stand(
    mysql_server: Server,
    mariadb_server: Server,
    database: str,
    running: Callable[..., Instance],
) -> None:
    """The source that is not moved is read from what the filter rejected last.

    Who is not moved keeps its position in the other one.
    """
    instance = running(mysql_server, mariadb_server)
    subscribe(instance)
    other = ClientIdentity("merged", 2, rf"{database}\.nothing")
    subscribe(instance, other)
    eventually(lambda: instance.status()["state"] == "running")
    before = instance.meta.source_positions(other)
    for server in (mysql_server, mariadb_server):
        server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    rows = f"INSERT INTO {database}.t VALUES "
    for number in range(5):
        for server in (mysql_server, mariadb_server):
            server.execute(f"{rows}({number})")
    rows_of(instance, 10)
    while (batch := instance.store.get(other.client_id, 99, 0.0)) is not None:
        # Begins and ends; only the store takes note.
        instance.store.ack(other.client_id, batch.last_sequence)
    latest = end_of(mysql_server)
    user = "the delivery to kafka"
    instance.on_connect(other.client_id, user)
    instance.seek([CLIENT.client_id], latest)
    # The new ring knows it, too.
    assert instance._stages.ring.users == {other.client_id: user}
    assert instance.meta.source_positions(CLIENT)[1] == latest
    for number in (1, 2):
        stands = instance.meta.source_positions(other)[number]
        assert stands.position.order() > before[number].position.order()
    eventually(lambda: instance.status()["state"] == "running")
    for server in (mysql_server, mariadb_server):
        server.execute(f"{rows}(9)")
    found = [entry.row_change().row_datas[0].after for entry in rows_of(instance, 2)]
    assert found == [{"a": "9"}, {"a": "9"}]


def test_who_is_not_moved(
    mysql_server: Server, running: Callable[..., Instance]
) -> None:
    """Unknown clients, and positions of servers that are not read, are refused."""
    standby = LogIdentity("192.0.2.2", 3306)
    instance = running(
        mysql_server,
        standby=HostConfig(address=HostPort("192.0.2.2", 3306)),
    )
    subscribe(instance)
    eventually(lambda: instance.status()["state"] == "running")
    store, here = instance.store, end_of(mysql_server)
    with pytest.raises(ClientError, match="client 7 is not subscribed to merged"):
        instance.seek([CLIENT.client_id, 7], here)
    elsewhere = replace(here, identity=LogIdentity("192.0.2.1", 3306))
    with pytest.raises(ClientError, match="is in none of them"):
        instance.seek([CLIENT.client_id], elsewhere)
    of_standby = replace(here, identity=standby)
    with pytest.raises(CanalError, match="that destination merged/master1 reads, 127"):
        instance.seek([CLIENT.client_id], of_standby)
    assert instance.store is store
    assert instance.status()["state"] == "running"


def test_a_stop_ends_a_move(
    mysql_server: Server, running: Callable[..., Instance]
) -> None:
    """A group that is asked to stop makes no new stages, and ends."""
    instance = running(mysql_server)
    subscribe(instance)
    eventually(lambda: instance.status()["state"] == "running")
    here = end_of(mysql_server)
    with instance.steady():
        moving = in_thread(instance.seek, [CLIENT.client_id], here)
        eventually(lambda: instance.status()["state"] == "stopped")
        stopping = in_thread(instance.request_stop)
        instance._stopping = True  # as it is once the stop gets here
    with pytest.raises(CanalError, match="is being stopped"):
        moving.result(PATIENCE_S)
    stopping.result(PATIENCE_S)


def test_a_move_that_fails_midway(
    mysql_server: Server,
    running: Callable[..., Instance],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A group whose stages ended for a move that failed says so, and can end."""
    instance = running(mysql_server)
    subscribe(instance)
    eventually(lambda: instance.status()["state"] == "running")

    def fail() -> None:
        raise RuntimeError("can't start new thread")

    assert instance.is_whole()
    monkeypatch.setattr(instance, "_make_stages", fail)
    with pytest.raises(RuntimeError, match="can't start"):
        instance.seek([CLIENT.client_id], end_of(mysql_server))
    assert not instance.is_whole()


@pytest.mark.parametrize("resets", [False, True], ids=["refused", "moved"])
def test_a_client_whose_position_in_one_source_is_purged(
    running: Callable[..., Instance], *, resets: bool
) -> None:
    """That source begins at the oldest position left; the client alone pays for it."""
    group = running(auto_reset_latest=resets)
    pump = group.pipelines[1].pump
    server = pump.identity
    dead, live = CLIENT, ClientIdentity("merged", 1002)
    files = SourceFiles((BinaryLog("bin.000003", 500),))
    at_position = {dead: ("bin.000001", 4), live: ("bin.000003", 90)}
    for client, (file, offset) in at_position.items():
        position = LogPosition(server, EntryPosition(file, offset, 1000, 1))
        subscribe(group, client)
        group.meta.update_source_positions(client, {1: position})
        group.meta.update_cursor(client, position)
    refused, left = (group.meta.cursor(each) for each in (dead, live))
    assert refused is not None
    assert pump._events.on_position_lost(LostPosition(refused, server, files))
    assert pump.stored() == left
    moved = group.meta.cursor(dead), group.meta.source_positions(dead)[1]
    if resets:
        assert moved == (left, left)
        assert not group.why_lost(dead.client_id)
        return
    assert moved == (refused, refused)
    assert "bin.000001 to bin.000002" in group.why_lost(dead.client_id)
    assert group.status()["lost_clients"] == {"1001": group.why_lost(1001)}
    assert not group.why_lost(live.client_id)
    subscribe(group, dead)  # holds nothing, and nobody up
    assert [each.identity for each in group.cursors().clients] == [dead, live]
    assert group.resume_source_positions(dead.client_id) == {}
    with pytest.raises(StoreError):
        group.store.get(dead.client_id, 1, 0.0)
    group.unsubscribed(dead)
    assert not group.why_lost(dead.client_id)


def test_all_positions_in_one_source_are_purged(
    running: Callable[..., Instance],
) -> None:
    """Where it then begins is where the clients stand, in that source alone."""
    group = running(auto_reset_latest=True)
    pump = group.pipelines[1].pump
    server = pump.identity
    deleted = LogPosition(server, EntryPosition("bin.000001", 4, 1000, 1))
    subscribe(group)
    group.meta.update_source_positions(CLIENT, {1: deleted})
    group.meta.update_cursor(CLIENT, deleted)
    files = SourceFiles((BinaryLog("bin.000003", 500),))
    assert not pump._events.on_position_lost(LostPosition(deleted, server, files))
    end = EntryPosition("bin.000003", 500, 2000, 1, included=True)
    pump._events.on_begin(end)
    assert group.meta.cursor(CLIENT) == group.meta.source_positions(CLIENT)[1]
    assert group.meta.cursor(CLIENT) == LogPosition(server, end)
