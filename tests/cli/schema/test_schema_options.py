"""What the actions of `schema` share: destinations, positions, missing histories."""

from __future__ import annotations

import argparse

import pytest
from fix_conf import ACCOUNT, MASTER
from fix_table_history import T0_MS

from canal_server import cli
from canal_server.cli.schema.schema_options import position_or_time, time_ms
from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.history.schema_views import printable


def test_help_lists_the_actions(capsys):
    """The help of the command names its actions, that of an action its options."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["schema", "--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    for name in ("show", "history", "verify", "export", "import"):
        assert f"    {name} " in shown
        with pytest.raises(SystemExit) as caught:
            cli.main(["schema", name, "--help"])
        assert caught.value.code == 0
        assert "--destination" in capsys.readouterr().out


def test_an_unknown_action(capsys):
    """An action that does not exist is an error of usage."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["schema", "dance"])
    assert caught.value.code == 2
    capsys.readouterr()


def test_times():
    """Times are read with a zone, in the local one, and as milliseconds."""
    assert time_ms("2025-11-21T10:00:00Z") == T0_MS
    assert time_ms("2025-11-21T12:00:00+02:00") == T0_MS
    assert time_ms(str(T0_MS)) == T0_MS
    local = time_ms("2025-11-21 10:00")
    assert local == time_ms("2025-11-21T10:00:00")
    assert abs(local - T0_MS) <= 14 * 3600 * 1000
    for wrong in ("", "soon", "1763719200", "2025-13-01", "-5", "0001-01-01"):
        with pytest.raises(argparse.ArgumentTypeError):
            time_ms(wrong)


def test_positions():
    """A position is a file and an offset; anything else that is no time is refused."""
    assert position_or_time("my-bin.000003:4711") == EntryPosition(
        "my-bin.000003", 4711
    )
    assert position_or_time("2025-11-21T10:00:00Z") == T0_MS
    for wrong in ("binlog.000003", "binlog.000003:", ":4", "binlog.000003:x"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a position"):
            position_or_time(wrong)


def test_printable_keeps_lines():
    """Line ends and tabs stay, all else that a terminal obeys is shown as a number."""
    assert printable("a\n\tb\r\x1b\x9b\x7fä") == "a\n\tb\\x0d\\x1b\\x9b\\x7fä"


def test_which_source_of_a_group(make_conf, capsys):
    """Each source has its own history: they are selected by their numbers."""
    conf = make_conf(
        "canal.destinations = a\ncanal.instance.a.spring.xml = group-instance.xml\n",
        a="canal.instance.master1.address = x\ncanal.instance.master3.address = y\n"
        + ACCOUNT,
    )
    show = ["schema", "show", "--conf", str(conf)]
    assert cli.main(show) == 2
    assert "with --destination: a/master1, a/master3" in capsys.readouterr().err
    assert cli.main([*show, "--destination", "a/master3"]) == 1
    assert f"{conf}/a/master3" in capsys.readouterr().err


def test_which_destination(make_conf, capsys):
    """Several destinations must be selected by name; an unknown one is refused."""
    conf = make_conf("canal.destinations = a, b\n", a=MASTER, b=MASTER)
    assert cli.main(["schema", "show", "--conf", str(conf)]) == 2
    assert "select a destination with --destination: a, b" in capsys.readouterr().err
    argv = ["schema", "show", "--conf", str(conf), "--destination", "c"]
    assert cli.main(argv) == 2
    assert (
        "--destination c: not configured; configured are: a, b"
        in capsys.readouterr().err
    )
    argv[-1] = "b"
    assert cli.main(argv) == 1
    assert "there is no table history" in capsys.readouterr().err


def test_no_history_yet(schema):
    """A missing file is an error, and none is created."""
    schema("show", status=1)
    assert "there is no table history" in schema.err
    schema("history", "--table", "a.b", status=1)
    schema("export", "-", status=1)
    assert "there is no table history" in schema.err


def test_an_empty_history(written_history, schema):
    """A history that has not started yet differs from a missing one."""
    written_history.storage.open()
    written_history.storage.close()
    schema("show", status=1)
    assert "the table history of destination example is empty" in schema.err


def test_a_history_that_is_switched_off(make_conf, capsys):
    """A destination without history is an error of settings, with the key."""
    conf = make_conf(example=MASTER + "canal.instance.tsdb.enable = false\n")
    assert cli.main(["schema", "show", "--conf", str(conf)]) == 2
    assert "canal.instance.tsdb.enable is false" in capsys.readouterr().err


@pytest.mark.parametrize(
    "at",
    ["binlog.000003:100", "binlog.000003:1001", "other.000003:500", "binlog.000004:4",
     "2025-11-21T10:00:00Z"],
)  # fmt: skip
def test_a_position_that_is_not_covered(written_history, schema, at):
    """A position or time outside the history is an error that lists its range."""
    written_history.write()
    schema("show", "--at", at, status=1)
    assert "does not cover" in schema.err
    assert "it covers binlog.000003:157 (" in schema.err
    assert ") to binlog.000003:1000 (" in schema.err
    is_behind = at in ("binlog.000003:1001", "binlog.000004:4")
    assert ("leave the position out" in schema.err) == is_behind


def test_it_is_read_while_a_server_writes_it(written_history, schema):
    """The commands read what a running server has written, and do not disturb it."""
    written_history.write()
    storage = written_history.storage
    storage.open()
    try:
        assert "CREATE TABLE `book`" in schema("show")
        (segment,) = storage.segments()
        storage.extend(segment.id, last=segment.last)
    finally:
        storage.close()
