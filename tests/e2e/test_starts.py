"""Where an instance begins that has nothing stored, by all kinds of configuration."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from fix_daemon import child_environ
from fix_pipeline import UNIT_S
from fix_store import eventually
from load import stored_cursor

JOURNAL = "canal.instance.master.journal.name"
POSITION = "canal.instance.master.position"
TIMESTAMP = "canal.instance.master.timestamp"
GTID = "canal.instance.master.gtid"
GTID_MODE = "canal.instance.gtidon"
NOTHING = {JOURNAL: None, POSITION: None}


@pytest.fixture
def begins_at(make_pipeline, source_server, database):
    """Give `begins_at(settings)`: a running pipeline that begins where they say."""

    def start(settings):
        pipeline = make_pipeline(source_server, database, settings)
        pipeline.start()
        return pipeline

    return start


def receive(pipeline, checker):
    """Receive all that was written."""
    with pipeline.client() as client:
        pipeline.receive(client, checker)


def executed(server):
    """Return the set that a server has executed."""
    variable = "gtid_executed" if server.flavour == "mysql" else "gtid_binlog_pos"
    return server.execute(f"SELECT @@global.{variable}")[0][0].replace("\n", "")


def test_file_and_position(stopped, rng):
    """A configured file and position is where it begins."""
    writer = stopped.writer(rng)
    writer.write(5)
    file, offset = stopped.source.binlog_position()
    writer.write(5)
    stopped.configure({JOURNAL: file, POSITION: offset})
    checker = stopped.checker(writer)
    checker.resume(5, 5)
    stopped.start()
    receive(stopped, checker)


def test_file_alone(stopped, rng):
    """A configured file alone is read from its first event on."""
    writer = stopped.writer(rng)
    writer.write(5)
    stopped.source.execute("FLUSH BINARY LOGS")
    file, _ = stopped.source.binlog_position()
    writer.write(5)
    stopped.configure({JOURNAL: file, POSITION: None})
    checker = stopped.checker(writer)
    checker.resume(5, 5)
    stopped.start()
    receive(stopped, checker)


@pytest.mark.parametrize("with_file", [False, True], ids=["alone", "with-file"])
@pytest.mark.parametrize("gtid", [False, True], ids=["file", "gtid"])
def test_time(stopped, rng, with_file, gtid):
    """A configured time is the end of the last transaction that is older."""
    # What an earlier test wrote ahead of time is in another file.
    stopped.source.execute("FLUSH BINARY LOGS")
    file, _ = stopped.source.binlog_position()
    ((now,),) = stopped.source.execute("SELECT UNIX_TIMESTAMP()")
    writer = stopped.writer(rng)
    # Times in events are those of the session, which we set ahead.
    for ahead in (100, 200, 300):
        writer.session = (f"SET timestamp = {now + ahead}",)
        writer.write(3)
    stopped.configure(
        {
            JOURNAL: file if with_file else None,
            POSITION: None,
            TIMESTAMP: (now + 150) * 1000,
            GTID_MODE: gtid,
        }
    )
    checker = stopped.checker(writer)
    checker.resume(3, 3)
    stopped.start()
    receive(stopped, checker)
    sets = {text for text in checker.gtids if text}
    assert len(sets) == (6 if gtid else 0)


def test_gtid_set(stopped, rng):
    """A configured GTID set is what was executed before it begins."""
    writer = stopped.writer(rng)
    writer.write(5)
    gtids = executed(stopped.source)
    writer.write(5)
    stopped.configure(NOTHING | {GTID: gtids, GTID_MODE: "true"})
    checker = stopped.checker(writer)
    checker.resume(5, 5)
    stopped.start()
    receive(stopped, checker)
    assert checker.gtids[-1] == executed(stopped.source)


@pytest.mark.parametrize("gtid", [False, True], ids=["file", "gtid"])
def test_current_end(stopped, rng, gtid):
    """Without any configured position it begins at the current end."""
    writer = stopped.writer(rng)
    writer.write(5)
    stopped.configure(NOTHING | {GTID_MODE: gtid})
    checker = stopped.checker(writer)
    checker.resume(5, 5)
    stopped.start()
    stopped.wait_for_status(lambda status: status["state"] == "running")
    writer.write(5)
    receive(stopped, checker)
    assert bool(checker.gtids[-1]) == gtid


@pytest.mark.parametrize("gtid", [False, True], ids=["file", "gtid"])
def test_killed_with_the_current_end(  # noqa: PLR0917  # fixtures
    make_pipeline, make_proxy, source_server, database, rng, gtid
):
    """A client of which the first position is known begins there, not at another end.

    It subscribes before that, so that its subscription is written without it.
    """
    proxy = make_proxy(source_server)
    settings = NOTHING | {GTID_MODE: gtid, "canal.file.flush.period": 3_600_000}
    pipeline = make_pipeline(source_server, database, settings, proxy=proxy)
    with proxy.refuse():
        pipeline.start()
        with pipeline.client():
            eventually(pipeline.meta_file.exists)
    eventually(lambda: stored_cursor(pipeline))
    pipeline.kill()
    writer = pipeline.writer(rng)
    writer.write(5)
    pipeline.start()
    receive(pipeline, pipeline.checker(writer))


def test_stored_wins(stopped, rng):
    """What is stored takes precedence over what is configured."""
    writer = stopped.writer(rng)
    checker = stopped.checker(writer)
    stopped.start()
    writer.write(5)
    receive(stopped, checker)
    stopped.stop()
    file, offset = stopped.source.binlog_position()
    writer.write(5)
    stopped.configure({JOURNAL: file, POSITION: offset + 10**6})
    stopped.start()
    checker.resume(5, 5)
    receive(stopped, checker)


def test_memory_wiring(stopped, rng):
    """In memory wiring a restart begins at the configured position again."""
    stopped.configure({}, wiring="classpath:spring/memory-instance.xml")
    writer = stopped.writer(rng)
    checker = stopped.checker(writer)
    writer.write(5)
    stopped.start()
    receive(stopped, checker)
    stopped.stop()
    assert not stopped.meta_file.exists()
    stopped.start()
    checker.resume(0, 0)
    receive(stopped, checker)


def printed_status(pipeline):
    """Return what `canal-server status` prints about the destination."""
    command = ["-m", "canal_server", "status", "--json"]
    command += ["--conf", str(pipeline.conf)]
    done = subprocess.run(
        [sys.executable, *command],
        env=child_environ(),
        capture_output=True,
        text=True,
        timeout=3 * UNIT_S,
        check=True,
    )
    return json.loads(done.stdout)["instances"][0]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        pytest.param(
            {JOURNAL: "nosuch.000001"},
            "1236.*requested start nosuch.000001:",
            id="file",
        ),
        pytest.param(
            {JOURNAL: "binlog.999999", POSITION: 4},
            "1236.*requested start binlog.999999:4",
            id="number",
        ),
        pytest.param(
            {POSITION: 10**9}, "1236.*requested start .*:1000000000", id="position"
        ),
        pytest.param(
            NOTHING | {TIMESTAMP: 1000}, "time 1000 ms.*the oldest binlog", id="time"
        ),
        pytest.param(
            NOTHING | {GTID_MODE: "true", GTID: "a:b:c-d"},
            "canal.instance.master.gtid 'a:b:c",
            id="gtid",
        ),
        pytest.param(
            {"canal.instance.dbPassword": "no"}, "1045.*password", id="password"
        ),
    ],
)
def test_wrong(begins_at, settings, error):
    """A position that does not exist is in the log and in `status`; nothing ends."""
    pipeline = begins_at(settings)
    pipeline.process.wait_for_log(f"ERROR .*{error}")

    def is_reported():
        status = printed_status(pipeline)
        return status["state"] == "waiting" and re.search(error, status["error"])

    # It tries again every other moment: then it connects, or reads until the refusal.
    eventually(is_reported)
    pipeline.stop()
