"""Several real sources merged into one destination: nothing lost, order kept."""

from __future__ import annotations

import itertools
import threading

import pytest
from fix_group import GROUP_WIRING, Branch, Group
from fix_random import longer
from fix_store import eventually
from load import receive_until_broken
from purge import purge

from canal_server.cli import main
from canal_server.client import EntryType
from canal_server.config.load import load
from canal_server.tablemeta.history.table_change_view import changes_of, tables_of


@pytest.fixture
def group(make_group, common_schema, two_sources):
    """Give a running group of two MySQLs, then of a MySQL and a MariaDB."""
    made = make_group(common_schema, two_sources, {"canal.file.flush.period": 20})
    made.pipeline.start()
    return made


@pytest.fixture
def mixed(make_group, mysql_server, mariadb_server, database):
    """Give a running group of a MySQL and a MariaDB."""
    made = make_group(
        database, [mysql_server, mariadb_server], {"canal.file.flush.period": 20}
    )
    made.pipeline.start()
    return made


def test_under_load(group):
    """All of each source comes, in its order, transactions never interleaved."""
    with group.pipeline.client() as client:
        with group.load():
            group.receive_until(
                client, lambda: all(b.checker.done > 100 for b in group.branches)
            )
        group.receive(client)
    for branch in group.branches:
        assert branch.checker.done == len(branch.writer.transactions)
        assert branch.checker.repeated == 0
    print(f"{group.turns} turns for {[b.checker.done for b in group.branches]}")


def test_killed(group, rng):
    """Killed under load at any moment, each source goes on where it was acked."""
    with group.load():
        for _ in range(longer(2)):
            killer = threading.Timer(rng.uniform(0.3, 1.5), group.pipeline.kill)
            killer.start()
            receive_until_broken(group.pipeline, group, rng)
            killer.join()
            for branch in group.branches:
                group.resume(branch, exact=True)
            group.pipeline.start()
    with group.pipeline.client() as client:
        group.receive(client)
    for branch in group.branches:
        assert branch.checker.done == len(branch.writer.transactions)
        print(
            f"master{branch.number}: {branch.checker.done} transactions,"
            f" {branch.checker.repeated} changes arrived again"
        )


def test_one_source_down(make_group, mysql_server, own_server, database):
    """The others go on, from the start or later; once back, it goes on where it was."""
    other = own_server("mysql", ())
    other.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    group = make_group(database, [mysql_server, other])
    first, second = group.branches
    second.writer.write(5)
    other.kill()
    group.pipeline.start()
    with group.pipeline.client() as client:
        first.writer.write(20)
        group.receive_until(client, lambda: first.checker.done == 20)
        assert second.checker.done == 0
        group.pipeline.wait_for_status(
            lambda status: "cannot connect" in status["sources"][1]["error"]
        )
        other.restart()
        group.receive(client)
        assert second.checker.done == 5

        other.kill()
        first.writer.write(20)
        group.receive_until(client, lambda: first.checker.done == 40)
        other.restart()
        second.writer.write(5)
        group.receive(client)
    assert [branch.checker.repeated for branch in group.branches] == [0, 0]


def test_a_quiet_source_is_rotated(make_group, mysql_server, own_server, database):
    """A client that has all is up to date in each source, and leaves files that ended.

    Those may be purged then, while the other source goes on.
    """
    other = own_server("mysql", ())
    other.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    group = make_group(database, [mysql_server, other])
    group.pipeline.start()
    with group.pipeline.client() as client:
        for branch in group.branches:
            branch.writer.write(2)
        group.receive(client)
        group.pipeline.settle(client)
    other.execute("FLUSH BINARY LOGS")
    file, _ = other.binlog_position()
    group.pipeline.wait_for_status(
        lambda status: status["sources"][1]["position"].startswith(file)
    )
    group.pipeline.stop()
    purge(other, file)
    for branch in group.branches:
        group.resume(branch, exact=True)
        branch.writer.write(2)
    group.pipeline.start()
    with group.pipeline.client() as client:
        group.receive(client)
    assert [branch.checker.done for branch in group.branches] == [4, 4]


