"""A damaged event in the binlog of a real server: shown, named, skipped."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fix_pump import DESTINATION, Pumped
from fix_ranged import rows_of
from fix_source_access import PATIENCE_S, access_of
from fix_store import eventually

from canal_server import cli
from canal_server.config.schema import (
    Action,
    EventConfig,
    HostConfig,
    HostPort,
    NamedEvent,
)
from canal_server.model.entry import EntryType
from canal_server.model.positions import LogIdentity
from canal_server.mysql.source_settings import Address
from canal_server.runtime.lifecycle import Deadline
from canal_server.source.pump.pump_status import PumpState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fix_ranged import Lake
    from servers import PrivateServer, Server

MARK = "a text that is found in the binlog"


def damaged(server: PrivateServer) -> tuple[str, int, int]:
    """Insert three rows and damage the second one in the binlog.

    Returns the binlog's file, the start offset, and the damaged event's offset.
    """
    server.execute("CREATE DATABASE shop")
    server.execute("CREATE TABLE shop.t (a INT PRIMARY KEY, b VARCHAR(100))")
    file, start = server.binlog_position()
    return file, start, damaged_row(server)[1]


def damaged_row(server: PrivateServer) -> tuple[str, int]:
    """Do so in an existing table; return the file and the event's offset."""
    file, start = server.binlog_position()
    for number, text in ((1, "one"), (2, MARK), (3, "three")):
        server.execute(f"INSERT INTO shop.t VALUES ({number}, '{text}')")
    path = server.data_folder / file
    data = bytearray(path.read_bytes())
    # The statement's text may be there, too, before the row.
    at = data.rindex(MARK.encode())
    with path.open("r+b") as opened:
        opened.seek(at)
        opened.write(b"?")
    event = position = start
    while position <= at:
        event = position
        position += int.from_bytes(data[position + 9 : position + 13], "little")
    return file, event


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_damaged_row(
    own_server: Callable[[str, Sequence[str]], PrivateServer],
    flavour: str,
    capsys: pytest.CaptureFixture[str],
    make_conf: Callable[..., Path],
) -> None:
    """The error has a command that shows the event, and a name to resume with."""
    server = own_server(flavour, ())
    file, start, event = damaged(server)
    settings = (
        f"canal.instance.master.address = {server.host}:{server.port}\n"
        f"canal.instance.dbUsername = {server.user}\n"
        f"canal.instance.dbPassword = {server.password}\n"
    )
    conf = make_conf(f"canal.destinations = {DESTINATION}", **{DESTINATION: settings})
    own = conf / DESTINATION / "instance.properties"
    message = stopped(server, file, start, own)
    assert "the event's checksum is wrong" in message
    key = f"canal.instance.master.unreadable.events = {file}:{event}=skip"
    assert f"write {key} in {own}, and restart" in message

    # The command of the message, unchanged.
    command = message.split("to inspect: ")[1].split(";")[0]
    assert cli.main(shlex.split(command)[1:]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    changes = [each.get("rowChange", {}) for each in shown]
    (change,) = [each for each in changes if "canal: event" in each.get("sql", "")]
    assert {"key": "unreadable", "value": "true"} in change["props"]
    path = server.data_folder / file
    assert cli.main(["decode", str(path)]) == cli.FAILED
    assert capsys.readouterr().err.endswith(
        "; use --unreadable skip to omit such events, or raw to print their bytes\n"
    )
    assert cli.main(["decode", str(path), "--unreadable", "skip"]) == 0
    values = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["after"]["@1"] for each in values if each["table"] == "t"
            and each["type"] == "INSERT"] == ["1", "3"]  # fmt: skip

    for how, rows in ((Action.SKIP, 0), (Action.RAW, 1)):
        named = EventConfig(unreadable=(NamedEvent(file, event, how),))
        found = started(server, file, start, events=named)
        try:
            eventually(partial(has_values, found, "1", "3"))
            assert found.state is PumpState.RUNNING
            changes = [
                entry.row_change()
                for entry in found.entries
                if entry.entry_type == EntryType.ROWDATA
            ]
            raw = [each for each in changes if each.sql.startswith("/* canal: event")]
            assert len(raw) == rows
            (status,) = found.pump.unreadable.status()
            assert (status["state"], status["event"]) == (
                "passed over", f"{file}:{event}",
            )  # fmt: skip
        finally:
            found.stop()


def test_the_standby_is_named_when_it_is_read(
    own_server: Callable[[str, Sequence[str]], PrivateServer],
) -> None:
    """The command of the message queries the server that has the event."""
    server = own_server("mysql", ())
    file, start, _ = damaged(server)
    access = access_of(server)
    found = Pumped(
        replace(access, address=Address("127.0.0.1", 1)),
        "shop",
        standby_access=access,
        own=Path("/etc/canal/pumped/instance.properties"),
        standby=HostConfig(
            address=HostPort(server.host, server.port),
            journal_name=file,
            position=start,
        ),
    )
    found.pump.begin_with(LogIdentity(server.host, server.port))
    found.pump.start()
    try:
        eventually(lambda: found.pump.status.error)
        assert (
            "--conf /etc/canal --destination pumped --standby --from "
            in found.pump.status.error
        )
    finally:
        found.stop()


def has_values(found: Pumped, *values: str) -> bool:
    """Return whether these rows were delivered."""
    return found.values == list(values)


def started(
    server: Server, file: str, start: int, own: Path | None = None, **settings: object
) -> Pumped:
    """Return a pump that runs from a position on."""
    master = HostConfig(journal_name=file, position=start)
    found = Pumped(access_of(server), "shop", None, own=own, master=master, **settings)
    found.pump.start()
    return found


def stopped(server: Server, file: str, start: int, own: Path) -> str:
    """Return the error that stops a pump; `own`: the file with its settings."""
    found = started(server, file, start, own=own)
    try:
        eventually(lambda: found.pump.status.error)
        assert found.values == ["1"]
        return found.pump.status.error
    finally:
        found.stop()


def test_ranges_of_a_damaged_row(
    own_server: Callable[[str, Sequence[str]], PrivateServer],
    make_lake: Callable[..., Lake],
) -> None:
    """Ranges have the same entries from memory and the binlog."""
    server = own_server("mysql", ())
    server.execute("CREATE DATABASE shop")
    server.execute("CREATE TABLE shop.t (a INT PRIMARY KEY, b VARCHAR(100))")
    before = make_lake(server, schema="shop")
    start = before.warm(server, "shop.t", "(-1, '')")
    before.instance.request_stop()
    assert before.instance.join(Deadline(PATIENCE_S))
    file, event = damaged_row(server)

    named = EventConfig(unreadable=(NamedEvent(file, event, Action.RAW),))
    master = HostConfig(
        address=HostPort(server.host, server.port),
        journal_name=start.journal,
        position=start.position,
    )
    lake = make_lake(server, schema="shop", events=named, master=master)
    end = lake.until(start, 3)  # two rows, and the raw one as a statement
    found = lake.read_again(start, end)
    assert lake.read_memory(start, end) == found
    assert rows_of(found) == [
        ("t", "a", "1", "b", "one"),
        ("t", "a", "3", "b", "three"),
    ]
    raw = [each for each in found if b"rawEvent" in each]
    assert len(raw) == 1
    (status,) = lake.instance.pipelines[0].pump.unreadable.status()
    assert status["state"] == "passed over"
