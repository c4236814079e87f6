"""Several clients on one destination, slow ones, and those that go while they wait."""

from __future__ import annotations

import pytest
from fix_pipeline import DESTINATION, UNIT_S

from canal_server.client import EntryType, EventType
from canal_server.client.connection.io_steps import run
from canal_server.protocol.packets import Get, PacketType

RED, BLUE = 1001, 1002


def received(entries):
    """Return table and key of each inserted row."""
    return [
        (entry.header.table_name, row.after["a"])
        for entry in entries
        if entry.entry_type == EntryType.ROWDATA
        and entry.header.event_type == EventType.INSERT
        for row in entry.row_change().row_datas
    ]


def take(pipeline, client, count):
    """Receive and ack so many inserted rows."""
    found = []
    for message in pipeline.messages(client):
        found += received(message.entries)
        client.ack(message.id)
        if len(found) >= count:
            pipeline.settle(client)
            return found
    raise AssertionError("messages never end")


@pytest.fixture
def tables(pipeline):
    """Give `insert(*keys)`, which inserts each key into both tables."""
    schema = pipeline.schema
    pipeline.source.execute(
        *(f"CREATE TABLE {schema}.{name} (a INT)" for name in ("red", "blue"))
    )

    def insert(*keys):
        for key in keys:
            pipeline.source.execute(
                "BEGIN",
                f"INSERT INTO {schema}.red VALUES ({key})",
                f"INSERT INTO {schema}.blue VALUES ({key})",
                "COMMIT",
            )

    return insert


def test_filters(pipeline, tables):
    """Two clients get what their own filters say, and go on where each stood."""
    red_filter, blue_filter = (rf"{pipeline.schema}\.{n}" for n in ("red", "blue"))
    with (
        pipeline.client(RED, red_filter) as red,
        pipeline.client(BLUE, blue_filter) as blue,
    ):
        tables(1, 2, 3)
        assert take(pipeline, red, 3) == [("red", "1"), ("red", "2"), ("red", "3")]
        tables(4)
        assert take(pipeline, red, 1) == [("red", "4")]
        assert take(pipeline, blue, 4) == [("blue", str(n)) for n in (1, 2, 3, 4)]
        # From here blue falls behind.
        tables(5, 6)
        assert take(pipeline, red, 2) == [("red", "5"), ("red", "6")]
    pipeline.stop()
    pipeline.start()
    tables(7)
    with (
        pipeline.client(RED, red_filter) as red,
        pipeline.client(BLUE, blue_filter) as blue,
    ):
        assert take(pipeline, red, 1) == [("red", "7")]
        assert take(pipeline, blue, 3) == [("blue", str(n)) for n in (5, 6, 7)]


def test_filter_changed(pipeline, tables):
    """A client that subscribes with another filter goes on with that one."""
    with pipeline.client(RED, rf"{pipeline.schema}\.red") as client:
        tables(1)
        assert take(pipeline, client, 1) == [("red", "1")]
        client.subscribe(rf"{pipeline.schema}\.blue")
        tables(2)
        assert take(pipeline, client, 1) == [("blue", "2")]


def test_black_list(make_pipeline, source_server, database):
    """Whatever a client's filter says, it gets nothing of a black table."""
    pipeline = make_pipeline(
        source_server,
        database,
        {"canal.instance.filter.black.regex": rf"{database}\.secret"},
    )
    pipeline.start()
    name = f"{database}.secret"
    with pipeline.client(RED, rf"{database}\..*") as client:
        source_server.execute(
            f"CREATE TABLE {name} (a INT)",
            f"INSERT INTO {name} VALUES (1)",
            f"CREATE TABLE {database}.open (a INT)",
            f"INSERT INTO {database}.open VALUES (2)",
        )
        assert take(pipeline, client, 1) == [("open", "2")]


