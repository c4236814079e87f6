"""`canal-server position` on a group: positions of each source are shown and moved."""

from __future__ import annotations

import json

import pytest
from fix_group import GROUP_WIRING, Branch, Group
from ledger import ROWS_OF_A_TRANSACTION_MAX

from canal_server.cli import main

RED, BLUE = 1001, 2


def position(group, *arguments):
    """Run the command on a group's conf folder; returns the status."""
    conf = str(group.pipeline.conf)
    return main(["position", arguments[0], "--conf", conf, *arguments[1:]])


def seek(group, to, *options):
    """Move clients and expect that it works."""
    assert position(group, "seek", "--to", to, "--yes", *options) == 0


def shown(group, capsys):
    """Return what `position show --json` says, of all and of each source."""
    capsys.readouterr()
    assert position(group, "show", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["destinations"]
    return found, {each["name"]: each for each in found["sources"]}


def here(branch):
    """Return the position after all that was written to a source, as a target."""
    return "{}:{}".format(*branch.server.binlog_position())


@pytest.fixture
def group(make_group, mysql_server, mariadb_server, database):
    """Give a running group of a MySQL and a MariaDB."""
    made = make_group(
        database, [mysql_server, mariadb_server], {"canal.file.flush.period": 20}
    )
    made.pipeline.start()
    return made


def test_distances_of_each_source(group, capsys):
    """Transactions, bytes, seconds are reported of each source, running and stopped."""
    one, two = group.branches
    one.writer.write(2)
    two.writer.write(2)
    with group.pipeline.client() as client:
        group.receive(client)
        found, sources = shown(group, capsys)
        assert found["running"] is True
        for name, branch in (("master1", one), ("master2", two)):
            source = sources[name]
            assert source["source"]["address"].endswith(f":{branch.server.port}")
            assert source["parsed"]["behind"]["transactions"] == 0
            (offset,) = source["clients"]
            assert offset["client"] == RED
            assert offset["behind"]["transactions"] == 0
    group.pipeline.stop()
    one.writer.write(3)
    two.writer.write(1)
    found, sources = shown(group, capsys)
    assert found["running"] is False
    lags = [sources[name]["clients"][0]["behind"] for name in sorted(sources)]
    assert [each["transactions"] for each in lags] == [3, 1]
    assert all(each["bytes"] > 100 and each["seconds"] >= 0 for each in lags)
    assert position(group, "show") == 0
    text = capsys.readouterr().out
    assert "master1: 127.0.0.1:" in text
    assert "3 transactions" in text


@pytest.mark.parametrize("running", [True, False])
def test_one_source_is_moved(group, running, capsys):
    """What lies after the position comes again of that source, nothing of the other."""
    one, two = group.branches
    for branch in group.branches:
        branch.writer.write(4)
    begin = here(two)
    for branch in group.branches:
        branch.writer.write(4)
    with group.pipeline.client() as client:
        group.receive(client)
    if not running:
        group.pipeline.stop()
    seek(group, begin, "--source", "master2")
    assert "master2: to" in capsys.readouterr().out
    two.checker.resume(4, 4)
    if not running:
        group.resume(one, exact=True)
        group.pipeline.start()
    one.writer.write(2)
    two.writer.write(2)
    with group.pipeline.client() as client:
        group.receive(client)
    assert [branch.checker.done for branch in group.branches] == [10, 10]
    assert one.checker.repeated == 0
    assert two.checker.repeated > 0


def test_all_sources_are_moved(group, capsys):
    """A time, the oldest and the latest change count in each of them."""
    with group.pipeline.client() as client:
        for branch in group.branches:
            branch.writer.write(3)
        group.receive(client)
        seek(group, "latest")
        for branch in group.branches:
            branch.checker.resume(3, 3)
            branch.writer.write(2)
        group.receive(client)
        assert [branch.checker.repeated for branch in group.branches] == [0, 0]
        _, sources = shown(group, capsys)
        when = min(each["clients"][0]["time"] for each in sources.values())
        seek(group, when)
        assert "repeated" in capsys.readouterr().out
        for branch in group.branches:
            branch.checker.resume()
        group.receive(client)
    assert [branch.checker.done for branch in group.branches] == [5, 5]


def test_one_of_two_clients(group):
    """The other client goes on in both sources as if nothing had been moved."""
    one, two = group.branches
    other = Group(group.pipeline, [Branch.like(branch) for branch in group.branches])
    begin = here(one)
    for branch in group.branches:
        branch.writer.write(3)
    with group.pipeline.client() as client, group.pipeline.client(BLUE) as blue:
        group.receive(client)
        other.receive(blue)
        for branch in group.branches:
            branch.writer.write(3)
        # Got and not acked: comes again, as the batch is void.
        next(group.pipeline.messages(blue))
        address = f"{one.server.host}:{one.server.port}"
        seek(group, begin, "--source", address, "--client", str(RED))
        one.checker.resume(0, 0)
        group.receive(client)
        blue.rollback()
        other.receive(blue)
    assert [branch.checker.repeated for branch in other.branches] == [0, 0]
    assert one.checker.repeated > 0
    assert two.checker.repeated == 0


def test_refusals(group, capsys):
    """What one source's position is to be for all is refused, and what is no source."""
    with group.pipeline.client() as client:
        for branch in group.branches:
            branch.writer.write(1)
        group.receive(client)
        before = shown(group, capsys)
        for arguments, words in (
            (
                (here(group.branches[0]),),
                "name the source of this position: master1 (127.0.0.1:",
            ),
            (("0-1-5",), "the source of this GTID set"),
            (("oldest", "--source", "master3"), "not a source of example; known:"),
        ):
            assert position(group, "seek", "--yes", "--to", *arguments) == 2
            assert words in capsys.readouterr().err
        assert position(group, "seek", "--to", "oldest", "--dry-run") == 0
        assert "nothing was changed" in capsys.readouterr().out
        assert shown(group, capsys)[0]["clients"] == before[0]["clients"]


def test_by_set(make_group, mysql_server, mariadb_server, database, capsys):
    """In GTID mode each source has sets of its own kind, and is moved by them."""
    group = make_group(
        database, [mysql_server, mariadb_server], {"canal.instance.gtidon": "true"}
    )
    group.pipeline.start()
    with group.pipeline.client() as client:
        for branch in group.branches:
            branch.writer.write(3)
        group.receive(client)
        _, sources = shown(group, capsys)
        for branch in group.branches:
            branch.writer.write(3)
        group.receive(client)
        for branch in group.branches:
            name = f"master{branch.number}"
            seek(group, sources[name]["clients"][0]["gtid"], "--source", name)
            branch.checker.resume(3, 3)
            group.receive(client)
    assert [branch.checker.done for branch in group.branches] == [6, 6]
    assert all(branch.checker.repeated > 0 for branch in group.branches)


def test_under_load(group, rng):
    """Moved again and again in one source under load, the other one misses nothing."""
    one, two = group.branches
    begin, moves = here(two), 3
    with group.load(), group.pipeline.client() as client:
        for _ in range(moves):
            expected = one.checker.done + rng.randint(5, 20)
            group.receive_until(client, lambda w=expected: one.checker.done >= w)
            seek(group, begin, "--source", "master2")
            group.resume(one)
            group.resume(two)
            two.checker.resume(0, 0)  # at the begin alone
    with group.pipeline.client() as client:
        group.receive(client)
    for branch in group.branches:
        assert branch.checker.done == len(branch.writer.transactions)
    # Of the source that stays, a transaction of which a part was acked comes whole.
    assert one.checker.repeated < moves * ROWS_OF_A_TRANSACTION_MAX


def test_in_zookeeper(group, zookeeper_root, capsys):
    """Positions in nodes are moved like those in files, also while nobody runs."""
    group.pipeline.stop()
    group.pipeline.configure({"canal.zkServers": zookeeper_root}, wiring=GROUP_WIRING)
    group.pipeline.start()
    one, two = group.branches
    for branch in group.branches:
        branch.writer.write(2)
    begin = here(one)
    for branch in group.branches:
        branch.writer.write(2)
    with group.pipeline.client() as client:
        group.receive(client)
        seek(group, begin, "--source", "master1")
        one.checker.resume(2, 2)
        group.receive(client)
    group.pipeline.stop()
    _, sources = shown(group, capsys)
    assert sources["master1"]["clients"][0]["behind"]["transactions"] == 0
    seek(group, begin, "--source", "master1")
    _, sources = shown(group, capsys)
    assert sources["master1"]["clients"][0]["behind"]["transactions"] == 2
    assert sources["master2"]["clients"][0]["behind"]["transactions"] == 0
    one.checker.resume(2, 2)
    two.checker.resume(4, 4)
    group.pipeline.start()
    for branch in group.branches:
        branch.writer.write(1)
    with group.pipeline.client() as client:
        group.receive(client)
    assert two.checker.repeated == 0
