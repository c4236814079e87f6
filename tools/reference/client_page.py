"""The page of the Python client, from its docstrings and signatures.

It is read from the source, not from the objects, so that the page does not depend on
the version of Python that builds it.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reference.markdown import notice, table

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = Path("docs/reference/client-api.md")
ROOT = Path(__file__).parents[2]
TEMPLATE = Path(__file__).parent / "templates/client-api.md"
SOURCES = "tools/reference/templates/client-api.md and canal_server/client"
MODULES = {
    "client": "canal_server.client",
    "ranges": "canal_server.client.range_client",
}
LINE_MAX = 88
Function = ast.FunctionDef | ast.AsyncFunctionDef
_HEADING = re.compile(r"^(Args|Raises|Returns|Yields):$", re.MULTILINE)
_ITEM = re.compile(r"(\w+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ApiItem:
    """A name that a module exports, and where its source is."""

    name: str
    node: ast.ClassDef | None  # None: a constant
    value: object


def pages() -> dict[Path, str]:
    """Return the page by its path."""
    text = TEMPLATE.read_text()
    seen: set[str] = set()
    for slot, module in MODULES.items():
        found = [each for each in exported(module) if each.name not in seen]
        seen.update(each.name for each in found)
        text = text.replace(f"{{{{{slot}}}}}", module_section(found).strip())
    return {PAGE: notice(SOURCES) + text}


def exported(module_name: str) -> list[ApiItem]:
    """Return what a module exports, the clients first."""
    module = importlib.import_module(module_name)
    found = []
    for name in module.__all__:
        value = getattr(module, name)
        node = _class_node(value) if isinstance(value, type) else None
        found.append(ApiItem(name, node, value))
    return sorted(
        found,
        key=lambda each: (
            each.node is None,
            not each.name.endswith("Client"),
            each.name,
        ),
    )


def api_item(kind: type) -> ApiItem:
    """Return a class, and where its source is."""
    return ApiItem(kind.__name__, _class_node(kind), kind)


def module_section(items: list[ApiItem]) -> str:
    """Return a section for each class, and a table of the constants."""
    parts = [class_section(each) for each in items if each.node]
    rows = [(f"`{each.name}`", f"`{each.value!r}`") for each in items if not each.node]
    if rows:
        parts.append("### Constants\n\n" + table(("name", "value"), rows) + "\n")
    return "".join(parts)


def class_section(item: ApiItem) -> str:
    """Return the description of a class, its fields and its methods."""
    name, node = item.name, item.node
    assert node is not None, "a constant has no section"
    assert isinstance(item.value, type), "only a class has a node"
    names = _names_of(item.value)
    parts = [f"### `{name}`\n\n"]
    init = _method(node, "__init__")
    if init is not None:
        parts.append(f"```python\n{_signature(init, name, names)}\n```\n\n")
    parts.append(described(ast.get_docstring(node) or ""))
    fields = [
        (f"`{each.target.id}`", f"`{ast.unparse(each.annotation)}`".replace("|", "\\|"))
        for each in node.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and not each.target.id.startswith("_")
    ]
    if fields:
        parts.append(table(("field", "type"), fields) + "\n")
    items = [
        f"`{target.id}` = {ast.unparse(each.value)}"
        for each in node.body
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name) and not target.id.startswith("_")
    ]
    if items:
        parts.append(f"Values: {', '.join(items)}.\n\n")
    parts += [
        _method_section(name, each, names)
        for each in node.body
        if isinstance(each, Function) and not _is_hidden(each)
    ]
    return "".join(parts)


def described(docstring: str) -> str:
    """Return a docstring as Markdown; its lists of arguments become lists."""
    pieces = _HEADING.split(_with_fences(docstring))
    parts = [pieces[0].strip() + "\n\n"] if pieces[0].strip() else []
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        listed, rest = _items(body)
        items = "".join(f"- {_item(each)}\n" for each in listed)
        heading = {"Args": "Arguments"}.get(title, title)
        parts.append(f"**{heading}**\n\n{items}\n")
        if rest:
            parts.append(f"{rest}\n\n")
    return "".join(parts)


def _method_section(owner: str, node: Function, names: Mapping[str, object]) -> str:
    returned = ast.unparse(node.returns) if node.returns else "object"
    is_property = any(
        isinstance(each, ast.Name) and each.id == "property"
        for each in node.decorator_list
    )
    shown = (
        f"{node.name}: {returned}"
        if is_property
        else _signature(node, node.name, names)
    )
    if isinstance(node, ast.AsyncFunctionDef) and "AsyncGenerator" not in returned:
        shown = f"await {shown}"
    return f"#### `{owner}.{node.name}`\n\n```python\n{shown}\n```\n\n" + described(
        ast.get_docstring(node) or ""
    )


def _is_hidden(node: Function) -> bool:
    """Return whether a method is private, or sets what a property shows."""
    return node.name.startswith("_") or any(
        isinstance(each, ast.Attribute) and each.attr == "setter"
        for each in node.decorator_list
    )


def _signature(node: Function, name: str, names: Mapping[str, object]) -> str:
    """Return how a function is called, on several lines where it is long."""
    returned = (
        f" -> {ast.unparse(node.returns)}"
        if node.returns and node.name != "__init__"
        else ""
    )
    listed = _arguments(node.args, names)
    line = f"{name}({', '.join(listed)}){returned}"
    if len(line) <= LINE_MAX:
        return line
    inside = "".join(f"    {each},\n" for each in listed)
    return f"{name}(\n{inside}){returned}"


def _arguments(given: ast.arguments, names: Mapping[str, object]) -> list[str]:
    """Return the arguments with types and defaults, without `self`."""
    count = len(given.args) - len(given.defaults)
    defaults = [*[None] * count, *given.defaults]
    listed = [
        _argument(each, default, names)
        for each, default in zip(given.args, defaults, strict=True)
        if each.arg != "self"
    ]
    if given.kwonlyargs:
        listed.append("*")
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return listed + [_argument(each, default, names) for each, default in pairs]


def _argument(
    node: ast.arg, default: ast.expr | None, names: Mapping[str, object]
) -> str:
    """Return one argument; a private constant is shown by its value."""
    shown = node.arg
    if node.annotation is not None:
        shown += f": {ast.unparse(node.annotation)}"
    if default is None:
        return shown
    text = ast.unparse(default)
    if isinstance(default, ast.Name) and text.startswith("_"):
        value = names[text]
        is_empty = dataclasses.is_dataclass(value)
        text = f"{type(value).__name__}()" if is_empty else repr(value)
    return f"{shown} = {text}"


def _names_of(kind: type) -> dict[str, object]:
    """Return the names that a class and its bases of this package are written with."""
    found: dict[str, object] = {}
    for each in reversed(_own_bases(kind)):
        found |= vars(sys.modules[each.__module__])
    return found


def _own_bases(kind: type) -> list[type]:
    """Return a class and its bases of this package."""
    return [each for each in kind.__mro__ if each.__module__.startswith("canal_server")]


def _class_node(kind: type) -> ast.ClassDef:
    """Return a class as it is written, with the members of its bases after its own."""
    own, *bases = _own_bases(kind)
    node = _single_class_node(own)
    if bases and not issubclass(kind, Exception):
        seen = {getattr(each, "name", "") for each in node.body}
        node.body += [
            each
            for base in bases
            for each in _single_class_node(base).body
            if isinstance(each, Function) and each.name not in seen
        ]
    return node


def _single_class_node(kind: type) -> ast.ClassDef:
    try:
        source = inspect.getsourcefile(kind)
    except TypeError:
        source = None
    # A compiled class has its types in a stub.
    stub = ROOT.joinpath(*kind.__module__.split(".")).with_suffix(".pyi")
    path = Path(source) if source else stub
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            return node if source else _with_docstrings(node, kind)
    raise AssertionError(f"{path} has no class {kind.__name__}")


def _with_docstrings(node: ast.ClassDef, kind: type) -> ast.ClassDef:
    """Return a class of a stub with the docstrings of the compiled one."""
    for each in node.body:
        doc = inspect.getdoc(getattr(kind, getattr(each, "name", ""), None))
        if isinstance(each, Function) and doc:
            each.body.insert(0, ast.Expr(ast.Constant(doc)))
    node.body.insert(0, ast.Expr(ast.Constant(inspect.getdoc(kind) or "")))
    return node


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == name:
            return each
    return None


def _with_fences(docstring: str) -> str:
    """Return a docstring whose literal blocks, after `::`, are fenced."""
    return re.sub(
        r"::\n\n((?:    .*\n|\n)+)",
        lambda block: f"\n\n```python\n{textwrap.dedent(block[1]).strip()}\n```\n\n",
        docstring + "\n",
    )


def _items(block: str) -> tuple[list[str], str]:
    """Return the items of an indented list, each on one line, and what follows it."""
    items: list[str] = []
    lines = block.strip("\n").split("\n")
    for number, line in enumerate(lines):
        if line and not line.startswith(" "):
            return items, "\n".join(lines[number:]).strip()
        if re.match(r"    \S", line):
            items.append(line.strip())
        elif line.strip():
            items[-1] += f" {line.strip()}"
    return items, ""


def _item(text: str) -> str:
    found = _ITEM.fullmatch(text)
    return f"`{found[1]}`: {found[2]}" if found else text
