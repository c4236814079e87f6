"""One destination, wired: from a real source to what the server gets."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fix_source_access import PATIENCE_S
from fix_store import eventually, in_thread
from golden_form import entries_of

from canal_server.config.schema import (
    FilterConfig,
    HostConfig,
    HostPort,
    InstanceConfig,
    PositionConfig,
    SourceConfig,
    TableMetaConfig,
    Wiring,
)
from canal_server.errors import CanalError, ClientError, ConfigError
from canal_server.instance.instance import Instance
from canal_server.model.entry import EntryType
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.file_meta import MetaFiles
from canal_server.position.memory_meta import MemoryMetaManager
from canal_server.position.stored_meta import StoredMetaManager
from canal_server.position.zookeeper_meta import MetaNodes
from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fix_proxy import Proxy
    from servers import Server

    from canal_server.protocol.entry_messages import Entry

CLIENT = 1001


def config_for(
    source: SourceConfig | None = None,
    *,
    data_dir: Path | None = None,
    **filters: object,
) -> InstanceConfig:
    """Return an instance's settings; cursors are in a file where a folder is given."""
    position = PositionConfig(
        wiring=Wiring.FILE if data_dir else Wiring.MEMORY,
        data_dir=data_dir or Path(),
    )
    nowhere = SourceConfig(master=HostConfig(address=HostPort("127.0.0.1", 1)))
    return InstanceConfig(
        destination="wired",
        source=source or nowhere,
        filter=FilterConfig(**filters),  # type: ignore[arg-type]
        position=position,
        # It would lie in the conf folder of the checkout.
        table_meta=TableMetaConfig(enable=False),
    )


def source_of(server: Server) -> SourceConfig:
    """Return how to reach a server."""
    return SourceConfig(
        master=HostConfig(address=HostPort(server.host, server.port)),
        user=server.user,
        password=server.password,
    )


def identity(expression: str = "", client_id: int = CLIENT) -> ClientIdentity:
    """Return a client of the instance."""
    return ClientIdentity("wired", client_id, expression)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[[InstanceConfig], Instance]]:
    """Give `running(config)`: a started instance, stopped after the test.

    The table history is in the test's folder, and the same for all of them.
    """
    started: list[Instance] = []
    table_meta = TableMetaConfig(dir=tmp_path / "history")

    def start(config: InstanceConfig) -> Instance:
        instance = Instance(replace(config, table_meta=table_meta))
        started.append(instance)
        instance.start()
        return instance

    yield start
    for instance in started:
        instance.request_stop()
        assert instance.join(Deadline(PATIENCE_S))


def subscribe(instance: Instance, client: ClientIdentity) -> None:
    """Do what the server does for a subscription."""
    instance.check_filter(client.filter)
    instance.meta.subscribe(client)
    instance.subscribed(client)


def reading(instance: Instance) -> bool:
    """Return whether the pump reads."""
    return instance.status()["state"] == "running"


def rows_of(instance: Instance, expected: int, client_id: int = CLIENT) -> list[Entry]:
    """Return the row entries of a client, when there are so many."""
    found: list[Entry] = []
    deadline = Deadline(PATIENCE_S)
    while len(found) < expected:
        batch = instance.store.get(client_id, 1000, deadline.remaining_s())
        assert batch is not None, f"{len(found)} of {expected} entries arrived"
        found += [
            entry
            for entry in entries_of(b"".join(batch.slices))
            if entry.entry_type == EntryType.ROWDATA and entry.row_change().row_datas
        ]
        instance.store.ack(client_id, batch.last_sequence)
        if batch.ack is not None:
            instance.meta.update_cursor(
                identity(client_id=client_id), instance.log_position(batch.ack)
            )
    return found


def tables(entries: list[Entry]) -> list[str]:
    """Return the tables of entries."""
    return [entry.header.table_name for entry in entries]


# --- on a real source ---------------------------------------------------------------


