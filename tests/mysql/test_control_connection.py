"""The control connection: opened, lost, reopened, aborted."""

from __future__ import annotations

import contextlib
import threading

import pymysql
import pytest
from fix_source_access import access_of

from canal_server.errors import ConnectionLost
from canal_server.mysql.control_connection import ControlConnection, aborted_by
from canal_server.runtime.lifecycle import Stop


def test_open_and_close(source_server):
    """Opening twice keeps the connection; closing twice is harmless."""
    connection = ControlConnection(access_of(source_server))
    assert connection.connection_id == 0
    with connection:
        number = connection.connection_id
        connection.open()

        assert connection.query("SELECT CONNECTION_ID()") == [(number,)]
        assert connection.is_mariadb == (source_server.flavour == "mariadb")
        assert connection.server_version
    assert not connection.is_open
    connection.close()


def test_a_query_needs_an_open_connection(source_server):
    """A query before opening is reported as such."""
    connection = ControlConnection(access_of(source_server))

    with pytest.raises(ConnectionLost, match="is not open"):
        connection.query("SELECT 1")


def test_a_lost_connection_is_detected_and_replaced(source_server, source):
    """After a loss the connection reports that it is closed, and reopens."""
    number = source.connection_id
    source_server.execute(f"KILL {number}")
    with pytest.raises(ConnectionLost):
        source.query("SELECT 1")

    assert not source.is_open
    source.open()
    assert source.query("SELECT 1") == [(1,)]
    assert source.connection_id != number


def test_changes_of_others_are_seen(source_server, source, database):
    """A statement sees what was committed before it: there is no snapshot."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    seen = []
    for number in range(3):
        source_server.execute(f"INSERT INTO {database}.t VALUES ({number})")
        seen.append(source.query(f"SELECT COUNT(*) FROM {database}.t")[0][0])

    assert seen == [1, 2, 3]


def test_abort_ends_a_waiting_query_for_good(source_server, source):
    """Another thread ends a query that waits; the connection stays closed."""
    number = source.connection_id
    ended = []

    def ask() -> None:
        try:
            source.query("SELECT SLEEP(600)")
        except ConnectionLost as error:
            ended.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    running = f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {number} \
        AND INFO LIKE 'SELECT SLEEP%'"
    while not source_server.execute(running):
        assert asking.is_alive()
    source.abort()
    asking.join()
    with contextlib.suppress(pymysql.err.MySQLError):  # it noticed by itself
        source_server.execute(f"KILL {number}")

    assert len(ended) == 1
    with pytest.raises(ConnectionLost, match="closed meanwhile"):
        source.open()


def test_a_stop_ends_a_waiting_query(source_server, source):
    """Whoever waits need not end it; without a stop the connection stays."""
    with aborted_by(Stop(), source):
        assert source.query("SELECT 1")
    assert source.query("SELECT 1")
    number, stop = source.connection_id, Stop()
    running = f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {number} \
        AND INFO LIKE 'SELECT SLEEP%'"

    def request() -> None:
        while not source_server.execute(running):
            pass
        stop.request()

    requesting = threading.Thread(target=request)
    requesting.start()
    with aborted_by(stop, source), pytest.raises(ConnectionLost):
        source.query("SELECT SLEEP(600)")
    requesting.join()
    with contextlib.suppress(pymysql.err.MySQLError):  # it noticed by itself
        source_server.execute(f"KILL {number}")
