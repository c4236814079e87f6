"""Clients that were away while the ring went on get all that they lack, once.

The ring has room for few transactions, so that a client which is away is soon passed
over. `LATE` is away, `LIVE` is not.
"""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request

import pytest
from fix_random import longer
from fix_tablemeta_storage import PASSWORD, mysql_database
from lagging_clients_scene import LATE, LIVE, OTHER, Draining, Player, Scene
from load import Load
from prometheus_client.parser import text_string_to_metric_families
from purge import purge

from canal_server.cli import main
from canal_server.client import ClientError
from canal_server.daemon.control import ask

OTHERS = 60  # rows of a table that is not the ledger
SMALL = {
    "canal.instance.cursor.pin.seconds": 0,
    "canal.instance.memory.buffer.size": 64,
    "canal.instance.transaction.size": 16,
}
SERVED = f"client {LATE} of example is served by a catch-up reader"
CAUGHT_UP = f"client {LATE} of example has caught up"


@pytest.fixture
def make_scene(make_pipeline, rng):
    """Give `make(source, schema, settings)`: a scene whose server runs."""
    made = []

    def make(source, schema, settings=None):
        pipeline = make_pipeline(source, schema, SMALL | (settings or {}))
        pipeline.start()
        made.append(Scene(pipeline, pipeline.writer(rng)))
        return made[-1]

    yield make
    for scene in made:
        scene.stack.close()


@pytest.fixture
def scene(make_scene, source_server, database):
    """Give a scene on the shared MySQL, then on the shared MariaDB."""
    return make_scene(source_server, database)


def test_returns(scene):
    """A client that was passed over gets all it lacks, then goes on from the ring."""
    scene.begin()
    scene.pass_over()
    status = scene.pipeline.status()["late_clients"][str(LATE)]
    assert status["reading"] is False
    with scene.pipeline.client(LATE) as client:
        scene.pipeline.receive(client, scene.checkers[LATE])
        scene.pipeline.process.wait_for_log(SERVED)
        scene.pipeline.process.wait_for_log(CAUGHT_UP)
        # The ring may have no room for all of them until `LIVE` acks.
        with Draining(scene.pipeline, scene.live, scene.checkers[LIVE]):
            scene.writer.write(5)
            scene.pipeline.receive(client, scene.checkers[LATE])
        scene.pipeline.wait_for_status(lambda status: not status["late_clients"])
    scene.pipeline.stop()


def test_its_lag_is_watched(make_scene, mysql_server, database, monkeypatch):
    """Metrics show the lag of a client that was passed over, as the status does."""
    monkeypatch.setenv("CANAL_METRICS_PULL_PORT", "0")
    scene = make_scene(mysql_server, database)
    scene.begin()
    scene.pass_over()
    status = scene.pipeline.status()
    assert status["slowest_client"]["client"] == LATE
    port = ask(scene.pipeline.conf, "status")["metrics_port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    found = {
        (each.name, each.labels.get("state")): each.value
        for family in families
        for each in family.samples
        if each.labels.get("client") == str(LATE)
    }
    assert found["canal_client_lag_seconds", None] > 0
    assert found["canal_client_state", "evicted"] == 1


def test_the_log_of_its_reader(make_pipeline, mysql_server, database, rng):
    """Lines of a catch-up reader are about the destination, and about the client."""
    pipeline = make_pipeline(mysql_server, database, SMALL)
    pipeline.start_options = ["--log-format", "json"]
    pipeline.start()
    scene = Scene(pipeline, pipeline.writer(rng))
    with scene.stack:
        scene.begin()
        scene.pass_over()
        scene.receive(LATE)
    log = pipeline.process.log
    pipeline.stop()
    lines = [json.loads(line) for line in log if line.startswith("{")]
    found = [each for each in lines if each["thread"] == f"pump-example, client {LATE}"]
    assert any(CAUGHT_UP in each["message"] for each in found)
    subjects = {(each.get("destination"), each.get("client_id")) for each in found}
    assert subjects == {("example", LATE)}


@pytest.mark.parametrize("gtid", ["true", "false"])
def test_restart(make_scene, source_server, database, gtid):
    """One that is evictable still is after a restart: reading begins at the others."""
    scene = make_scene(source_server, database, {"canal.instance.gtidon": gtid})
    scene.begin()
    scene.pass_over()
    scene.pipeline.settle(scene.live)  # no ack is under way
    scene.stack.close()
    scene.pipeline.stop()
    scene.pipeline.start()
    scene.pipeline.wait_for_status(lambda status: status["state"] == "running")
    assert scene.pipeline.status()["late_clients"][str(LATE)]["in_ring"] is False
    with scene.pipeline.client(LIVE) as scene.live:
        scene.writer.write(10)
        with Draining(scene.pipeline, scene.live, scene.checkers[LIVE]):
            scene.receive(LATE)
            scene.pipeline.process.wait_for_log(SERVED)
            scene.writer.write(10)
            scene.receive(LATE)
    assert scene.checkers[LIVE].repeated == scene.checkers[LATE].repeated == 0