def test_from_the_source_to_a_client(
    source_server: Server, database: str, running: Callable[..., Instance]
) -> None:
    """What is committed reaches the client that subscribed; the status shows it."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    instance = running(config_for(source_of(source_server)))
    subscribe(instance, identity(rf"{database}\..*"))
    eventually(lambda: reading(instance))
    source_server.execute(f"INSERT INTO {database}.t VALUES (1)")
    (entry,) = rows_of(instance, 1)
    assert (entry.header.schema_name, entry.header.table_name) == (database, "t")
    status = instance.status()
    assert status["destination"] == "wired"
    assert status["clients"] == [CLIENT]
    assert status["waits_for"] == []
    assert status["error"] == ""
    assert status["rows"] == 1
    position = instance.log_position(EntryPosition("f", 4))
    assert position.identity == LogIdentity(source_server.host, source_server.port)


def test_uncertain_tables(
    mysql_server: Server, database: str, running: Callable[..., Instance]
) -> None:
    """A table is uncertain from a position before the history to its statement."""
    mysql_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    file, offset = mysql_server.binlog_position()
    for number in range(40):
        mysql_server.execute(f"INSERT INTO {database}.t VALUES ({number})")
    mysql_server.execute(f"ALTER TABLE {database}.t RENAME COLUMN a TO b")
    source = source_of(mysql_server)
    master = replace(source.master, journal_name=file, position=offset)
    config = config_for(replace(source, master=master), regex=rf"{database}\..*")
    # The ring is full long before the statement.
    config = replace(
        config,
        store=replace(config.store, buffer_size=16),
        buffer=replace(config.buffer, transaction_size=8),
    )
    instance = running(config)
    subscribe(instance, identity(rf"{database}\..*"))
    eventually(lambda: instance.status()["uncertain_tables"] is not None)
    uncertain = instance.status()["uncertain_tables"]
    assert uncertain == {
        "reason": f"columns are not certain at this position: {database}.t",
        "count": 1,
        "tables": [f"{database}.t"],
    }
    assert instance.reading()[1].sources[0].uncertain_tables == 1
    rows_of(instance, 40)
    eventually(lambda: instance.status()["uncertain_tables"] is None)
    assert instance.reading()[1].sources[0].uncertain_tables == 0


def test_filters_of_two_clients(
    source_server: Server, database: str, running: Callable[..., Instance]
) -> None:
    """Each client gets its own tables, and nobody those on the black list."""
    for name in ("t", "u", "v", "black"):
        source_server.execute(f"CREATE TABLE {database}.{name} (a INT PRIMARY KEY)")
    config = config_for(
        source_of(source_server),
        regex=rf"{database}\..*",
        black_regex=rf"{database}\.black",
    )
    instance = running(config)
    subscribe(instance, identity(rf"{database}\.t,{database}\.u", 1))
    subscribe(instance, identity(rf"{database}\.u,{database}\.black", 2))
    eventually(lambda: reading(instance))
    for name in ("black", "v", "t", "u", "black", "t"):
        source_server.execute(f"DELETE FROM {database}.{name}")
        source_server.execute(f"INSERT INTO {database}.{name} VALUES (1)")
    source_server.execute(f"INSERT INTO {database}.u VALUES (2)")
    assert tables(rows_of(instance, 5, 1)) == ["t", "u", "t", "t", "u"]
    assert tables(rows_of(instance, 2, 2)) == ["u", "u"]
    # Without clients the configured filter counts.
    instance.unsubscribed(identity(client_id=1))
    instance.unsubscribed(identity(client_id=2))
    source_server.execute(f"INSERT INTO {database}.v VALUES (3)")
    subscribe(instance, identity("", 3))
    assert tables(rows_of(instance, 1, 3))[-1:] == ["v"]


def test_a_move_begins_where_the_slowest_needs_something(
    mysql_server: Server, database: str, running: Callable[..., Instance]
) -> None:
    """What a client's filter rejected after its cursor is not read again."""
    for name in ("t", "u"):
        mysql_server.execute(f"CREATE TABLE {database}.{name} (a INT PRIMARY KEY)")
    instance = running(config_for(source_of(mysql_server)))
    subscribe(instance, identity(rf"{database}\.t", 1))
    subscribe(instance, identity(rf"{database}\.u", 2))
    eventually(lambda: reading(instance))
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (1)")
    mysql_server.execute(f"INSERT INTO {database}.u VALUES (1)")
    rows_of(instance, 1, 1)
    rows_of(instance, 1, 2)
    stood = instance.meta.cursor(identity(client_id=2))
    _, offset = mysql_server.binlog_position()
    for number in range(2, 30):
        mysql_server.execute(f"INSERT INTO {database}.t VALUES ({number})")
    rows_of(instance, 28, 1)
    assert instance.store.get(2, 1000, 0.0) is None  # it asks now and then
    assert instance.meta.cursor(identity(client_id=2)) == stood
    latest = EntryPosition(*mysql_server.binlog_position(), included=True)
    instance.seek([1], instance.log_position(latest))
    moved = instance.meta.cursor(identity(client_id=2))
    assert moved is not None
    assert moved.position.order() > (1, offset)
    eventually(lambda: reading(instance))
    mysql_server.execute(f"INSERT INTO {database}.u VALUES (2)")
    assert tables(rows_of(instance, 1, 2)) == ["u"]


