"""Epochs: positions of a purged or reset binlog, and of another server."""

from __future__ import annotations

import time

import pytest
from fix_ranged import NAME
from fix_source_access import access_of
from fix_store import eventually

from canal_server.config.schema import InstanceConfig
from canal_server.errors import ClientError
from canal_server.model.ranges import Epoch, EpochPosition
from canal_server.mysql.binlogs import binary_logs
from canal_server.mysql.control_connection import ControlConnection
from canal_server.ranges.epochs import is_same
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.available_positions import SourceFiles
from canal_server.source.read.binlog_scan import Scanner


def refusal(call):
    """Return the refusal of a call."""
    with pytest.raises(ClientError) as refused:
        call()
    return refused.value


def is_purged_to(server, file):
    """Purge what lies before a file; false while another reader is in it."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"PURGE BINARY LOGS TO '{file}'")
        cursor.execute("SHOW BINARY LOGS")
        return cursor.fetchone()[0] == file


@pytest.fixture
def database():
    """Yield the name of the schema."""
    return "d"


@pytest.mark.mysql
@pytest.mark.mariadb
@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_purged_reset_and_replaced(make_lake, own_server, flavour):
    """Each kind of loss is reported by its code, with positions; nothing is skipped."""
    server = own_server(flavour, ())
    started_s = int(time.time())
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
    lake = make_lake(server)
    stored = lake.subscribe()
    start = lake.warm(server, "d.t")
    server.execute("INSERT INTO d.t VALUES (1)", "FLUSH BINARY LOGS")
    server.execute("INSERT INTO d.t VALUES (2)", "FLUSH BINARY LOGS")
    end = lake.until(start, 2)
    whole = lake.read_memory(start, end)
    assert lake.read_again(start, end) == whole

    # Purged: memory still has it, the binlog no longer.
    newest, _ = server.binlog_position()
    eventually(lambda: is_purged_to(server, newest))
    assert lake.read_memory(start, end) == whole
    purged = refusal(lambda: lake.read(start, end, name=""))
    assert (purged.code, start.journal in str(purged)) == (410, True)
    restarted = make_lake(server)
    assert refusal(lambda: restarted.head(start)).code == 410
    assert refusal(lambda: restarted.plan(start, end, 2)).code == 410
    later = restarted.subscribe("earliest", "later")
    assert (later.journal, later.epoch) == (newest, 0)

    # Reset: the same names and offsets are other positions now. A file differs from
    # another one of its name by the second in which it was created.
    eventually(lambda: int(time.time()) > started_s)
    new = "RESET BINARY LOGS AND GTIDS" if flavour == "mysql" else "RESET MASTER"
    server.execute(new, "INSERT INTO d.t VALUES (3)")
    restarted = make_lake(server)
    assert restarted.subscribe("earliest", "other") == EpochPosition(
        1, server.binlog_position()[0], 4
    )
    assert (
        restarted.ranges.subscribe(NAME, restarted.filter, "latest")[0].cursor == stored
    )
    refused = refusal(lambda: restarted.head(start))
    assert (refused.code, "was reset since" in str(refused)) == (409, True)
    assert refusal(lambda: restarted.read(start, end, name="")).code == 409

    # Another server.
    second = own_server(flavour, ())
    second.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
    replaced = make_lake(second)
    assert replaced.subscribe("latest", "third").epoch == 2
    code = refusal(lambda: replaced.head(EpochPosition(1, "binlog.000001", 4))).code
    assert code == 409


@pytest.mark.mysql
@pytest.mark.mariadb
@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_purged_while_it_is_determined(own_server, flavour):
    """An epoch whose file is purged after the files were listed goes on.

    Otherwise all cursors of the destination would be void. A binlog that was reset
    meanwhile begins a new one.
    """
    server = own_server(flavour, ())
    server.execute("FLUSH BINARY LOGS")
    access = access_of(server)
    control = ControlConnection(access)
    control.open()
    try:
        listed = SourceFiles(tuple(binary_logs(control)))
        scanner = Scanner(InstanceConfig(destination="epochs"), access, Stop())
        first = listed.files[0].name
        epoch = Epoch(0, "server", first, scanner.first_event_ms(first) // 1000)
        assert is_same(epoch, listed, scanner, control)

        newest, _ = server.binlog_position()
        eventually(lambda: is_purged_to(server, newest))
        assert is_same(epoch, listed, scanner, control)

        # Listed with the newest file, and reset since: only the first one exists.
        listed = SourceFiles(tuple(binary_logs(control)))
        epoch = Epoch(0, "server", newest, scanner.first_event_ms(newest) // 1000)
        reset = "RESET BINARY LOGS AND GTIDS" if flavour == "mysql" else "RESET MASTER"
        server.execute(reset)
        assert not is_same(epoch, listed, scanner, control)
    finally:
        control.close()
