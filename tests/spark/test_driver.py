"""What a query asks of a server, and what its tasks read: without Spark around it."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import pytest
from fix_pipeline import DESTINATION, UNIT_S
from purge import purge

from canal_server.client.range_client import RangedClient, Wire
from canal_server.errors import ClientError, PositionError, ProtocolError
from canal_server.protocol.entry_messages import RowData, decode_entry
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode
from canal_server.spark.driver import StreamDriver
from canal_server.spark.options import servers
from canal_server.spark.options.servers import Channel
from canal_server.spark.options.source_options import read_options
from canal_server.spark.reading import range_tasks
from canal_server.spark.reading.ddl_statements import dropped_schema
from canal_server.spark.reading.range_tasks import Range, pieces

pytestmark = pytest.mark.slow
NAME = "lake"
MEMORY = "canal.instance.ranged.memory.bytes"
COMMIT_BYTES_MAX = 31  # of its event, with a checksum


def options_of(pipeline, **more):
    """Return the options of a stream from a pipeline."""
    options = {
        "servers": f"127.0.0.1:{pipeline.server_port}",
        "destination": DESTINATION,
        "subscription": NAME,
        "pollTimeoutMs": str(round(3000 * UNIT_S)),
        "retryTimeoutMs": str(round(3000 * UNIT_S)),
    }
    return read_options(options | more, streaming=True)


@pytest.fixture
def make_driver(mysql_pipeline):
    """Give `make(**options)`: a driver that is closed in the end."""
    made = []

    def make(**more):
        made.append(StreamDriver(options_of(mysql_pipeline, **more)))
        return made[-1]

    yield make
    for driver in made:
        driver.close()


@pytest.fixture
def mysql_pipeline(make_pipeline, mysql_server, database):
    """Give a running pipeline from the shared MySQL."""
    made = make_pipeline(mysql_server, database)
    made.start()
    return made


def entries_of(pipeline, ranges, **more):
    """Return the entries of ranges, one after the other."""
    options = options_of(pipeline, **more)
    channel = Channel(options, DESTINATION)
    try:
        return [
            entry
            for each in ranges
            for piece in pieces(channel, options, each)
            for entry in decode(Messages, bytes(piece)).messages
        ]
    finally:
        channel.close()


def rows_of(entries):
    """Return the rows that entries carry."""
    found: list[RowData] = []
    for entry in map(decode_entry, entries):
        if entry.entry_type == 2:
            found += entry.row_change().row_datas
    return found


def wait_until_read(pipeline):
    """Wait until the server has all in memory: a batch ends where that does."""
    file, offset = pipeline.source.binlog_position()

    def has_all(status):
        name, _, reached = status["position"].partition(":")
        # It is the position of the last event, not the one after it.
        return name == file and int(reached) >= offset - COMMIT_BYTES_MAX

    pipeline.wait_for_status(has_all)


def cursor_of(pipeline):
    """Return the cursor that the server keeps."""
    with RangedClient("127.0.0.1", pipeline.server_port) as client:
        return client.locate(DESTINATION, "acked", NAME)


def test_a_batch_after_the_other(mysql_pipeline, make_driver, rng) -> None:
    """A batch resumes where the previous one ended, and requesting it acks that one."""
    driver = make_driver()
    start = driver.initial()
    assert driver.initial() == start
    writer = mysql_pipeline.writer(rng)
    writer.write(3, rows=2)
    rows = 0
    at = start
    while rows < 6:
        end = driver.latest(at)
        assert cursor_of(mysql_pipeline) == at[DESTINATION]
        rows += len(rows_of(entries_of(mysql_pipeline, driver.plan(at, end))))
        at = end
    assert rows == 6
    assert driver.plan(at, at) == []
    assert driver.initial() != at
    driver.committed(at)
    assert cursor_of(mysql_pipeline) == at[DESTINATION]


def test_limits_end_a_batch_at_a_transaction(mysql_pipeline, make_driver, rng) -> None:
    """So many rows at most, but one transaction at least; a DDL counts as a row."""
    driver = make_driver()
    at = driver.initial()
    writer = mysql_pipeline.writer(rng)
    writer.write(6, rows=4)
    wait_until_read(mysql_pipeline)
    sizes: list[int] = []
    while sum(sizes) < 24:
        end = driver.latest(at, rows_max=9)
        sizes.append(len(rows_of(entries_of(mysql_pipeline, driver.plan(at, end)))))
        at = end
    assert sizes == [8, 8, 8]
    writer.write(1, rows=12)
    end = driver.latest(at, rows_max=5)
    assert len(rows_of(entries_of(mysql_pipeline, driver.plan(at, end)))) == 12


def test_parts_together_are_the_whole(mysql_pipeline, make_driver) -> None:
    """A plan cuts a batch of known or unknown size, also inside of a transaction."""
    limits = {"minPartitionRows": "15000", "maxPartitions": "3"}
    driver = make_driver(**limits)
    table = f"{mysql_pipeline.schema}.numbers"
    mysql_pipeline.source.execute(f"CREATE TABLE {table} (n INT PRIMARY KEY)")
    at = driver.initial()
    digits = " UNION ALL ".join(f"SELECT {n} AS d" for n in range(10))
    tables = ", ".join(f"({digits}) AS t{n}" for n in range(5))
    number = " + ".join(f"t{n}.d * {10**n}" for n in range(5))
    mysql_pipeline.source.execute(
        f"INSERT INTO {table} SELECT {number} FROM {tables} LIMIT 70000"
    )
    end = driver.latest(at)
    whole = rows_of(entries_of(mysql_pipeline, [whole_of(at, end)]))
    assert len(whole) == 70_000
    for planning in (driver, make_driver(**limits)):
        parts = planning.plan(at, end)
        assert len(parts) == 3
        assert all(each.commit.journal for each in parts[:-1])
        assert rows_of(entries_of(mysql_pipeline, parts)) == whole


def test_a_large_transaction_is_cut_small(mysql_pipeline, make_driver, monkeypatch):
    """If whole parts are buffered, their bytes are limited, known or not."""
    monkeypatch.setattr(range_tasks, "PACKED_BYTES_MAX", 400_000)
    limits = {"minPartitionRows": "100000", "maxPartitions": "1"}
    driver = make_driver(payload="arrow", maxBytesPerTrigger="1000", **limits)
    at = driver.initial()
    fill(mysql_pipeline, rows=20_000, text=100)
    while len(driver.plan(at, end := driver.latest(at))) < 2:
        at = end
    for planner in (driver, make_driver(payload="arrow", **limits)):
        parts = planner.plan(at, end)
        assert len(parts) == 4  # of 5,000 rows, the least that a plan cuts
        numbers = [rows_of(entries_of(mysql_pipeline, [part])) for part in parts]
        assert sum(map(len, numbers)) == 20_000


def fill(pipeline, rows: int, text: int) -> None:
    """Make a table of numbers and texts, and fill it by one transaction."""
    table = f"{pipeline.schema}.texts"
    pipeline.source.execute(f"CREATE TABLE {table} (n INT PRIMARY KEY, t TEXT)")
    digits = " UNION ALL ".join(f"SELECT {n} AS d" for n in range(10))
    tables = ", ".join(f"({digits}) AS t{n}" for n in range(5))
    number = " + ".join(f"t{n}.d * {10**n}" for n in range(5))
    pipeline.source.execute(
        f"INSERT INTO {table} SELECT {number} AS n, REPEAT('x', {text}) FROM {tables}"
        f" HAVING n < {rows}"
    )


def whole_of(start, end):
    """Return a range that is not cut."""
    return Range(DESTINATION, start[DESTINATION], end[DESTINATION])


def test_an_idle_stream_stays_where_it_is(mysql_pipeline, make_driver) -> None:
    """Nothing matches the filter, so nothing moves; still it is acked."""
    driver = make_driver(pollTimeoutMs="0", filter=f"{mysql_pipeline.schema}\\.t")
    at = driver.initial()
    mysql_pipeline.source.execute(f"CREATE TABLE {mysql_pipeline.schema}.other (a INT)")
    mysql_pipeline.source.execute(
        f"INSERT INTO {mysql_pipeline.schema}.other VALUES (1)"
    )
    assert driver.latest(at) == at
    assert driver.latest(at) == at
    assert driver.reported()


def test_available_now_ends_where_the_source_ended(
    mysql_pipeline, make_driver, rng
) -> None:
    """What is written after the query began is left for the next one."""
    driver = make_driver(pollTimeoutMs="0")
    at = driver.initial()
    writer = mysql_pipeline.writer(rng)
    writer.write(5, rows=3)
    driver.take_targets()
    writer.write(5, rows=3)
    rows = 0
    while (end := driver.latest(at, rows_max=6)) != at:
        rows += len(rows_of(entries_of(mysql_pipeline, driver.plan(at, end))))
        at = end
    assert rows == 15


def test_available_now_ends_after_a_rotation(own_server, make_pipeline, rng) -> None:
    """It ends in the newest file, so that earlier ones may be purged."""
    source = own_server("mysql")
    source.execute("CREATE DATABASE shop")
    pipeline = make_pipeline(source, "shop")
    pipeline.start()
    writer = pipeline.writer(rng)
    at = None
    for rows in (2, 0, 3):
        with closing(StreamDriver(options_of(pipeline, pollTimeoutMs="0"))) as driver:
            at = at or driver.initial()
            if rows:
                writer.write(1, rows=rows)
            source.execute("FLUSH BINARY LOGS")
            driver.take_targets()
            found = 0
            while (end := driver.latest(at)) != at:
                found += len(rows_of(entries_of(pipeline, driver.plan(at, end))))
                at = end
            assert found == rows
        file, _ = source.binlog_position()
        assert at[DESTINATION].journal == file
        purge(source, file)


def test_a_second_query_is_refused(mysql_pipeline, make_driver, monkeypatch) -> None:
    """One reads the subscription; another may when the first has let go."""
    monkeypatch.setattr(servers, "BUSY_TIMEOUT_S", 0.1)
    first, second = make_driver(pollTimeoutMs="0"), make_driver(pollTimeoutMs="0")
    at = first.initial()
    first.latest(at)
    with pytest.raises(ClientError, match="another query") as refused:
        second.latest(at)
    assert refused.value.code == 423
    first.latest(at)
    first.close()
    monkeypatch.setattr(servers, "BUSY_TIMEOUT_S", 3 * UNIT_S)
    second.latest(at)


def test_a_server_that_restarts_is_waited_for(mysql_pipeline, make_driver, rng) -> None:
    """The first of the list is down and the second was killed; then it is back."""
    down = "127.0.0.1:1"
    port = mysql_pipeline.server_port
    driver = make_driver(servers=f"{down},127.0.0.1:{port}")
    at = driver.initial()
    writer = mysql_pipeline.writer(rng)
    writer.write(3, rows=2)
    end = driver.latest(at)
    mysql_pipeline.keep_port()
    mysql_pipeline.kill()
    mysql_pipeline.start()
    parts = driver.plan(at, end)
    assert rows_of(entries_of(mysql_pipeline, parts))
    writer.write(1)
    assert driver.latest(end) not in (at, end)


def test_a_reading_goes_on_where_the_connection_broke(
    mysql_pipeline, make_driver, make_proxy, rng
) -> None:
    """Delivered rows are not repeated, and nothing is omitted."""
    driver = make_driver()
    at = driver.initial()
    mysql_pipeline.writer(rng).write(40, rows=40)
    end = driver.latest(at)
    whole = entries_of(mysql_pipeline, [whole_of(at, end)])
    proxy = make_proxy(
        SimpleNamespace(host="127.0.0.1", port=mysql_pipeline.server_port)
    )
    options = options_of(mysql_pipeline, servers=f"127.0.0.1:{proxy.port}")
    channel = Channel(options, DESTINATION)
    found: list[bytes] = []
    for number, piece in enumerate(pieces(channel, options, whole_of(at, end))):
        found += decode(Messages, bytes(piece)).messages
        if number == 0:
            proxy.end_all()
    channel.close()
    assert found == whole


@pytest.fixture
def forgetful(make_pipeline, mysql_server, database):
    """Give a running pipeline that reads every range of the binlog again."""
    made = make_pipeline(mysql_server, database, {MEMORY: "0"})
    made.start()
    return made


def sizes(pipeline, part):
    """Return how many bytes a range has in either form."""
    with RangedClient("127.0.0.1", pipeline.server_port) as client:
        return {
            wire: sum(map(len, client.read(DESTINATION, "lake", *part, wire=wire)))
            for wire in Wire
        }


def test_either_form_is_the_same(forgetful, rng) -> None:
    """Rows that come as the binlog has them are rendered to the same entries."""
    driver = StreamDriver(options_of(forgetful))
    at = driver.initial()
    forgetful.writer(rng).write(40, rows=40)
    end = driver.latest(at)
    driver.close()
    whole = [whole_of(at, end)]
    as_entries = entries_of(forgetful, whole, wire="entry")
    assert len(rows_of(as_entries)) > 40
    assert entries_of(forgetful, whole, wire="binlog") == as_entries
    found = sizes(forgetful, (whole[0].start, whole[0].end))
    assert found[Wire.BINLOG] < found[Wire.ENTRY]


def test_a_reading_goes_on_in_the_other_form(
    make_pipeline, mysql_server, database, make_proxy, rng
) -> None:
    """A server that was killed had the range in memory, the next one has not."""
    pipeline = make_pipeline(mysql_server, database)
    pipeline.start()
    pipeline.keep_port()
    driver = StreamDriver(options_of(pipeline))
    at = driver.initial()
    pipeline.writer(rng).write(60, rows=100)
    wait_until_read(pipeline)
    end = driver.latest(at)
    driver.close()
    part = whole_of(at, end)
    whole = entries_of(pipeline, [part])
    proxy = make_proxy(SimpleNamespace(host="127.0.0.1", port=pipeline.server_port))
    options = options_of(pipeline, servers=f"127.0.0.1:{proxy.port}")
    channel = Channel(options, DESTINATION)
    found: list[bytes] = []
    for number, piece in enumerate(pieces(channel, options, part)):
        found += decode(Messages, bytes(piece)).messages
        if number == 0:
            assert len(found) < len(whole)
            pipeline.kill()
            proxy.end_all()
            pipeline.start()
    channel.close()
    assert found == whole


def test_no_server_is_reported_with_all_that_were_asked(mysql_pipeline) -> None:
    """The error names the destination, the servers and the last answer."""
    options = options_of(
        mysql_pipeline, servers="127.0.0.1:1,127.0.0.1:2", retryTimeoutMs="50"
    )
    driver = StreamDriver(options)
    with pytest.raises(
        ConnectionError,
        match=r"example: tried 127.0.0.1:1, 127.0.0.1:2 for 0\.05 s .*refused",
    ):
        driver.initial()


def test_refusals_name_server_and_destination(
    make_pipeline, mysql_server, database
) -> None:
    """A wrong password, destination or port is reported with its location."""
    pipeline = make_pipeline(mysql_server, database)
    with (pipeline.conf / "canal.properties").open("a") as properties:
        # of `canal`
        hashed = "E3619321C1A937C46A0D8BD1DAC39F93B27D4458"
        properties.write(f"\ncanal.user = me\ncanal.passwd = {hashed}\n")
    pipeline.start()
    me = {"username": "me", "password": "canal"}
    at = f"at 127.0.0.1:{pipeline.server_port}: "

    def refused(error, **more):
        with closing(StreamDriver(options_of(pipeline, **(me | more)))) as driver:
            with pytest.raises(error) as caught:
                driver.initial()
            return str(caught.value)

    wrong = refused(ClientError, password="other")
    assert wrong.startswith(f"destination example {at}auth failed for user 'me'")
    assert "other" not in wrong
    output = refused(ClientError, destination="nowhere")
    assert output == f"destination nowhere {at}can't find destination:nowhere"
    address = f"127.0.0.1:{mysql_server.port}"
    output = refused(ProtocolError, servers=address)
    assert output.startswith(f"destination example at {address}: a frame of ")
    assert output.endswith(
        "check that option servers has the address and port of a canal-server"
    )


def test_a_subscription_that_was_removed_is_made_again(
    mysql_pipeline, make_driver, rng
) -> None:
    """Spark's own offset determines where to resume, whatever the new cursor."""
    driver = make_driver()
    at = driver.initial()
    with RangedClient("127.0.0.1", mysql_pipeline.server_port) as client:
        client.unsubscribe(DESTINATION, NAME)
    mysql_pipeline.writer(rng).write(1, rows=2)
    end = driver.latest(at)
    assert rows_of(entries_of(mysql_pipeline, driver.plan(at, end)))


