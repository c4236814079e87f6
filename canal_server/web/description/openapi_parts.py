"""What descriptions of the REST interface (OpenAPI 3.1) are made of."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

NUMBER: Final = {"type": ["number", "null"]}
INTEGER: Final = {"type": ["integer", "null"]}
TEXT: Final = {"type": ["string", "null"]}
OBJECT: Final = {"type": ["object", "null"]}

_DESTINATION: Final[Json] = {
    "name": "destination",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
}


def object_of(properties: Json) -> Json:
    """Return the schema of an object that has all of these."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


def ref(name: str) -> Json:
    """Return a reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(name: str, of: str) -> Json:
    """Return the schema of an object with a list."""
    return object_of({name: {"type": "array", "items": ref(of)}})


def action(summary: str, schema: Json | None, status: str = "200", *more: Json) -> Json:
    """Return an operation that changes something of one destination."""
    found = of_one(summary, schema, status, *more)
    found["responses"]["403"] = problem("Actions are not allowed.")
    return found


def of_one(summary: str, schema: Json | None, status: str = "200", *more: Json) -> Json:
    """Return an operation on one destination, which may be unknown."""
    found = operation(summary, schema, status, {"404": "There is no such thing."})
    found["responses"]["409"] = problem("It is not possible now.")
    return {**found, "parameters": [_DESTINATION, *more]}


def operation(
    summary: str,
    schema: Json | None,
    status: str = "200",
    others: dict[str, str] | None = None,
) -> Json:
    """Return an operation; `others`: its other answers, by status."""
    content = {} if schema is None else {"application/json": {"schema": schema}}
    return {
        "summary": summary,
        "responses": {
            status: {"description": "Success.", "content": content},
            "401": problem("A login is needed."),
            **{code: problem(text) for code, text in (others or {}).items()},
        },
    }


def problem(text: str) -> Json:
    """Return an answer that is an error."""
    schema = {"schema": ref("Problem")}
    return {"description": text, "content": {"application/problem+json": schema}}
