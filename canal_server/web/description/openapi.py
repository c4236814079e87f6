"""The description of the REST interface (OpenAPI 3.1)."""

from __future__ import annotations

from typing import Final

from canal_server.instance.client_lags import CLIENT_STATES
from canal_server.observe.readings import STATES
from canal_server.runtime.log_levels import LEVELS
from canal_server.web.description.openapi_parts import (
    INTEGER,
    NUMBER,
    OBJECT,
    TEXT,
    Json,
    action,
    list_of,
    object_of,
    of_one,
    operation,
    problem,
    ref,
)
from canal_server.web.description.openapi_tables import table_paths, table_schemas
from canal_server.web.quiet_tail import STATES as TAIL_STATES
from canal_server.web.tail_events import KINDS

_VIEW: Final[Json] = {
    "destination": {"type": "string"},
    "state": {
        "type": "string",
        "enum": list(STATES),
        "description": "one of the states of `canal_instance_state`",
    },
    "ready": {"type": "boolean", "description": "runs, or is not to run here"},
    "error": TEXT,
    "error_since_ms": {**INTEGER, "description": "ms since 1970"},
    "lag_s": {**NUMBER, "description": "how far reading lags behind the source, s"},
    "source": {"description": "the server that is read"},
    "runs_on": {**TEXT, "description": "the server of a cluster that runs it"},
    "blocked": {**OBJECT, "description": "why reading waits, and for which clients"},
    "warnings": {"type": "array", "items": {"type": "string"}},
    "error_notes": {
        "type": "array",
        "items": ref("Note"),
        "description": "what is known of the error",
    },
    "warning_notes": {
        "type": "array",
        "items": {"anyOf": [ref("Note"), {"type": "null"}]},
        "description": "what is known of each of the warnings; null: nothing",
    },
    "uncertain_tables": {
        **OBJECT,
        "description": "tables whose columns are not certain at this position:"
        " `reason`, `count` and `tables`, the first of them",
    },
    "delivery": {
        **OBJECT,
        "description": "what the delivery to a message queue does, with the keys of"
        " `delivery` in `canal-server status --json`; null, or missing: there is none",
    },
    "rows": {**INTEGER, "description": "rows read since it started"},
    "store_fill_ratio": {**NUMBER, "description": "0 to 1"},
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
    "lag_entries": {**INTEGER, "description": "null: it is not served from the ring"},
    "lag_s": {**NUMBER, "description": "as `canal_client_lag_seconds`"},
    "rows": {**INTEGER, "description": "delivered, redeliveries included"},
    "blocks": {"type": "boolean", "description": "reading waits for its acks"},
    "acked": {
        "anyOf": [ref("ClientPosition"), {"type": "null"}],
        "description": "the position that it has acked; null: none yet",
    },
    "sent": {
        "anyOf": [ref("ClientPosition"), {"type": "null"}],
        "description": "the position up to which it was sent changes",
    },
    "open_batches": {
        "type": "integer",
        "description": "batches that were sent, and are not acked",
    },
}
_CLIENT_POSITION: Final[Json] = {
    "position": {"type": "string", "description": "FILE:POSITION"},
    "time": {**TEXT, "description": "of the commit, ISO 8601"},
    "gtid": {
        **TEXT,
        "description": "the executed set; null: none is known, or it has more than 4096"
        " characters",
    },
    "source": {"type": "string", "description": "the server whose position it is"},
}
_NOTE: Final[Json] = {
    "title": {"type": "string", "description": "the class of the error"},
    "meaning": {"type": "string"},
    "remedy": {"type": "string", "description": "what to do"},
    "anchor": {
        "type": "string",
        "description": "of the section in `/messages.html`, and in the reference",
    },
}
_CLUSTER: Final[Json] = {
    "zookeeper": {"type": "string"},
    "session": {
        "type": "object",
        "description": "of this server: `state` (connected, suspended, lost),"
        " `expired`: how many ended, `timeout_s`",
    },
    "servers": {
        "type": "array",
        "items": {"type": "string"},
        "description": "that are in the cluster now",
    },
    "destinations": {
        "type": "object",
        "description": "by name: `runs_on`, and `candidates`: the servers that may run"
        " it; null: not known",
    },
    "error": {**TEXT, "description": "why nothing is known"},
}
_SAMPLE: Final[Json] = {
    "time_s": {"type": "number", "description": "seconds since 1970"},
    "rows_per_s": {"type": "number"},
    "bytes_per_s": {"type": "number", "description": "received from the source"},
    "lag_s": NUMBER,
}
_SEEK: Final[Json] = {
    "to": {
        "type": "string",
        "description": "FILE:POSITION, a GTID set, a time with a zone or in ms since"
        " 1970 or relative to now (`-1h`), `oldest`, `latest`",
    },
    "source": {
        **TEXT,
        "description": "the source of a group in which they are moved; null: all",
    },
    "clients": {
        "type": ["array", "null"],
        "items": {"type": "integer"},
        "description": "the clients to move; null: all",
    },
    "dry_run": {
        "type": "boolean",
        "description": "only return what would happen; without it, false",
    },
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
    "delivery": {"type": "object", "additionalProperties": {"type": "string"}},
}
_SUBSCRIPTION: Final[Json] = {
    "name": "name",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "as `canal-server subscriptions list` shows it",
}
_CLIENT_ID: Final[Json] = {
    "name": "client_id",
    "in": "path",
    "required": True,
    "schema": {"type": "integer"},
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
    "additionalProperties": TEXT,
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
    "sql": {**TEXT, "description": "the statement; null for rows"},
    "file": {"type": "string", "description": "binlog file"},
    "offset": {"type": "integer", "description": "of the event in the file"},
    "gtid": {**TEXT, "description": "of the transaction, in GTID mode"},
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
    "since_ms": {**INTEGER, "description": "since when; ms since 1970"},
    "position": {**TEXT, "description": "up to which the source was read"},
    "position_ms": {**INTEGER, "description": "the time of the transaction there"},
}
_LEVEL: Final[Json] = {"type": "string", "enum": list(LEVELS)}


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
            "/healthz": {"get": operation("The process is alive.", ref("Health"))},
            "/readyz": {
                "get": operation(
                    "Every destination that should run here runs.",
                    ref("Health"),
                    others={"503": "Some destinations do not run."},
                )
            },
            "/api/v1/openapi.json": {"get": operation("This description.", {})},
            "/api/v1/status": {
                "get": operation("What `canal-server status --json` shows.", {})
            },
            "/api/v1/log-levels": {
                "get": operation("The levels of the log.", ref("LogLevels")),
                "put": {
                    **operation(
                        "Set the level of the log, or of one destination.",
                        ref("LogLevels"),
                    ),
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": ref("LogLevel")}},
                    },
                },
            },
            "/api/v1/clusters": {
                "get": operation(
                    "The clusters of this server: who runs what, and who stands by.",
                    ref("Clusters"),
                )
            },
            "/api/v1/destinations": {
                "get": operation("All destinations.", ref("Destinations"))
            },
            one: {
                "get": of_one("One destination with its clients.", ref("Destination"))
            },
            f"{one}/throughput": {
                "get": of_one("Rates of the last hour.", list_of("samples", "Sample"))
            },
            f"{one}/positions": {
                "get": of_one("The positions of its clients, also stored ones.", {})
            },
            f"{one}/subscriptions": {
                "get": of_one("Its ranged subscriptions, also stored ones.", {})
            },
            f"{one}/subscriptions/{{name}}": {
                "delete": action(
                    "Remove a ranged subscription that no query reads.",
                    None,
                    "204",
                    _SUBSCRIPTION,
                )
            },
            f"{one}/tail": {"get": _tail()},
            **table_paths(one),
            f"{one}/seek": {
                "post": {
                    **action("Move clients to another position.", ref("Move")),
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": ref("Seek")}},
                    },
                }
            },
            f"{one}/start": {
                "post": action(
                    "Start a stopped, failed or lazy one, or retry a source, or a"
                    " delivery that has stopped, with its file as it is now.",
                    {},
                    "202",
                )
            },
            f"{one}/stop": {"post": action("Stop it until `start`.", {}, "202")},
            f"{one}/clients/{{client_id}}": {
                "delete": action(
                    "Remove the subscription of a client.", None, "204", _CLIENT_ID
                )
            },
        },
        "components": {
            "schemas": {
                "Destination": object_of(
                    {**_VIEW, "clients": {"type": "array", "items": ref("Client")}}
                ),
                "Client": object_of(_CLIENT),
                "ClientPosition": object_of(_CLIENT_POSITION),
                "Note": object_of(_NOTE),
                "Cluster": object_of(_CLUSTER),
                "Clusters": object_of(
                    {
                        "this_server": {
                            **TEXT,
                            "description": "the address that clients are given; null:"
                            " it is in no cluster",
                        },
                        "clusters": {"type": "array", "items": ref("Cluster")},
                    }
                ),
                "Destinations": object_of(
                    {
                        "version": {"type": "string"},
                        "host": {
                            **TEXT,
                            "description": "the server's host; null for who may not"
                            " observe all destinations",
                        },
                        "allows_actions": {"type": "boolean"},
                        "allows_tails": {"type": "boolean"},
                        "destinations": {"type": "array", "items": ref("Destination")},
                    }
                ),
                "Sample": object_of(_SAMPLE),
                "TailChange": object_of(_TAIL_CHANGE),
                "TailSkipped": object_of(_TAIL_SKIPPED),
                "TailState": object_of(_TAIL_STATE),
                "Seek": {
                    "type": "object",
                    "properties": _SEEK,
                    "required": ["to"],
                    "additionalProperties": False,
                },
                "LogLevels": object_of(
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
                        "destination": {
                            "type": "string",
                            "description": "whose level it is; without it, that of the"
                            " server",
                        },
                    },
                    "required": ["level"],
                    "additionalProperties": False,
                },
                "Move": object_of(_MOVE),
                **table_schemas(),
                "Problem": object_of(_PROBLEM),
                "Health": {"type": "object", "properties": _HEALTH},
            },
            "securitySchemes": {"login": {"type": "http", "scheme": "basic"}},
        },
        "security": [{"login": []}, {}],
    }


def _tail() -> Json:
    """Return the operation whose answer does not end."""
    found = of_one("The changes of some tables, as they come.", None, "200", _FILTER)
    found["description"] = (
        "Server-sent events until the request is ended. The data of each is a line of"
        " JSON: a TailChange (the event has its kind as name), a TailSkipped"
        " (`skipped`: changes are missing here) or a TailState (`state`: why nothing"
        " comes)."
    )
    responses = found["responses"]
    responses["200"]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    responses["403"] = problem("Data of tables is not shown.")
    responses["422"] = problem("The filter cannot be used.")
    responses["429"] = problem("Too many tails are open.")
    del responses["409"]
    return found
