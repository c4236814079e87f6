"""`canal-server position` without a source or a server: options, texts, refusals."""

from __future__ import annotations

import io
import json

import pytest
from fix_conf import ACCOUNT

from canal_server import cli
from canal_server.cli.position.position_seek import _agreed
from canal_server.cursor_moves.move_plan import Move, MovePlan
from canal_server.errors import ConfigError
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.file_meta import MetaFiles
from canal_server.position.stored_meta import StoredClient
from canal_server.runtime.accounts import own_account

NOWHERE = f"canal.instance.master.address = 127.0.0.1:1\n{ACCOUNT}"


@pytest.fixture
def conf(make_conf):
    """Give a conf folder with two destinations, the first of which has a client."""
    conf = make_conf("canal.destinations = one,two", one=NOWHERE, two=NOWHERE)
    cursor = LogPosition(
        LogIdentity("127.0.0.1", 1),
        EntryPosition("binlog.000001", 4711, 1763719200000, 1),
    )
    client = StoredClient(ClientIdentity("one", 1001, "a\\.b"), cursor)
    MetaFiles(conf).write("one", [client])
    return conf


def run(*arguments):
    """Run the command."""
    return cli.main(["position", *map(str, arguments)])


def test_help_lists_the_actions(capsys):
    """The help of the command names its actions, that of an action its options."""
    for arguments, word in (
        (["--help"], "seek"),
        (["show", "--help"], "--json"),
        (["seek", "--help"], "--dry-run"),
    ):
        with pytest.raises(SystemExit) as caught:
            run(*arguments)
        assert caught.value.code == 0
        assert word in capsys.readouterr().out


def test_what_is_stored_is_shown_without_the_source(conf, capsys):
    """If the source cannot be reached, positions are shown, but not the lag."""
    assert run("show", "--conf", conf) == 0
    output = capsys.readouterr().out
    assert "destination one: not running; as stored" in output
    assert "lag is unknown: cannot connect" in output
    assert "client 1001 at binlog.000001:4711 (2025-11-21T1" in output
    assert "destination two" in output
    assert "no client is subscribed" in output
    assert run("show", "--conf", conf, "--destination", "one", "--json") == 0
    (output,) = json.loads(capsys.readouterr().out)["destinations"]
    assert output["clients"][0]["filter"] == "a\\.b"
    assert output["clients"][0]["behind"] == {
        "bytes": None,
        "seconds": None,
        "transactions": None,
    }


def test_why_a_destination_does_not_run(make_conf, start_server, capsys):
    """Its error, which `status` has, is shown as well, with the time."""
    conf = make_conf(
        f"canal.ip = 127.0.0.1\ncanal.port = 0\ncanal.destinations = broken\n{ACCOUNT}",
        broken="canal.instance.master.address = 127.0.0.1:1\n",
    )
    start_server(conf).read_until("canal-server 0")
    assert run("show", "--conf", conf) == 0
    error = "  error: CanalError: the cursors cannot be read (since 2"
    state, line, *_ = capsys.readouterr().out.splitlines()
    assert state == "destination broken: not running; as stored"
    assert line.startswith(error)
    assert run("show", "--conf", conf, "--json") == 0
    (shown,) = json.loads(capsys.readouterr().out)["destinations"]
    assert shown["error"] == "CanalError: the cursors cannot be read"
    assert shown["error_since_ms"] > 0


@pytest.fixture
def group_conf(make_conf):
    """Give a conf folder with a group of two unreachable sources, and a client."""
    conf = make_conf(
        "canal.destinations = merged\n"
        "canal.instance.global.spring.xml = group-instance.xml\n",
        merged="canal.instance.master1.address = 127.0.0.1:1\n"
        "canal.instance.master2.address = 127.0.0.1:2\n" + ACCOUNT,
    )
    positions = {
        number: LogPosition(
            LogIdentity("127.0.0.1", number), EntryPosition("binlog.000001", offset)
        )
        for number, offset in ((1, 100), (2, 4711))
    }
    client = StoredClient(
        ClientIdentity("merged", 1001), positions[1], source_positions=positions
    )
    MetaFiles(conf).write("merged", [client])
    return conf


