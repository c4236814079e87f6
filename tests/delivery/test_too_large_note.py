"""Notes in place of messages of protobuf; those of JSON are in test_queue_worker.py."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from client_entries import row, statement, transaction

from canal_server.config.schema import MessageLayout, RegistryConfig, RoutingConfig
from canal_server.delivery.too_large_note import note_message, note_of
from canal_server.protocol.entry_messages import decode_entry
from canal_server.protocol.protobuf import varint
from canal_server.queues import message_content
from canal_server.queues.message_form import MessageForm
from canal_server.queues.producers.queue_producer import (
    MessageRefusedError,
    key_of,
    size_of,
)
from canal_server.queues.routing import Router

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from fix_registry import PlainRegistry

FORM = MessageForm(flat=False, raw=True, drops_markers=False)


def note_about(entries: list[bytes], hashes: str = "") -> dict[str, Any]:
    """Return the note in place of the only message of a batch with the id 7."""
    body = b"".join(b"\x12" + varint(len(each)) + each for each in entries)
    router = Router(RoutingConfig(topic="top", partition_hash=hashes))
    (message,) = FORM.encoder(router)(7, body, 0)
    topic, partition, value = message[:3]
    assert value is not None
    error = MessageRefusedError(topic, len(value), "is too large")
    note: dict[str, Any] = json.loads(note_of(error, partition, value))
    assert note.pop("bytes") == len(value)
    assert note.pop("reason").endswith("is too large")
    return note


def test_a_message_with_a_key() -> None:
    """The note has the key, and of Maxwell's form what it says of the row."""
    form = MessageForm(
        flat=True,
        raw=True,
        drops_markers=False,
        has_keys=True,
        layout=MessageLayout.MAXWELL,
    )
    router = Router(RoutingConfig(topic="top"))
    (message,) = form.encoder(router)(7, b"\x12" + varint(len(row(5))) + row(5), 0)
    error = MessageRefusedError("top", size_of(message), "is too large")
    note = json.loads(note_of(error, 0, message[2], key_of(message)))
    assert (note["database"], note["table"], note["type"]) == (
        "shop", "orders", "insert",
    )  # fmt: skip
    assert note["key"] == {"database": "shop", "table": "orders", "pk.id": 5}
    form = replace(form, layout=MessageLayout.DEBEZIUM, debezium_name="x")
    for schemas in (False, True):
        encode = replace(form, debezium_schemas=schemas).encoder(router)
        (of_debezium,) = encode(7, b"\x12" + varint(len(row(5))) + row(5), 0)
        note_5 = json.loads(note_of(error, 0, of_debezium[2]))
        assert (note_5["database"], note_5["type"]) == ("shop", "INSERT")
    form = replace(form, layout=MessageLayout.CLOUDEVENTS)
    (event,) = form.encoder(router)(7, b"\x12" + varint(len(row(5))) + row(5), 0)
    note_5 = json.loads(note_of(error, 0, event[2]))
    assert (note_5["database"], note_5["type"]) == ("shop", "INSERT")
    tombstone = json.loads(note_of(error, 0, None, key_of(message)))
    assert tombstone["key"] == note["key"]


def test_a_message_in_avro(make_registry: Callable[[], PlainRegistry]) -> None:
    """The note says of the row what that of JSON does, and its key is JSON."""
    registry = RegistryConfig(urls=(f"http://{make_registry().address}",))
    form = MessageForm(
        flat=True,
        raw=True,
        drops_markers=False,
        has_keys=True,
        layout=MessageLayout.DEBEZIUM_AVRO,
        debezium_name="x",
        registry=registry,
    )
    router = Router(RoutingConfig(topic="top"))
    client = form.registry_client()
    assert client is not None
    body = b"\x12" + varint(len(row(5))) + row(5)
    (message,) = form.encoder(router, client)(7, body, 0)
    error = MessageRefusedError("top", size_of(message), "is too large")
    found = note_message("notes", message, error, schema_of=client.schema_of)
    form = replace(form, layout=MessageLayout.DEBEZIUM)
    (other,) = form.encoder(router)(7, body, 0)
    expected = note_message("notes", other, error)
    assert found[2] == expected[2]
    assert key_of(found) == b'{"database":"shop","table":"orders","key":{"id":5}}'
    unknown = json.loads(note_message("notes", message, error)[2] or b"")
    assert unknown["schemaId"] == 1
    assert "key" not in unknown


def test_keys_of_notes() -> None:
    """A note has a key if messages have: that of the message, else of its table."""
    error = MessageRefusedError("top", 9, "is too large")
    form = MessageForm(flat=True, raw=True, drops_markers=False, has_keys=True)
    router = Router(RoutingConfig(topic="top"))
    (message,) = form.encoder(router)(7, b"\x12" + varint(len(row(5))) + row(5), 0)
    assert key_of(note_message("notes", message, error)) == key_of(message)
    for key in (None, b'{"pk.id":"%b"}' % (2000 * b"5")):
        of_table: Any = (*message[:3], key, None)
        note = note_message("notes", of_table, error)
        assert note[:2] == ("notes", 0)
        assert key_of(note) == b'{"database":"shop","table":"orders"}'
    plain: Any = message[:3]
    assert len(note_message("notes", plain, error)) == 3


def test_a_whole_batch() -> None:
    """It has all tables, kinds of changes and keys that were in the message."""
    entries = [
        *transaction(1, 2), row(5, "items"), row(6), statement(7, "DROP TABLE items"),
    ]  # fmt: skip
    note = note_about(entries)
    first = decode_entry(entries[0]).header
    dropped = note["changes"].pop()
    assert note == {
        "topic": "top", "partition": 0, "es": first.execute_time, "gtid": first.gtid,
        "id": 7, "entries": 7,
        "changes": [
            {
                "database": "shop", "table": "orders", "type": "INSERT",
                "isDdl": False, "pkNames": ["id"], "rows": 3,
                "keys": [{"id": "1"}, {"id": "2"}, {"id": "6"}],
            },
            {
                "database": "shop", "table": "items", "type": "INSERT",
                "isDdl": False, "pkNames": ["id"], "rows": 1, "keys": [{"id": "5"}],
            },
        ],
    }  # fmt: skip
    assert (dropped["isDdl"], dropped["rows"], dropped["keys"]) == (True, 0, [])


def test_a_part_of_a_batch() -> None:
    """A message that is one by its partition does not know the batch's id."""
    note = note_about([row(1), row(2)], r".*\..*:$pk$")
    assert (note["id"], note["entries"]) == (None, 2)
    assert note["changes"][0]["keys"] == [{"id": "1"}, {"id": "2"}]


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note stays small, however much was in the message."""
    monkeypatch.setattr(message_content, "KEYS_MAX", 3)
    monkeypatch.setattr(message_content, "CHANGES_MAX", 2)
    note = note_about(
        [row(1), row(2), row(3, "items"), row(4, "items"), row(5, "more"), row(6)]
    )
    orders, items = note["changes"]
    assert (orders["rows"], orders["keys"]) == (3, [{"id": "1"}, {"id": "2"}])
    assert (items["rows"], items["keys"]) == (2, [{"id": "3"}])
    assert note["entries"] == 6
