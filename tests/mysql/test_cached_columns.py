"""Table columns from the server, cached until a DDL."""

from __future__ import annotations

import pytest
from ddl_event import statement_of
from fix_source_access import access_of

from canal_server.errors import ConnectionLost
from canal_server.model.positions import EntryPosition
from canal_server.mysql.cached_columns import CachedColumns
from canal_server.mysql.control_connection import ControlConnection

HERE = EntryPosition("binlog.000001", 4)


@pytest.fixture
def images(source_server):
    """Yield a cache whose connection is not open yet."""
    cache = CachedColumns(ControlConnection(access_of(source_server)), tables_max=3)
    yield cache
    cache.close()


def names(meta) -> list[str]:
    """Return the columns' names."""
    return [column.name for column in meta.columns]


def alter(server, database: str) -> None:
    """Change the table without the cache."""
    server.execute(f"ALTER TABLE {database}.t ADD b INT")


def test_a_table_is_asked_for_once(source_server, database, images):
    """The same columns are returned until a change is reported."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    first = images.find(database, "t")
    alter(source_server, database)

    assert images.find(database, "t") is first
    assert names(first) == ["a"]
    assert names(images.refresh(database, "t")) == ["a", "b"]
    assert names(images.find(database, "t")) == ["a", "b"]


def test_an_unknown_table_is_remembered(source_server, database, images):
    """A missing table is cached until it is refreshed."""
    assert images.find(database, "t") is None
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")

    assert images.find(database, "t") is None
    assert names(images.refresh(database, "t")) == ["a"]


def test_a_ddl_empties_the_cache(source_server, database, images):
    """The tables that a DDL names are unknown here, so it clears the cache."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    images.find(database, "t")
    alter(source_server, database)
    images.apply(statement_of(f"ALTER TABLE {database}.t ADD b INT", "another"))

    assert names(images.find(database, "t")) == ["a", "b"]


def test_the_number_of_tables_is_limited(source_server, database, images):
    """The least recently used table is evicted."""
    source_server.execute(
        *(f"CREATE TABLE {database}.{table} (a INT)" for table in "tuvw")
    )
    t, u = images.find(database, "t"), images.find(database, "u")
    images.find(database, "v")
    assert images.find(database, "t") is t
    images.find(database, "w")

    assert len(images) == 3
    assert images.find(database, "t") is t
    assert images.find(database, "u") is not u


def test_a_lost_connection_is_replaced(source_server, database):
    """A connection that the server has closed meanwhile is replaced unnoticed."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    connection = ControlConnection(access_of(source_server))
    images = CachedColumns(connection)
    images.find("mysql", "user")
    source_server.execute(f"KILL {connection.connection_id}")

    assert names(images.find(database, "t")) == ["a"]
    images.close()
    assert not connection.is_open


def test_a_stopped_server(own_server):
    """Without a server the query fails, and the cached table is dropped."""
    server = own_server("mariadb", [])
    images = CachedColumns(ControlConnection(access_of(server)))
    known = images.find("mysql", "user")
    server.kill()

    assert images.find("mysql", "user") is known
    with pytest.raises(ConnectionLost):
        images.refresh("mysql", "user")
    with pytest.raises(ConnectionLost):
        images.find("mysql", "user")
    server.restart()
    assert images.find("mysql", "user") == known
    images.close()