def test_slow_client(make_pipeline, source_server, database, rng):
    """The ring holds a bounded part until its slow client takes all of it."""
    size = 64
    pipeline = make_pipeline(
        source_server,
        database,
        {
            "canal.instance.memory.buffer.size": size,
            "canal.instance.memory.batch.mode": "ITEMSIZE",
            "canal.instance.transaction.size": 16,
        },
    )
    pipeline.start()
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client:
        writer.write(500)
        changes = sum(map(len, writer.transactions))
        # A whole put does not fit any more when less than a buffer's worth is free.
        pipeline.wait_for_status(lambda status: status["rows"] >= size // 8)
        # Each entry of rows has at most four.
        assert pipeline.status()["rows"] <= 4 * size < changes
        pipeline.receive(client, checker, batch_size=10)
        pipeline.wait_for_status(lambda status: status["rows"] == changes)
    assert checker.repeated == 0


def test_stop_under_back_pressure(make_pipeline, source_server, database, rng):
    """A server whose ring is full stops at once, and goes on after that."""
    pipeline = make_pipeline(
        source_server,
        database,
        {
            "canal.instance.memory.buffer.size": 16,
            "canal.instance.memory.batch.mode": "ITEMSIZE",
            "canal.instance.transaction.size": 16,
        },
    )
    pipeline.start()
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client:
        writer.write(100)
        pipeline.receive(client, checker, count=5, batch_size=1)
        acked = checker.done
        pipeline.stop()
    checker.resume(acked, acked)
    pipeline.start()
    with pipeline.client() as client:
        pipeline.receive(client, checker)


def test_closed_while_waiting(pipeline, rng):
    """A get whose client goes takes no batch: the next get has the next batch's id."""
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    endless = Get(DESTINATION, str(RED), 1000, 0, 2, auto_ack=False)
    with pipeline.client(RED) as client:
        message = client.get(1000, UNIT_S)  # the table's creation
        last_id = message.id
        client.ack(last_id)
        for number in range(1, 4):
            # One that comes begins with a rollback, which would be before a late ack.
            pipeline.settle(client)
            with pipeline.client(RED) as leaving:
                request = leaving._stream.session._send_unanswered(
                    PacketType.GET, endless
                )
                run(request, leaving._connection)
            writer.write(1)
            while checker.done < number:
                message = client.get(1000, UNIT_S)
                assert message.id == last_id + 1
                last_id = message.id
                checker.take(message.entries)
                client.ack(message.id)
    assert checker.repeated == 0


def test_never_acked(pipeline, rng):
    """What a client never acked comes after a restart, whatever others acked."""
    with pipeline.client(RED) as red, pipeline.client(BLUE) as blue:
        writer = pipeline.writer(rng)
        writer.write(20)
        pipeline.receive(red, pipeline.checker(writer))
        assert blue.get(1000, UNIT_S)
    pipeline.stop()
    pipeline.start()
    with pipeline.client(BLUE) as blue:
        pipeline.receive(blue, pipeline.checker(writer))


@pytest.mark.parametrize("gtid", [False, True], ids=["file", "gtid"])
@pytest.mark.parametrize("got", [False, True], ids=["idle", "got"])
def test_ended_before_the_first_ack(
    make_pipeline, source_server, database, rng, *, got, gtid
):
    """Without a configured position too, changes since the subscription come again."""
    nothing = dict.fromkeys(
        f"canal.instance.master.{key}" for key in ("journal.name", "position")
    )
    settings = nothing | {"canal.instance.gtidon": gtid}
    pipeline = make_pipeline(source_server, database, settings)
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    pipeline.start()
    with pipeline.client() as client:
        pipeline.wait_for_status(lambda status: status["state"] == "running")
        writer.write(5)
        if got:
            assert client.get(10, UNIT_S)
        else:
            pipeline.wait_for_status(lambda status: status["rows"] > 0)
    pipeline.stop()
    pipeline.start()
    with pipeline.client() as client:
        pipeline.receive(client, checker)


@pytest.mark.parametrize("annotated", [False, True], ids=["rows", "annotated"])
def test_late_subscription(make_pipeline, source_server, database, rng, annotated):
    """Entries that waited for a client's subscription come after a restart as well."""
    pipeline = make_pipeline(
        source_server, database, {"canal.instance.filter.query.dml": not annotated}
    )
    writer = pipeline.writer(rng)
    # After the table's creation: the first entry is one of a transaction.
    file, offset = source_server.binlog_position()
    pipeline.configure(
        {
            "canal.instance.master.journal.name": file,
            "canal.instance.master.position": offset,
        }
    )
    checker = pipeline.checker(writer)
    writer.write(5)
    pipeline.start()
    pipeline.wait_for_status(lambda status: status["transactions"] == 5)
    with pipeline.client() as client:
        assert client.get(10, UNIT_S)
    pipeline.stop()
    pipeline.start()
    with pipeline.client() as client:
        pipeline.receive(client, checker)


def test_subscription_amid_a_transaction(pipeline, rng):
    """A client that comes amid a transaction receives all of it."""
    writer = pipeline.writer(rng)
    writer.write(2, rows=40)
    with pipeline.client(RED) as red:
        # The table's creation and some rows are acked and freed.
        for _ in range(10):
            red.ack(red.get(1, UNIT_S).id)
        with pipeline.client(BLUE) as blue:
            assert blue.get(1, UNIT_S)
        # From here on BLUE is the slowest.
        for message in pipeline.messages(red):
            red.ack(message.id)
            if message.entries[-1].entry_type == EntryType.TRANSACTIONEND:
                break
    pipeline.stop()
    pipeline.start()
    with pipeline.client(BLUE) as blue:
        pipeline.receive(blue, pipeline.checker(writer))
