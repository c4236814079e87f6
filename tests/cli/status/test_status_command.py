"""`status`: of a server, of its cluster, of both, and of neither."""

from __future__ import annotations

import json
import re
import signal
import time

import pytest
from fix_conf import MASTER
from fix_store import eventually

from canal_server import cli
from canal_server.cli.status.status_command import _table
from canal_server.model.running import Running
from canal_server.model.znodes import candidate_path, running_path, server_path

MAIN = "canal.ip = 127.0.0.1\ncanal.port = 0\ncanal.destinations = "
OTHER = "10.0.0.2:11111"
PATIENCE_MS = 600_000


@pytest.fixture
def status(capsys):
    """Give a function that runs the command and returns what it printed."""

    def run(conf, *options, expected=0):
        assert cli.main(["status", "--conf", str(conf), *options]) == expected
        return capsys.readouterr().out

    return run


@pytest.fixture
def shared_conf(make_conf, zookeeper_root, zookeeper):
    """Give a conf folder of a server, in a cluster with another one that runs it."""
    zookeeper.create(server_path(OTHER), ephemeral=True)
    zookeeper.create(candidate_path("example", OTHER), ephemeral=True)
    zookeeper.create(running_path("example"), Running(OTHER).encode(), ephemeral=True)
    return make_conf(
        f"{MAIN}example\ncanal.zkServers = {zookeeper_root}\n"
        "canal.instance.global.spring.xml = default-instance.xml\n"
    )


def test_a_server_alone(make_conf, start_server, status):
    """A line of the server and one of each destination; the same as JSON."""
    conf = make_conf(MAIN + "example")
    server = start_server(conf)
    server.read_until("canal-server 0")
    first, empty, headings, row = status(conf).splitlines()
    assert first.startswith(f"canal-server 0.1.0, process {server.process.pid}, port ")
    assert empty == ""
    assert headings.split() == [
        "destination", "state", "runs", "on", "position", "last", "change", "lag",
        "clients",
    ]  # fmt: skip
    assert row.split() == ["example", "fake", "here", "-", "-", "-", "-"]
    shown = json.loads(status(conf, "--json"))
    assert shown["pid"] == server.process.pid
    assert [each["destination"] for each in shown["instances"]] == ["example"]
    assert shown["clusters"] == []


def test_changed_settings(make_conf, start_server, status):
    """A file that was changed after the start is named, until it is as it was."""
    conf = make_conf(MAIN + "example")
    start_server(conf).read_until("canal-server 0")
    assert json.loads(status(conf, "--json"))["changed_settings"] == []
    file = conf / "example/instance.properties"
    before = file.read_text()
    file.write_text(before + "canal.instance.dbPassword = corrected\n")
    _, line, empty, *_ = status(conf).splitlines()
    assert line == (
        f"settings: {file} has changed since the start; restart the server to apply it"
    )
    assert empty == ""
    file.write_text(before)
    assert json.loads(status(conf, "--json"))["changed_settings"] == []


def test_a_server_in_a_cluster(shared_conf, start_server, status, zookeeper):
    """A server without destinations shows which server runs them, then its own."""
    server = start_server(shared_conf)
    server.read_until("standing by")
    _, cluster, _, _, row = status(shared_conf).splitlines()
    assert row.split() == ["example", "competing", OTHER, "-", "-", "-", "-"]
    assert OTHER in cluster
    assert "127.0.0.1:" in cluster
    shown = json.loads(status(shared_conf, "--json"))
    (known,) = shown["clusters"]
    assert known["destinations"]["example"]["runs_on"] == OTHER
    assert len(known["destinations"]["example"]["candidates"]) == 2


def test_a_cluster_without_a_server_here(shared_conf, status, zookeeper_root):
    """Without a running server, the state in ZooKeeper is shown."""
    here, cluster, _, _, row = status(shared_conf).splitlines()
    assert here == "no server runs here"
    assert cluster == f"cluster at {zookeeper_root}: {OTHER}"
    assert row.split() == ["example", "-", OTHER, "-", "-", "-", "-"]


def test_neither(make_conf, capsys, monkeypatch):
    """Without a server and an answer of ZooKeeper, both are reported."""
    monkeypatch.setattr("canal_server.cli.status.status_command.ZOOKEEPER_S", 0.05)
    conf = make_conf(
        f"{MAIN}example\ncanal.zkServers = 127.0.0.1:1\n"
        "canal.instance.global.spring.xml = default-instance.xml\n"
    )
    assert cli.main(["status", "--conf", str(conf)]) == 1
    printed = capsys.readouterr()
    assert "ZooKeeper at 127.0.0.1:1 did not answer in 0.05 s" in printed.out
    assert "no server runs with the data folder" in printed.err


