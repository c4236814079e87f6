"""What `status` shows of a destination on a real server: what blocks, lag, errors."""

from __future__ import annotations

import json

import pytest
from fake_mysql import account
from fix_store import eventually

from canal_server import cli

RED, SLOW = 1001, 1002
RING = 16


@pytest.fixture
def small(make_pipeline, source_server, database):
    """Give a running pipeline with a small ring."""
    pipeline = make_pipeline(
        source_server,
        database,
        {
            "canal.instance.memory.buffer.size": RING,
            "canal.instance.memory.batch.mode": "ITEMSIZE",
        },
    )
    source_server.execute(f"CREATE TABLE {database}.red (a INT)")
    pipeline.start()
    return pipeline


def insert(pipeline, count):
    """Commit so many transactions of one row."""
    for number in range(count):
        pipeline.source.execute(f"INSERT INTO {pipeline.schema}.red VALUES ({number})")


def status_of(pipeline, capsys, *options):
    """Run the command; returns its exit status and what it printed."""
    capsys.readouterr()
    status = cli.main(["status", "--conf", str(pipeline.conf), *options])
    return status, capsys.readouterr().out


def test_a_full_ring(small, capsys):
    """A client that does not ack is named by the text, the JSON and a probe."""
    assert status_of(small, capsys, "--check")[0] == 0
    with small.client(RED), small.client(SLOW) as slow:
        insert(small, RING)
        small.wait_for_status(lambda shown: shown["blocked"])
        shown = small.status()
        assert shown["blocked"]["reason"] == "ring full, waits for clients 1001, 1002"
        assert shown["slowest_client"]["entries"] >= RING // 2
        assert shown["connected"] == [RED, SLOW]
        assert shown["slowest_client"]["connected"] is True
        _, text = status_of(small, capsys)
        row = next(line for line in text.splitlines() if line.startswith("example"))
        assert row.split()[1] == "blocked"
        assert "example: blocked: ring full, waits for clients 1001, 1002 (" in text
        assert "example: slowest client " in text
        probe = ("--check", "--max-blocked", "0s")
        status, text = status_of(small, capsys, *probe, "--json")
        assert status == 5
        assert "blocked: ring full" in json.loads(text)["problems"][0]["problem"]
        slow.unsubscribe()
    with small.client(RED) as client:
        small.wait_for_status(
            lambda shown: shown["blocked"] and shown["blocked"]["clients"] == [RED]
        )
        for message in small.messages(client):
            client.ack(message.id)
            small.settle(client)
            if (
                not (shown := small.status())["blocked"]
                and shown["slowest_client"] is None
            ):
                break
        eventually(lambda: small.status()["lag"] == {"seconds": 0.0, "bytes": 0})
        assert status_of(small, capsys, *probe)[0] == 0


def test_warnings(make_pipeline, source_server, database, capsys):
    """What the start warns of is in the text and the JSON, until it is mended."""
    key = "canal.instance.filter.regex"
    regex = {key: rf"{database}\.red,{database}\.late"}
    pipeline = make_pipeline(source_server, database, regex)
    source_server.execute(f"CREATE TABLE {database}.red (a INT)")
    pipeline.start()
    pipeline.wait_for_status(lambda status: status["warnings"])
    (warning,) = pipeline.status()["warnings"]
    assert warning.startswith(f"{key}: no table that account ")
    assert rf"matches '{database}\.late': correct it" in warning
    assert f"example: warning: {warning}\n" in status_of(pipeline, capsys)[1]
    source_server.execute(f"CREATE TABLE {database}.late (a INT)")
    pipeline.kill()
    pipeline.start()
    pipeline.wait_for_status(lambda status: status["lag"]["seconds"] == 0)
    assert pipeline.status()["warnings"] == []


def test_select_is_granted_late(make_pipeline, source_server, database):
    """1. no SELECT: warning, then error; 2. granted: no report of a contradiction.

    3. revoked: the warning stands in the status, rows are read by the history.
    """
    name = f"u{database[-8:]}"
    account_of = {
        "canal.instance.dbUsername": name,
        "canal.instance.dbPassword": "x",
        "canal.instance.master.allowPublicKeyRetrieval": "true",
    }
    table = f"{database}.red"
    source_server.execute(f"CREATE TABLE {table} (a INT)", "FLUSH BINARY LOGS")
    rights = f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{name}'@'%'"
    with account(source_server, name, "IDENTIFIED BY 'x'", rights):
        pipeline = make_pipeline(source_server, database, account_of)
        pipeline.start()
        source_server.execute(f"INSERT INTO {table} VALUES (1)")
        pipeline.wait_for_status(lambda status: "lacks SELECT" in status["error"])
        (warning,) = pipeline.status()["warnings"]
        assert f"account {name} at " in warning
        assert "sees no table" in warning
        pipeline.stop()

        source_server.execute(f"GRANT SELECT ON *.* TO '{name}'@'%'")
        pipeline.start()
        pipeline.wait_for_status(lambda status: status["rows"] == 1)
        assert pipeline.status()["warnings"] == []
        process = pipeline.process
        process.wait_for_log(f"table {table}, which .* was not in the history")
        pipeline.stop()
        assert "contradicts" not in "".join(process.log)

        source_server.execute(
            f"REVOKE SELECT ON *.* FROM '{name}'@'%'",
            f"ALTER TABLE {table} ADD b INT",
            f"INSERT INTO {table} VALUES (2, 3)",
        )
        pipeline.start()
        pipeline.wait_for_status(lambda status: status["rows"])
        assert pipeline.status()["warnings"] == [warning]
        assert pipeline.status()["error"] == ""


def test_a_source_that_is_down(
    make_pipeline, make_proxy, source_server, database, capsys
):
    """The error of a source stands with its time, and a probe fails by it."""
    proxy = make_proxy(source_server)
    pipeline = make_pipeline(source_server, database, proxy=proxy)
    pipeline.start()
    pipeline.wait_for_status(lambda shown: shown["lag"]["seconds"] == 0)
    assert pipeline.status()["error_since_ms"] is None
    with proxy.refuse():
        proxy.end_all()
        pipeline.wait_for_status(lambda shown: shown["error"])
        since_ms = pipeline.status()["error_since_ms"]
        pipeline.wait_for_status(lambda shown: shown["lag"]["seconds"] > 0)
        status, text = status_of(pipeline, capsys, "--check")
        assert status == 5
        assert "example: ConnectionLost: " in text
        assert " (since " in text
        assert pipeline.status()["error_since_ms"] == since_ms
    pipeline.wait_for_status(lambda shown: not shown["error"])
    assert pipeline.status()["error_since_ms"] is None
