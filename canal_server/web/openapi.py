"""The description of the REST interface (OpenAPI 3.1)."""

from __future__ import annotations

from typing import Any, Final

from canal_server.instance.client_lags import CLIENT_STATES
from canal_server.observe.readings import STATES
from canal_server.runtime.log_levels import LEVELS
from canal_server.web.quiet_tail import STATES as TAIL_STATES
from canal_server.web.tail_events import KINDS

Json = dict[str, Any]

_NUMBER: Final = {"type": ["number", "null"]}
_INTEGER: Final = {"type": ["integer", "null"]}
_TEXT: Final = {"type": ["string", "null"]}
_OBJECT: Final = {"type": ["object", "null"]}

_VIEW: Final[Json] = {
    "destination": {"type": "string"},
    "state": {
        "type": "string",
        "enum": list(STATES),
        "description": "one of the states of `canal_instance_state`",
    },
    "ready": {"type": "boolean", "description": "runs, or is not to run here"},
    "error": _TEXT,
    "error_since_ms": {**_INTEGER, "description": "ms since 1970"},
    "lag_s": {**_NUMBER, "description": "how far reading lags behind the source, s"},
    "source": {"description": "the server that is read"},
    "runs_on": {**_TEXT, "description": "the server of a cluster that runs it"},
    "blocked": {**_OBJECT, "description": "why reading waits, and for which clients"},
    "warnings": {"type": "array", "items": {"type": "string"}},
    "uncertain_tables": {
        **_OBJECT,
        "description": "tables whose columns are not certain at this position:"
        " `reason`, `count` and `tables`, the first of them",
    },
    "rows": {**_INTEGER, "description": "rows read since it started"},
    "store_fill_ratio": {**_NUMBER, "description": "0 to 1"},
    "allows_actions": {"type": "boolean", "description": "for who sent the request"},
    "allows_tail": {"type": "boolean", "description": "the same"},
}
_CLIENT: Final[Json] = {
    "client_id": {"type": "integer"},
    "state": {
        "type": "string",
        "enum": list(CLIENT_STATES),
        "description": "one of the states of `canal_client_state`",
    },
    "connected": {"type": "boolean"},
    "lag_entries": {**_INTEGER, "description": "null: it is not served from the ring"},
    "lag_s": {**_NUMBER, "description": "as `canal_client_lag_seconds`"},
    "rows": {**_INTEGER, "description": "delivered, redeliveries included"},
    "blocks": {"type": "boolean", "description": "reading waits for its acks"},
}
_SAMPLE: Final[Json] = {
    "time_s": {"type": "number", "description": "seconds since 1970"},
    "rows_per_s": {"type": "number"},
    "bytes_per_s": {"type": "number", "description": "received from the source"},
    "lag_s": _NUMBER,
}
_SEEK: Final[Json] = {
    "to": {
        "type": "string",
        "description": "FILE:POSITION, a GTID set, a time with a zone or in ms since"
        " 1970 or relative to now (`-1h`), `oldest`, `latest`",
    },
    "source": {
        **_TEXT,
        "description": "the source of a group in which they are moved; null: all",
    },
    "clients": {
        "type": ["array", "null"],
        "items": {"type": "integer"},
        "description": "the clients to move; null: all",
    },
    "dry_run": {"type": "boolean", "description": "only return what would happen"},
}
_MOVE: Final[Json] = {
    "destination": {"type": "string"},
    "moved": {"type": "boolean", "description": "false after a dry run"},
    "clients": {"type": "array", "items": {"type": "integer"}},
    "sources": {
        "type": "array",
        "items": {"type": "object"},
        "description": "the new position in each source, and the effects",
    },
    "lines": {
        "type": "array",
        "items": {"type": "string"},
        "description": "the same as lines of text",
    },
    "warnings": {"type": "array", "items": {"type": "string"}},
}
_PROBLEM: Final[Json] = {
    "type": {"type": "string"},
    "title": {"type": "string"},
    "status": {"type": "integer"},
    "detail": {"type": "string", "description": "what is wrong, and the remedy"},
}
_HEALTH: Final[Json] = {
    "status": {"type": "string"},
    "destinations": {"type": "object", "additionalProperties": {"type": "string"}},
}
_DESTINATION: Final[Json] = {
    "name": "destination",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
}
_CLIENT_ID: Final[Json] = {
    "name": "client_id",
    "in": "path",
    "required": True,
    "schema": {"type": "integer"},
}


