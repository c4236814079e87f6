"""Whether anything was changed before the first binlog file that a source has."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from fix_ranged import NAME, rows_of
from fix_source_access import access_of
from purge import purge

from canal_server.config.schema import HostConfig, HostPort, InstanceConfig
from canal_server.errors import ClientError
from canal_server.mysql.binlogs import binary_logs
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.protocol.range_messages import PURGED
from canal_server.ranges import range_access
from canal_server.ranges.range_beginning import check_nothing_before
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_scan import Scanner

if TYPE_CHECKING:
    from collections.abc import Callable

    from fix_ranged import Lake
    from servers import Server

REQUESTED_MS = 1_600_000_000_000
BACKUP = {  # how a server restored from a backup starts: with the other's set
    "mysql": (
        "RESET BINARY LOGS AND GTIDS",
        "SET GLOBAL gtid_purged = 'aaaaaaaa-0000-0000-0000-000000000001:1-5'",
    ),
    "mariadb": ("RESET MASTER", "SET GLOBAL gtid_binlog_state = '0-77-5'"),
}


def check(server: Server) -> None:
    """Check what was before the first file that the server has now."""
    access = access_of(server)
    with closing(ControlConnection(access, Stop())) as control:
        control.open()
        info = read_server_info(control)
        scanner = Scanner(InstanceConfig(destination="d"), access, Stop())
        file = binary_logs(control)[0].name
        check_nothing_before(file, REQUESTED_MS, control, info, scanner)


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_what_is_before_the_first_file(own_server, flavour: str) -> None:
    """Nothing is before the first of all; something before others, or in a backup."""
    server = own_server(flavour)
    check(server)
    server.execute(*BACKUP[flavour])
    with pytest.raises(ClientError, match=r"starts with .*\.000001, at 20"):
        check(server)
    server.execute("RESET MASTER" if flavour == "mariadb" else BACKUP[flavour][0])
    check(server)
    server.execute("FLUSH BINARY LOGS")
    file, _ = server.binlog_position()
    purge(server, file)
    text = rf"starts with {file}, at 20.*between 2020-09-13T12:26:40\+00:00 .* or later"
    with pytest.raises(ClientError, match=text) as caught:
        check(server)
    assert caught.value.code == PURGED


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_the_end_of_a_purged_file(
    make_lake: Callable[..., Lake], own_server, flavour: str
) -> None:
    """1. all of a file is read; 2. it is rotated and purged; 3. what follows is read.

    A position before a transaction of a purged file stays an error.
    """
    server, table = own_server(flavour), "shop.t"
    server.execute("CREATE DATABASE shop", f"CREATE TABLE {table} (a INT)")
    lake = make_lake(server, schema="shop")
    start = lake.subscribe()
    server.execute(f"INSERT INTO {table} VALUES (1)")
    end = lake.until(start, 1)
    assert end.gtids
    server.execute("FLUSH BINARY LOGS")
    purge(server)
    # In another process: memory starts after it.
    lake = make_lake(server, schema="shop")
    server.execute(f"INSERT INTO {table} VALUES (2)")
    later = lake.until(end, 1)
    assert later.journal != end.journal
    assert rows_of(lake.read_again(end, later)) == [("t", "a", "2")]
    (part,) = lake.plan(end, later, 1)
    assert part.rows == 1
    with pytest.raises(ClientError, match="has purged") as caught:
        lake.read(start, later, name="")
    assert caught.value.code == PURGED


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_read_while_clients_miss_their_changes(
    make_lake: Callable[..., Lake], own_server, monkeypatch, flavour: str
) -> None:
    """Ranges are read at once where the server cannot resume for its other clients.

    The source has purged the start position, so that no session ever starts.
    """
    monkeypatch.setattr(range_access, "BEGIN_S", 1e6)
    server, table = own_server(flavour), "shop.t"
    server.execute("CREATE DATABASE shop", f"CREATE TABLE {table} (a INT, b TEXT)")
    address = HostPort(server.host, server.port)
    file, _ = server.binlog_position()
    lake = make_lake(server, schema="shop")
    server.execute("FLUSH BINARY LOGS")
    lake.warm(server, table, "(0, 'w')")
    lake.ranges.unsubscribe(NAME)
    purge(server, server.binlog_position()[0])
    deleted = HostConfig(address=address, journal_name=file, position=4)
    lake = make_lake(server, schema="shop", master=deleted)
    start = lake.subscribe()
    server.execute(
        f"INSERT INTO {table} VALUES (1, 'x')",
        f"ALTER TABLE {table} ADD COLUMN c INT",
        f"INSERT INTO {table} VALUES (2, 'y', 3)",
    )
    found = lake.read_again(start, lake.until(start, 3))
    assert rows_of(found) == [
        ("t", "a", "1", "b", "x"),
        (f"ALTER TABLE {table} ADD COLUMN c INT",),
        ("t", "a", "2", "b", "y", "c", "3"),
    ]
    assert "BinlogPurged" in str(lake.instance.status())
