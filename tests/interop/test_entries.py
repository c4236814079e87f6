"""Clients that others wrote read entries as they were written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fix_interop import KINDS, of_kinds
from interop_form import OWN_CLIENT_ID, entry_json, insert, make_table

from canal_server.client import EntryType, EventType
from canal_server.protocol.entry_messages import decode_entry, encode
from canal_server.protocol.packets import Messages, Packet, PacketType
from canal_server.protocol.protobuf import decode

if TYPE_CHECKING:
    from canal_server.client import Entry

CONVERSATION = Path(__file__).parents[1] / "server" / "conversation.json"
FRAME_HEADER_BYTES = 4
LARGE_BYTES = 5_000_000


@of_kinds(*KINDS)
def test_changes(daemon, start_client, client_kind):
    """A client reads what was written, and each field as our own client reads it."""
    daemon.start()
    client = start_client(daemon)
    table = f"{daemon.schema}.item"
    create = (
        f"CREATE TABLE {table} (id BIGINT UNSIGNED PRIMARY KEY, name VARCHAR(50),"
        " price DECIMAL(10,2), at DATETIME(3), picture BLOB)"
    )
    with daemon.client(OWN_CLIENT_ID) as own:
        daemon.source.execute(
            create,
            f"INSERT INTO {table} VALUES"
            " (18446744073709551615, '中😀', -1.5, '2024-02-29 10:00:00.12', x'00ff'),"
            " (2, NULL, NULL, NULL, NULL)",
            f"UPDATE {table} SET name = '' WHERE id = 2",
            f"DELETE FROM {table} WHERE id > 2",
        )
        ours: list[Entry] = []
        while not ours or ours[-1].header.event_type != EventType.DELETE:
            ours += daemon.rows(own, 1)

    entries = client.get_all(
        lambda found: (
            any(entry["event"] == "DELETE" for entry in found)
            and found[-1]["type"] == "TRANSACTIONEND"
        )
    )
    assert [e for e in entries if e["type"] == "ROWDATA"] == [
        entry_json(entry, client_kind) for entry in ours
    ]
    statement, inserted, updated, deleted = (
        entry["content"]
        for entry in entries
        if entry["type"] == "ROWDATA" and entry["event"] != "QUERY"
    )
    assert (statement["event"], statement["ddl"]) == ("CREATE", True)
    assert (statement["sql"], statement["rows"]) == (create, [])

    assert (inserted["event"], inserted["ddl"], inserted["sql"]) == (
        "INSERT",
        False,
        "",
    )
    first, second = (row["after"] for row in inserted["rows"])
    assert [column["value"] for column in first] == [
        *("18446744073709551615", "中😀", "-1.50", "2024-02-29 10:00:00.120"),
        "\0ÿ",
    ]
    assert [column["key"] for column in first] == [True] + [False] * 4
    assert [column["index"] for column in first] == [0, 1, 2, 3, 4]
    assert [column["null"] for column in second] == [False] + [True] * 4
    assert {column["value"] for column in second[1:]} == {""}
    assert [row["before"] for row in inserted["rows"]] == [[], []]

    (change,) = updated["rows"]
    assert [column["updated"] for column in change["after"]] == [
        *(False, True, False, False, False)
    ]
    assert change["before"][1]["null"]
    assert (change["after"][1]["null"], change["after"][1]["value"]) == (False, "")

    assert deleted["rows"] == [
        {
            "before": [column | {"updated": False} for column in first],
            "after": [],
        }
    ]


@of_kinds(*KINDS)
def test_boundaries(daemon, start_client, client_kind):
    """Begins and ends of transactions read the same; what is not set reads as empty."""
    daemon.start()
    client = start_client(daemon)
    table = make_table(daemon)
    insert(daemon, table, 1, 2)
    with daemon.client(OWN_CLIENT_ID) as own:
        ours: list[Entry] = []
        while sum(e.entry_type == EntryType.TRANSACTIONEND for e in ours) < 2:
            message = next(daemon.messages(own))
            ours += message.entries
            own.ack(message.id)
    entries = client.get_all(lambda found: len(found) >= len(ours))
    assert entries == [entry_json(entry, client_kind) for entry in ours]
    ends = [entry for entry in entries if entry["type"].startswith("TRANSACTION")]
    assert {(e["schema"], e["table"], e["event"]) for e in ends} == {
        ("", "", client_kind.no_event)
    }


@of_kinds(*KINDS)
def test_many_and_large(daemon, start_client, client_kind, rng):
    """Many transactions, and a row of some megabytes, arrive as they are."""
    daemon.start()
    client = start_client(daemon)

    def is_last(row):
        return bool(row["after"]) and row["after"][0]["value"] == "-2"

    with daemon.client(OWN_CLIENT_ID) as own:
        writer = daemon.writer(rng)
        writer.write(60)
        daemon.source.execute(
            f"ALTER TABLE {writer.name} MODIFY text LONGTEXT",
            f"INSERT INTO {writer.name} VALUES (-2, 0, 0, REPEAT('y', {LARGE_BYTES}))",
        )
        entries = client.get_all(
            lambda found: any(
                is_last(row)
                for entry in found[-2:]
                if entry["type"] == "ROWDATA"
                for row in entry["content"]["rows"]
            )
        )
        ours: list[Entry] = []
        while len(ours) < len(entries):
            message = next(daemon.messages(own))
            ours += message.entries
            own.ack(message.id)
    assert entries == [entry_json(entry, client_kind) for entry in ours[: len(entries)]]
    changes = [
        change
        for entry in entries
        if entry["event"] in {"INSERT", "UPDATE", "DELETE"}
        and entry["type"] == "ROWDATA"
        for change in entry["content"]["rows"]
    ]
    assert len(changes) == sum(map(len, writer.transactions)) + 1
    assert changes[-1]["after"][3]["value"] == "y" * LARGE_BYTES


def written_by_the_original():
    """Yield the entries of the recorded conversation with the Java server."""
    for step in json.loads(CONVERSATION.read_text()):
        if step["from"] != "server" or "frame" not in step:
            continue
        packet = decode(Packet, bytes.fromhex(step["frame"])[FRAME_HEADER_BYTES:])
        if packet.type == PacketType.MESSAGES:
            yield from decode(Messages, packet.body).messages


def without_defaults(data):
    """Write an entry again, with nothing where a field is empty."""
    entry = decode_entry(data)
    readers: dict[Any, Any] = {
        EntryType.TRANSACTIONBEGIN: entry.transaction_begin,
        EntryType.TRANSACTIONEND: entry.transaction_end,
        EntryType.ROWDATA: entry.row_change,
    }
    return encode(replace(entry, store_value=encode(readers[entry.entry_type]())))


@of_kinds(*KINDS)
def test_defaults(start_client, client_kind):
    """Empty fields read the same whether they are left out or, as in Java, written."""
    client = start_client()
    saved = 0
    for data in written_by_the_original():
        short = without_defaults(data)
        saved += len(data) - len(short)
        expected = entry_json(decode_entry(data), client_kind)
        assert client.do("parse", data.hex()) == expected
        assert client.do("parse", short.hex()) == expected
    assert saved > 0