_TABLE: Final[Json] = {
    "name": "table",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "schema.table",
}
_FILTER: Final[Json] = {
    "name": "table",
    "in": "query",
    "schema": {"type": "string"},
    "description": "schema.table, or a filter as that of a client: regular expressions"
    " for schema.table, separated by commas; default: that of the destination",
}
_TEXTS: Final[Json] = {
    "type": ["object", "null"],
    "additionalProperties": _TEXT,
}
_TAIL_CHANGE: Final[Json] = {
    "kind": {"type": "string", "enum": list(KINDS)},
    "schema": {"type": "string"},
    "table": {"type": "string", "description": "empty: a statement about no table"},
    "before": {**_TEXTS, "description": "values by column, as clients get them"},
    "after": {**_TEXTS, "description": "the same; null without such a row"},
    "changed": {
        "type": "array",
        "items": {"type": "string"},
        "description": "columns that an update changed",
    },
    "key": {
        "type": "array",
        "items": {"type": "string"},
        "description": "columns of the primary key",
    },
    "sql": {**_TEXT, "description": "the statement; null for rows"},
    "file": {"type": "string", "description": "binlog file"},
    "offset": {"type": "integer", "description": "of the event in the file"},
    "gtid": {**_TEXT, "description": "of the transaction, in GTID mode"},
    "commit_time_ms": {"type": "integer", "description": "ms since 1970"},
}
_TAIL_SKIPPED: Final[Json] = {
    "reason": {"type": "string"},
    "entries": {"type": "integer", "description": "of all tables"},
    "rows": {"type": "integer", "description": "in these entries"},
}
_TAIL_STATE: Final[Json] = {
    "state": {"type": "string", "enum": [*TAIL_STATES, *STATES]},
    "reason": {"type": "string", "description": "why nothing comes"},
    "since_ms": {**_INTEGER, "description": "since when; ms since 1970"},
    "position": {**_TEXT, "description": "up to which the source was read"},
    "position_ms": {**_INTEGER, "description": "the time of the transaction there"},
}
_LEVEL: Final[Json] = {"type": "string", "enum": list(LEVELS)}
_HISTORY: Final[Json] = {
    "table": {"type": "string"},
    "changes": {"type": "array", "items": {"type": "object"}},
}


