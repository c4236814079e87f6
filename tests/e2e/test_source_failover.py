"""The source dies, the standby takes over and gives back: nothing is lost.

Two real servers, one the replica of the other, and a pipeline that knows both.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from fix_cluster import SESSION_S
from fix_failover import BY_SET, GTID_MODE, MODES, Scene
from fix_pipeline import POLL_S, UNIT_S
from fix_replicas import grant_of
from fix_servers import needs
from ledger import Writer
from load import Load
from replicas import understood

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from fix_group import Group
    from fix_pipeline import Pipeline
    from fix_proxy import Proxy
    from fix_replicas import Replicas
    from servers import Server

# So that an entry reports which server it was read from.
REPLICA_OPTIONS = ("--log-bin=second",)
FILES = ("binlog", "second")
CLUSTER_WIRING = "classpath:spring/default-instance.xml"


@pytest.mark.parametrize("by", list(MODES))
def test_there_and_back(make_scene: Callable[..., Scene], by: str) -> None:
    """The source dies under load, then the server itself, then the standby.

    By GTID nothing comes twice but what the kill of the server repeats. So it is
    outside GTID mode by the sets beside the cursors, but for what was read after the
    last one. By time some does, and the log counts it.
    """
    scene = make_scene(MODES[by], exact=by == "gtid")
    first, second = scene.replicas.source, scene.replicas.replica
    files = FILES if first.options[-1] != REPLICA_OPTIONS[0] else FILES[::-1]
    pipeline, checker = scene.pipeline, scene.follower.checker
    after_a_set = (
        f"starts at GTID set .*{'stored GTID' if by == 'gtid' else 'stored with'}"
    )
    with pipeline.client() as client:
        with Load(scene.writer):
            scene.receive(client, some=10)
        scene.read_ahead()
        scene.die()
        scene.wait_until_reads("standby")
        if by != "time":
            pipeline.process.wait_for_log(after_a_set)
            pipeline.process.wait_for_log("continuing the table history at")
        # What was read of the first server is acked with the first server's name. One
        # large batch might have some of both: its ack is of the second one.
        done = checker.done
        while checker.done == done:
            scene.receive(client, some=1, batch_size=1)
        scene.wait_for_cursor(first, files[0])
        with Load(scene.writer):
            scene.receive(client, some=10)
        scene.receive(client)
        scene.wait_for_cursor(second, files[1])
        assert scene.follower.changes == 1
        print(f"{by}: {checker.done} transactions, {checker.repeated} changes twice")
        with Load(scene.writer):
            client.get(100, UNIT_S)
    pipeline.kill()
    pipeline.start()
    scene.follower.restart()
    assert scene.wait_until_reads("standby")["switches"] == 0
    scene.replicas.rejoin()
    with pipeline.client() as client:
        with Load(scene.writer):
            scene.receive(client, some=5)
        scene.die()
        scene.wait_until_reads("master")
        with Load(scene.writer):
            scene.receive(client, some=5)
        scene.receive(client)
        scene.wait_for_cursor(first, files[0])
    print(f"{by}: {checker.done} transactions, {checker.repeated} changes twice")
    if by == "time":
        print(pipeline.process.wait_for_log("resumes by time, .* delivered again"))
        assert pipeline.status()["repeated"]["rows"] > 0


@pytest.fixture
def permissive(replicas: Replicas) -> Iterator[Replicas]:
    """Give servers of which the standby need not have a GTID for all transactions."""
    if replicas.flavour == "mariadb":
        pytest.skip("a MariaDB has GTIDs always")
    needs(replicas.replica, "SET GLOBAL gtid_mode")
    replicas.replica.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE")
    yield replicas
    for server in (replicas.source, replicas.replica):
        if server.pid is not None:
            server.execute("SET GLOBAL gtid_mode = ON")


def test_a_standby_without_gtids(
    permissive: Replicas, make_scene: Callable[..., Scene]
) -> None:
    """A server that need not have GTIDs is read by time, whatever set is known."""
    scene = make_scene(BY_SET)
    assert permissive is scene.replicas
    with scene.pipeline.client() as client:
        scene.writer.write(5)
        scene.receive(client)
        assert beside(scene.pipeline)
        scene.die()
        scene.wait_until_reads("standby")
        scene.pipeline.process.wait_for_log("its time .* less 5 s")
        scene.writer.write(5)
        scene.receive(client)


def test_a_cursor_that_was_rewritten(make_scene: Callable[..., Scene]) -> None:
    """The set beside a cursor counts only while the cursor says what it belongs to."""
    scene = make_scene({"canal.instance.fallbackIntervalInSeconds": 0})
    pipeline = scene.pipeline
    with pipeline.client() as client:
        scene.writer.write(5)
        scene.receive(client)
    pipeline.stop()
    content = json.loads(pipeline.meta_file.read_text())
    assert beside(pipeline)
    # As another server writes it that has read the same a second later.
    content["clientDatas"][0]["cursor"]["postion"]["serverId"] += 1
    pipeline.meta_file.write_text(json.dumps(content))
    scene.follower.restart()
    scene.die()
    pipeline.start()
    scene.wait_until_reads("standby")
    pipeline.process.wait_for_log("its time .* less 0 s")
    scene.writer.write(5)
    with pipeline.client() as client:
        scene.receive(client)


def beside(pipeline: Pipeline) -> str:
    """Return the GTID set that stands beside the newest cursor."""
    path = pipeline.meta_file.with_name("meta.dat.full")
    give_up_at = time.monotonic() + 3 * UNIT_S
    while True:
        found = json.loads(path.read_text())["clients"] if path.exists() else []
        entries = [entry for client in found for entry in client["entries"]]
        if entries and "executed" in entries[-1]:
            return str(entries[-1]["executed"]["gtids"])
        assert time.monotonic() < give_up_at, f"no set is written: {found}"
        time.sleep(POLL_S)


@pytest.mark.parametrize("set_is", ["noted", "learned"])
def test_amid_a_compressed_transaction(
    replicas: Replicas, make_scene: Callable[..., Scene], *, set_is: str
) -> None:
    """The set beside a cursor has no transaction of which only a part was acked.

    All of a compressed one stands at one position. So it is whether the set was noted
    on the way, or learned at a start with that cursor.
    """
    needs(replicas.source, "binlog_transaction_compression")
    scene = make_scene(BY_SET)
    pipeline, writer = scene.pipeline, scene.writer
    writer.write(5)
    # In the writer's time: without a set the standby is read by time, and its binlog
    # may have started a moment ago.
    writer.session = (
        *writer.session,
        "SET SESSION binlog_transaction_compression = ON",
    )
    Writer.write(writer, 1, rows=60)
    rows = sum(map(len, writer.transactions))
    pipeline.wait_for_status(lambda status: status["rows"] >= rows)
    receive_a_part(scene)
    pipeline.stop()
    scene.follower.restart()
    if set_is == "learned":
        pipeline.meta_file.with_name("meta.dat.full").unlink()
        pipeline.start()
        receive_a_part(scene)
        pipeline.stop()
        scene.follower.restart()
    scene.die()
    pipeline.start()
    scene.wait_until_reads("standby")
    writer.write(5)
    with pipeline.client() as client:
        scene.receive(client)


def receive_a_part(scene: Scene) -> None:
    """Receive and ack up to amid a compressed transaction."""
    with scene.pipeline.client() as client:
        for message in scene.pipeline.messages(client, batch_size=5):
            scene.follower.take(message.entries)
            client.ack(message.id)
            *_, one, other = (each.header.logfile_offset for each in message.entries)
            if one == other:
                break
        scene.pipeline.settle(client)


def test_before_anything_was_delivered(make_scene: Callable[..., Scene]) -> None:
    """A source that dies idle, right after the first start, is followed by time."""
    scene = make_scene({"canal.instance.fallbackIntervalInSeconds": 0})
    scene.die()
    scene.wait_until_reads("standby")
    scene.writer.write(5)
    with scene.pipeline.client() as client:
        scene.receive(client)


def test_a_source_that_hangs(
    replicas: Replicas, make_scene: Callable[..., Scene]
) -> None:
    """A source that keeps its connections and says nothing is left for the standby."""
    if replicas.flavour == "mariadb":
        pytest.skip("what is tried is the same with a MySQL")
    scene = make_scene(GTID_MODE, exact=True)
    with scene.pipeline.client() as client:
        with Load(scene.writer):
            scene.receive(client, some=5)
        scene.replicas.catch_up()
        hung = scene.replicas.source
        assert hung.pid
        os.kill(hung.pid, signal.SIGSTOP)
        scene.wait_until_reads("standby")
        hung.kill()
        scene.replicas.take_over()
        scene.writer.go_to(scene.replicas.source)
        scene.writer.write(20)
        scene.receive(client)


def test_a_standby_that_lags(make_scene: Callable[..., Scene]) -> None:
    """A standby that lags behind what was delivered is used as soon as it has it."""
    scene = make_scene(GTID_MODE, exact=True)
    replica = scene.replicas.replica
    scene.writer.write(5)
    with scene.pipeline.client() as client:
        scene.receive(client)
        scene.replicas.catch_up()
        replica.execute(understood(replica, "STOP REPLICA SQL_THREAD"))
        scene.writer.write(5)
        scene.receive(client)
        wait_until_received(scene.replicas)
        scene.replicas.source.kill()
        scene.pipeline.wait_for_status(
            lambda status: "replication is stopped" in refusal_of(status)
        )
        replica.execute(understood(replica, "START REPLICA SQL_THREAD"))
        scene.wait_until_reads("standby")
        scene.replicas.take_over()
        scene.writer.go_to(replica)
        scene.writer.write(5)
        scene.receive(client)
    assert scene.follower.checker.repeated == 0


def refusal_of(status: dict[str, Any]) -> str:
    """Return why the server that is not read may not take over."""
    return str(status["detecting"]["other_refusal"])


def wait_until_received(replicas: Replicas) -> None:
    """Wait until the replica has all that the source has, though not applied."""
    give_up_at = time.monotonic() + 3 * UNIT_S
    file, offset = replicas.source.binlog_position()
    while True:
        with replicas.replica.connect() as connection, connection.cursor() as cursor:
            cursor.execute(understood(replicas.replica, "SHOW REPLICA STATUS"))
            names = [column[0] for column in cursor.description]
            row = dict(zip(names, cursor.fetchall()[0], strict=True))
        positions = {
            (row.get(f"{word}_Log_File"), row.get(f"Read_{word}_Log_Pos"))
            for word in ("Source", "Master")
        }
        if (file, offset) in positions:
            return
        assert time.monotonic() < give_up_at, f"{positions}, not {file}:{offset}"
        time.sleep(POLL_S)


@pytest.mark.parametrize("by", list(MODES))
def test_an_address_that_changes_hands(
    make_pipeline: Callable[..., Pipeline],
    make_proxy: Callable[..., Proxy],
    replicas: Replicas,
    replicated_schema: str,
    rng: random.Random,
    *,
    by: str,
) -> None:
    """Another server behind one address is read where the first one was left.

    Outside of GTID mode after the last set that was noted before, or by time a little
    before it: what comes again is reported in the log and counted.
    """
    settings = MODES[by]
    proxy = make_proxy(replicas.source)
    pipeline = make_pipeline(replicas.source, replicated_schema, settings, proxy=proxy)
    scene = Scene(replicas, pipeline, rng, exact=by == "gtid")
    pipeline.start()
    pipeline.process.wait_for_log("reads .* from")
    checker, counted = scene.follower.checker, 0
    with pipeline.client() as client:
        for _ in range(2):
            with Load(scene.writer):
                scene.receive(client, some=5)
            replicas.catch_up()
            replicas.source.kill()
            replicas.take_over()
            proxy.target = (replicas.source.host, replicas.source.port)
            proxy.end_all()
            scene.writer.go_to(replicas.source)
            with Load(scene.writer):
                scene.receive(client, some=5)
            scene.receive(client)
            if by == "time":
                counted += pipeline.status()["repeated"]["rows"]
            replicas.rejoin()
    print(
        f"{by}: {checker.done} transactions, {checker.repeated} changes arrived again"
    )
    assert scene.follower.changes == 2
    assert checker.done == len(scene.writer.transactions)
    if by == "gtid":
        assert checker.repeated == 0
    elif by == "set":
        pipeline.process.wait_for_log("the GTID set stored with it")
    else:
        assert counted >= checker.repeated > 0
        print(f"at most {counted}, says the server")


@pytest.mark.parametrize(
    ("by", "switched"),
    [
        pytest.param("gtid", True, id="gtid-switched"),
        pytest.param("set", False, id="set-at-once"),
        pytest.param("time", False, id="time-at-once", marks=pytest.mark.slow),
        pytest.param("gtid", False, id="gtid-at-once", marks=pytest.mark.slow),
    ],
)
def test_the_source_and_the_server_die(
    make_scene: Callable[..., Scene],
    make_pipeline: Callable[..., Pipeline],
    zookeeper_root: str,
    *,
    by: str,
    switched: bool,
) -> None:
    """The source dies, then the server that runs the destination: nothing is lost.

    The next server goes to the standby by itself, whether the one before did or not.
    """
    settings: dict[str, object] = {
        "canal.zkServers": zookeeper_root,
        "canal.zookeeper.flush.period": 20,
        "canal.zookeeper.session.timeout.ms": int(SESSION_S * 1000),
        "canal.zookeeper.takeover.delay.ms": 200,
    }
    settings |= MODES[by]
    scene = make_scene(settings, exact=by == "gtid", wiring=CLUSTER_WIRING)
    one = scene.pipeline
    two = make_pipeline(scene.replicas.source, one.schema)
    two.configure(dict(one.settings), wiring=CLUSTER_WIRING)
    two.start()
    with one.client() as client:
        with Load(scene.writer):
            scene.receive(client, some=5)
        scene.read_ahead()
        scene.die()
        if switched:
            scene.wait_until_reads("standby")
            with Load(scene.writer):
                scene.receive(client, some=5)
        one.kill()
    scene.writer.write(10)
    two.process.wait_for_log("is run by this server")
    scene.pipeline = two
    scene.follower.restart()
    scene.wait_until_reads("standby")
    if by == "set":
        two.process.wait_for_log("the GTID set stored with it")
    with two.client() as client:
        with Load(scene.writer):
            scene.receive(client, some=5)
        scene.receive(client)
    checker = scene.follower.checker
    assert checker.done == len(scene.writer.transactions)
    print(f"{checker.done} transactions, {checker.repeated} changes arrived again")


@pytest.mark.parametrize("by", ["gtid", "set"])
def test_in_a_group(
    make_group: Callable[..., Group],
    replicas: Replicas,
    replicated_schema: str,
    mysql_server: Server,
    *,
    by: str,
) -> None:
    """One source of a group goes to its standby; the other one goes on meanwhile.

    Outside of GTID mode by the set that stands beside its position, after a restart
    too.
    """
    if replicas.flavour == "mariadb":
        replicas.source.execute(grant_of(replicas.source))
    standby, schema = replicas.replica, replicated_schema
    mysql_server.execute(
        f"CREATE DATABASE IF NOT EXISTS {schema} CHARACTER SET utf8mb4"
    )
    group = make_group(
        schema,
        [mysql_server, replicas.source],
        {
            "canal.instance.standby2.address": f"{standby.host}:{standby.port}",
            **MODES[by],
            "canal.instance.detecting.enable": "true",
            "canal.instance.detecting.interval.time": 1,
            "canal.instance.detecting.retry.threshold": 1,
            "canal.instance.detecting.heartbeatHaEnable": "true",
            "canal.file.flush.period": 20,
        },
    )
    other, failing = group.branches
    failing.server_ids.add(standby.port)
    failing.ports.add(standby.port)
    group.pipeline.start()
    with group.pipeline.client() as client:
        for branch in group.branches:
            branch.writer.write(10)
        group.receive(client)
    replicas.catch_up()
    if by == "set":
        wait_until_beside(group.pipeline, failing.ports)
        group.pipeline.kill()
    replicas.source.kill()
    replicas.take_over()
    failing.writer.go_to(replicas.source)
    if by == "set":
        other.checker.resume(0, 10)
        other.writer.write(10)
        group.pipeline.start()
    with group.pipeline.client() as client:
        if by == "gtid":
            other.writer.write(10)
            group.receive(client)
        group.pipeline.wait_for_status(
            lambda status: status["sources"][1]["reads"].startswith("standby")
        )
        failing.checker.resume(10 if by == "gtid" else 0, 10)
        failing.writer.write(10)
        group.receive(client)
    if by == "set":
        group.pipeline.process.wait_for_log("the GTID set stored with it")
    group.pipeline.kill()
    for branch in group.branches:
        branch.checker.resume(0, 20)
        branch.writer.write(5)
    group.pipeline.start()
    with group.pipeline.client() as client:
        group.receive(client)
        assert group.source(2)["reads"].startswith("standby")
    mysql_server.execute(f"DROP DATABASE {schema}")


def wait_until_beside(pipeline: Pipeline, ports: set[int]) -> None:
    """Wait until a group's position in the source with these ports has a set."""
    path = pipeline.meta_file.with_name("meta.dat.sources")
    give_up_at = time.monotonic() + 3 * UNIT_S
    while True:
        found = json.loads(path.read_text()) if path.exists() else {"clients": []}
        if any(
            position["position"]["identity"]["sourceAddress"]["port"] in ports
            and "executed" in position
            for client in found["clients"]
            for position in client["sources"]
        ):
            return
        assert time.monotonic() < give_up_at, found
        time.sleep(POLL_S)