def test_restart_amid(make_scene, mysql_server, database):
    """Nobody is sent back for one that was being read for when the server ended."""
    scene = make_scene(mysql_server, database)
    scene.begin()
    scene.pass_over(200)
    with scene.pipeline.client(LATE) as client:
        scene.pipeline.receive_some(client, scene.checkers[LATE], 2, batch_size=5)
        scene.pipeline.wait_for_status(
            lambda status: status["late_clients"][str(LATE)]["reading"]
        )
        scene.stack.close()
        scene.pipeline.stop()
    scene.checkers[LATE].resume(0, scene.checkers[LATE].done)
    scene.pipeline.start()
    scene.pipeline.wait_for_status(lambda status: status.get("state") == "running")
    assert list(scene.pipeline.status()["late_clients"]) == [str(LATE)]
    scene.receive(LATE)


def test_evictable_before_the_source_is_back(
    make_pipeline, make_proxy, mysql_server, database, rng
):
    """Where reading begins fits who is served from there, however late it begins."""
    proxy = make_proxy(mysql_server)
    settings = SMALL | {"canal.instance.cursor.pin.seconds": 5}
    pipeline = make_pipeline(mysql_server, database, settings, proxy=proxy)
    pipeline.start()
    scene = Scene(pipeline, pipeline.writer(rng))
    with scene.stack:
        scene.begin()
        scene.writer.write(5)
        scene.drain()
    pipeline.stop()
    with contextlib.ExitStack() as stack:
        with proxy.refuse():
            pipeline.start()
            scene.live = stack.enter_context(pipeline.client(LIVE))
            pipeline.wait_for_status(lambda status: str(LATE) in status["late_clients"])
        scene.writer.write(3)
        scene.drain()
        scene.receive(LATE)


def test_restart_with_cursors_in_zookeeper(
    make_pipeline, mysql_server, database, zookeeper_root, rng
):
    """Also the server that takes over knows who is evictable: a node has it."""
    pipeline = make_pipeline(mysql_server, database, SMALL)
    wiring = "classpath:spring/default-instance.xml"
    pipeline.configure({"canal.zkServers": zookeeper_root}, wiring=wiring)
    pipeline.start()
    pipeline.wait_for_status(lambda status: status["running"])
    scene = Scene(pipeline, pipeline.writer(rng))
    with scene.stack:
        scene.begin()
        scene.pass_over()
    pipeline.stop()
    pipeline.start()
    pipeline.wait_for_status(lambda status: status.get("state") == "running")
    assert list(pipeline.status()["late_clients"]) == [str(LATE)]
    scene.receive(LATE)
    pipeline.process.wait_for_log(SERVED)


def test_in_ring(make_scene, mysql_server, database):
    """One whose entries are in the ring still needs no reader of its own."""
    scene = make_scene(mysql_server, database)
    scene.begin()
    scene.writer.write(1)
    scene.drain()
    scene.receive(LATE)
    assert not any(SERVED in line for line in scene.pipeline.process.log)


def test_retained_for_a_while(make_scene, mysql_server, database):
    """A full ring waits for a client that left until its time is over."""
    scene = make_scene(mysql_server, database, {"canal.instance.cursor.pin.seconds": 2})
    scene.begin()
    with (
        scene.pipeline.client(LATE),
        Draining(scene.pipeline, scene.live, scene.checkers[LIVE]),
    ):
        scene.writer.write(40)
        # It is here, and so it is waited for.
        scene.pipeline.wait_for_status(lambda status: status["waits_for"] == [LATE])
        scene.receive(LATE)
    scene.pass_over()
    log = scene.pipeline.process.wait_for_log(f"continues without client {LATE}")
    away = re.search(r"has been away for (\d+) s", log)
    assert away
    assert int(away[1]) >= 2
    scene.receive(LATE)


def test_handoff_under_load(scene):
    """The late one is handed back to the ring while changes come without a pause."""
    scene.begin()
    scene.pass_over()
    draining = Draining(scene.pipeline, scene.live, scene.checkers[LIVE])
    with draining, Load(scene.writer), scene.pipeline.client(LATE) as client:
        for message in scene.pipeline.messages(client):
            scene.checkers[LATE].take(message.entries)
            client.ack(message.id)
            if any(CAUGHT_UP in line for line in scene.pipeline.process.log):
                break
        scene.pipeline.receive_some(client, scene.checkers[LATE], 5)
    # What was acked amid a transaction comes again from its beginning, to one that is
    # passed over again as soon as it leaves.
    checker = scene.checkers[LATE]
    checker.resume(checker.done, checker.done, amid=True)
    scene.receive(LATE)


