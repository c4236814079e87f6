"""The link between the server and its source breaks in every way.

Within one life of the server nothing is lost and nothing is doubled: the checkers
are never informed that the stream may begin again.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from fix_pipeline import UNIT_S
from fix_store import eventually
from purge import kill_dumps

# A transaction of one row makes about so many bytes of events.
ROW_BYTES = 600


@pytest.fixture
def proxy(make_proxy, source_server):
    """Give a proxy before the shared servers."""
    return make_proxy(source_server)


@pytest.fixture
def linked(make_pipeline, source_server, database, proxy):
    """Give `linked(settings)`: a running pipeline behind the proxy."""

    def start(settings=None):
        made = make_pipeline(source_server, database, settings, proxy=proxy)
        made.start()
        return made

    return start


def dump_bytes(server, file, offset):
    """Return how many bytes a dump has from an offset to the end of the binlog."""
    events = server.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {offset}")
    # Each event is a packet: 4 bytes of header and the mark of success before it.
    return int(events[-1][4]) - offset + 5 * len(events)


def replicas(server):
    """Return the ids of the replicas that have registered."""
    asked = "SHOW SLAVE HOSTS" if server.flavour == "mariadb" else "SHOW REPLICAS"
    return {row[0] for row in server.execute(asked)}


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_cut_at_random(linked, proxy, rng, reset):
    """Cut after any bytes, also inside of events, the stream goes on exactly."""
    pipeline = linked({"canal.instance.transaction.size": 8})
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client:
        cuts = [rng.randrange(1, 100 * ROW_BYTES) for _ in range(3)]
        print("cuts", cuts)
        with proxy.cut(*cuts, reset=reset):
            writer.write(100, rows=5)
            pipeline.receive(client, checker)
            assert proxy.cuts_done > 0
    assert checker.repeated == 0


@pytest.mark.slow
@pytest.mark.parametrize("gtid", [False, True], ids=["file", "gtid"])
def test_cut_often(linked, proxy, rng, gtid):
    """Transactions of all sizes survive many cuts in one life of the server."""
    pipeline = linked(
        {"canal.instance.transaction.size": 16, "canal.instance.gtidon": gtid}
    )
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client:
        cuts = [rng.randrange(1, 150 * ROW_BYTES) for _ in range(6)]
        print("cuts", cuts)
        with proxy.cut(*cuts):
            for _ in range(40):
                writer.write(1, rows=rng.choice((1, 2, 15, 40)))
            pipeline.receive(client, checker)
            assert proxy.cuts_done > 0
    assert checker.repeated == 0


@pytest.mark.parametrize("size", [8, 1024])
def test_cut_inside_of_large(linked, proxy, rng, size):
    """A transaction longer than the buffer is cut twice and arrives once."""
    pipeline = linked({"canal.instance.transaction.size": size})
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client:
        writer.write(1)
        pipeline.receive(client, checker)
        total = size * 2 * ROW_BYTES
        cuts = [rng.randrange(1, total // 2), rng.randrange(1, total // 2)]
        print("cuts", cuts)
        with proxy.cut(*cuts):
            writer.write(1, rows=size * 4)
            writer.write(5)
            pipeline.receive(client, checker)
            assert proxy.cuts_done == 2
    assert checker.repeated == 0


@pytest.mark.parametrize("missing", [1, 36, 37, 300])
def test_cut_before_end(linked, proxy, rng, database, missing):
    """Cut amid or just before a long transaction's END, the END comes all the same.

    Also at a time when transactions without rows are left out.
    """
    pipeline = linked(
        {
            "canal.instance.transaction.size": 4,
            "canal.instance.filter.regex": rf"{database}\.ledger",
        }
    )
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    execute = pipeline.source.execute
    with pipeline.client() as client, ExitStack() as faults:
        execute(f"CREATE TABLE {database}.other (a INT)")
        execute(*[f"INSERT INTO {database}.other VALUES (1)"] * 2)
        writer.write(1)
        pipeline.receive(client, checker)
        file, offset = pipeline.source.binlog_position()
        with proxy.stall():
            execute(*[f"INSERT INTO {database}.other VALUES (1)"] * 3)
            writer.write(1, rows=50)
            size = dump_bytes(pipeline.source, file, offset)
            print(size, "bytes, cut", missing, "before the end")
            faults.enter_context(proxy.cut(size - missing))
        proxy.wait_for_cuts(1, UNIT_S)
        writer.write(3)
        pipeline.receive(client, checker)
    assert checker.repeated == 0


@pytest.mark.parametrize("fault", ["stall", "silence"])
def test_silence(linked, proxy, rng, fault, source_server):
    """A source that says nothing any more is given up, and asked again.

    Also when those who ask again are not answered: a frozen server, a dead link. A
    MariaDB is asked by another replica: the dump of before would hold that one up.
    """
    pipeline = linked(
        {
            "canal.instance.network.heartbeat.seconds": 1,
            "canal.instance.network.silence.seconds": 2,
        }
    )
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client:
        writer.write(5)
        pipeline.receive(client, checker)
        before = replicas(source_server)
        with getattr(proxy, fault)():
            writer.write(5)
            pipeline.process.wait_for_log("ConnectionLost: .* sent nothing")
            if fault == "stall":
                # It is no error any more while the source is asked again.
                pipeline.wait_for_status(
                    lambda status: "sent nothing" in status["error"]
                )
        pipeline.receive(client, checker)
        is_mariadb = source_server.flavour == "mariadb"
        # A temporary dump, for columns or positions, ends by itself.
        eventually(lambda: (not replicas(source_server) <= before) == is_mariadb)
    assert checker.repeated == 0


def test_unreachable(linked, proxy, rng):
    """While the source is out of reach the error is shown, then the stream resumes."""
    pipeline = linked()
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client:
        writer.write(5)
        pipeline.receive(client, checker)
        with proxy.refuse():
            proxy.end_all()
            writer.write(5)
            pipeline.wait_for_status(lambda s: s["state"] == "waiting" and s["error"])
            # Clients are served meanwhile.
            assert not client.get(10, 0)
        pipeline.receive(client, checker)
        pipeline.wait_for_status(lambda s: s["state"] == "running" and not s["error"])
    assert checker.repeated == 0


def test_dump_killed(pipeline, rng):
    """A dump that an administrator killed begins again where it was."""
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client:
        writer.write(5)
        pipeline.receive(client, checker)
        kill_dumps(pipeline.source)
        pipeline.process.wait_for_log("ERROR .* ConnectionLost")
        writer.write(5)
        pipeline.receive(client, checker)
    assert checker.repeated == 0


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
@pytest.mark.parametrize(
    "how", ["killed", pytest.param("restarted", marks=pytest.mark.slow)]
)
def test_source_restarted(own_server, make_pipeline, rng, flavour, how):
    """When the source comes back, the instance continues without loss or repetition."""
    source = own_server(flavour)
    source.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
    pipeline = make_pipeline(source, "shop")
    pipeline.start()
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client:
        writer.write(20)
        pipeline.receive_some(client, checker, 2, batch_size=5)
        if how == "killed":
            source.kill()
        source.restart()
        writer.write(20)
        pipeline.receive(client, checker)
    assert checker.repeated == 0


def test_held_amid_a_transaction(linked, proxy, source_server):
    """Nothing of a transaction is delivered before all of it has arrived.

    Also with the texts of statements, which the servers put between its rows.
    """
    pipeline = linked()
    table = f"{pipeline.schema}.t"
    source_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v LONGTEXT)")
    texts = (
        "SET SESSION binlog_annotate_row_events = ON"
        if source_server.flavour == "mariadb"
        else "SET SESSION binlog_rows_query_log_events = ON"
    )

    def write(*ids: int) -> None:
        inserts = [
            f"INSERT INTO {table} VALUES ({number}, REPEAT('x', 400000))"
            for number in ids
        ]
        source_server.execute(texts, "BEGIN", *inserts, "COMMIT")

    def ids_of(message) -> list[str]:
        return [
            row.after["id"]
            for entry in message.entries
            if entry.header.table_name == "t"
            for row in entry.row_change().row_datas
        ]

    with pipeline.client() as client:
        client.subscribe(".*\\..*")
        write(1)
        found: list[str] = []
        while found != ["1"]:
            message = client.get(1000, timeout_s=UNIT_S)
            found += ids_of(message)
            client.ack(message.id)
        with proxy.hold(600_000) as held:
            write(2, 3)
            assert held.wait(UNIT_S)
            message = client.get(1000, timeout_s=2)
            assert ids_of(message) == []
            client.rollback()
        while found != ["1", "2", "3"]:
            message = client.get(1000, timeout_s=UNIT_S)
            found += ids_of(message)
            client.ack(message.id)
