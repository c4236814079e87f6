"""What is in a message, whatever its form: for people and for notes about it.

Values of rows are not repeated, but for those of primary keys.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import ProtocolError
from canal_server.model.entry import EntryType, EventType
from canal_server.protocol.entry_messages import decode_entry
from canal_server.protocol.packets import Messages, Packet
from canal_server.protocol.protobuf import decode
from canal_server.queues.avro_reader import read_message, schema_id
from canal_server.queues.producers.queue_producer import NO_SUBJECT, Subject, key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.protocol.entry_messages import Column, Entry
    from canal_server.queues.producers.queue_producer import Message

KEYS_MAX: Final = 1000  # rows whose keys are named
KEY_CHARACTERS_MAX: Final = 1000  # of one value
CHANGES_MAX: Final = 1000  # tables and kinds of changes
SUBJECT_MAX: Final = 100  # characters of a key in a line
_OPERATIONS: Final = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}
_COPIED: Final = ("database", "table", "type", "es", "gtid", "id", "isDdl", "pkNames")


def subject_of(message: Message) -> Subject:
    """Return which table and row a message is about, in a few words.

    Empty for bytes that are no message of ours: they are in an error about another
    thing.
    """
    try:
        return _subject_of(message)
    except (ProtocolError, LookupError, ValueError, TypeError, AttributeError):
        return NO_SUBJECT


def _subject_of(message: Message) -> Subject:
    value, key = message[2], key_of(message)
    about = {} if value is None else content_of(value)
    words = []
    changes = about.get("changes", [about])
    if changes and changes[0].get("table"):
        words.append(f"table {changes[0]['database']}.{changes[0]['table']}")
    if len(changes) > 1:
        words.append(f"{len(changes) - 1} more kinds of changes")
    if "schemaId" in about:
        words.append(f"schema {about['schemaId']}")
    if "position" in about:
        words.append(f"at {about['position']}")
    if (rows := changes[0].get("rows", 1) if changes else 1) > 1:
        words.append(f"{rows} rows")
    return Subject(", ".join(words), _shown(_key_of(key, changes)))


def _key_of(key: bytes | None, changes: list[dict[str, Any]]) -> str:
    """Return the key of a message as text, or else of its first row."""
    if key is not None and schema_id(key) is None:
        return _without_schema(key.decode(errors="replace"))
    if changes and (keys := changes[0].get("keys")) and keys[0]:
        return text_of(keys[0]).decode()
    return ""


def _without_schema(key: str) -> str:
    """Return a key without the schema that Debezium may repeat in it."""
    try:
        found = json.loads(key)
    except ValueError:
        return key
    if isinstance(found, dict) and isinstance(found.get("schema"), dict):
        return text_of(found["payload"]).decode()
    return key


def _shown(text: str) -> str:
    return text if len(text) <= SUBJECT_MAX else f"{text[: SUBJECT_MAX - 1]}…"


def text_of(value: dict[str, Any]) -> bytes:
    """Return JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def content_of(
    value: bytes, schema_of: Callable[[int], str | None] | None = None
) -> dict[str, Any]:
    """Return table, kind, keys and so on of a message, as far as its form has them.

    `schema_of` returns the schema of a message in Avro by its id.
    """
    if value.startswith(b"{"):
        return _of_flat(value)
    if schema_id(value) is not None:
        return _of_avro(value, schema_of)
    return _of_packet(value)


def parsed(message: bytes, schema_of: Callable[[int], str | None] | None) -> Any:
    """Return what is in a message of JSON or Avro, None: its schema is not known."""
    number = schema_id(message)
    if number is None:
        return json.loads(message)
    schema = None if schema_of is None else schema_of(number)
    return None if schema is None else read_message(message, schema)


def _of_avro(
    value: bytes, schema_of: Callable[[int], str | None] | None
) -> dict[str, Any]:
    found = parsed(value, schema_of)
    return {"schemaId": schema_id(value)} if found is None else _of_debezium(found)


