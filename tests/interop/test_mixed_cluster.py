"""A Java server and one of ours share a destination, and take over from each other.

Forbidden: a change that is lost or out of order, and one that comes again though it was
acknowledged and its cursor stored.
"""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from fix_followed import followed_by
from fix_java_server import with_java_server
from fix_pipeline import DESTINATION
from fix_tablemeta_storage import mysql_database

from canal_server import cli
from canal_server.client import EntryType
from canal_server.model.znodes import destination_path, running_path

pytestmark = with_java_server

MYSQL_HISTORY = "classpath:spring/tsdb/mysql-tsdb.xml"
RUNNING = running_path(DESTINATION)
CURSOR = f"{destination_path(DESTINATION)}/1001/cursor"


@contextlib.contextmanager
def taking_over(seen, server, what):
    """Expect a server to take over, and print how long that took."""
    seen.wait_for_acks(3)
    began_s = time.monotonic()
    yield
    took_s = seen.wait_for_run(server) - began_s
    seen.wait_for_acks(3)
    print(f"{what}: taken over after {took_s:.1f} s")


def test_each_takes_over(mixed):
    """Killed, stopped or asked to, each server gives way to the other one."""
    java, ours = mixed.java, mixed.ours
    mixed.start(java, ours)
    with mixed.following() as seen:
        seen.wait_for_run(java)
        with taking_over(seen, ours, "the Java server killed"):
            java.kill()
        java.start()
        with taking_over(seen, java, "ours killed"):
            ours.kill()
        ours.start()
        with taking_over(seen, ours, "the Java server asked to"):
            node = mixed.zookeeper.read(RUNNING)
            asked_for = node.data.replace(b"true", b"false")
            mixed.zookeeper.write(RUNNING, asked_for, node.version)
    assert seen.servers() == ["java", "conf0", "java", "conf0"]


def test_the_java_client_finds_both(mixed, java_client, rng):
    """A cluster client in Java is led by ZooKeeper from either server to the other."""
    mixed.go_by_gtid()
    java, ours = mixed.java, mixed.ours
    mixed.start(ours, java)
    with followed_by(mixed, java_client, rng) as seen:
        seen.wait_for_more()
        ours.stop()
        mixed.wait_until_run_by(java)
        seen.wait_for_more()
        ours.start()
        java.kill()
        mixed.wait_until_run_by(ours)
        seen.wait_for_more()


@pytest.mark.parametrize("way", ["by_position", "by_gtid"])
def test_goes_on_where_the_other_one_was(mixed, rng, way):
    """What was acknowledged at one server does not come again from the other one."""
    if way == "by_gtid":
        mixed.go_by_gtid()
    java, ours = mixed.java, mixed.ours
    writer = ours.writer(rng)
    checker = ours.checker(writer)
    for server, acks in ((ours, 0), (java, 4), (ours, 4), (java, 4)):
        mixed.start(server)
        writer.write(10, rows=2)  # smaller than a batch
        with server.client() as client:
            assert next(server.messages(client)), "not acknowledged, it comes again"
            client.rollback()
            server.receive_some(client, checker, acks, batch_size=2)
        server.stop()
        # At the first one nothing was acknowledged: its cursor is where it began.
        begin = checker.resumes_at[stored_position(mixed)] if acks else 0
        checker.resume(begin, begin)
        print(f"{server.conf.name}: {checker.done} done")
    mixed.start(ours)
    with ours.client() as client:
        ours.receive(client, checker)


def stored_position(mixed):
    """Return the position in the cursor's node."""
    node = mixed.zookeeper.read(CURSOR)
    position = json.loads(node.data)["postion"] if node else {}
    return position.get("journalName"), position.get("position")


class Commands:
    """The command, with the conf folder of our server; it may or may not run."""

    def __init__(self, mixed, capsys):
        self._conf = ["--conf", str(mixed.ours.conf)]
        self._capsys = capsys

    def run(self, *arguments, status=0):
        """Run a command; returns what it printed, errors too."""
        self._capsys.readouterr()
        assert cli.main([*arguments, *self._conf]) == status
        return "".join(self._capsys.readouterr())

    def seek(self, to, *, status=0):
        """Move all clients."""
        return self.run("position", "seek", "--to", to, "--yes", status=status)


