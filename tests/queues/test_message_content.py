"""What is in a message, for people; for notes, it is tested with those."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from client_entries import row, transaction

from canal_server.config.schema import MessageLayout, RegistryConfig, RoutingConfig
from canal_server.protocol.protobuf import varint
from canal_server.queues.avro_reader import schema_id
from canal_server.queues.message_content import SUBJECT_MAX, subject_of
from canal_server.queues.message_form import MessageForm
from canal_server.queues.routing import Router

if TYPE_CHECKING:
    from collections.abc import Callable

    from fix_registry import PlainRegistry

    from canal_server.queues.producers.queue_producer import Message


def message_of(form: MessageForm) -> Message:
    """Return the message of a row, in a form."""
    entries = [row(1)] if form.flat else transaction(1, 1)
    body = b"".join(b"\x12" + varint(len(each)) + each for each in entries)
    (message,) = form.encoder(Router(RoutingConfig(topic="top")))(7, body, 0)
    return message


@pytest.mark.parametrize("layout", [MessageLayout.CANAL_JSON, MessageLayout.MAXWELL])
@pytest.mark.parametrize("has_keys", [False, True])
def test_a_row(layout: MessageLayout, *, has_keys: bool) -> None:
    """The table is there, and the key, apart from it, where the message has it."""
    form = MessageForm(True, False, False, has_keys=has_keys, layout=layout)
    found = subject_of(message_of(form))
    assert found.shown == "table shop.orders"
    if has_keys or layout is MessageLayout.CANAL_JSON:
        assert found.key.startswith("{")
        assert '"id"' in found.key.replace("pk.", "")


@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.parametrize("layout", [MessageLayout.DEBEZIUM, MessageLayout.CLOUDEVENTS])
def test_a_row_of_debezium(layout: MessageLayout, *, schemas: bool) -> None:
    """Table and position are there, and the key without its schema."""
    form = MessageForm(
        True,
        False,
        False,
        has_keys=True,
        layout=layout,
        debezium_name="x",
        debezium_schemas=schemas and layout is MessageLayout.DEBEZIUM,
    )
    found = subject_of(message_of(form))
    assert found.shown == "table shop.orders, at binlog.000001:1"
    assert found.key == '{"id":1}'


def test_a_row_in_avro(make_registry: Callable[[], PlainRegistry]) -> None:
    """Only the id of its schema is known without the registry; no bytes are shown."""
    registry = RegistryConfig(urls=(f"http://{make_registry().address}",))
    form = MessageForm(
        True,
        True,
        False,
        has_keys=True,
        layout=MessageLayout.DEBEZIUM_AVRO,
        debezium_name="x",
        registry=registry,
    )
    encode = form.encoder(Router(RoutingConfig(topic="top")), form.registry_client())
    (message,) = encode(7, b"\x12" + varint(len(row(1))) + row(1), 0)
    assert subject_of(message) == (f"schema {schema_id(message[2] or b'')}", "")


def test_a_batch() -> None:
    """A message of protobuf has the position of its first entry."""
    found = subject_of(message_of(MessageForm(False, True, False)))
    assert "table " in found.shown
    assert " at " in found.shown
    assert found.key == '{"id":"1"}'


def test_a_long_key() -> None:
    """It is shortened."""
    key = json.dumps({"pk": "x" * 1000}).encode()
    found = subject_of(("top", 0, None, key, None)).key
    assert found.startswith('{"pk": "xxx')
    assert len(found) == SUBJECT_MAX


def test_columns_that_are_called_as_a_schema_is() -> None:
    """A key with such columns is shown as it is."""
    key = b'{"schema":1,"payload":2}'
    assert subject_of(("top", 0, None, key, None)).key == key.decode()


@pytest.mark.parametrize(
    "value",
    [
        b"", b"\xff\xff", b"{", b"{}", b"[1]", b"\0\0\0\0\7", b'{"payload":null}',
        b'{"payload":5}', b'{"data":5}', b'{"data":[5],"pkNames":["id"]}',
        b'{"ts":null}', b'{"source":null}', b'{"specversion":1}', b'{"pkNames":7}',
    ],
)  # fmt: skip
def test_something_else(value: bytes) -> None:
    """Bytes that are no message have no subject, and no error, whatever the key is."""
    assert subject_of(("top", 0, value)) in {("", ""), ("schema 7", "")}
    for key in (b"5", b'{"schema":{}}', b"[null]", b"\xff", b""):
        assert subject_of(("top", 0, value, key, None)).shown in {"", "schema 7"}
