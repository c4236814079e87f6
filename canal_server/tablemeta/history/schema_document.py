"""The tables at one position as a JSON document, to be moved to another machine.

::

    {"format": "canal-server table history", "version": 1,
     "server": "3e11fa47-…", "traits": {…}, "position": {…},
     "schemas": [{"name": "shop", "collation": "…", "tables": {"book": "CREATE …"},
                  "views": […], "uncertain": […]}],
     "checksum": "sha256:…"}

The checksum covers the document without the checksum, as JSON with sorted keys and
without blanks.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import TableMetaError
from canal_server.model.positions import (
    entry_position_from_json,
    entry_position_to_json,
)
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.storage.history_storage import DdlRecord, StoredSchema
from canal_server.tablemeta.storage.storage_text import traits_from_json, traits_to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.model.positions import EntryPosition
    from canal_server.tablemeta.storage.history_storage import SourceTraits

FORMAT: Final = "canal-server table history"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Exported:
    """The tables of a server at a position in its binlog.

    Normally an event starts at the position, from which reading can resume. Otherwise
    it is right after the start of `statement`, which the tables contain.
    """

    source: str
    traits: SourceTraits
    position: EntryPosition
    schemas: tuple[StoredSchema, ...]
    statement: DdlRecord | None = None

    @property
    def count(self) -> int:
        """The number of tables."""
        return sum(len(each.tables) for each in self.schemas)


def to_document(exported: Exported) -> str:
    """Return the document, formatted for people."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "server": exported.source,
        "traits": traits_to_json(exported.traits),
        "position": entry_position_to_json(exported.position),
        "schemas": [_schema_to_json(each) for each in exported.schemas],
    }
    if exported.statement is not None:
        content["statement"] = _record_to_json(exported.statement)
    content["checksum"] = _checksum(content)
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def from_document(text: str) -> Exported:
    """Parse a document of `to_document`. Raises TableMetaError for anything else."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TableMetaError(f"not valid JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise TableMetaError(f"not a JSON object with the format {FORMAT!r}")
    if content.get("version") != VERSION:
        raise TableMetaError(
            f"unsupported version {content.get('version')}, this canal-server reads"
            f" version {VERSION}; use one at least as new as the one that wrote it"
        )
    checksum = content.pop("checksum", None)
    if checksum != _checksum(content):
        raise TableMetaError(
            "the checksum does not match the content: the file is damaged or was edited"
        )
    try:
        return _exported(content)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TableMetaError(
            f"a field is missing or has the wrong type: {error}"
        ) from error


def _checksum(content: dict[str, Any]) -> str:
    text = json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def _exported(content: dict[str, Any]) -> Exported:
    # Documents of before the first release name it otherwise.
    statement = content.get("statement", content.get("behind"))
    return Exported(
        str(content["server"]),
        traits_from_json(content["traits"]),
        _position(content["position"]),
        tuple(_schema_from_json(each) for each in content["schemas"]),
        None if statement is None else _record_from_json(statement),
    )


def _position(value: dict[str, Any]) -> EntryPosition:
    position = entry_position_from_json(value)
    if not position.journal_name or position.position is None:
        raise ValueError("position without file and offset")
    return position


def _record_to_json(record: DdlRecord) -> dict[str, Any]:
    return {
        "position": entry_position_to_json(record.position),
        "schema": record.schema,
        "sql": record.ddl,
        "context": json.loads(record.context.to_json()),
        "eventType": record.event_type,
        "sqlSchema": record.sql_schema,
        "sqlTable": record.sql_table,
    }


def _record_from_json(value: dict[str, Any]) -> DdlRecord:
    """Return a statement that the tables contain already."""
    return DdlRecord(
        _position(value["position"]),
        str(value["schema"]),
        str(value["sql"]),
        Context.from_json(json.dumps(value["context"])),
        contained=True,
        event_type=str(value["eventType"]),
        sql_schema=str(value["sqlSchema"]),
        sql_table=str(value["sqlTable"]),
    )


def _schema_to_json(schema: StoredSchema) -> dict[str, Any]:
    return {
        "name": schema.name,
        "collation": schema.collation,
        "tables": dict(schema.tables),
        "views": list(schema.views),
        "uncertain": list(schema.uncertain),
    }


def _schema_from_json(value: dict[str, Any]) -> StoredSchema:
    return StoredSchema(
        str(value["name"]),
        str(value["collation"]),
        tuple((str(name), str(text)) for name, text in value["tables"].items()),
        _names(value["views"]),
        _names(value["uncertain"]),
    )


def _names(value: Sequence[object]) -> tuple[str, ...]:
    return tuple(map(str, value))
