"""Servers as people run them, in containers: from the dump to the client.

They differ from the private servers of the other tests in what nobody set by hand:
TLS at login, settings of the image, an address that is forwarded to the container.
Without a Docker daemon, the same tests run on private servers.
"""

from __future__ import annotations

import pytest

from canal_server.client import EventType

pytestmark = pytest.mark.containers


def test_rows_and_statements(container_pipeline):
    """DDL and rows arrive in order, each with the columns that it had."""
    name = f"{container_pipeline.schema}.item"
    source = container_pipeline.source
    json = "JSON" if source.can("JSON as a name of a type") else "TEXT"
    container_pipeline.source.execute(
        f"CREATE TABLE {name} (a INT PRIMARY KEY, b VARCHAR(20), at TIMESTAMP(3) NULL)",
        f"INSERT INTO {name} VALUES (1, '中😀', '2024-02-29 10:00'), (2, '', NULL)",
        f"ALTER TABLE {name} DROP COLUMN at, ADD COLUMN c {json} AFTER a",
        f"UPDATE {name} SET c = '[1]' WHERE a = 2",
        f"DELETE FROM {name} WHERE a = 1",
        f"RENAME TABLE {name} TO {name}2",
    )
    kinds: list[EventType] = []
    rows: list[dict[str, str | None]] = []
    with container_pipeline.client() as client:
        while EventType.RENAME not in kinds:
            for entry in container_pipeline.rows(client, 1):
                if entry.header.event_type == EventType.QUERY:
                    continue  # annotates rows
                kinds.append(entry.header.event_type)
                rows += [
                    row.after or row.before for row in entry.row_change().row_datas
                ]
    assert [kind.name for kind in kinds] == [
        "CREATE",
        "INSERT",
        "ALTER",
        "UPDATE",
        "DELETE",
        "RENAME",
    ]
    assert [row.get("b") for row in rows] == ["中😀", "", "", "中😀"]
    assert [[*row] for row in rows] == [["a", "b", "at"]] * 2 + [["a", "c", "b"]] * 2
    assert rows[2]["c"] == "[1]"


@pytest.mark.parametrize(
    ("how", "gtid"), [("stop", False), ("kill", True)], ids=["stop", "kill"]
)
def test_container_restarted(make_container_pipeline, rng, how, gtid):
    """While the container is stopped and started, nothing is lost and nothing doubled.

    The server sees a link that breaks, a port that refuses, and a new binlog file.
    """
    pipeline = make_container_pipeline({"canal.instance.gtidon": gtid})
    container_server = pipeline.source
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    file, _ = container_server.binlog_position()
    with pipeline.client() as client:
        writer.write(50)
        pipeline.receive_some(client, checker, 1, batch_size=9)
        if how == "kill":
            container_server.kill()
        container_server.restart()
        writer.write(50)
        pipeline.receive(client, checker)
    assert checker.repeated == 0
    assert container_server.binlog_position()[0] != file


def test_both_restarted(container_pipeline, container_server, rng):
    """A server that was stopped goes on after its source was restarted meanwhile."""
    writer = container_pipeline.writer(rng)
    checker = container_pipeline.checker(writer)
    writer.write(30)
    with container_pipeline.client() as client:
        container_pipeline.receive_some(client, checker, 2, batch_size=9)
    acked = checker.done
    container_pipeline.stop()
    container_server.kill()  # a MySQL would look for ten seconds whom it should report
    container_server.restart()
    writer.write(30)
    checker.resume(acked, acked)
    container_pipeline.start()
    with container_pipeline.client() as client:
        container_pipeline.receive(client, checker)
    assert checker.done == len(writer.transactions)


def test_cursors_in_zookeeper(
    make_pipeline, mysql_server, database, container_zookeeper, rng
):
    """While ZooKeeper is down acks go on; they are there when both started again."""
    pipeline = make_pipeline(mysql_server, database)
    pipeline.configure(
        {
            "canal.zkServers": container_zookeeper.servers,
            "canal.zookeeper.flush.period": 20,
            # The lease outlasts the restart, however slow that is.
            "canal.zookeeper.session.timeout.ms": 40_000,
        },
        wiring="classpath:spring/default-instance.xml",
    )
    pipeline.start()
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client:
        writer.write(5)
        pipeline.receive(client, checker)
        container_zookeeper.kill()
        writer.write(5)
        pipeline.receive(client, checker)
        pipeline.process.wait_for_log("cannot write the cursors of example, retrying")
        container_zookeeper.restart()
        pipeline.process.wait_for_log("resumed writing the cursors of example")
    acked = checker.done
    pipeline.stop()
    checker.resume(acked, acked)
    pipeline.start()
    writer.write(5)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    assert checker.done == len(writer.transactions)
    assert not pipeline.meta_file.exists()


def test_containers_that_were_left(container_server, docker_daemon):
    """Those of a process that was killed are removed, those of a living one stay."""
    from container_server import (  # noqa: PLC0415  # only where there is a daemon
        OWNER_LABEL,
        remove_left,
    )

    (ours,) = docker_daemon.containers.list(filters={"label": OWNER_LABEL})
    host = ours.labels[OWNER_LABEL].split()[0]
    left = docker_daemon.containers.create(
        container_server.image, labels={OWNER_LABEL: f"{host} 1 never"}
    )
    elsewhere = docker_daemon.containers.create(
        container_server.image, labels={OWNER_LABEL: f"not-{host} 1 never"}
    )
    try:
        remove_left(docker_daemon)
        found = docker_daemon.containers.list(all=True, filters={"label": OWNER_LABEL})
        assert {each.id for each in found} == {ours.id, elsewhere.id}
    finally:
        elsewhere.remove(v=True)
    assert left not in docker_daemon.containers.list(all=True)
