"""The page of the REST interface, from its description for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from canal_server.web.description.openapi import document
from reference.markdown import notice, table

PAGE = Path("docs/reference/rest.md")
TEMPLATE = Path(__file__).parent / "templates/rest.md"
SOURCES = "canal_server/web and tools/reference/templates"
TITLES = {
    "Destination": "A destination",
    "Sample": "A sample of the throughput",
    "Client": "A client",
    "TableSchema": "A table at a position",
    "Column": "A column",
    "Tables": "Tables at a position",
    "Seek": "A request to move clients",
    "Move": "A move of clients",
    "LogLevel": "A request to set a level",
    "Verify": "A request to compare",
    "Verified": "A comparison with the source",
    "ClientPosition": "A position of a client",
    "Note": "A note on an error",
    "Cluster": "A cluster",
    "TailChange": "A change in a tail",
    "TailSkipped": "Skipped changes in a tail",
    "TailState": "The state in a tail",
}


def pages() -> dict[Path, str]:
    """Return the page by its path."""
    found = document("")
    text = TEMPLATE.read_text()
    text = text.replace("{{requests}}", "\n".join(_requests(found)))
    schemas = found["components"]["schemas"]
    parts = [_schema(title, schemas[name]) for name, title in TITLES.items()]
    text = text.replace("{{schemas}}", "\n\n".join(parts))
    return {PAGE: notice(SOURCES) + text.rstrip() + "\n"}


def _requests(found: dict[str, Any]) -> list[str]:
    return [
        f"| `{method.upper()} {path}` | {_body(operation)}"
        f" | {next(iter(operation['responses']))} | {operation['summary']} |"
        for path, operations in found["paths"].items()
        for method, operation in operations.items()
    ]


def _body(operation: dict[str, Any]) -> str:
    """Return a link to the object that is sent. Raises KeyError without a section."""
    if "requestBody" not in operation:
        return ""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    title = TITLES[schema["$ref"].rpartition("/")[2]]
    anchor = title.lower().replace(" ", "-")
    return f"[{title[0].lower()}{title[1:]}](#{anchor})"


def _schema(title: str, schema: dict[str, Any]) -> str:
    # Answers have all fields; a request needs some of them only.
    is_request = title in {TITLES[name] for name in ("Seek", "LogLevel", "Verify")}
    required = schema.get("required", ()) if is_request else ()
    rows = [
        (
            f"`{name}`",
            _type(each) + (", required" if name in required else ""),
            each.get("description", ""),
        )
        for name, each in schema["properties"].items()
    ]
    return f"## {title}\n\n{table(('field', 'type', 'meaning'), rows).strip()}"


def _type(schema: dict[str, Any]) -> str:
    kind = schema.get("type", "any")
    names = kind if isinstance(kind, list) else [kind]
    return " or ".join(names)