def test_acked_amid(scene):
    """Passed over amid a transaction, it gets that from its beginning, at each try."""
    scene.begin()
    checker = scene.checkers[LATE]
    done = checker.done
    scene.writer.write(1, rows=20)
    with scene.pipeline.client(LATE) as client:
        scene.pipeline.receive_some(client, checker, 1, batch_size=3)
    scene.drain()
    scene.pass_over()
    checker.resume(done, done, amid=True)
    with scene.pipeline.client(LATE) as client:
        for _ in range(2):
            before, repeated = checker.mark(), checker.repeated
            for message in scene.pipeline.messages(client, batch_size=4):
                checker.take(message.entries)
                if checker.repeated > repeated:
                    break
            client.rollback()
            checker.rewind(before)
        scene.pipeline.receive(client, checker)


def test_two(scene):
    """Two late ones catch up at a time, each with what it lacks."""
    scene.begin(LATE, OTHER)
    scene.pass_over()
    with (
        scene.pipeline.client(LATE) as client,
        scene.pipeline.client(OTHER) as other,
        Draining(scene.pipeline, other, scene.checkers[OTHER]),
    ):
        scene.writer.write(5)
        scene.drain()
        scene.pipeline.receive(client, scene.checkers[LATE])
    scene.pipeline.process.wait_for_log(f"client {OTHER} of example has caught up")


def test_killed(scene):
    """A server that is killed amid the catching up goes on where it was acked."""
    scene.begin()
    scene.pass_over(60)
    with scene.pipeline.client(LATE) as client:
        scene.pipeline.receive_some(client, scene.checkers[LATE], 3, batch_size=8)
    scene.stack.close()
    done = scene.checkers[LATE].done
    scene.pipeline.kill()
    scene.pipeline.start()
    scene.checkers[LATE].resume(0, done)
    scene.checkers[LIVE].resume(0, scene.checkers[LIVE].done)
    scene.writer.write(1)
    with (
        scene.pipeline.client(LIVE) as live,
        Draining(scene.pipeline, live, scene.checkers[LIVE]),
    ):
        scene.receive(LATE)


def test_old_columns(scene):
    """Rows of before a statement come with the columns of then, also by this way."""
    scene.begin()
    schema = scene.pipeline.schema
    table = f"{schema}.changing"
    with scene.pipeline.client(LIVE, rf"{schema}\.ledger"):
        pass
    scene.pipeline.source.execute(
        f"CREATE TABLE {table} (a INT)",
        f"INSERT INTO {table} VALUES (1)",
        f"ALTER TABLE {table} RENAME COLUMN a TO b, ADD c INT",
        f"INSERT INTO {table} VALUES (2, 3)",
    )
    scene.pass_over()
    found: list[object] = []
    with scene.pipeline.client(LATE) as client:
        while len(found) < 4:
            for entry in scene.pipeline.rows(client, 1):
                if entry.header.table_name == "changing":
                    change = entry.row_change()
                    rows = [list(row.after) for row in change.row_datas]
                    found.append(rows or change.sql.split()[0])
    assert found == ["CREATE", [["a"]], "ALTER", [["b", "c"]]]
    scene.pipeline.process.wait_for_log(SERVED)


def test_filter_changed(scene):
    """With another filter nothing is left out after where it began to count."""
    scene.begin()
    source, schema = scene.pipeline.source, scene.pipeline.schema
    source.execute(f"CREATE TABLE {schema}.other (a INT)")
    for each in (LIVE, LATE):
        with scene.pipeline.client(each, rf"{schema}\.ledger"):
            pass
    scene.pass_over()
    source.execute(f"INSERT INTO {schema}.other VALUES (1)")
    scene.writer.write(1)
    scene.drain()
    with scene.pipeline.client(LATE, rf"{schema}\.(ledger|other)") as client:
        numbers = []
        for message in scene.pipeline.messages(client):
            theirs = [each for each in message.entries if is_other(each)]
            for entry in theirs:
                numbers += [row.after["a"] for row in entry.row_change().row_datas]
            scene.checkers[LATE].take(
                each for each in message.entries if each not in theirs
            )
            client.ack(message.id)
            # Once: other messages may come between the two rows.
            if theirs and len(numbers) == 1:
                source.execute(f"INSERT INTO {schema}.other VALUES (2)")
            if len(numbers) == 2:
                break
        assert numbers == ["1", "2"]
        scene.take_rest(client, LATE)


