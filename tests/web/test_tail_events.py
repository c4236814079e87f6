"""The events of a tail have the described form, and one line of data each."""

from __future__ import annotations

import json

import pytest
from change_messages import Maker
from jsonschema import validate  # type: ignore[import-untyped]

from canal_server.client.change_reader import ChangeReader
from canal_server.client.value_reader import ValueOptions
from canal_server.store.head_taps import TOO_SLOW, Skipped
from canal_server.web.description.openapi import document
from canal_server.web.quiet_tail import ENDING, REMOVED
from canal_server.web.tail_events import change_event, skipped_event, state_event

SCHEMAS = document("1.2.3")["components"]["schemas"]


def data_of(event: bytes, name: str, schema: str):
    """Return the data of an event; checks its form."""
    head, data, *rest = event.decode().split("\n")
    assert (head, rest) == (f"event: {name}", ["", ""])
    found = json.loads(data.removeprefix("data: "))
    validate(found, {**SCHEMAS[schema], "additionalProperties": False})
    return found


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda m: m.insert({"id": 1, "v": "a\n\nevent: x\r\n\0\u2028"}), "insert"),
        (lambda m: m.update({"id": 1, "v": None}, {"id": 1, "v": ""}), "update"),
        (lambda m: m.delete({"id": 1, "v": "…"}), "delete"),
        (lambda m: m.statement("ALTER TABLE\n t ADD b INT"), "ddl"),
    ],
)
def test_changes(make, kind):
    """The data has all of a change; line breaks do not end its line."""
    message = Maker().message(1, make(Maker()))
    reader = ChangeReader(ValueOptions(as_texts=True))
    (change,) = reader.read(message.body)
    found = data_of(change_event(change), kind, "TailChange")
    assert (found["before"], found["after"]) == (change.before, change.after)
    assert (found["file"], found["offset"]) == change.position
    assert (found["sql"], found["kind"]) == (change.sql, kind)


def test_others():
    """What was skipped and why nothing comes are of the described form."""
    found = data_of(skipped_event(Skipped(TOO_SLOW, 3, 7)), "skipped", "TailSkipped")
    assert found == {"reason": "the reader is too slow", "entries": 3, "rows": 7}
    for state in (ENDING, REMOVED):
        assert data_of(state_event(state), "state", "TailState") == state
