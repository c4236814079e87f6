"""GTID mode: the set in each header, restarts by it, and what the source purged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pymysql
import pytest
from fix_pipeline import UNIT_S
from purge import purge

if TYPE_CHECKING:
    from fix_pipeline import Pipeline
    from fix_proxy import Proxy
    from ledger import Checker, Writer
    from servers import Server

GTID_MODE = {"canal.instance.gtidon": "true"}
FLAVOURS = ["mysql", "mariadb"]


@pytest.fixture
def by_gtid(make_pipeline, source_server, database):
    """Give a running pipeline in GTID mode, on the shared servers."""
    pipeline = make_pipeline(source_server, database, GTID_MODE)
    pipeline.start()
    return pipeline


@dataclass
class Delivery:
    """A source of the test's own, and a running pipeline that delivered all of it."""

    source: Server
    pipeline: Pipeline
    proxy: Proxy | None
    writer: Writer
    checker: Checker

    def receive(self) -> None:
        """Receive and ack all that was written."""
        with self.pipeline.client() as client:
            self.pipeline.receive(client, self.checker)


@pytest.fixture
def deliver(own_server, make_pipeline, make_proxy, rng):
    """Give `deliver(flavour, settings, …)`: some transactions written and received.

    `flushes`: binlog files closed before; `proxied`: the source is behind a proxy.
    """

    def deliver(flavour, settings, *, flushes=0, count=5, proxied=False) -> Delivery:
        source = own_server(flavour)
        source.execute(
            "CREATE DATABASE shop CHARACTER SET utf8mb4",
            *["FLUSH BINARY LOGS"] * flushes,
        )
        proxy = make_proxy(source) if proxied else None
        pipeline = make_pipeline(source, "shop", settings, proxy=proxy)
        pipeline.start()
        writer = pipeline.writer(rng)
        found = Delivery(source, pipeline, proxy, writer, pipeline.checker(writer))
        writer.write(count)
        found.receive()
        return found

    return deliver


def executed(server):
    """Return the set that a server has executed, as one line of text."""
    variable = "gtid_executed" if server.flavour == "mysql" else "gtid_binlog_pos"
    return server.execute(f"SELECT @@global.{variable}")[0][0].replace("\n", "")


def test_headers(by_gtid, rng):
    """Each transaction's entries carry the executed set with that transaction."""
    writer = by_gtid.writer(rng)
    checker = by_gtid.checker(writer)
    sets = []
    for _ in range(5):
        writer.write(1)
        sets.append(executed(by_gtid.source))
    with by_gtid.client() as client:
        by_gtid.receive(client, checker)
    assert checker.gtids == sets


def test_restart(by_gtid, rng):
    """A restart goes on after the acked set, and says so."""
    writer = by_gtid.writer(rng)
    checker = by_gtid.checker(writer)
    for _ in range(3):
        writer.write(20)
        with by_gtid.client() as client:
            by_gtid.receive_some(client, checker, 3, batch_size=rng.randint(1, 20))
            acked = checker.done
        by_gtid.stop()
        checker.resume(acked, acked)
        by_gtid.start()
        by_gtid.process.wait_for_log("starts at GTID set .* stored GTID set")
    with by_gtid.client() as client:
        by_gtid.receive(client, checker)


def test_killed(by_gtid, rng):
    """A kill amid a large transaction brings all of it again, and nothing before."""
    by_gtid.configure({"canal.file.flush.period": 10})
    by_gtid.kill()
    by_gtid.start()
    writer = by_gtid.writer(rng)
    checker = by_gtid.checker(writer)
    writer.write(3)
    with by_gtid.client() as client:
        by_gtid.receive(client, checker)
        writer.write(1, rows=200)
        by_gtid.receive_some(client, checker, 2, batch_size=1)
        assert checker.done == 3
        by_gtid.kill()
    checker.resume(0, 3)
    by_gtid.start()
    with by_gtid.client() as client:
        by_gtid.receive(client, checker)


