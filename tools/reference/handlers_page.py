"""The page of handlers and of the consumer, from their docstrings and signatures."""

from __future__ import annotations

import ast
import importlib
from dataclasses import replace
from pathlib import Path

from canal_server.cli.consume.consume_handler import READY
from reference.client_page import (
    ApiItem,
    api_item,
    class_section,
    exported,
    module_section,
)
from reference.markdown import notice

PAGE = Path("docs/reference/handlers.md")
TEMPLATE = Path(__file__).parent / "templates/handlers.md"
SOURCES = "tools/reference/templates/handlers.md and canal_server/client/handlers"
MODULES = {
    "interface": "canal_server.client.handlers",
    "consumer": "canal_server.client.consume",
}


def pages() -> dict[Path, str]:
    """Return the page by its path."""
    text = TEMPLATE.read_text()
    ready = "".join(ready_section(name, target) for name, target in READY.items())
    text = text.replace("{{ready}}", ready.strip())
    for slot, module in MODULES.items():
        text = text.replace(f"{{{{{slot}}}}}", module_section(exported(module)).strip())
    return {PAGE: notice(SOURCES) + text}


def ready_section(name: str, target: str) -> str:
    """Return the description of a ready handler, without the methods that all have."""
    module, _, class_name = target.partition(":")
    found = api_item(getattr(importlib.import_module(module), class_name))
    section = class_section(_constructed(found))
    heading, _, rest = section.partition("\n\n")
    assert class_name in heading, "a section begins with its class"
    return f"### `{name}`\n\n`{module}.{class_name}`\n\n{rest}"


def _constructed(found: ApiItem) -> ApiItem:
    """Return a class with its docstring and its constructor alone."""
    assert found.node is not None, "a handler is a class"
    body = [
        each
        for each in found.node.body
        if isinstance(each, ast.Expr) or getattr(each, "name", "") == "__init__"
    ]
    node = ast.ClassDef(**{**dict(ast.iter_fields(found.node)), "body": body})
    return replace(found, node=node)
