"""Transactions and events that the source compressed arrive like others."""

from __future__ import annotations

import pytest
from fix_servers import needs

from canal_server.client import EventType

COMPRESSED = ("SET SESSION binlog_transaction_compression = ON",)


def event_types(server, file, offset):
    """Return the types of the events in the binlog from an offset on."""
    events = server.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {offset}")
    return {event[2] for event in events}


@pytest.fixture
def compressing(make_pipeline, mysql_server, database):
    """Give a pipeline from MySQL, started with `settings`."""
    needs(mysql_server, "binlog_transaction_compression")

    def start(settings=None):
        pipeline = make_pipeline(mysql_server, database, settings)
        pipeline.start()
        return pipeline

    return start


@pytest.mark.parametrize("gtid", [False, True], ids=["file", "gtid"])
def test_mysql(compressing, rng, gtid):
    """Compressed transactions between others arrive whole, in order, once."""
    pipeline = compressing({"canal.instance.gtidon": gtid})
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    position = pipeline.source.binlog_position()
    with pipeline.client() as client:
        for session in (COMPRESSED, (), COMPRESSED):
            writer.session = session
            writer.write(20)
        writer.write(1, rows=3000)
        pipeline.receive(client, checker)
    assert "Transaction_payload" in event_types(pipeline.source, *position)
    assert checker.repeated == 0


def test_mysql_restart(compressing, rng):
    """Stopped amid compressed transactions, the server begins with a whole one."""
    pipeline = compressing()
    writer = pipeline.writer(rng, session=COMPRESSED)
    checker = pipeline.checker(writer)
    writer.write(50)
    for _ in range(3):
        with pipeline.client() as client:
            pipeline.receive_some(client, checker, 3, batch_size=rng.randint(1, 9))
            acked = checker.done
        pipeline.stop()
        # All events of a compressed transaction are at one position: the acked one may
        # come again.
        checker.resume(max(0, acked - 1), acked)
        pipeline.start()
    with pipeline.client() as client:
        pipeline.receive(client, checker)


def test_mysql_cut(make_proxy, mysql_server, make_pipeline, database, rng):
    """Cut amid a compressed transaction, the stream goes on exactly."""
    needs(mysql_server, "binlog_transaction_compression")
    proxy = make_proxy(mysql_server)
    pipeline = make_pipeline(
        mysql_server,
        database,
        {"canal.instance.transaction.size": 8},
        proxy=proxy,
    )
    pipeline.start()
    writer = pipeline.writer(rng, session=COMPRESSED)
    checker = pipeline.checker(writer)
    cuts = rng.randrange(3000), rng.randrange(60_000)
    with pipeline.client() as client, proxy.cut(*cuts):
        writer.write(3, rows=300)
        writer.write(30)
        pipeline.receive(client, checker)
        assert proxy.cuts_done > 0
    assert checker.repeated == 0


def test_mariadb(own_server, make_pipeline, rng):
    """Compressed events of MariaDB arrive like others, statements too."""
    options = ["--loose-log-bin-compress=ON", "--loose-log-bin-compress-min-len=10"]
    source = own_server("mariadb", options)
    needs(source, "log_bin_compress")
    source.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
    pipeline = make_pipeline(source, "shop")
    pipeline.start()
    position = source.binlog_position()
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    comment = "c" * 500
    create = f"CREATE TABLE shop.other (a INT COMMENT '{comment}')"
    with pipeline.client() as client:
        writer.write(50)
        pipeline.receive(client, checker)
        source.execute(create)
        statements = [
            entry.row_change().sql
            for entry in pipeline.rows(client, 1)
            if entry.header.event_type == EventType.CREATE
        ]
    assert statements == [create]
    kinds = event_types(source, *position)
    assert {"Query_compressed", "Write_rows_compressed_v1"} <= kinds
