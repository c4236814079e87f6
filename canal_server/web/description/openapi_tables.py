"""The description of the part of the REST interface about tables."""

from __future__ import annotations

from typing import Any, Final

from canal_server.web.description.openapi_parts import (
    INTEGER,
    TEXT,
    Json,
    action,
    object_of,
    of_one,
    problem,
    ref,
)

_TABLE: Final[Json] = {
    "name": "table",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "schema.table",
}
_AT: Final[Json] = {
    "name": "at",
    "in": "query",
    "schema": {"type": "string"},
    "description": "FILE:POSITION, or a time with a zone, in ms since 1970, or relative"
    " to now (`-1h`); default: the end of the history",
}
_SINCE: Final[Json] = {
    "name": "since",
    "in": "query",
    "schema": {"type": "string"},
    "description": "a time: only changes since then",
}
_SOURCE: Final[Json] = {
    "name": "source",
    "in": "query",
    "schema": {"type": "string"},
    "description": "the source of a group, such as `master1`, or its address",
}
_TABLES: Final[Json] = {
    "name": "table",
    "in": "query",
    "schema": {"type": "array", "items": {"type": "string"}},
    "description": "schema.table, or a regular expression for it; repeatable; default:"
    " all",
}
_ALL: Final[Json] = {
    "name": "all",
    "in": "query",
    "schema": {"type": "boolean"},
    "description": "also tables of the source itself, such as mysql.user",
}
_FORMAT: Final[Json] = {
    "name": "format",
    "in": "query",
    "schema": {"type": "string", "enum": ["json", "sql"]},
    "description": "`sql`: all of them as statements CREATE TABLE",
}
_OFFSET: Final[Json] = {
    "name": "offset",
    "in": "query",
    "schema": {"type": "integer", "minimum": 0},
    "description": "how many tables to skip",
}
_LIMIT: Final[Json] = {
    "name": "limit",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "maximum": 1000},
    "description": "how many tables to return, 1000 at most",
}
_HISTORY: Final[Json] = {
    "table": {"type": "string"},
    "changes": {
        "type": "array",
        "items": {"type": "object"},
        "description": "`lines` are the difference as text, `differences` as values",
    },
}
_COLUMN: Final[Json] = {
    "name": {"type": "string"},
    "type": {"type": "string"},
    "nullable": {"type": "boolean"},
    "key": {
        "type": "integer",
        "description": "position in the primary key, from 1; 0: not in it",
    },
    "charset": TEXT,
    "generated": {"type": "boolean"},
    "invisible": {"type": "boolean"},
}
_MOMENT: Final[Json] = {
    "server": {"type": "string", "description": "the source, by its UUID or number"},
    "position": {"type": "string", "description": "FILE:POSITION"},
    "time": {**TEXT, "description": "of the event there, ISO 8601"},
    "gtid": TEXT,
}
_TABLE_SCHEMA: Final[Json] = {
    "schema": {"type": "string"},
    "table": {"type": "string"},
    "columns": {
        "type": ["array", "null"],
        "items": ref("Column"),
        "description": "null: they are unknown",
    },
    "primaryKey": {"type": ["array", "null"], "items": {"type": "string"}},
    "charset": TEXT,
    "uncertain": {
        "type": "boolean",
        "description": "it may have had other columns at this position",
    },
    **_MOMENT,
    "sql": {**TEXT, "description": "CREATE TABLE, without passwords"},
}
_SHOWN: Final[Json] = {
    **_MOMENT,
    "count": {"type": "integer", "description": "of all tables that were chosen"},
    "tables": {"type": "array", "items": ref("TableSchema")},
    "next": {**INTEGER, "description": "the offset of the next tables; null: none"},
    "omitted": {
        "type": "array",
        "items": {"type": "string"},
        "description": "schemas of the source itself that were left out",
    },
}
_VERIFY: Final[Json] = {
    "tables": {
        "type": ["array", "null"],
        "items": {"type": "string"},
        "description": "schema.table, or regular expressions for it; null: all",
    },
    "source": {**TEXT, "description": "the source of a group"},
}
_DIFFERING: Final[Json] = {
    "schema": {"type": "string"},
    "table": {"type": "string", "description": "empty: the schema itself differs"},
    "uncertain": {"type": "boolean"},
    "differences": {"type": "array", "items": {"type": "object"}},
    "lines": {"type": "array", "items": {"type": "string"}},
}
_VERIFIED: Final[Json] = {
    "equal": {"type": "boolean"},
    "history_end": {"type": "string"},
    "server_end": {"type": "string"},
    "compared": {"type": "integer", "description": "how many tables"},
    "later_statements": {
        "type": "array",
        "items": {"type": "string"},
        "description": "positions of statements after the end of the history, which"
        " were applied first",
    },
    "not_compared": {"type": "array", "items": {"type": "string"}},
    "differing": {"type": "array", "items": ref("Differing")},
}


def table_paths(one: str) -> dict[str, Any]:
    """Return the paths; `one` is that of a destination."""
    return {
        f"{one}/tables": {"get": _read("The tables of its history.", {})},
        f"{one}/tables/{{table}}": {
            "get": _read(
                "A table as it was at a position or a time.",
                ref("TableSchema"),
                _TABLE,
                _AT,
                _SOURCE,
            )
        },
        f"{one}/tables/{{table}}/history": {
            "get": _read(
                "Who changed a table, when and how; oldest first.",
                ref("History"),
                _TABLE,
                _SINCE,
                _SOURCE,
            )
        },
        f"{one}/schema": {"get": _shown()},
        f"{one}/schema/export": {
            "get": _read(
                "The tables at a position or a time, for `canal-server schema import`.",
                {},
                _AT,
                _SOURCE,
            )
        },
        f"{one}/schema/verify": {"post": _verify()},
    }


def table_schemas() -> dict[str, Any]:
    """Return what they refer to."""
    return {
        "History": object_of(_HISTORY),
        "Column": object_of(_COLUMN),
        "TableSchema": object_of(_TABLE_SCHEMA),
        "Tables": object_of(_SHOWN),
        "Verify": {
            "type": "object",
            "properties": _VERIFY,
            "additionalProperties": False,
        },
        "Verified": object_of(_VERIFIED),
        "Differing": object_of(_DIFFERING),
    }


def _read(summary: str, schema: Json, *more: Json) -> Json:
    """Return an operation that reads a history."""
    found = of_one(summary, schema, "200", *more)
    found["responses"]["422"] = problem("A parameter cannot be used.")
    found["responses"]["504"] = problem("It takes too long.")
    return found


def _shown() -> Json:
    """Return the operation that has two forms of answers."""
    found = _read(
        "Tables as they were at a position or a time.",
        ref("Tables"),
        _AT,
        _SOURCE,
        _TABLES,
        _ALL,
        _FORMAT,
        _OFFSET,
        _LIMIT,
    )
    content = found["responses"]["200"]["content"]
    content["text/plain"] = {"schema": {"type": "string"}}
    return found


def _verify() -> Json:
    """Return the operation that asks the source."""
    found = action("Compare the history with the source.", ref("Verified"))
    found["responses"]["422"] = problem("The request cannot be used.")
    found["responses"]["504"] = problem("It takes too long.")
    found["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": ref("Verify")}},
    }
    return found
