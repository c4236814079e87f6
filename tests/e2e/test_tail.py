"""`tail` on a real source: where it begins, and why it is silent."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
from fix_daemon import child_environ
from fix_pipeline import POLL_S, UNIT_S
from fix_store import in_thread

from canal_server import cli
from canal_server.cli.tail.tail_ids import IDS


@pytest.fixture
def tail(pipeline):
    """Give `tail(*options)`, which runs the command at the pipeline's server."""
    pipeline.source.execute(f"CREATE TABLE {pipeline.schema}.red (a INT)")

    def run(*options):
        port = str(pipeline.server_port)
        return cli.main(["tail", "--port", port, "--destination", "example", *options])

    return run


def insert(pipeline, *keys):
    """Commit each key in a transaction of its own."""
    for key in keys:
        pipeline.source.execute(f"INSERT INTO {pipeline.schema}.red VALUES ({key})")


def keys_of(text):
    """Return the keys of inserted rows in lines of JSON.

    An INSERT that another test had logged as a statement has no row.
    """
    found = map(json.loads, text.splitlines())
    return [
        int(each["after"]["a"])
        for each in found
        if each["type"] == "INSERT" and "after" in each
    ]


def keys_until(pipeline, last, *options):
    """Run the command until it has printed a key; returns those up to there.

    It is ended by a signal: statements of other tests come, too, in unknown number.
    """
    with subprocess.Popen(
        [
            sys.executable, "-m", "canal_server", "tail",
            "--port", str(pipeline.server_port), "--destination", "example", *options,
        ],
        stdout=subprocess.PIPE, text=True, env=child_environ(),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        found: list[int] = []
        for line in process.stdout:
            found += keys_of(line)
            if last in found:
                break
        process.terminate()
        process.stdout.read()
    return found


def test_from(pipeline, tail, capsys):
    """From a position, a time and the oldest file on all changes come, again and again.

    Nobody is subscribed for it, during or after, and what others acked comes, too.
    """
    insert(pipeline, 1, 2)
    file, offset = pipeline.source.binlog_position()
    with pipeline.client() as client:
        pipeline.rows(client, 3)
    insert(pipeline, 3)
    assert tail("--from", f"{file}:{offset}", "--count", "1") == 0
    assert keys_of(capsys.readouterr().out) == [3]
    expected = rf"{pipeline.schema}\.red"
    assert keys_until(pipeline, 3, "--since", "-1h", "--filter", expected) == [1, 2, 3]
    assert keys_until(pipeline, 3, "--from", "oldest") == [1, 2, 3]
    pipeline.wait_for_status(lambda status: not status["ranges"]["subscriptions"])
    assert pipeline.status()["clients"] == [1001]


def test_it_follows(pipeline, tail, capsys):
    """What is written after it began comes as well."""
    following = in_thread(lambda: tail("--from", "latest", "--count", "2"))
    pipeline.wait_for_status(lambda status: status["ranges"]["subscriptions"])
    insert(pipeline, 7, 8)
    assert following.result(3 * UNIT_S) == 0
    assert keys_of(capsys.readouterr().out) == [7, 8]


def test_a_source_that_fails(make_pipeline, make_proxy, mysql_server, database, capsys):
    """It says why nothing comes, from the first request on, and reads on after."""
    proxy = make_proxy(mysql_server)
    pipeline = make_pipeline(mysql_server, database, proxy=proxy)
    mysql_server.execute(f"CREATE TABLE {database}.red (a INT)")
    file, offset = mysql_server.binlog_position()
    pipeline.start()
    common = ("--port", str(pipeline.server_port), "--destination", "example")
    pipeline.wait_for_status(lambda status: status["state"] == "running")
    status = ""
    with proxy.refuse():
        proxy.end_all()
        pipeline.wait_for_status(lambda status: status["error"])
        start = ("--from", f"{file}:{offset}", "--count", "1")
        following = in_thread(lambda: cli.main(["tail", *common, *start]))
        give_up_at = time.monotonic() + 3 * UNIT_S
        while "the source cannot be read: " not in status:
            assert time.monotonic() < give_up_at, status
            assert not following.done(), capsys.readouterr().err
            status += capsys.readouterr().err
            time.sleep(POLL_S)
    insert(pipeline, 1)
    assert following.result(6 * UNIT_S) == 0
    assert keys_of(capsys.readouterr().out) == [1]


def test_a_time_before_all(pipeline, tail, capsys):
    """Where the binlog has nothing before a time, it says where it begins instead."""
    assert tail("--from", "2001-01-01T00:00:00Z", "--count", "1") == 0
    first = pipeline.source.execute("SHOW BINARY LOGS")[0][0]
    assert (
        "2001-01-01T00:00:00+00:00 is before the first transaction in the binlog of"
        f" the source: starting with its oldest file, {first}\n"
    ) in capsys.readouterr().err
    assert tail("--from", "oldest", "--count", "1") == 0
    assert "before the first" not in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_of_it(pipeline, number):
    """Its subscription ends with its connection, also when it is killed."""
    common = ("--port", str(pipeline.server_port), "--destination", "example")
    with subprocess.Popen(
        [sys.executable, "-m", "canal_server", "tail", *common, "--from", "latest"],
        env=child_environ(),
    ) as process:
        pipeline.wait_for_status(lambda status: status["ranges"]["subscriptions"])
        process.send_signal(number)
    pipeline.wait_for_status(lambda status: not status["ranges"]["subscriptions"])


def test_a_filter_that_is_refused(make_pipeline, mysql_server, database, capsys):
    """It is one line of the command, and one of the server."""
    limit = {"canal.instance.filter.client.length.max": 5}
    pipeline = make_pipeline(mysql_server, database, limit)
    pipeline.start()
    common = ("--port", str(pipeline.server_port), "--destination", "example")
    assert cli.main(["tail", *common, "--from", "latest", "--filter", "long.name"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "filter 'long.name': 9 characters exceed the limit of 5" in line
    pipeline.process.wait_for_log("refused a RangeSubscribe of subscription tail-")
    process = pipeline.process
    pipeline.stop()  # its log is whole then
    refused = [line for line in process.log if " refused " in line]
    assert len(refused) == 1, refused


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("binlog.999999:4", "binlog.999999 does not exist yet: the newest"),
        (
            "nobody.000001:4",
            "no binlog file has the name nobody.000001: the source has",
        ),
        ("{file}:99999999999", "{file}:99999999999 does not exist: {file} ends at "),
    ],
)
def test_a_position_that_is_none(pipeline, tail, capsys, wrong, why):
    """It is one line, and status 1: the same of all commands that take one."""
    file, _ = pipeline.source.binlog_position()
    wrong, why = wrong.format(file=file), why.format(file=file)
    with pipeline.client():
        pass
    conf, source = ("--conf", str(pipeline.conf)), ("--source", pipeline.source.url)
    for run in (
        lambda: tail("--from", wrong, "--count", "1"),
        lambda: cli.main(["decode", *source, "--from", wrong]),
        lambda: cli.main(["position", "seek", *conf, "--to", wrong, "--yes"]),
    ):
        assert run() == 1
        output = capsys.readouterr()
        assert output.out == ""
        (line,) = output.err.splitlines()
        assert why in line
    assert pipeline.status()["ranges"]["subscriptions"] == {}


def test_a_position_inside_of_a_transaction(pipeline, tail, capsys):
    """It begins with the transaction, and says so, as `decode` does."""
    insert(pipeline, 1)
    file, offset = pipeline.source.binlog_position()
    insert(pipeline, 2, 3)
    shown = (
        f"{file}:{offset + 5} is inside a transaction: starting before it,"
        f" at {file}:{offset}"
    )
    # A MariaDB's binlog has the texts of statements, too.
    inside = ("--from", f"{file}:{offset + 5}", "--count", "2")
    common = ("--filter", rf"{pipeline.schema}\.red", *inside)
    source = ("--source", pipeline.source.url)
    for run in (
        lambda: tail(*common),
        lambda: cli.main(["decode", *source, *common]),
    ):
        assert run() == 0
        streams = capsys.readouterr()
        assert keys_of(streams.out)[:1] == [2]
        assert shown in streams.err


def test_why_nothing_comes(make_pipeline, mysql_server, database, capsys):
    """It says that the filter does not match, with an id that disturbs nobody.

    A MariaDB's binlog has the texts of statements, which pass all filters.
    """
    pipeline = make_pipeline(mysql_server, database)
    mysql_server.execute(f"CREATE TABLE {database}.red (a INT)")
    pipeline.start()
    common = ("--port", str(pipeline.server_port), "--destination", "example")
    following = in_thread(
        lambda: cli.main(["tail", *common, "--filter", "none.such", "--count", "1"])
    )
    text = ""
    give_up_at = time.monotonic() + 6 * UNIT_S
    while "match nothing of --filter 'none.such'" not in text:
        assert time.monotonic() < give_up_at, text
        insert(pipeline, 1)
        text += capsys.readouterr().err
        time.sleep(POLL_S)
    (client_id,) = pipeline.status()["clients"]
    assert client_id in IDS
    assert cli.main(["unsubscribe", *common, "--client-id", str(client_id)]) == 0
    assert following.result(6 * UNIT_S) == 1
    assert pipeline.status()["clients"] == []