def is_other(entry):
    """Return whether an entry is of the table that is not the ledger."""
    return entry.header.table_name == "other"


@pytest.mark.parametrize("auto_reset", ["false", "true"])
def test_purged(make_scene, own_server, auto_reset):
    """Of what is purged only the late one learns: it is refused, or it is moved."""
    source = own_server("mysql")
    source.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
    settings = {"canal.auto.reset.latest.pos.mode": auto_reset}
    scene = make_scene(source, "shop", settings)
    scene.begin()
    scene.pass_over()
    source.execute("FLUSH BINARY LOGS")
    file, _ = source.binlog_position()
    scene.writer.write(1)
    scene.drain()
    purge(source, file)
    done = scene.checkers[LATE].done
    with scene.pipeline.client(LATE) as client:
        if auto_reset == "false":
            scene.pipeline.process.wait_for_log(
                f"ERROR .* client {LATE} .* no longer has"
            )
            with pytest.raises(ClientError, match=r"no longer has: .*seek"):
                client.get()
            assert list(scene.pipeline.status()["lost_clients"]) == [str(LATE)]
        else:
            scene.pipeline.process.wait_for_log(
                f"ERROR .* client {LATE} .* are lost for it"
            )
            scene.checkers[LATE].resume(done, len(scene.writer.transactions))
            scene.writer.write(5)
            scene.drain()
            scene.pipeline.receive(client, scene.checkers[LATE])
    scene.writer.write(3)
    scene.drain()


def test_seek_of_another(make_scene, mysql_server, database):
    """What a late client holds unacked beside the ring outlives a move of others."""
    scene = make_scene(mysql_server, database)
    source, schema = scene.pipeline.source, scene.pipeline.schema
    scene.begin()
    source.execute(f"CREATE TABLE {schema}.other (a INT)")
    scene.drain()
    with scene.pipeline.client(LATE, rf"{schema}\.ledger"):
        pass
    scene.writer.write(3)
    file, offset = source.binlog_position()
    for number in range(OTHERS):
        source.execute(f"INSERT INTO {schema}.other VALUES ({number})")
    others = 0
    for message in scene.pipeline.messages(scene.live):
        others += sum(
            len(entry.row_change().row_datas)
            for entry in message.entries
            if is_other(entry)
        )
        scene.checkers[LIVE].take(e for e in message.entries if not is_other(e))
        scene.live.ack(message.id)
        if others == OTHERS:
            break
    scene.pipeline.settle(scene.live)
    assert not scene.pipeline.status()["late_clients"][str(LATE)]["in_ring"]
    # It comes, and leaves with all that it lacks in a store of its own.
    with scene.pipeline.client(LATE, rf"{schema}\.ledger"):
        scene.pipeline.process.wait_for_log(CAUGHT_UP)
    conf = ("--conf", str(scene.pipeline.conf), "--yes")
    position = ("--to", f"{file}:{offset}", "--client", str(LIVE))
    assert main(["position", "seek", *conf, *position]) == 0
    with scene.pipeline.client(LATE, rf"{schema}\.ledger") as client:
        scene.take_rest(client, LATE)


def test_random(scene, rng):
    """Whatever the late one does between the stores, it gets no gap or double."""
    scene.begin()
    player = Player(scene, rng)
    for _ in range(longer(1)):
        scene.pass_over()
        draining = Draining(scene.pipeline, scene.live, scene.checkers[LIVE])
        with draining, Load(scene.writer, pause_s=0.02):
            for _ in range(3):
                player.play(rng.randint(1, 60))
        scene.receive(LATE)
        scene.drain()


def test_waits_for_the_table_history(make_scene, make_proxy, mysql_server, database):
    """One is not refused for good: when the history is back it gets all it lacks."""
    proxy = make_proxy(mysql_server)
    with mysql_database(mysql_server) as (access, name):
        scene = make_scene(
            mysql_server,
            database,
            {
                "canal.instance.tsdb.url": f"jdbc:mysql://127.0.0.1:{proxy.port}/{name}",
                "canal.instance.tsdb.dbUsername": access.credentials.user,
                "canal.instance.tsdb.dbPassword": PASSWORD,
            },
        )
        scene.begin()
        scene.pass_over()
        with scene.pipeline.client(LATE) as client:
            with proxy.refuse():
                proxy.end_all()
                assert not client.get(100, 0.1)
                scene.pipeline.process.wait_for_log(SERVED)
                failed = f"client {LATE}: .*table history in {name} .* cannot be read"
                scene.pipeline.process.wait_for_log(failed)
            scene.pipeline.receive(client, scene.checkers[LATE])
            scene.pipeline.process.wait_for_log(CAUGHT_UP)
        scene.stack.close()
        scene.pipeline.stop()