def test_a_destination_that_is_added_begins_at_its_cursor(
    mysql_pipeline, make_driver
) -> None:
    """A new destination is no obstacle for a checkpoint; old ones are kept."""
    driver = make_driver(pollTimeoutMs="0")
    begin = driver.initial()
    deleted = {"gone": begin[DESTINATION]}
    end = driver.latest(deleted)
    assert end == begin | deleted
    assert driver.plan(deleted, end) == []


def test_changes_that_are_purged_are_reported(own_server, make_pipeline, rng) -> None:
    """Both positions are in the error; if allowed, the stream resumes after it."""
    source = own_server("mysql")
    source.execute("CREATE DATABASE shop")
    pipeline = make_pipeline(source, "shop")
    pipeline.start()
    with closing(StreamDriver(options_of(pipeline))) as driver:
        at = driver.initial()
    writer = pipeline.writer(rng)
    writer.write(1, rows=1)
    source.execute("FLUSH BINARY LOGS")
    writer.write(1, rows=2)
    file, _ = source.binlog_position()
    purge(source, file)
    pipeline.stop()
    pipeline.configure({"canal.instance.master.journal.name": "oldest"})
    pipeline.start()
    text = r"lake of destination example.* are no longer available"
    failing = StreamDriver(options_of(pipeline))
    with closing(failing), pytest.raises(PositionError, match=text):
        failing.latest(at)
    going_on = options_of(pipeline, failOnDataLoss="false")
    with closing(StreamDriver(going_on)) as driver:
        end = driver.latest(at)
        assert len(rows_of(entries_of(pipeline, driver.plan(at, end)))) == 2


@pytest.mark.parametrize(
    ("sql", "schema"),
    [
        ("DROP DATABASE d1", "d1"),
        ("/* ours */ drop schema if exists `a``b` ;", "a`b"),
        ("drop database d1/* generated by server */", "d1"),
        ("DROP TABLE d1.t", None),
        ("CREATE DATABASE d1", None),
    ],
)
def test_statements_that_drop_a_schema(sql, schema) -> None:
    """They contain the table of a typed stream, whatever its names."""
    assert dropped_schema(sql) == schema