def test_tags(make_pipeline, mysql_server, database):
    """A cursor has no tags, which the original cannot read; a restart has them all.

    Without what stands beside the cursor, the tagged transactions come again.
    """
    pipeline = make_pipeline(mysql_server, database, GTID_MODE)
    pipeline.start()
    table = f"{database}.tagged"
    try:
        mysql_server.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY)",
            "SET gtid_next = 'AUTOMATIC:blue'",
            f"INSERT INTO {table} VALUES (1)",
            f"INSERT INTO {table} VALUES (2)",
        )
    except pymysql.err.MySQLError as error:
        pytest.skip(f"GTIDs have no tags here: {error}")
    with pipeline.client() as client:
        found = pipeline.rows(client, 3)
        assert ":blue:1-2" in found[-1].header.gtid
        pipeline.settle(client)
    pipeline.stop()
    assert b"blue" not in pipeline.meta_file.read_bytes()
    mysql_server.execute(f"INSERT INTO {table} VALUES (3)")

    def next_row(*, again: int) -> int:
        """Restart, and return which row comes after those that come again."""
        pipeline.start()
        with pipeline.client() as client:
            found = pipeline.rows(client, again + 1)
            pipeline.settle(client)
        pipeline.stop()
        assert len(found) == again + 1
        return int(found[-1].row_change().row_datas[0].after["id"])

    assert next_row(again=0) == 3
    pipeline.meta_file.with_name("meta.dat.full").unlink()
    mysql_server.execute(f"INSERT INTO {table} VALUES (4)")
    assert next_row(again=2) == 4


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_purged(deliver, flavour):
    """A stored set that the source has purged is a clear error; clients are served."""
    made = deliver(flavour, GTID_MODE)
    pipeline = made.pipeline
    pipeline.stop()
    made.writer.write(5)
    purge(made.source)
    pipeline.start()
    line = pipeline.process.wait_for_log("ERROR .* BinlogPurged")
    assert "1236" in line
    pipeline.wait_for_status(lambda status: "1236" in status["error"])
    with pipeline.client() as client:
        assert not client.get(10, 0)
    pipeline.stop()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_purged_while_cut(deliver, flavour):
    """A position purged while the link was down is an error; the process goes on."""
    made = deliver(flavour, {}, proxied=True)
    pipeline = made.pipeline
    with pipeline.client() as client:
        with made.proxy.refuse():
            made.proxy.end_all()
            pipeline.wait_for_status(lambda status: status["state"] == "waiting")
            made.writer.write(5)
            purge(made.source)
        pipeline.process.wait_for_log("ERROR .* BinlogPurged")
        assert not client.get(10, 0)
    pipeline.stop()


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("gtid", [False, True], ids=["file", "gtid"])
def test_restarted(deliver, *, flavour, gtid):
    """A source whose binlog was thrown away and restarted is a clear error."""
    made = deliver(flavour, {"canal.instance.gtidon": gtid}, count=50)
    pipeline = made.pipeline
    pipeline.stop()
    made.source.execute(
        made.source.reset_binlogs,
        "CREATE DATABASE other",  # MariaDB would wait with an empty binlog
    )
    pipeline.start()
    pipeline.process.wait_for_log("ERROR .* BinlogPurged")
    pipeline.wait_for_status(lambda status: status["state"] == "waiting")
    pipeline.stop()


def restart_numbering(source, flavour: str) -> None:
    """Throw the binlog away; the executed GTIDs stay, as on a rebuilt source."""
    if flavour == "mysql":
        ((executed,),) = source.execute("SELECT @@global.gtid_executed")
        source.execute(source.reset_binlogs, f"SET GLOBAL gtid_purged = '{executed}'")
    else:
        ((state,),) = source.execute("SELECT @@global.gtid_binlog_state")
        source.execute("RESET MASTER", f"SET GLOBAL gtid_binlog_state = '{state}'")


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("restart", [True, False], ids=["restart", "reconnect"])
def test_other_file_numbers(deliver, *, flavour, restart):
    """By GTID nothing is lost when the source's files have smaller numbers now."""
    made = deliver(flavour, GTID_MODE, flushes=4)
    if restart:
        made.pipeline.stop()
    restart_numbering(made.source, flavour)
    made.checker.resume(5, 5)  # offsets go back, transactions do not
    made.writer.write(5)
    if restart:
        made.pipeline.start()
    made.receive()
    made.pipeline.stop()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_reset_to_latest_of_other_files(deliver, flavour):
    """After the jump to the end of a restarted binlog its changes arrive."""
    settings = {"canal.auto.reset.latest.pos.mode": "true"}
    made = deliver(flavour, settings, flushes=4)
    pipeline = made.pipeline
    pipeline.stop()
    restart_numbering(made.source, flavour)
    pipeline.start()
    pipeline.process.wait_for_log("ERROR .* BinlogPurged.*was reset")
    pipeline.process.wait_for_log("reads .* from")
    made.checker.resume(5, 5)
    made.writer.write(5)
    made.receive()
    pipeline.stop()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_reset_to_latest(deliver, flavour):
    """With canal.auto.reset.latest.pos.mode it becomes the current end."""
    settings = GTID_MODE | {"canal.auto.reset.latest.pos.mode": "true"}
    made = deliver(flavour, settings)
    pipeline = made.pipeline
    pipeline.stop()
    made.writer.write(5)
    purge(made.source)
    pipeline.start()
    pipeline.process.wait_for_log("ERROR .* BinlogPurged")
    pipeline.process.wait_for_log("the current end; changes in between are lost")
    pipeline.process.wait_for_log("reads .* from binlog")
    made.writer.write(5)
    made.checker.resume(10, 10)
    with pipeline.client() as client:
        pipeline.receive(client, made.checker)
        assert not client.get(10, UNIT_S / 100)