@pytest.fixture
def commands(mixed, capsys):
    """Give the command."""
    return Commands(mixed, capsys)


def test_what_people_are_shown(mixed, rng, commands):
    """What the Java server runs is shown as its, and moved only when it does not."""
    java, ours = mixed.java, mixed.ours
    mixed.start(java)
    its = mixed.address(java)
    writer = ours.writer(rng)
    checker = ours.checker(writer)
    writer.write(10)
    with java.client() as client:
        java.receive(client, checker)
    file, offset = next(reversed(checker.resumes_at))
    mixed.wait_for(lambda: stored_position(mixed) == (file, offset), "the last cursor")
    for ours_waits in (False, True):
        if ours_waits:
            ours.start()
            ours.process.wait_for_log(f"is run by {its}")
        row = commands.run("status").splitlines()[-1].split()
        assert row[:3] == ["example", "competing" if ours_waits else "-", its]
        shown = commands.run("position", "show")
        assert f"destination example: run by {its}; as stored" in shown
        assert f"client 1001 at {file}:{offset} (" in shown
        refused = commands.seek("latest", status=1)
        assert f"is run by {its}: run this command where that server" in refused
        assert stored_position(mixed) == (file, offset)
    ours.stop()
    java.stop()
    assert commands.run("status").splitlines()[-1].split()[:3] == [
        *("example", "-", "nobody"),
    ]
    assert "transactions" in commands.seek("oldest")
    checker.resume(0, 0)
    mixed.start(java)
    with java.client() as client:
        java.receive(client, checker)


class Chronicle:
    """A table that is altered, and its rows with the columns that they had."""

    def __init__(self, server, schema):
        self.rows = []
        self._server = server
        self._name = f"{schema}.t"
        server.execute(f"CREATE TABLE {self._name} (a INT, b INT)")

    def alter(self, change):
        """Alter the table."""
        self._server.execute(f"ALTER TABLE {self._name} {change}")

    def write(self, **values):
        """Write a row."""
        self.rows.append({name: str(value) for name, value in values.items()})
        texts = ", ".join(map(str, values.values()))
        self._server.execute(
            f"INSERT INTO {self._name} ({', '.join(values)}) VALUES ({texts})"
        )


def receive_rows(server, expected):
    """Receive and ack the rows that are expected, and no others."""
    found = []
    with server.client() as client:
        for message in server.messages(client):
            found += [
                row.after
                for entry in message.entries
                if entry.entry_type == EntryType.ROWDATA
                for row in entry.row_change().row_datas
            ]
            client.ack(message.id)
            if len(found) >= len(expected):
                break
        server.settle(client)
    assert found == expected


def test_one_history_of_tables(mixed, mariadb_server):
    """With the history in one database, each knows what the other one saw altered."""
    java, ours = mixed.java, mixed.ours
    chronicle = Chronicle(ours.source, ours.schema)
    with mysql_database(mariadb_server) as (access, name):
        url = f"jdbc:mysql://{access.address}/{name}?useSSL=false"
        mixed.configure(
            {
                "canal.instance.tsdb.spring.xml": MYSQL_HISTORY,
                "canal.instance.tsdb.url": url,
                "canal.instance.tsdb.dbUsername": access.credentials.user,
                "canal.instance.tsdb.dbPassword": access.credentials.password,
            }
        )
        mixed.start(java)
        chronicle.write(a=1, b=2)
        chronicle.alter("ADD c INT FIRST")
        chronicle.write(c=3, a=4, b=5)
        receive_rows(java, chronicle.rows)
        java.stop()
        chronicle.alter("CHANGE b d INT")
        chronicle.write(c=6, a=7, d=8)
        mixed.start(ours)
        chronicle.alter("DROP c")
        chronicle.write(a=9, d=10)
        receive_rows(ours, chronicle.rows[2:])
        ours.stop()
        chronicle.alter("ADD e INT AFTER a")
        chronicle.write(a=11, e=12, d=13)
        mixed.start(java)
        receive_rows(java, chronicle.rows[4:])
        java.stop()
        chronicle.write(a=14, e=15, d=16)
        mixed.start(ours)
        receive_rows(ours, chronicle.rows[5:])
        ours.stop()