def _of_flat(value: bytes) -> dict[str, Any]:
    message = json.loads(value)
    payload = message.get("payload", message)
    if "specversion" in message:
        return _of_cloud_event(message)
    if "source" in payload:
        return _of_debezium(payload)
    if "ts" in message and "isDdl" not in message:
        return _of_maxwell(message)
    note = {name: message.get(name) for name in _COPIED}
    names = message.get("pkNames") or ()
    rows = message.get("data") or ()
    note["rows"] = len(rows)
    note["keys"] = [
        {name: _shortened(row.get(name)) for name in names} for row in rows[:KEYS_MAX]
    ]
    return note


def _of_maxwell(message: dict[str, Any]) -> dict[str, Any]:
    """Return what is in a message of Maxwell, whose values are not repeated."""
    seconds = message["ts"] if "data" in message else message["ts"] // 1000
    return {
        "database": message["database"],
        "table": message["table"],
        "type": message["type"],
        "es": seconds * 1000,
        "rows": int("data" in message),
    }


def _of_debezium(message: dict[str, Any]) -> dict[str, Any]:
    """Return what is in a message of Debezium, whose values are not repeated."""
    source = message["source"]
    return {
        "database": source["db"],
        "table": source["table"],
        "type": _OPERATIONS[message["op"]],
        "es": source["ts_ms"],
        "gtid": source["gtid"] or "",
        "position": f"{source['file']}:{source['pos']}",
        "rows": 1,
    }


def _of_cloud_event(message: dict[str, Any]) -> dict[str, Any]:
    """Return the same of a CloudEvent."""
    return {
        "database": message["iodebeziumdb"],
        "table": message["iodebeziumtable"],
        "type": _OPERATIONS[message["iodebeziumop"]],
        "es": int(message["iodebeziumtsms"]),
        "gtid": message.get("iodebeziumgtid", ""),
        "position": f"{message['iodebeziumfile']}:{message['iodebeziumpos']}",
        "rows": 1,
    }


def _of_packet(value: bytes) -> dict[str, Any]:
    """Return what is in a message of protobuf; rows of a table stand together."""
    body = decode(Messages, decode(Packet, value).body)
    entries = [decode_entry(each) for each in body.messages]
    header = entries[0].header
    changes: dict[tuple[str, str, str], dict[str, Any]] = {}
    room = KEYS_MAX
    for entry in entries:
        if entry.entry_type in (EntryType.ROWDATA, None):
            room -= _add_change(changes, entry, room)
    return {
        "es": header.execute_time,
        "gtid": header.gtid,
        "position": f"{header.logfile_name}:{header.logfile_offset}",
        "id": body.batch_id or None,  # only messages of whole batches have it
        "entries": len(entries),
        "changes": list(changes.values()),
    }


def _add_change(
    changes: dict[tuple[str, str, str], dict[str, Any]], entry: Entry, room: int
) -> int:
    """Add the rows of an entry; returns how many keys, at most `room`, were added."""
    content = entry.row_change()
    kind = content.event_type or EventType.UPDATE
    name = kind.name if isinstance(kind, EventType) else str(kind)
    header = entry.header
    place = (header.schema_name, header.table_name, name)
    if place not in changes and len(changes) >= CHANGES_MAX:
        return 0
    rows = [
        each.before_columns if kind is EventType.DELETE else each.after_columns
        for each in content.row_datas
    ]
    found = changes.setdefault(
        place,
        {
            "database": header.schema_name,
            "table": header.table_name,
            "type": name,
            "isDdl": bool(content.is_ddl),
            "pkNames": list(_key(rows[0])) if rows else None,
            "rows": 0,
            "keys": [],
        },
    )
    found["rows"] += len(rows)
    keys = [_key(each) for each in rows[:room]]
    found["keys"] += keys
    return len(keys)


def _key(columns: tuple[Column, ...]) -> dict[str, str | None]:
    return {each.name: _shortened(each.text) for each in columns if each.is_key}


def _shortened(value: str | None) -> str | None:
    return value if value is None else value[:KEY_CHARACTERS_MAX]
