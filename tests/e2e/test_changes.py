"""Rows and statements of a real source arrive with their values."""

from __future__ import annotations

from canal_server.client import EventType


def summary(entry):
    """Return an entry's kind, table and rows, or its statement."""
    change = entry.row_change()
    if change.sql:
        return change.event_type.name, entry.header.table_name, change.sql
    rows = [(row.before, row.after) for row in change.row_datas]
    return change.event_type.name, entry.header.table_name, rows


def summaries(entries):
    """Return what entries say, without the statements that only annotate rows."""
    return [
        summary(entry)
        for entry in entries
        if entry.header.event_type != EventType.QUERY
    ]


def test_values(pipeline):
    """Inserts, updates and deletes arrive in order with all their values."""
    name = f"{pipeline.schema}.item"
    create = (
        f"CREATE TABLE {name} (id BIGINT UNSIGNED PRIMARY KEY, name VARCHAR(50),"
        " price DECIMAL(10,2), at DATETIME(3), kind ENUM('small','large'),"
        " flags BIT(9))"
    )
    pipeline.source.execute(
        create,
        f"INSERT INTO {name} VALUES"
        " (18446744073709551615, '中😀', -1.50, '2024-02-29 10:00:00.120',"
        " 'large', 257),"
        " (2, NULL, NULL, NULL, NULL, NULL)",
        f"UPDATE {name} SET name = '', price = 0 WHERE id = 2",
        f"DELETE FROM {name} WHERE id > 2",
        f"TRUNCATE {name}",
    )
    first = {
        "id": "18446744073709551615",
        "name": "中😀",
        "price": "-1.50",
        "at": "2024-02-29 10:00:00.120",
        "kind": "2",
        "flags": "257",
    }
    second = dict.fromkeys(first) | {"id": "2"}
    expected = [
        ("CREATE", "item", create),
        ("INSERT", "item", [({}, first), ({}, second)]),
        ("UPDATE", "item", [(second, second | {"name": "", "price": "0.0"})]),
        ("DELETE", "item", [(first, {})]),
        ("TRUNCATE", "item", f"TRUNCATE {name}"),
    ]
    with pipeline.client() as client:
        found: list[object] = []
        while len(found) < len(expected):
            found += summaries(pipeline.rows(client, 1))
    assert found == expected


def test_alter(pipeline):
    """Rows before and after an ALTER have the columns of their time."""
    name = f"{pipeline.schema}.item"
    execute = pipeline.source.execute
    with pipeline.client() as client:
        execute(f"CREATE TABLE {name} (a INT PRIMARY KEY, b INT)")
        execute(f"INSERT INTO {name} VALUES (1, 10)")
        found = summaries(pipeline.rows(client, 2))
        while len(found) < 2:
            found += summaries(pipeline.rows(client, 1))
        execute(f"ALTER TABLE {name} DROP COLUMN b, ADD COLUMN c VARCHAR(9) FIRST")
        execute(f"INSERT INTO {name} VALUES ('x', 2)")
        renames = pipeline.source.can("ALTER TABLE … RENAME COLUMN")
        change = "RENAME COLUMN c TO d" if renames else "CHANGE c d VARCHAR(9)"
        execute(f"ALTER TABLE {name} {change}")
        execute(f"UPDATE {name} SET d = 'y' WHERE a = 2")
        while len(found) < 6:
            found += summaries(pipeline.rows(client, 1))
    assert [kind for kind, *_ in found] == [
        "CREATE",
        "INSERT",
        "ALTER",
        "INSERT",
        "ALTER",
        "UPDATE",
    ]
    assert found[1][2] == [({}, {"a": "1", "b": "10"})]
    assert found[3][2] == [({}, {"c": "x", "a": "2"})]
    assert found[5][2] == [({"d": "x", "a": "2"}, {"d": "y", "a": "2"})]


def test_transactions(pipeline, rng):
    """Random transactions arrive whole, in commit order, each once."""
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client:
        writer.write(200)
        pipeline.receive(client, checker)
    assert checker.repeated == 0


def test_rolled_back(pipeline, rng):
    """What was rolled back does not arrive, what arrived before a savepoint does."""
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    writer.write(1)
    with pipeline.source.connect(autocommit=False) as connection:
        cursor = connection.cursor()
        cursor.execute(f"INSERT INTO {writer.name} VALUES (-1, -1, 0, 'no')")
        connection.rollback()
    writer.write(1)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    assert checker.done == 2


def test_ddl_among_transactions(pipeline, rng):
    """DDL of another table in the middle of a load disturbs no transaction."""
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client:
        for number in range(10):
            writer.write(5)
            pipeline.source.execute(
                f"CREATE TABLE {pipeline.schema}.other{number} (a INT)",
                f"ALTER TABLE {pipeline.schema}.other{number} ADD b INT",
            )
        writer.write(5)
        pipeline.receive(client, checker)
