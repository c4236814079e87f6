"""Tables that were dropped, and made again."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from dataclasses import replace

import pytest
from fix_source_access import access_of

from canal_server.mirror.follow.dropped_tables import DroppedTables
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mysql.source_settings import Address
from canal_server.runtime.lifecycle import Deadline, Stop

PATIENCE_S = 60.0
TEXT = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: /lake}
tables: [{match: '%s\\.[abc]'}]
"""


@pytest.fixture
def asking(source_server, database):
    """Give `asking(address)`: what asks a server, and its clock; the list of times."""
    made = []

    def make(address=None):
        access = access_of(source_server)
        if address is not None:
            access = replace(access, address=address, connect_timeout_s=PATIENCE_S)
        settings = read(TEXT % database, "m.yml", {})
        settings = replace(settings, source=replace(settings.source, access=access))
        stop, clock = Stop(), [0.0]
        found = DroppedTables(settings, stop, lambda: clock[0])
        made.append((found, stop))
        return found, clock, stop

    yield make
    for found, stop in made:
        stop.request()
        found.close()


def answer(dropped: DroppedTables) -> set[TableName]:
    """Poll, and return the recreated tables."""
    deadline = Deadline(PATIENCE_S)
    assert dropped.poll() == set()  # asks
    while dropped._answer is not None and not dropped._answer.done():
        assert not deadline.passed()
        threading.Event().wait(0.01)
    return dropped.poll()


def test_made_again(asking, source_server, database) -> None:
    """A recreated table is returned once, despite errors of another table."""
    a, b = TableName(database, "a"), TableName(database, "b")
    source_server.execute(
        f"CREATE TABLE {database}.a (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.c (_seq INT PRIMARY KEY)",  # which cannot be mirrored
    )
    dropped, _, _ = asking()
    assert not dropped.is_waiting
    dropped.add(a)
    dropped.add(b)
    assert dropped.is_waiting
    assert answer(dropped) == {a}
    assert not dropped.is_waiting
    assert dropped.poll() == set()
    source_server.execute(f"CREATE TABLE {database}.b (id INT PRIMARY KEY)")
    dropped.add(b)
    assert answer(dropped) == {b}


def test_a_database_that_is_down(asking, source_server, database, caplog) -> None:
    """It is asked again after a while, and not before; the table is not forgotten."""
    with closing(socket.create_server(("127.0.0.1", 0))) as nobody:
        port = nobody.getsockname()[1]
    dropped, clock, _ = asking(Address("127.0.0.1", port))
    dropped.add(TableName(database, "a"))
    assert answer(dropped) == set()
    assert caplog.text.count("cannot list the tables of the source") == 1
    assert dropped.poll() == set()
    assert dropped._answer is None  # nothing is asked yet
    clock[0] += 1.1
    assert answer(dropped) == set()
    assert caplog.text.count("cannot list the tables of the source") == 2


def test_a_database_that_does_not_answer(asking, database) -> None:
    """The caller does not block meanwhile; a stop ends the waiting."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        dropped, _, stop = asking(Address("127.0.0.1", silent.getsockname()[1]))
        dropped.add(TableName(database, "a"))
        for _ in range(3):
            assert dropped.poll() == set()
        silent.settimeout(PATIENCE_S)
        client, _ = silent.accept()
        stop.request()
        dropped.close()
        assert dropped.poll() == set()
        client.close()
