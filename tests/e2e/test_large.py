"""Large transactions and rows arrive whole, in bounded memory."""

from __future__ import annotations

import hashlib

import pytest
from fix_pipeline import UNIT_S

from canal_server.client import EntryType, EventType

MEMORY_MAX_MIB = 300
ROWS = 150_000  # whose entries are several times what the ring holds
MIB = 1024 * 1024
FLAVOURS = ["mysql", "mariadb"]


def check_memory(pipeline):
    """Print the most memory that the server had, and hold it against the limit."""
    used = pipeline.process.memory_max_mib()
    print(f"the server had at most {used:.0f} MiB")
    assert used < MEMORY_MAX_MIB


def fill(server, table, count):
    """Insert rows with keys from 0 on in one statement."""
    digits = "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3"
    digits += "".join(f" UNION ALL SELECT {d}" for d in range(4, 10)) + ")"
    positions = len(str(count - 1))
    number = " + ".join(
        f"t{position}.d * {10**position}" for position in range(positions)
    )
    tables = " CROSS JOIN ".join(
        f"{digits} t{position}" for position in range(positions)
    )
    server.execute(
        f"INSERT INTO {table} SELECT n, REPEAT('x', 100), n % 7 FROM"
        f" (SELECT {number} AS n FROM {tables}) numbers WHERE n < {count} ORDER BY n"
    )


def test_many_rows(pipeline):
    """A transaction of very many rows in one statement arrives in order and once."""
    table = f"{pipeline.schema}.many"
    pipeline.source.execute(
        f"CREATE TABLE {table} (a INT PRIMARY KEY, b VARCHAR(200), c TINYINT)"
    )
    with pipeline.client() as client:
        fill(pipeline.source, table, ROWS)
        expected = 0
        begins = ends = 0
        for message in pipeline.messages(client, batch_size=4000):
            for entry in message.entries:
                if entry.header.event_type == EventType.INSERT:
                    for row in entry.row_change().row_datas:
                        values = row.after
                        assert values["a"] == str(expected)
                        assert values["c"] == str(expected % 7)
                        assert values["b"] == "x" * 100
                        expected += 1
                begins += entry.entry_type == EntryType.TRANSACTIONBEGIN
                ends += entry.entry_type == EntryType.TRANSACTIONEND
            client.ack(message.id)
            if expected == ROWS and ends:
                break
    assert (begins, ends) == (int(pipeline.has_begins), 1)
    check_memory(pipeline)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_large_row(own_server, make_pipeline, rng, flavour):
    """A row of 20 MB, more than a packet of the source holds, arrives intact."""
    # Old servers limit a row to a tenth of their log.
    log_size = "--loose-innodb-log-file-size=256M"
    source = own_server(flavour, ["--max-allowed-packet=256M", log_size])
    source.execute(
        "CREATE DATABASE shop CHARACTER SET utf8mb4",
        "CREATE TABLE shop.large (a INT PRIMARY KEY, b LONGBLOB, c LONGTEXT)",
    )
    pipeline = make_pipeline(source, "shop")
    pipeline.start()
    blob = rng.randbytes(20 * MIB)
    text = "中x" * (MIB // 4)
    with source.connect(max_allowed_packet=256 * MIB) as connection:
        cursor = connection.cursor()
        if flavour == "mariadb":
            # Else the statement, of 40 MB, would be an entry of its own.
            cursor.execute("SET SESSION binlog_annotate_row_events = OFF")
        cursor.execute("INSERT INTO shop.large VALUES (1, 'a', 'b')")
        cursor.execute(
            b"INSERT INTO shop.large VALUES (2, 0x%s, '%s')"
            % (blob.hex().encode(), text.encode())
        )
        cursor.execute("INSERT INTO shop.large VALUES (3, 'c', 'd')")
    found = {}
    with pipeline.client() as client:
        for message in pipeline.messages(client):
            for entry in message.entries:
                if entry.header.event_type == EventType.INSERT:
                    (row,) = entry.row_change().row_datas
                    found[row.after["a"]] = row.after
            client.ack(message.id)
            if len(found) == 3:
                break
    assert list(found) == ["1", "2", "3"]
    received = found["2"]["b"].encode("latin-1")
    assert hashlib.sha256(received).digest() == hashlib.sha256(blob).digest()
    assert found["2"]["c"] == text
    check_memory(pipeline)


def test_large_rows_and_slow_client(own_server, make_pipeline):
    """Many large rows for a client that does not come do not fill the memory."""
    source = own_server("mysql", ["--max-allowed-packet=256M"])
    source.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.large (a INT PRIMARY KEY, b LONGBLOB)",
    )
    pipeline = make_pipeline(source, "shop")
    pipeline.start()
    count = 30
    with pipeline.client() as client:
        for number in range(count):
            source.execute(
                f"INSERT INTO shop.large VALUES ({number}, REPEAT('x', {4 * MIB}))"
            )
        pipeline.wait_for_status(lambda status: status["rows"] > 1)
        found = 0
        while found < count:
            message = client.get(1, UNIT_S)
            for entry in message.entries:
                if entry.header.event_type == EventType.INSERT:
                    (row,) = entry.row_change().row_datas
                    assert row.after["a"] == str(found)
                    assert len(row.after["b"]) == 4 * MIB
                    found += 1
            client.ack(message.id)
    check_memory(pipeline)