def test_clients_that_lost_their_position():
    """A refused client is reported with the reason."""
    why = "client 7 of a needs binlog.000001:4, which is gone"
    shown = {
        "clusters": [],
        "instances": [{"destination": "a", "lost_clients": {"7": why}}],
    }
    assert list(_table(shown))[-1] == f"a: {why}"


def test_events_that_were_passed_over():
    """What became of named events is shown, of each source of a group as well."""
    passed = {
        "event": "b.1:4", "action": "skip", "state": "passed over", "events": 2,
        "event_type": 19, "table": "", "error": "a body of 3 bytes",
    }  # fmt: skip
    read = passed | {"event": "b.1:9", "state": "read"}
    raw = passed | {"action": "raw", "event_type": 30, "table": "db.t"}
    shown = {
        "clusters": [],
        "instances": [
            {"destination": "a", "unreadable": [passed, read]},
            {
                "destination": "g",
                "sources": [
                    {"name": "master2", "state": "running", "unreadable": [raw]}
                ],
            },
        ],
    }
    why = "a body of 3 bytes"
    counted = "(type 30, table db.t, 2 in total)"
    key = "canal.instance.master.unreadable.events"
    assert list(_table(shown))[-3:] == [
        "a: event b.1:4 (type 19, 2 in total) was skipped: a body of 3 bytes",
        f"a: event b.1:9 was decoded without an error: remove it from {key}",
        f"g/master2: event b.1:4 {counted} was delivered as raw bytes: {why}",
    ]


def test_changes_that_were_refused(make_conf, start_server, status):
    """A problem in a changed or new file is reported until it is fixed."""
    main = f"{MAIN}\ncanal.auto.scan = true\ncanal.auto.scan.interval = 1\n"
    conf = make_conf(main, one=MASTER)
    server = start_server(conf)
    server.read_until("canal-server 0")
    make_conf(main, one="canal.instance.master.address = db:many\n", two="")
    eventually(lambda: len(status(conf).splitlines()) == 6)
    changed, new = status(conf).splitlines()[-2:]
    assert changed.startswith("one: its file was changed: ")
    assert "db:many" in changed
    assert changed.endswith("; it keeps its previous settings")
    assert new.startswith("two: ")
    assert new.endswith("; it does not start")
    shown = json.loads(status(conf, "--json"))
    (one,) = shown["instances"]
    assert one["running"]
    assert "db:many" in one["refused_change"]
    assert list(shown["refused"]) == ["two"]
    make_conf(main, one=MASTER)
    (conf / "two" / "instance.properties").unlink()
    eventually(lambda: len(status(conf).splitlines()) == 4)


def test_a_server_that_does_not_answer(
    shared_conf, start_server, capsys, monkeypatch, zookeeper_root
):
    """What ZooKeeper and the settings contain is shown, with the error."""
    monkeypatch.setattr("canal_server.cli.status.status_command.ANSWER_S", 0.2)
    server = start_server(shared_conf)
    server.read_until("canal-server 0")
    server.freeze()
    try:
        assert cli.main(["status", "--conf", str(shared_conf)]) == 1
        text = capsys.readouterr()
        assert cli.main(["status", "--json", "--conf", str(shared_conf)]) == 1
        output = json.loads(capsys.readouterr().out)
        (shared_conf / "canal.properties").write_text(f"{MAIN}example\n")
        assert cli.main(["status", "--conf", str(shared_conf)]) == 1
        alone = capsys.readouterr()
    finally:
        server.process.send_signal(signal.SIGCONT)
    cluster, _, _, row = text.out.splitlines()
    assert cluster.startswith(f"cluster at {zookeeper_root}: ")
    assert row.split() == ["example", "-", OTHER, "-", "-", "-", "-"]
    assert (
        f" does not answer: its process {server.process.pid} is paused"
        f" (SIGSTOP); resume it with kill -CONT {server.process.pid}\n"
    ) in text.err
    assert "does not answer" in output["error"]
    assert output["clusters"][0]["destinations"]["example"]["runs_on"] == OTHER
    assert output["instances"] == [{"destination": "example"}]
    assert alone.out.splitlines()[-1].split()[:3] == ["example", "-", "unknown"]


def test_settings_that_were_broken_since(make_conf, start_server, status):
    """A server whose settings were broken while it runs is still shown."""
    conf = make_conf(MAIN + "example")
    server = start_server(conf)
    server.read_until("canal-server 0")
    make_conf("canal.serverMode = nonsense\n")
    assert "example" in status(conf)


