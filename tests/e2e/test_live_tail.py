"""Tails over HTTP, on a server that reads a real MySQL or MariaDB."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import threading
import time
from typing import Any

import pytest
from event_stream import EventStream, post
from fix_pipeline import DESTINATION
from fix_store import eventually

from canal_server.daemon.control import ask
from canal_server.web.live_tail import TAILS_MAX

PASSWORD = hashlib.sha1(hashlib.sha1(b"secret").digest()).hexdigest()
ONE = f"/api/v1/destinations/{DESTINATION}"


@pytest.fixture
def pipeline(make_pipeline, source_server, database, monkeypatch):
    """Give a running pipeline with a port for HTTP and a table."""
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    source_server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v LONGTEXT, n INT)"
        " DEFAULT CHARSET utf8mb4"
    )
    pipeline = make_pipeline(source_server, database, {})
    pipeline.start()
    pipeline.wait_for_status(lambda status: status["state"] == "running")
    return pipeline


def tail_of(pipeline, destination=DESTINATION, **query) -> EventStream:
    """Return a tail."""
    path = f"/api/v1/destinations/{destination}/tail"
    return EventStream(port_of(pipeline), path, **query)


def port_of(pipeline) -> int:
    """Return the port for HTTP."""
    return int(ask(pipeline.conf, "status")["http_port"])


@contextlib.contextmanager
def following(pipeline, **query):
    """Give a tail that follows: it has sent its first state."""
    with tail_of(pipeline, **query) as tail:
        assert (tail.status, tail.media_type) == (
            200,
            "text/event-stream; charset=utf-8",
        )
        tail.until_state("quiet")
        yield tail


def ids_of(pipeline, client, count):
    """Receive and ack so many rows; returns their ids."""
    found: list[int] = []
    for message in pipeline.messages(client, batch_size=10_000):
        found += [change.after["id"] for change in message.changes() if change.after]
        client.ack(message.id)
        if len(found) >= count:
            break
    return found


def test_changes_in_order(pipeline):
    """Rows and statements come in order, with their values, position and time."""
    before_ms = (time.time_ns() // 1_000_000_000 - 1) * 1000
    table = f"{pipeline.schema}.t"
    with following(pipeline, table=table) as tail:
        for sql in (
            f"INSERT INTO {table} VALUES (1, 'a', NULL)",
            f"UPDATE {table} SET v = 'b' WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 1",
            f"ALTER TABLE {table} ADD COLUMN w INT",
            f"INSERT INTO {table} VALUES (2, 'c', 3, 4)",
            f"TRUNCATE TABLE {table}",
        ):
            pipeline.source.execute(sql)
        found = tail.changes(6)
    kinds = [each["kind"] for each in found]
    assert kinds == ["insert", "update", "delete", "ddl", "insert", "truncate"]
    insert, update, delete, ddl, second, _ = found
    old, new = ({"id": "1", "v": text, "n": None} for text in "ab")
    assert (insert["before"], insert["after"]) == (None, old)
    assert (update["before"], update["after"]) == (old, new)
    assert (delete["before"], delete["after"]) == (new, None)
    assert [each["changed"] for each in found] == [[], ["v"], [], [], [], []]
    assert [each["key"] for each in found[:3]] == [["id"]] * 3
    assert ddl["sql"].startswith("ALTER TABLE")
    assert second["after"] == {"id": "2", "v": "c", "n": "3", "w": "4"}
    assert {(each["schema"], each["table"]) for each in found} == {
        (pipeline.schema, "t")
    }
    offsets = [each["offset"] for each in found]
    assert offsets == sorted(offsets)
    file, _ = pipeline.source.binlog_position()
    assert {each["file"] for each in found} == {file}
    assert all(each["commit_time_ms"] >= before_ms for each in found)


def test_hostile_values(pipeline):
    """HTML, line breaks, NUL and a megabyte come as they are, in one line of JSON."""
    values = [
        "<script>alert(1)</script>",
        "a\nb\r\nc\u2028d\n\nevent: x\ndata: y\n\n",
        "\0\x01\x1b[31m",
        "…'\"\\` 😀",
        "y" * 1024 * 1024,
        "",
    ]
    table = f"{pipeline.schema}.t"
    with following(pipeline, table=table) as tail:
        for number, value in enumerate(values):
            pipeline.source.execute(
                f"INSERT INTO {table} VALUES ({number},"
                f" CONVERT(X'{value.encode().hex()}' USING utf8mb4), NULL)"
            )
        found = [each["after"]["v"] for each in tail.changes(len(values))]
    assert found == values


def test_filter(pipeline):
    """Only what the filter matches comes; what cannot be one is refused."""
    source, schema = pipeline.source, pipeline.schema
    for name in ("orders", "orders_old", "people"):
        source.execute(f"CREATE TABLE {schema}.{name} (id INT PRIMARY KEY)")
    with following(pipeline, table=rf"{schema}\.orders.*,{schema}.t") as tail:
        for number, name in enumerate(("people", "orders", "people", "orders_old")):
            source.execute(f"INSERT INTO {schema}.{name} VALUES ({number})")
        source.execute(f"INSERT INTO {schema}.t VALUES (1, NULL, NULL)")
        found = [each["table"] for each in tail.changes(3)]
    assert found == ["orders", "orders_old", "t"]
    with tail_of(pipeline, table="shop.(") as tail:
        assert (tail.status, tail.problem()["status"]) == (422, 422)
    with tail_of(pipeline, tabel="shop.t") as tail:
        assert tail.problem()["detail"] == "unknown parameters: tabel"
    with tail_of(pipeline, "none") as tail:
        assert tail.problem()["detail"] == "can't find destination:none"


def test_a_table_that_nobody_asks_for(pipeline):
    """The state says that it is not read; once a client asks for it, rows come."""
    table = f"{pipeline.schema}.t"
    with (
        pipeline.client(1001, rf"{pipeline.schema}\.other"),
        tail_of(pipeline, table=table) as tail,
    ):
        state = tail.until_state("not_read")
        assert f"no client subscribes to '{table}'" in state["reason"]
        with pipeline.client(1002, rf"{pipeline.schema}\.t"):
            tail.until_state("quiet")
            pipeline.source.execute(f"INSERT INTO {table} VALUES (1, 'a', 2)")
            (found,) = tail.changes(1)
            assert found["after"] == {"id": "1", "v": "a", "n": "2"}


def test_clients_do_not_notice(pipeline):
    """Neither a cursor nor a subscription appears; the client gets and acks all."""
    table = f"{pipeline.schema}.t"
    with pipeline.client(1001) as client, following(pipeline) as tail:
        for number in range(3):
            pipeline.source.execute(f"INSERT INTO {table} VALUES ({number}, 'a', 1)")
        assert [each["after"]["id"] for each in tail.changes(3)] == ["0", "1", "2"]
        status = pipeline.status()
        assert (status["clients"], status["connected"]) == ([1001], [1001])
        assert status["ranges"]["subscriptions"] == {}
        assert ids_of(pipeline, client, 3) == [0, 1, 2]
        pipeline.settle(client)
        pipeline.wait_for_status(lambda status: status["slowest_client"] is None)


def test_a_reader_that_does_not_read(pipeline):
    """It misses changes and learns how many; a client beside it gets all of them."""
    table, rows = f"{pipeline.schema}.t", 60
    value = "x" * 1024 * 1024
    with pipeline.client(1001) as client, following(pipeline, table=table) as tail:
        written = threading.Thread(target=write, args=(pipeline, rows, value))
        before = pipeline.process.memory_max_mib()
        written.start()
        assert ids_of(pipeline, client, rows) == list(range(rows))
        written.join()
        used = pipeline.process.memory_max_mib() - before
        # Its queue, the events under way, and what the ring and the client hold anyway.
        assert used < rows * 2, f"{used} MiB"

        skipped = seen = 0
        while seen + skipped < rows:
            event = tail.until("insert", "skipped")
            if event.name == "skipped":
                assert event.data["reason"] == "the reader is too slow"
                skipped += event.data["rows"]
            else:
                seen += 1
        assert skipped > 0
        assert seen + skipped == rows
        assert event.data["after"]["id"] == str(rows - 1), "the newest are kept"


def write(pipeline, rows, value):
    """Write rows, each in its own transaction."""
    for number in range(rows):
        pipeline.source.execute(
            f"INSERT INTO {pipeline.schema}.t VALUES ({number}, '{value}', 1)"
        )


def test_limit(pipeline):
    """One too many is refused by name; after a disconnect there is room again."""
    with contextlib.ExitStack() as stack:
        tails = [stack.enter_context(tail_of(pipeline)) for _ in range(TAILS_MAX)]
        assert [each.status for each in tails] == [200] * TAILS_MAX
        with tail_of(pipeline) as refused:
            problem = refused.problem()
        assert (refused.status, problem["limit"]) == (429, TAILS_MAX)
        assert f"{TAILS_MAX} tails are open" in problem["detail"]
        tails[0].close()

        def is_accepted():
            with tail_of(pipeline) as another:
                return another.status == 200

        eventually(is_accepted)
        pipeline.process.wait_for_log("a tail of destination example ended for 127")


def test_stop_of_the_server(pipeline):
    """The stream says that the server ends, and ends with it; nothing is cut off."""
    with following(pipeline) as tail:
        process = pipeline.process
        pipeline.stop()
        assert tail.until_state("stopping")["reason"] == "the server is shutting down"
        assert tail.next() is None
    assert not any("Traceback" in line or "ERROR" in line for line in process.log)


def test_stop_of_the_server_with_a_reader_that_does_not_read(pipeline):
    """It does not delay the stop, which is clean."""
    with following(pipeline):
        write(pipeline, 20, "x" * 1024 * 1024)
        process = pipeline.process
        pipeline.stop()
    assert not any("Traceback" in line or "ERROR" in line for line in process.log)


def test_stop_and_start_of_the_destination(pipeline):
    """The stream says that it stopped, and continues once it is started again."""
    table = f"{pipeline.schema}.t"
    with following(pipeline, table=table) as tail:
        assert post(port_of(pipeline), f"{ONE}/stop") == 202
        state = tail.until_state("stopped")
        assert state["reason"] == "an operator stopped the destination"
        assert post(port_of(pipeline), f"{ONE}/start") == 202
        tail.until_state("quiet")
        pipeline.source.execute(f"INSERT INTO {table} VALUES (1, 'a', NULL)")
        assert tail.changes(1)[0]["after"]["v"] == "a"


def test_a_move_of_clients(pipeline):
    """The stream continues after a move, with what the server reads again."""
    table = f"{pipeline.schema}.t"
    line = pipeline.process.wait_for_log("starts at .*: configured")
    start = re.search(r"starts at (\S+:\d+): configured", line)
    assert start
    with pipeline.client(1001), following(pipeline, table=table) as tail:
        pipeline.source.execute(f"INSERT INTO {table} VALUES (1, 'a', NULL)")
        first = tail.changes(1)
        body = {"to": start[1], "clients": [1001]}
        assert post(port_of(pipeline), f"{ONE}/seek", body) == 200
        pipeline.process.wait_for_log("an operator moved client 1001")
        pipeline.source.execute(f"INSERT INTO {table} VALUES (2, 'b', NULL)")
        found = [*first, *tail.changes(1)]
        while found[-1]["after"]["id"] != "2":
            found += tail.changes(1)
        assert {each["after"]["id"] for each in found} == {"1", "2"}


def test_a_group(make_group, mysql_server, mariadb_server, database, monkeypatch):
    """The changes of all sources come, each with the position in its own binlog."""
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    servers = [mysql_server, mariadb_server]
    mariadb_server.execute(f"CREATE DATABASE IF NOT EXISTS {database}")
    try:
        group = make_group(database, servers)
        for server in servers:
            server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
        group.pipeline.start()
        with following(group.pipeline, table=f"{database}.t") as tail:
            group.wait_until_running()
            for number, server in enumerate(servers):
                server.execute(f"INSERT INTO {database}.t VALUES ({number})")
            found: list[dict[str, Any]] = []
            while len(found) < len(servers):
                found += [each for each in tail.changes(1) if each["kind"] == "insert"]
        assert sorted(each["after"]["id"] for each in found) == ["0", "1"]
    finally:
        mariadb_server.execute(f"DROP DATABASE {database}")


def test_gtids(make_pipeline, mysql_server, database, monkeypatch):
    """In GTID mode, a change has the GTID of its transaction, as the Python client."""
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    mysql_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    settings = {"canal.instance.gtidon": "true"}
    pipeline = make_pipeline(mysql_server, database, settings)
    pipeline.start()
    with pipeline.client() as client, following(pipeline) as tail:
        mysql_server.execute(f"INSERT INTO {database}.t VALUES (1)")
        (found,) = tail.changes(1)
        message = next(pipeline.messages(client, batch_size=1000))
        (change,) = (each for each in message.changes() if each.kind == "insert")
        assert re.fullmatch(r"[0-9a-f-]{36}:\d+", found["gtid"])
        assert found["gtid"] == change.gtid


def test_quiet(pipeline):
    """After changes, the state has the time of the last one."""
    table = f"{pipeline.schema}.t"
    with following(pipeline, table=table) as tail:
        pipeline.source.execute(f"INSERT INTO {table} VALUES (1, 'a', 1)")
        (change,) = tail.changes(1)
        quiet = tail.until_state("quiet")
        assert quiet["reason"] == f"no further change that '{table}' matches"
        assert quiet["since_ms"] >= change["commit_time_ms"]
        assert quiet["position"] == pipeline.status()["position"]


def test_a_source_that_cannot_be_read(
    make_pipeline, mysql_server, database, monkeypatch
):
    """The state has the error of the source, and since when."""
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    wrong = {"canal.instance.dbPassword": "not this one"}
    pipeline = make_pipeline(mysql_server, database, wrong)
    pipeline.start()
    with tail_of(pipeline) as tail:
        state = tail.until_state("waiting")
        assert "the source cannot be read: " in state["reason"]
        assert "Access denied" in state["reason"]
        assert state["since_ms"] > 0


def test_a_full_ring(make_pipeline, mysql_server, database, monkeypatch):
    """The state says for whom reading waits; the tail has freed nothing for it."""
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    mysql_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    settings = {
        "canal.instance.memory.buffer.size": 16,
        "canal.instance.memory.batch.mode": "ITEMSIZE",
    }
    pipeline = make_pipeline(mysql_server, database, settings)
    pipeline.start()
    with pipeline.client(1001) as client, tail_of(pipeline) as tail:
        for number in range(16):
            mysql_server.execute(f"INSERT INTO {database}.t VALUES ({number})")
        state = tail.until_state("blocked_on_client")
        assert "ring full, waits for client 1001" in state["reason"]
        assert ids_of(pipeline, client, 16) == list(range(16))
        tail.until_state("quiet")


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({}, True),
        ({"CANAL_PASSWD": PASSWORD, "CANAL_USER": "canal"}, False),
        ({"CANAL_HTTP_IP": "0.0.0.0"}, False),
        ({"CANAL_PASSWD": PASSWORD, "CANAL_HTTP_USER": "ops",
          "CANAL_HTTP_PASSWD": PASSWORD}, True),
    ],
)  # fmt: skip
def test_rights(make_pipeline, mysql_server, database, monkeypatch, settings, allowed):  # noqa: PLR0917  # a table
    """Without a login there is no data if the port is open, or clients log in."""
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    for key, value in settings.items():
        monkeypatch.setenv(key, value)
    pipeline = make_pipeline(mysql_server, database, {})
    pipeline.start()
    login = "ops:secret" if "CANAL_HTTP_USER" in settings else ""
    headers = basic(login) if login else {}
    path = f"{ONE}/tail"
    with EventStream(port_of(pipeline), path, headers) as tail:
        assert tail.status == (200 if allowed else 403)
        if not allowed:
            assert "canal.http.user" in tail.problem()["detail"]
    if login:
        with EventStream(port_of(pipeline), path) as tail:
            assert tail.status == 401
    with EventStream(port_of(pipeline), "/api/v1/destinations", headers) as shown:
        assert shown.content()["allows_tails"] is allowed


def basic(login: str) -> dict[str, str]:
    """Return the header of a login."""
    return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
