"""What is in a message, for people; for notes, it is tested with those."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from client_entries import row, transaction

from canal_server.config.schema import MessageLayout, RoutingConfig
from canal_server.protocol.protobuf import varint
from canal_server.queues.message_content import SUBJECT_MAX, subject_of
from canal_server.queues.message_form import MessageForm
from canal_server.queues.routing import Router

if TYPE_CHECKING:
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
    """The table is there, and the key where the message has it."""
    form = MessageForm(True, False, False, has_keys=has_keys, layout=layout)
    found = subject_of(message_of(form))
    assert found.startswith("table ")
    if has_keys or layout is MessageLayout.CANAL_JSON:
        assert "key {" in found


def test_a_batch() -> None:
    """A message of protobuf has the position of its first entry."""
    found = subject_of(message_of(MessageForm(False, True, False)))
    assert "table " in found
    assert " at " in found


def test_a_long_key() -> None:
    """It is shortened."""
    key = json.dumps({"pk": "x" * 1000}).encode()
    found = subject_of(("top", 0, None, key, None))
    assert found.startswith('key {"pk": "xxx')
    assert len(found) == SUBJECT_MAX + len("key ")


def test_something_else() -> None:
    """Bytes that are no message have no subject, and no error."""
    for value in (b"", b"\xff\xff", b"{", b"{}", b"[1]", b"\0\0\0\0\7"):
        assert subject_of(("top", 0, value)) in {"", "schema 7"}