def test_a_source_that_was_changed():
    """The server that is read is shown after a switch, also in a group."""
    shown = {
        "clusters": [],
        "instances": [
            {"destination": "a", "reads": "master db1:3306", "switches": 0},
            {"destination": "b", "reads": "standby db2:3306", "switches": 1},
            {
                "destination": "c",
                "sources": [
                    {"name": "master1", "reads": "master db3:3306", "switches": 2},
                    {"name": "master2", "reads": "master db4:3306", "switches": 0},
                ],
            },
        ],
    }
    assert list(_table(shown))[-2:] == [
        "b: reads standby db2:3306, switched once since the start",
        "c/master1: reads master db3:3306, switched 2 times since the start",
    ]


def test_one_source_of_a_group_that_waits():
    """The state of each source is shown; a waiting one hides no others."""
    sources = [
        {"name": "master1", "state": "running", "error": ""},
        {"name": "master2", "state": "waiting", "error": "ConnectionLost: gone"},
    ]
    group = {"destination": "c", "error": "master2: ConnectionLost: gone"}
    shown = {"clusters": [], "instances": [group | {"sources": sources}]}
    assert list(_table(shown))[-2:] == [
        "c/master1: running",
        "c/master2: waiting: ConnectionLost: gone",
    ]


# --- for probes -----------------------------------------------------------------------


def test_probe_of_a_server_that_is_healthy(make_conf, start_server, capsys):
    """Status 0 with one word, or as JSON; with limits as well."""
    conf = make_conf(MAIN + "example")
    start_server(conf).read_until("canal-server 0")
    common = ("status", "--check", "--conf", str(conf))
    assert cli.main([*common, "--max-lag", "60s", "--timeout", "20s"]) == 0
    assert capsys.readouterr().out == "healthy\n"
    assert cli.main([*common, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output == {"healthy": True, "status": 0, "problems": []}


def test_probe_without_a_server(make_conf, capsys):
    """Status 3 when no server runs, and the line says with which data folder."""
    conf = make_conf(MAIN + "example")
    assert cli.main(["status", "--check", "--conf", str(conf)]) == 3
    assert capsys.readouterr().out == (f"no server runs with the data folder {conf}\n")


def test_probe_of_a_server_that_is_frozen(make_conf, start_server, capsys):
    """Status 4 if there is no answer in time, also if the connection waits."""
    conf = make_conf(MAIN + "example")
    server = start_server(conf)
    server.read_until("canal-server 0")
    server.freeze()
    try:
        for options in ((), ("--json",)):
            common = ("status", "--check", "--timeout", "200ms", *options)
            assert cli.main([*common, "--conf", str(conf)]) == 4
            shown = capsys.readouterr().out
            assert f"the server of {conf} does not answer: its process " in shown
            assert "within" not in shown
        assert cli.main(["status", "--timeout", "200ms", "--conf", str(conf)]) == 1
        assert "does not answer: its process " in capsys.readouterr().err
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_probe_of_a_destination_that_does_not_run(make_conf, start_server, capsys):
    """Status 5 when a destination cannot start, with its error and since when."""
    conf = make_conf(MAIN + "broken", broken=MASTER)
    start_server(conf).read_until("cannot start")
    common = ("status", "--conf", str(conf))
    pattern = (
        r"broken: CanalError: the cursors cannot be read \(since "
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d, \d+ s\)\n"
    )

    def is_reported():
        capsys.readouterr()
        assert cli.main([*common, "--check"]) == 5
        return re.fullmatch(pattern, capsys.readouterr().out)

    eventually(is_reported)  # until then it is starting
    assert cli.main([*common, "--json"]) == 0
    (broken,) = json.loads(capsys.readouterr().out)["instances"]
    assert 0 <= time.time() * 1000 - broken["error_since_ms"] < PATIENCE_MS


def test_limits_without_a_check(make_conf, capsys):
    """A limit that nothing is compared with is an error of usage."""
    conf = make_conf(MAIN + "example")
    assert cli.main(["status", "--max-lag", "1s", "--conf", str(conf)]) == 2
    assert (
        capsys.readouterr().err == "canal-server status: --max-lag requires --check\n"
    )


def test_a_time_out_of_nothing(capsys):
    """A timeout of zero is an error of the option, not of the server."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["status", "--timeout", "0"])
    assert ended.value.code == 2
    assert "argument --timeout: 0: expected more than 0, such as 5s" in (
        capsys.readouterr().err
    )


def test_errors_of_a_source_are_one_line(make_conf, status, monkeypatch):
    """What a source wrote reaches no terminal as it is."""
    conf = make_conf(MAIN + "example")
    error = "SourceError: db: x\nforged\x1b[31m\u202e"
    found = {"instances": [{"destination": "a", "state": "waiting", "error": error}]}
    monkeypatch.setattr("canal_server.cli.status.status_command.ask", lambda *_: found)
    assert r"a: SourceError: db: x\nforged\x1b[31m\u202e" in status(conf)