def test_a_get_that_waits_during_a_move(
    mysql_server: Server, running: Callable[..., Instance]
) -> None:
    """It finds nothing, whether its client is moved or not; both stay connected."""
    instance = running(config_for(source_of(mysql_server)))
    clients = (1, 2)
    for client_id in clients:
        subscribe(instance, identity(client_id=client_id))
    eventually(lambda: reading(instance))
    begun = threading.Barrier(len(clients) + 1)
    old = instance.store

    def get_all(client_id: int) -> None:
        begun.wait(PATIENCE_S)
        while old.get(client_id, 1000, PATIENCE_S) is not None:
            pass

    pending = [in_thread(get_all, each) for each in clients]
    begun.wait(PATIENCE_S)
    latest = EntryPosition(*mysql_server.binlog_position(), included=True)
    instance.seek([1], instance.log_position(latest))
    for each in pending:
        each.result(PATIENCE_S)
    assert instance.store is not old


def test_who_is_not_moved(
    mysql_server: Server, running: Callable[..., Instance]
) -> None:
    """Unknown clients and positions of another source are refused."""
    instance = running(config_for(source_of(mysql_server)))
    subscribe(instance, identity())
    eventually(lambda: reading(instance))
    store = instance.store
    here = instance.log_position(EntryPosition("binlog.000001", 4))
    with pytest.raises(ClientError, match="client 7 is not subscribed to wired"):
        instance.seek([CLIENT, 7], here)
    elsewhere = LogPosition(LogIdentity("192.0.2.1", 3306), here.position)
    with pytest.raises(
        CanalError, match="is not a position of the source that destination"
    ):
        instance.seek([CLIENT], elsewhere)
    assert instance.store is store
    assert reading(instance)


def test_a_stop_ends_a_move(
    mysql_server: Server, running: Callable[..., Instance]
) -> None:
    """An instance that is asked to stop makes no new stages, and ends."""
    instance = running(config_for(source_of(mysql_server)))
    subscribe(instance, identity())
    eventually(lambda: reading(instance))
    here = instance.log_position(EntryPosition("binlog.000001", 4))
    with instance.steady():
        moving = in_thread(instance.seek, [CLIENT], here)
        eventually(lambda: instance.status()["state"] == "stopped")
        stopping = in_thread(instance.request_stop)
        instance._stopping = True  # as it is once the stop gets here
    with pytest.raises(CanalError, match="is being stopped"):
        moving.result(PATIENCE_S)
    stopping.result(PATIENCE_S)
    assert instance.join(Deadline(PATIENCE_S))


