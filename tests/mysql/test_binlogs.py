"""The index of binary logs."""

from __future__ import annotations

from fix_source_access import access_of

from canal_server.mysql.binlogs import (
    binary_logs,
    current_end,
    executed_gtids,
    purged_gtids,
)
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info


def test_the_end_moves_with_each_transaction(source_server, source, database):
    """The end is what the server itself reports, before and after a change."""
    info = read_server_info(source)
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    before = current_end(source, info)
    source_server.execute(f"INSERT INTO {database}.t VALUES (1)")
    after = current_end(source, info)

    assert (after.file, after.position) == source_server.binlog_position()
    assert (before.file, before.position) < (after.file, after.position)
    assert before.gtids != after.gtids


def test_gtids_are_one_line(source_server, source, database):
    """The executed set is the server's, without blanks and line breaks."""
    info = read_server_info(source)
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    name = "gtid_binlog_pos" if info.is_mariadb else "gtid_executed"
    expected = source_server.execute(f"SELECT @@global.{name}")[0][0].replace("\n", "")

    assert executed_gtids(source, info) == expected.replace(" ", "")
    assert current_end(source, info).gtids == executed_gtids(source, info)
    assert str(info.server_uuid or info.server_id) in expected


def test_all_logs_are_listed(source_server, source):
    """Each rotation adds a log at the end of the list, with its size in bytes."""
    before = binary_logs(source)
    source_server.execute("FLUSH BINARY LOGS")
    after = binary_logs(source)
    file, position = source_server.binlog_position()

    assert [log.name for log in after[:-1]] == [log.name for log in before]
    assert after[-1].name == file
    # MariaDB writes a checkpoint after the rotation, when it gets to it.
    assert 0 < after[-1].size <= position


def test_purged_gtids(own_server):
    """A purged log is no longer listed, but its GTIDs are reported."""
    server = own_server("mysql", [])
    server.execute("CREATE DATABASE d", "FLUSH BINARY LOGS")
    file, _ = server.binlog_position()
    server.execute(f"PURGE BINARY LOGS TO '{file}'")
    with ControlConnection(access_of(server)) as connection:
        info = read_server_info(connection)
        purged = purged_gtids(connection, info)
        logs = binary_logs(connection)

    assert purged == f"{info.server_uuid}:1"
    assert [log.name for log in logs] == [file]
