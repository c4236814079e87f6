"""The note that is sent instead of a message that is too large for the broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from canal_server.queues.avro_reader import schema_id
from canal_server.queues.message_content import (
    KEY_CHARACTERS_MAX,
    content_of,
    parsed,
    text_of,
)
from canal_server.queues.producers.queue_producer import KEYED, key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.queues.producers.queue_producer import (
        Message,
        MessageRefusedError,
    )


def note_message(
    topic: str,
    message: Message,
    error: MessageRefusedError,
    *,
    schema_of: Callable[[int], str | None] | None = None,
) -> Message:
    """Return the message with the note, for the topic of notes.

    It has the key of the message, or that of its table, so that a compacted topic
    accepts it, too; of a key in Avro, the same in JSON. `schema_of` returns the schema
    of a message in Avro by its id.
    """
    key = key_of(message)
    note = note_of(error, *message[1:3], key, schema_of)
    if len(message) != KEYED:
        return topic, 0, note
    is_avro = key is not None and schema_id(key) is not None
    if key is None or is_avro or len(key) > KEY_CHARACTERS_MAX:
        found = json.loads(note)
        names = ("database", "table", *(["key"] if is_avro and "key" in found else ()))
        key = text_of({name: found.get(name) for name in names})
    return topic, 0, note, key, None


def note_of(
    error: MessageRefusedError,
    partition: int,
    value: bytes | None,
    key: bytes | None = None,
    schema_of: Callable[[int], str | None] | None = None,
) -> bytes:
    """Return a note in JSON: which message is missing, and the keys of its rows."""
    note: dict[str, Any] = {
        "reason": str(error),
        "topic": error.topic,
        "partition": partition,
        "bytes": error.size,
    }
    if value is not None:
        note |= content_of(value, schema_of)
        note.pop("position", None)
    if key is not None and len(key) <= KEY_CHARACTERS_MAX:
        found = parsed(key, schema_of)
        if found is not None:
            note["key"] = found
    return text_of(note)