def test_one_source_purged(make_group, mysql_server, own_server, database, capsys):
    """The others continue; what is missing is reported, with a remedy that works."""
    other = own_server("mysql", ())
    other.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    group = make_group(database, [mysql_server, other])
    first, second = group.branches
    group.pipeline.start()
    with group.pipeline.client() as client:
        for branch in group.branches:
            branch.writer.write(3)
        group.receive(client)
    group.pipeline.stop()
    missing, _ = other.binlog_position()
    group.resume(first, exact=True)
    for branch in group.branches:
        branch.writer.write(3)
    purge(other)
    left, _ = other.binlog_position()
    second.writer.write(2)
    group.pipeline.start()
    conf, seek = ("--conf", str(group.pipeline.conf)), "canal-server position seek"
    way_out = "--destination example --source master2 --to oldest"
    with group.pipeline.client() as client:
        line = group.pipeline.process.wait_for_log("ERROR .* BinlogPurged")
        assert "destination example/master2: BinlogPurged: " in line
        assert f"missing: {missing}, the oldest file is now {left};" in line
        options = f"{' '.join(conf)} {way_out.replace(' --to', ' --client-id ID --to')}"
        assert f"`{seek} {options}`" in line
        assert "the other sources of example continue" in line
        group.receive_until(client, lambda: first.checker.done == 6)

        def shown_by_status():
            assert main(["status", *conf]) == 0
            status = capsys.readouterr().out
            assert "example/master1: running" in status
            return "example/master2: waiting: BinlogPurged" in status

        # At first it is tried again every other moment.
        eventually(shown_by_status)
        assert main(["position", "show", *conf]) == 0
        shown = capsys.readouterr().out
        assert f"{missing} purged: changes" in shown
        assert (
            f"{seek} {options.partition(' --client-id')[0]} --client-id 1001 --to"
            in shown
        )

        assert main(["position", "seek", *conf, *way_out.split(), "--yes"]) == 0
        assert f"{missing} purged" in capsys.readouterr().out
        second.checker.resume(6, 6)
        first.writer.write(2)
        group.receive(client)

        # Now only the server has what is not acked: a move elsewhere would lose it.
        capsys.readouterr()
        elsewhere = ["position", "seek", *conf, "--source", "master1", "--yes"]
        second.writer.write(1)
        message = next(group.pipeline.messages(client))
        group.take(message.entries)
        purge(other)
        assert main([*elsewhere, "--to", "latest"]) == 1
        assert f" of master2 (127.0.0.1:{other.port}): {left} purged" in (
            capsys.readouterr().err
        )
        client.ack(message.id)
        group.receive(client)
        group.pipeline.settle(client)
        assert main([*elsewhere, "--to", "latest"]) == 0
    assert first.checker.repeated == 0


def test_unlike_speeds(mixed):
    """One with few transactions neither waits for one with many nor holds it up."""
    group = mixed
    fast, slow = group.branches
    with group.pipeline.client() as client:
        group.wait_until_running()
        # Idle on one side: all of the other comes.
        fast.writer.write(30)
        group.receive(client)
        for _ in range(5):
            fast.writer.write(40, rows=10)
            slow.writer.write(1, rows=1)
            expected = slow.checker.done + 1
            group.receive_until(client, lambda w=expected: slow.checker.done == w)
        group.receive(client)
    assert [branch.checker.repeated for branch in group.branches] == [0, 0]


def test_tables_of_one_name(make_group, mysql_server, mariadb_server, database):
    """Each source has a history of its own: one name, other columns."""
    table = f"{database}.same"
    two_sources = [mysql_server, mariadb_server]
    two_sources[0].execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, a VARCHAR(9))")
    two_sources[1].execute(f"CREATE TABLE {table} (b DATE, id INT PRIMARY KEY)")
    group = make_group(database, two_sources)
    group.pipeline.start()
    for turn in range(2):
        two_sources[0].execute(f"INSERT INTO {table} VALUES ({turn}, 'x')")
        two_sources[1].execute(f"INSERT INTO {table} VALUES ('2026-01-01', {turn})")
        if turn == 0:
            group.wait_until_running()
            two_sources[1].execute(f"ALTER TABLE {table} ADD COLUMN c INT DEFAULT 7")
            two_sources[1].execute(f"ALTER TABLE {table} DROP COLUMN c")
    found: dict[int, list[dict[str, str | None]]] = {1: [], 2: []}
    with group.pipeline.client() as client:
        for message in group.pipeline.messages(client):
            for entry in message.entries:
                if entry.entry_type != EntryType.ROWDATA:
                    continue
                (branch,) = [
                    b for b in group.branches if entry.header.server_id in b.server_ids
                ]
                rows = entry.row_change().row_datas
                found[branch.number] += [row.after for row in rows]
            client.ack(message.id)
            if [len(rows) for rows in found.values()] == [2, 2]:
                break
    assert found == {
        1: [{"id": "0", "a": "x"}, {"id": "1", "a": "x"}],
        2: [{"b": "2026-01-01", "id": "0"}, {"b": "2026-01-01", "id": "1"}],
    }
    (config,) = load(group.pipeline.conf, {}).instances
    assert table in tables_of(config)
    statements = [each.get("sql", "") for each in changes_of(config, database, "same")]
    assert any("ADD COLUMN c" in each for each in statements)
    assert sum("CREATE TABLE" in each or not each for each in statements) == 2