def test_a_group_is_shown_without_its_sources(group_conf, capsys):
    """Positions in each source are shown, and why the lag is unknown."""
    assert run("show", "--conf", group_conf) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "destination merged: not running; as stored"
    assert lines[1].startswith("  master1: lag is unknown: cannot connect")
    assert lines[2] == "    client 1001 at binlog.000001:100"
    assert lines[3].startswith("  master2: lag is unknown: cannot connect")
    assert lines[4:] == ["    client 1001 at binlog.000001:4711"]
    assert run("show", "--conf", group_conf, "--json") == 0
    (shown,) = json.loads(capsys.readouterr().out)["destinations"]
    assert shown["clients"][0]["position"] == "binlog.000001:100"
    positions = [each["clients"][0]["position"] for each in shown["sources"]]
    assert positions == ["binlog.000001:100", "binlog.000001:4711"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (
            ["--to", "binlog.000001:4"],
            2,
            "source of this position: master1 (127.0.0.1:1), master2 (127.0.0.1:2)",
        ),
        (["--to", "0-1-7"], 2, "name the source of this GTID set"),
        (
            ["--to", "oldest", "--source", "db3"],
            2,
            "source db3: not a source of merged",
        ),
        (["--to", "oldest", "--source", "127.0.0.1:2"], 1, "127.0.0.1:2"),
        (["--to", "latest", "--source", "master2"], 1, "127.0.0.1:2"),
        (["--to", "latest", "--source", "merged/master1"], 1, "127.0.0.1:1"),
        (["--to", "latest"], 1, "name a source to move clients in it"),
    ],
)
def test_which_source_of_a_group(group_conf, capsys, arguments, status, words):
    """It is named, or all are meant where that makes sense; one source has no names."""
    assert run("seek", "--conf", group_conf, "--yes", *arguments) == status
    assert words in capsys.readouterr().err


def test_a_single_source_has_no_name(conf, capsys):
    """To name one where there is one is an error of usage."""
    seek = ("seek", "--conf", conf, "--destination", "one", "--to", "oldest")
    assert run(*seek, "--source", "master1") == 2
    assert "source master1: one has only one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--to", "oldest"], 2, "select a destination with --destination"),
        (["--to", "oldest", "--destination", "three"], 2, "not configured"),
        (["--to", "oldest", "--destination", "two"], 1, "has no clients, so there is"),
        (
            ["--to", "oldest", "--destination", "one", "--client", "7"],
            1,
            "client 7 is not subscribed to one; known clients: 1001",
        ),
        (
            ["--to", "oldest", "--destination", "one", "--client-id", "7"],
            1,
            "client 7 is not subscribed to one; known clients: 1001",
        ),
        (["--to", "oldest", "--destination", "one"], 1, "cannot connect"),
    ],
)
def test_who_cannot_be_moved(conf, capsys, arguments, status, words):
    """Purged files are reported, and nothing is changed."""
    before = (conf / "one" / "meta.dat").read_bytes()
    assert run("seek", "--conf", conf, "--yes", *arguments) == status
    assert words in capsys.readouterr().err
    assert (conf / "one" / "meta.dat").read_bytes() == before


def test_a_destination_that_cannot_be_used_is_no_hindrance_to_others(conf, capsys):
    """Invalid settings of another destination are reported only if they matter.

    A server that watches its conf folder continues without it as well.
    """
    broken = conf / "two" / "instance.properties"
    broken.write_text("canal.instance.memory.buffer.size = 7\n")
    assert run("show", "--conf", conf, "--destination", "one") == 0
    assert "client 1001 at binlog.000001:4711" in capsys.readouterr().out
    seek = ("seek", "--conf", conf, "--to", "oldest", "--yes", "--destination")
    assert run(*seek, "one") == 1
    assert "cannot connect" in capsys.readouterr().err
    for arguments in (("show", "--conf", conf), (*seek, "two"), (*seek, "three")):
        assert run(*arguments) == 2
        assert "canal.instance.memory.buffer.size = 7" in capsys.readouterr().err


def test_a_target_that_is_none(capsys):
    """It is a usage error that lists the accepted values."""
    with pytest.raises(SystemExit) as caught:
        run("seek", "--to", "yesterday")
    assert caught.value.code == 2
    assert "write FILE:POSITION" in capsys.readouterr().err


def test_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal nothing is moved, and the error says how it would be."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(ConfigError, match=r"^nothing was changed: .* add --yes"):
        _agreed()


def test_a_move_without_a_server_is_noted(conf, monkeypatch):
    """The audit of the settings has it, with the account that ran the command."""
    to = LogPosition(LogIdentity("127.0.0.1", 1), EntryPosition("binlog.000002", 4, 1))

    def plan(config, cursors, target, *, source, client_ids):  # asks no source
        assert [each.identity.client_id for each in cursors.clients] == [1001]
        return MovePlan(config.destination, (1001,), (Move("", to, ()),), False, ())

    monkeypatch.setattr("canal_server.cli.position.position_seek.plan_move", plan)
    with (conf / "canal.properties").open("a") as main:
        main.write("\ncanal.audit.file = a.jsonl\n")
    seek = ("seek", "--conf", conf, "--destination", "one", "--to", "latest")
    assert run(*seek, "--dry-run") == 0
    assert not (conf / "a.jsonl").exists()
    assert run(*seek, "--yes") == 0
    noted = json.loads((conf / "a.jsonl").read_text())
    del noted["time"]
    assert noted == {
        "event": "seek",
        "user": None,
        "address": "command",
        "account": own_account(),
        "destination": "one",
        "client_ids": [1001],
        "to": [str(to)],
    }