def document(version: str) -> Json:
    """Return the whole description."""
    one = "/api/v1/destinations/{destination}"
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "canal-server",
            "version": version,
            "description": "State and operation of a canal-server process.",
        },
        "paths": {
            "/healthz": {"get": _operation("The process is alive.", _ref("Health"))},
            "/readyz": {
                "get": _operation(
                    "Every destination that should run here runs.",
                    _ref("Health"),
                    others={"503": "Some destinations do not run."},
                )
            },
            "/api/v1/openapi.json": {"get": _operation("This description.", {})},
            "/api/v1/status": {
                "get": _operation("What `canal-server status --json` shows.", {})
            },
            "/api/v1/log-levels": {
                "get": _operation("The levels of the log.", _ref("LogLevels")),
                "put": {
                    **_operation(
                        "Set the level of the log, or of one destination.",
                        _ref("LogLevels"),
                    ),
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": _ref("LogLevel")}},
                    },
                },
            },
            "/api/v1/destinations": {
                "get": _operation("All destinations.", _ref("Destinations"))
            },
            one: {
                "get": _of_one("One destination with its clients.", _ref("Destination"))
            },
            f"{one}/throughput": {
                "get": _of_one("Rates of the last hour.", _list("samples", "Sample"))
            },
            f"{one}/positions": {
                "get": _of_one("The positions of its clients, while it runs.", {})
            },
            f"{one}/subscriptions": {
                "get": _of_one("Its ranged subscriptions, while it runs.", {})
            },
            f"{one}/tail": {"get": _tail()},
            f"{one}/tables": {"get": _of_one("The tables of its history.", {})},
            f"{one}/tables/{{table}}/history": {
                "get": _of_one(
                    "Who changed a table, when and how; oldest first.",
                    _ref("History"),
                    "200",
                    _TABLE,
                )
            },
            f"{one}/seek": {
                "post": {
                    **_action("Move clients to another position.", _ref("Move")),
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": _ref("Seek")}},
                    },
                }
            },
            f"{one}/start": {
                "post": _action("Start a stopped, failed or lazy one.", {}, "202")
            },
            f"{one}/stop": {"post": _action("Stop it until `start`.", {}, "202")},
            f"{one}/clients/{{client_id}}": {
                "delete": _action(
                    "Remove the subscription of a client.", None, "204", _CLIENT_ID
                )
            },
        },
        "components": {
            "schemas": {
                "Destination": _object(
                    {**_VIEW, "clients": {"type": "array", "items": _ref("Client")}}
                ),
                "Client": _object(_CLIENT),
                "Destinations": _object(
                    {
                        "version": {"type": "string"},
                        "allows_actions": {"type": "boolean"},
                        "allows_tails": {"type": "boolean"},
                        "destinations": {"type": "array", "items": _ref("Destination")},
                    }
                ),
                "Sample": _object(_SAMPLE),
                "TailChange": _object(_TAIL_CHANGE),
                "TailSkipped": _object(_TAIL_SKIPPED),
                "TailState": _object(_TAIL_STATE),
                "Seek": {
                    "type": "object",
                    "properties": _SEEK,
                    "required": ["to"],
                    "additionalProperties": False,
                },
                "LogLevels": _object(
                    {"level": _LEVEL, "destinations": {"type": "object"}}
                ),
                "LogLevel": {
                    "type": "object",
                    "properties": {
                        "level": {
                            **_LEVEL,
                            "type": ["string", "null"],
                            "enum": [*LEVELS, None],
                            "description": "null: that of the server again",
                        },
                        "destination": {"type": "string"},
                    },
                    "required": ["level"],
                },
                "Move": _object(_MOVE),
                "History": _object(_HISTORY),
                "Problem": _object(_PROBLEM),
                "Health": {"type": "object", "properties": _HEALTH},
            },
            "securitySchemes": {"login": {"type": "http", "scheme": "basic"}},
        },
        "security": [{"login": []}, {}],
    }


def _object(properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(name: str, of: str) -> Json:
    return _object({name: {"type": "array", "items": _ref(of)}})


def _action(
    summary: str, schema: Json | None, status: str = "200", *more: Json
) -> Json:
    """Return an operation that changes something of one destination."""
    found = _of_one(summary, schema, status, *more)
    found["responses"]["403"] = _problem("Actions are not allowed.")
    return found


def _of_one(
    summary: str, schema: Json | None, status: str = "200", *more: Json
) -> Json:
    """Return an operation on one destination, which may be unknown."""
    found = _operation(summary, schema, status, {"404": "There is no such thing."})
    found["responses"]["409"] = _problem("It is not possible now.")
    return {**found, "parameters": [_DESTINATION, *more]}


def _tail() -> Json:
    """Return the operation whose answer does not end."""
    found = _of_one("The changes of some tables, as they come.", None, "200", _FILTER)
    found["description"] = (
        "Server-sent events until the request is ended. The data of each is a line of"
        " JSON: a TailChange (the event has its kind as name), a TailSkipped"
        " (`skipped`: changes are missing here) or a TailState (`state`: why nothing"
        " comes)."
    )
    responses = found["responses"]
    responses["200"]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    responses["403"] = _problem("Data of tables is not shown.")
    responses["422"] = _problem("The filter cannot be used.")
    responses["429"] = _problem("Too many tails are open.")
    del responses["409"]
    return found


def _operation(
    summary: str,
    schema: Json | None,
    status: str = "200",
    others: dict[str, str] | None = None,
) -> Json:
    content = {} if schema is None else {"application/json": {"schema": schema}}
    return {
        "summary": summary,
        "responses": {
            status: {"description": "Success.", "content": content},
            "401": _problem("A login is needed."),
            **{code: _problem(text) for code, text in (others or {}).items()},
        },
    }


def _problem(text: str) -> Json:
    schema = {"schema": _ref("Problem")}
    return {"description": text, "content": {"application/problem+json": schema}}