def test_clients_at_different_positions(mixed):
    """After a restart each client goes on where it was, in each source."""
    group = mixed
    other = Group(group.pipeline, [Branch.like(branch) for branch in group.branches])
    for branch in group.branches:
        branch.writer.write(30)
    with group.pipeline.client() as client, group.pipeline.client(2) as late:
        group.receive(client)
        # One message of the second client: it may be of one source only.
        for message in itertools.islice(group.pipeline.messages(late), 1):
            other.take(message.entries)
            late.ack(message.id)
        group.pipeline.settle(late)
    group.pipeline.stop()
    for branch in group.branches:
        group.resume(branch, exact=True)
        branch.writer.write(10)
    for branch in other.branches:
        other.resume(branch, exact=True, client_id=2)
    group.pipeline.start()
    with group.pipeline.client() as client, group.pipeline.client(2) as late:
        group.receive(client)
        other.receive(late)
    assert [branch.checker.repeated for branch in group.branches] == [0, 0]
    assert [branch.checker.done for branch in other.branches] == [40, 40]


def test_filtered_source_moves_too(mixed):
    """A client that requests nothing of a source advances in it all the same."""
    group = mixed
    one, two = group.branches
    group.wait_until_running()
    started = one.server.binlog_position()

    def position_of(branch):
        position = group.positions().get(branch.number)
        return position and (position["journalName"], position["position"])

    def has_moved():
        # An ack moves the positions in all that was read up to then, so there are more.
        two.writer.write(1)
        expected = len(two.writer.transactions)
        group.receive_until(client, lambda: two.checker.done == expected)
        return (position_of(one) or started) > started

    with group.pipeline.client(filter_=rf".*\.{two.writer.table}") as client:
        one.writer.write(40)
        two.writer.write(40)
        eventually(has_moved)
    group.pipeline.stop()
    assert one.checker.done == 0
    for branch in (one, two):
        assert position_of(branch) <= branch.server.binlog_position()


def test_link_cut_in_large_transactions(
    make_group, mysql_server, mariadb_server, make_proxy, database
):
    """What was delivered of a transaction in parts goes on; nobody gets in between."""
    proxy = make_proxy(mysql_server)
    group = make_group(
        database,
        [mariadb_server, mysql_server],
        {"canal.instance.transaction.size": 8},
        proxies={2: proxy},
    )
    first, second = group.branches
    group.pipeline.start()
    with group.pipeline.client() as client:
        group.wait_until_running()
        with proxy.cut(3000, 20_000, 9000, 15_000):
            for _ in range(4):
                second.writer.write(1, rows=60)
                first.writer.write(3)
            group.receive(client)
    assert [branch.checker.repeated for branch in group.branches] == [0, 0]


def test_cursors_in_zookeeper(
    make_group, mysql_server, mariadb_server, database, zookeeper_root
):
    """Positions of each source are kept there as well; a restart resumes at them."""
    group = make_group(database, [mysql_server, mariadb_server])
    group.pipeline.configure({"canal.zkServers": zookeeper_root}, wiring=GROUP_WIRING)
    group.pipeline.start()
    with group.pipeline.client() as client:
        for branch in group.branches:
            branch.writer.write(10)
        group.receive(client)
    group.pipeline.stop()
    assert group.positions() == {}
    for branch in group.branches:
        branch.checker.resume(branch.checker.done, branch.checker.done)
        branch.writer.write(10)
    group.pipeline.start()
    with group.pipeline.client() as client:
        group.receive(client)
    assert [branch.checker.repeated for branch in group.branches] == [0, 0]