def test_a_move_that_fails_midway(
    mysql_server: Server,
    running: Callable[..., Instance],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An instance whose stages ended for a move that failed says so, and can end."""
    instance = running(config_for(source_of(mysql_server)))
    subscribe(instance, identity())
    eventually(lambda: reading(instance))
    here = instance.log_position(EntryPosition("binlog.000001", 4))
    elsewhere = replace(here, identity=LogIdentity("192.0.2.1", 3306))
    with pytest.raises(CanalError, match="is not a position of the source"):
        instance.seek([CLIENT], elsewhere)
    assert instance.is_whole()

    def fail() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(instance, "_make_stages", fail)
    with pytest.raises(RuntimeError, match="can't start"):
        instance.seek([CLIENT], here)
    assert not instance.is_whole()
    instance.request_stop()
    assert instance.join(Deadline(PATIENCE_S))


def test_a_start_that_fails_midway(
    mysql_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing runs of an instance that could not start."""
    # Its pump may have started, and opened the history.
    table_meta = TableMetaConfig(dir=tmp_path)
    config = replace(config_for(source_of(mysql_server)), table_meta=table_meta)
    instance = Instance(config)

    def fail() -> None:
        raise RuntimeError("can't start new thread")

    pipeline = instance.pipelines[0]
    monkeypatch.setattr(pipeline.detector, "start", fail)
    with pytest.raises(RuntimeError, match="can't start"):
        instance.start()
    assert instance.status()["state"] == "stopped"
    assert pipeline.pump.join(Deadline(0))


def test_restart_continues_after_the_cursor(
    source_server: Server,
    database: str,
    running: Callable[..., Instance],
    tmp_path: Path,
) -> None:
    """With cursors in a file, another instance continues where the client acked."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    config = config_for(source_of(source_server), data_dir=tmp_path)
    first = running(config)
    subscribe(first, identity(rf"{database}\..*"))
    eventually(lambda: reading(first))
    source_server.execute(f"INSERT INTO {database}.t VALUES (1)")
    rows_of(first, 1)

    def is_acked() -> bool:
        cursor = first.meta.cursor(identity())
        assert cursor is not None
        return cursor.position.included is False

    eventually(is_acked)
    first.request_stop()
    assert first.join(Deadline(PATIENCE_S))
    source_server.execute(f"INSERT INTO {database}.t VALUES (2)")
    second = running(config)
    (entry,) = rows_of(second, 1)
    (row,) = entry.row_change().row_datas
    assert row.after_columns[0].value == "2"


def test_switches_while_it_reads(
    source_server: Server,
    database: str,
    running: Callable[..., Instance],
    make_proxy: Callable[[Server], Proxy],
) -> None:
    """Switched again and again, also amid a start, it gives each row once, in order.

    Both addresses are those of one server, so that nothing but the switch is tried.
    """
    source_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    standby = HostConfig(address=HostPort("127.0.0.1", make_proxy(source_server).port))
    source = replace(source_of(source_server), standby=standby, gtid_on=True)
    instance = running(config_for(source))
    subscribe(instance, identity(rf"{database}\..*"))
    eventually(lambda: reading(instance))
    pump = instance.pipelines[0].pump
    with source_server.connect() as connection, connection.cursor() as cursor:
        for number in range(24):
            cursor.execute(f"INSERT INTO {database}.t VALUES ({number})")
            if number % 4 == 0:
                assert pump.sources.other is not None
                pump.switch_to(pump.sources.other)
            if number % 12 == 0:
                done = number // 12 + 1  # requests may overtake each other in between
                eventually(lambda done=done: pump.sources.switches >= done)  # type: ignore[misc]
                eventually(lambda: reading(instance))
    rows = rows_of(instance, 24)
    values = [entry.row_change().row_datas[0].after["a"] for entry in rows]
    assert values == [str(number) for number in range(24)]
    assert pump.sources.switches > 1


# --- without a source ---------------------------------------------------------------


def test_wiring_of_cursors(tmp_path: Path) -> None:
    """Cursors are kept where the wiring says."""
    assert isinstance(Instance(config_for()).meta, MemoryMetaManager)
    kept = Instance(config_for(data_dir=tmp_path)).meta
    assert isinstance(kept, StoredMetaManager)
    assert isinstance(kept.storage, MetaFiles)
    in_nodes = PositionConfig(
        wiring=Wiring.ZOOKEEPER, zookeeper_servers="127.0.0.1:1", data_dir=tmp_path
    )
    kept = Instance(replace(config_for(), position=in_nodes)).meta
    assert isinstance(kept, StoredMetaManager)
    assert isinstance(kept.storage, MetaNodes)


def test_stored_clients_are_served_again(
    tmp_path: Path, running: Callable[..., Instance]
) -> None:
    """After a restart each stored client has its cursor and filter back."""
    config = config_for(data_dir=tmp_path)
    first = running(config)
    subscribe(first, identity(r"a\..*", 1))
    subscribe(first, identity(r"b\..*", 2))
    stored = LogPosition(
        LogIdentity("127.0.0.1", 1), EntryPosition("f.000001", 4, 5, 6, "")
    )
    first.meta.update_cursor(identity(client_id=2), stored)
    first.request_stop()
    assert first.join(Deadline(PATIENCE_S))
    second = running(config)
    assert second.status()["clients"] == [1, 2]
    assert second.meta.cursor(identity(client_id=2)) == stored
    assert second.store.get(1, 10, 0) is None


def test_stored_client_with_a_broken_filter(
    tmp_path: Path, running: Callable[..., Instance], caplog: pytest.LogCaptureFixture
) -> None:
    """It gets the error, until it has another filter, and the others are served."""
    config = config_for(data_dir=tmp_path)
    first = Instance(config)
    first.meta.start()
    first.meta.subscribe(identity("(", 1))
    first.meta.subscribe(identity(r"a\..*", 2))
    # These took gigabytes, again at each start.
    first.meta.subscribe(identity("b{4990}," * 8_000, 3))
    first.meta.subscribe(identity("b{4990}," * 20_000, 4))
    first.meta.stop()
    with caplog.at_level(logging.ERROR):
        second = running(config)
    for client_id, why in (
        (1, r"unmatched \("),
        (3, "too large with their repetitions"),
        (4, r"160000 characters.*canal\.instance\.filter\.client\.length\.max"),
    ):
        assert f"client {client_id} is refused until it subscribes" in caplog.text
        assert re.search(why, second.why_refused(client_id))
    assert not second.why_refused(2)
    assert second.store.get(2, 10, 0) is None
    for client_id in (1, 3, 4):
        good = identity(r"a\..*", client_id)
        ready = second.check_filter(good.filter)
        second.subscribed(good)
        del ready
        assert not second.why_refused(client_id)
        assert second.store.get(client_id, 10, 0) is None


def test_clients_have_a_limit(running: Callable[..., Instance]) -> None:
    """Beyond canal.instance.clients.max no other client may subscribe."""
    config = config_for()
    config = replace(config, store=replace(config.store, clients_max=2))
    instance = running(config)
    for client_id in (1, 2):
        instance.check_subscription_limit(identity(client_id=client_id))
        instance.meta.subscribe(identity(client_id=client_id))
    with pytest.raises(
        ClientError, match=r"2 clients, the limit is 2 \(canal\.instance\.clients\.max"
    ):
        instance.check_subscription_limit(identity(client_id=3))


def test_filters_that_are_no_expressions() -> None:
    """A client's broken filter is its own error, the configured one ours."""
    with pytest.raises(ClientError, match=r"filter '\('"):
        Instance(config_for()).check_filter("(")
    for name in ("regex", "black_regex"):
        filters: dict[str, Any] = {name: "("}
        with pytest.raises(ConfigError, match=r"wired/instance\.properties"):
            Instance(config_for(**filters))


def test_source_without_an_address() -> None:
    """An instance without a source says which key is missing."""
    with pytest.raises(ConfigError, match=r"canal\.instance\.master\.address"):
        Instance(replace(config_for(), source=SourceConfig()))


def test_a_restart_begins_where_was_read_last(
    tmp_path: Path, running: Callable[..., Instance]
) -> None:
    """It begins with the server of the newest cursor, not of one left long ago."""
    standby = HostConfig(address=HostPort("127.0.0.1", 2))
    config = config_for(data_dir=tmp_path)
    config = replace(config, source=replace(config.source, standby=standby))
    first = running(config)
    for client_id, port, time_ms in ((1, 1, 1000), (2, 2, 2000), (3, 1, 1500)):
        subscribe(first, identity(client_id=client_id))
        position = EntryPosition("f.000001", 4, time_ms, 6)
        first.meta.update_cursor(
            identity(client_id=client_id),
            LogPosition(LogIdentity("127.0.0.1", port), position),
        )
    first.request_stop()
    assert first.join(Deadline(PATIENCE_S))
    second = running(config)
    assert second.status()["reads"] == "standby 127.0.0.1:2"


def test_a_position_of_another_server() -> None:
    """A position keeps the server that it was read from; others are the current's."""
    instance = Instance(config_for())
    read_from = LogIdentity("db2", 3308)
    position = EntryPosition("f.000001", 4)
    assert instance.log_position(position).identity == LogIdentity("127.0.0.1", 1)
    other = replace(position, source=read_from)
    assert instance.log_position(other) == LogPosition(read_from, position)


def test_stop_before_anything(running: Callable[..., Instance]) -> None:
    """An instance that waits for its source stops at once, and twice does no harm."""
    instance = running(config_for())
    instance.request_stop()
    instance.request_stop()
    assert instance.join(Deadline(PATIENCE_S))
    assert instance.status()["state"] == "stopped"
