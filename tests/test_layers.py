"""Who may import whom: the layers, and doors to the outside.

docs/explanation/architecture.md describes them.

Every import of the package is read, also those inside functions, under
`TYPE_CHECKING` and of Cython. What is loaded by name at run time is not seen.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PACKAGE = "canal_server"

# Each unit (a package or a module, by its name below ours) and its layer: a unit may
# import what stands on lower layers.
LAYERS = {
    "errors": 0, "model": 0, "messages": 0,
    "passwords": 1,
    "core": 1, "runtime": 1, "ports": 1, "config.schema": 1, "doors.web_service": 1,
    "doors.yaml_document": 1, "doors.zstd": 1,
    "filters.characters": 1, "filters.patterns": 1, "filters.matching": 1,
    "filters.table_filters": 1,
    "config": 2, "protocol": 2, "mysql": 2, "tls": 2,
    "doors.zookeeper": 2, "doors.sqlite": 2, "doors.sqltext": 2, "daemon.control": 2,
    "doors.pymysql_driver": 2,
    "doors.prometheus": 3, "decoder.text": 3, "decoder.rows": 3, "decoder.events": 3,
    "filters": 3, "users": 3, "pipeline": 3, "store": 3, "position": 3, "ha": 3,
    "tablemeta.model": 3, "tablemeta.sql": 3, "tablemeta.tables": 3,
    "tablemeta.storage": 3, "tablemeta.history": 3,
    "arrow": 4, "queues": 4, "client": 4, "server": 4,
    "source.archive": 4, "source.read": 4, "source.schema": 4, "source.begin": 4,
    "source.check": 4, "source.pump": 4,
    "capture": 5, "ranges": 5, "catchup": 5,
    "instance": 6, "cursor_moves": 6, "delivery": 6,
    "observe": 7, "web": 7, "alarms": 7, "admin": 7,
    "daemon": 8,
    "cli": 9,
    "__main__": 10,
}  # fmt: skip

# Units of one layer in which each may import those before it.
ORDERED = (
    ("filters.characters", "filters.patterns", "filters.matching",
     "filters.table_filters"),
    ("core", "filters.table_filters"),
    ("core", "ports"),  # names of types in contracts
    ("runtime", "passwords", "config.schema"),
    ("tls", "config"),  # certificates and key stores
    ("tls", "doors.pymysql_driver", "mysql"),
    ("runtime", "ports"),
    ("decoder.text", "decoder.rows", "decoder.events"),
    ("tablemeta.model", "tablemeta.sql", "tablemeta.tables", "tablemeta.storage",
     "tablemeta.history"),
    ("source.archive", "source.read", "source.schema", "source.begin", "source.check",
     "source.pump"),
    ("filters", "users"),  # rights name tables and columns as filters do
    ("arrow", "client"),  # values of changes are read as those of columns
    ("arrow", "queues", "client"),  # a handler sends flat messages
    ("capture", "catchup"),
    ("observe", "web"), ("observe", "alarms"),  # all show what destinations report
    ("ranges", "catchup"),  # old events are read with the schemas of ranges
)  # fmt: skip
# Units that may not see some lower ones.
HIDDEN = {"server": {"store", "position"}}  # it knows them as ports
# Leaves: what they may see. The layers import none of them (`cli` loads them by name).
_OF_SPARK = {
    "errors", "messages", "model", "core", "runtime", "config", "config.schema",
    "passwords", "tls",
    "mysql", "client", "decoder", "arrow", "filters", "filters.table_filters",
    "tablemeta", "doors.prometheus",
}  # fmt: skip
LEAVES = {
    "spark": _OF_SPARK,
    "mirror": _OF_SPARK | {"spark", "doors.sqltext", "doors.yaml_document"},
}

# The rooms of leaves and of the command: each may import those before it.
ROOMS = {
    "spark": ("options", "columns", "reading", "packed"),
    "mirror": ("settings", "session", "rows", "lake", "state", "ddl", "follow", "copy",
               "report", "verify", "run"),
    "cli": ("files", "init", "status", "position", "schema", "subscriptions", "user",
            "tail", "consume", "mirror", "check"),
}  # fmt: skip
# The stages of a destination, and who may join several of them.
STAGES = {"source.pump", "pipeline", "store"}
# One class joins all of them, `capture.source_pipeline`. Where its stores and clients
# meet, `instance` and `catchup` name the types of stages; ranges are served from the
# ring as far as it has them.
JOINERS = {"capture", "instance", "catchup", "ranges"}

# Foreign packages and the units that are their doors.
DOORS = {
    "kazoo": {"doors.zookeeper"},
    "cryptography": {"tls"},
    "sqlite3": {"doors.sqlite"},
    "sqlglot": {"doors.sqltext"},
    "pyspark": {"spark", "mirror"},
    "pyarrow": {"arrow", "client", "spark", "mirror"},
    "deltalake": {"mirror"},
    "pyiceberg": {"mirror"},
    "matplotlib": {"mirror"},
    "yaml": {"doors.yaml_document"},
    "pymysql": {"doors.pymysql_driver"},
    "sqlalchemy": {"client"},
    "confluent_kafka": {"queues"},
    "pika": {"queues"},
    "javaproperties": {"config"},
    "prometheus_client": {"doors.prometheus"},
    "starlette": {"web"},
    "uvicorn": {"web"},
    "zstandard": {"doors.zstd"},
    "cython": None,  # part of the language of .pyx files
    "libc": None,
    "cpython": None,
    "posix": None,
}
# The oracle of the differential tests has a module of its own, wherever that is.
COMPARE = "pymysqlreplication"


class Import(NamedTuple):
    """One import: the module that has it, the line, and what it asks for."""

    module: str
    line: int
    target: str


def imports_of(root: Path) -> Iterator[Import]:
    """Yield all imports of the package below a folder, targets made absolute."""
    for path in sorted((root / PACKAGE).rglob("*")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        package = module if is_package else module.rpartition(".")[0]
        if path.suffix in (".py", ".pyi"):
            found = _python_imports(path.read_text())
        elif path.suffix in (".pyx", ".pxd", ".pxi"):
            found = _cython_imports(path.read_text())
        else:
            continue
        for line, target in found:
            yield Import(module, line, _absolute(package, target))


def _python_imports(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            for name in node.names:
                yield node.lineno, _joined(origin, name.name)


CYTHON_FROM = re.compile(
    r"^[ \t]*from[ \t]+([\w.]+)[ \t]+c?import[ \t]+(\([^)]*\)|[^#\n]+)", re.MULTILINE
)
CYTHON_PLAIN = re.compile(r"^[ \t]*c?import[ \t]+([^#\n(]+)", re.MULTILINE)


def _cython_imports(text: str) -> Iterator[tuple[int, str]]:
    text = re.sub(r"\\\n", "  ", text)
    for found in CYTHON_FROM.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        names = re.sub(r"#[^\n]*", "", found[2]).strip("()")
        for name in names.split(","):
            if name.strip():
                yield line, _joined(found[1], name.split()[0])
    for found in CYTHON_PLAIN.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        for name in found[1].split(","):
            yield line, name.split()[0]


def _joined(origin: str, name: str) -> str:
    return f"{origin}{name}" if origin.endswith(".") else f"{origin}.{name}"


def _absolute(package: str, target: str) -> str:
    """Return a relative target (`..core.blocks`) as an absolute one."""
    name = target.lstrip(".")
    above = len(target) - len(name)
    if not above:
        return target
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - above + 1], name])


def unit_of(module: str) -> str:
    """Return the unit of a module of ours, its first name when it has none."""
    inside = module.split(".")[1:]
    for length in range(len(inside), 0, -1):
        unit = ".".join(inside[:length])
        if unit in LAYERS or unit in LEAVES:
            return unit
    return inside[0] if inside else ""


def violations(root: Path) -> list[str]:
    """Return one sentence for each import that breaks a rule."""
    found: list[str] = []
    doors: dict[str, set[str]] = {}  # units that import a `*` package
    for item in imports_of(root):
        head = item.target.split(".")[0]
        if head == PACKAGE:
            problem = _inner_problem(unit_of(item.module), unit_of(item.target))
            problem = problem or _room_problem(item)
        else:
            problem = _outer_problem(item, doors)
        if problem:
            found.append(f"{item.module}:{item.line} imports {item.target}: {problem}")
    found += [
        f"{name} has several doors: {', '.join(sorted(units))}"
        for name, units in doors.items()
        if len(units) > 1
    ]
    return found


def _inner_problem(importer: str, imported: str) -> str | None:
    if imported in (importer, "", "__version__"):
        return None
    for unit in (importer, imported):
        if unit not in LAYERS and unit not in LEAVES:
            return f"{unit or 'the package itself'} has no layer in LAYERS"
    if importer in LEAVES:
        seen = any(_is_in(imported, unit) for unit in LEAVES[importer])
        return None if seen else f"{importer} may not see it"
    return _layer_problem(importer, imported)


def _layer_problem(importer: str, imported: str) -> str | None:
    if imported in LEAVES:
        return f"{imported} is a leaf"
    if imported in HIDDEN.get(importer, ()):
        return f"{importer} sees {imported} as a port only"
    above, below = LAYERS[importer], LAYERS[imported]
    if below < above or _stands_before(imported, importer):
        return None
    return f"layer {below} from layer {above}"


def _room_problem(item: Import) -> str | None:
    importer, imported = item.module.split(".")[1:], item.target.split(".")[1:]
    rooms = ROOMS.get(importer[0], ()) if importer[:1] == imported[:1] else ()
    known = [parts[1] for parts in (importer, imported) if len(parts) > 1]
    if len(known) < 2 or not set(known) <= set(rooms):
        return None
    is_before = rooms.index(known[1]) <= rooms.index(known[0])
    return None if is_before else f"{known[1]} stands after {known[0]} in ROOMS"


def joiners(root: Path) -> set[str]:
    """Return the units that import several stages of a destination."""
    stages: dict[str, set[str]] = {}
    for item in imports_of(root):
        if item.target.startswith(f"{PACKAGE}."):
            stages.setdefault(unit_of(item.module), set()).add(unit_of(item.target))
    return {unit for unit, seen in stages.items() if len(seen & STAGES) > 1}


def _is_in(unit: str, room: str) -> bool:
    return unit == room or unit.startswith(f"{room}.")


def _stands_before(imported: str, importer: str) -> bool:
    return any(
        {imported, importer} <= set(units)
        and units.index(imported) < units.index(importer)
        for units in ORDERED
    )


def _outer_problem(item: Import, doors: dict[str, set[str]]) -> str | None:
    head, unit = item.target.split(".")[0], unit_of(item.module)
    if head == COMPARE:
        doors.setdefault(COMPARE, set()).add(item.module)
        in_place = "compare" in item.module.rpartition(".")[2]
        return None if in_place else "only a module `…compare…` imports it"
    if head not in DOORS:
        known = head in sys.stdlib_module_names
        return None if known else f"{head} has no door in DOORS"
    door = DOORS[head]
    if door is None or unit in door:
        return None
    return f"the door to {head} is {' or '.join(sorted(door))}"


def test_layers() -> None:
    """Every import of the package points down its layers and through its doors."""
    assert violations(ROOT) == []


def test_joiners() -> None:
    """Only the wiring joins stages, and what reads beside the pump of a destination."""
    assert joiners(ROOT) == JOINERS


def test_every_kind_of_source_is_read() -> None:
    """The imports found include those of Python, of stubs' neighbours and of Cython."""
    targets = {(item.module, item.target) for item in imports_of(ROOT)}
    assert (
        "canal_server.model.batch",
        "canal_server.model.positions.EntryPosition",
    ) in targets
    assert ("canal_server.core.wire", "libc.stdint.uint8_t") in targets
    assert ("canal_server.ports", "canal_server.core.blocks.Block") in targets


# In the sources, @ stands for the package.
PLANTED = {
    "upward": ("model/x.py", "import @.daemon", "layer 8 from layer 0"),
    "sideways": ("pipeline/x.py", "from @.store import y", "layer 3 from layer 3"),
    "inside a function": ("model/x.py", "def f():\n from @ import cli", "layer 9"),
    "for types": (
        "errors.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n import @.ports",
        "layer 1 from layer 0",
    ),
    "relative": ("store/deep/x.py", "from ...server import y", "layer 4 from layer 3"),
    "beside the schema": ("mysql/x.py", "from @ import config", "layer 2"),
    "nested": ("decoder/text/x.py", "import @.decoder.rows.y", "layer 3 from layer 3"),
    "a room of a leaf": (
        "mirror/lake/x.py",
        "from @.mirror.run import y",
        "run stands after lake",
    ),
    "past a port": ("server/x.py", "import @.store.ring", "as a port only"),
    "a leaf": ("cli/x.py", "import @.spark", "is a leaf"),
    "from a leaf": ("spark/x.py", "import @.server", "may not see it"),
    "no layer": ("utils.py", "import @.model", "no layer"),
    "no layer below": ("cli/x.py", "from @.utils import f", "no layer"),
    "cimport": ("core/x.pyx", "from @.store.ring cimport Ring", "layer 3"),
    "plain cimport": ("core/x.pxd", "cimport @.store.ring", "layer 3"),
    "cimport of many": (
        "core/x.pyx",
        "from @.decoder.rows.row_images cimport (\n    A,  # why\n    B,\n)",
        "layer 3",
    ),
    "another door": ("ha/x.py", "from kazoo.client import X", "door to kazoo"),
    "no door": ("ha/x.py", "import requests", "no door"),
    "compare": ("decoder/rows/x.py", "import pymysqlreplication", "compare"),
}


def plant(root: Path, path: str, source: str) -> None:
    """Write a module of a package below a folder."""
    file = root / PACKAGE / path
    file.parent.mkdir(parents=True)
    file.write_text(source.replace("@", PACKAGE) + "\n")


@pytest.mark.parametrize("name", PLANTED)
def test_planted(tmp_path: Path, name: str) -> None:
    """A planted violation is found, and named."""
    path, source, expected = PLANTED[name]
    plant(tmp_path, path, source)
    found = violations(tmp_path)
    assert found
    assert all(expected in problem for problem in found)


ALLOWED = {
    "schema": ("mysql/x.py", "from @.config import schema"),
    "version": ("server/x.py", "from @ import __version__"),
    "relative": ("store/x.py", "from .ring import Ring\nfrom ..core import blocks"),
    "ports": ("ports.py", "from @.core.blocks import Block"),
    "compare": ("decoder/rows/compare.py", "import pymysqlreplication.event"),
    "door": ("doors/zookeeper.py", "import kazoo.client, os"),
    "nested": ("source/pump/x.py", "from @.source.begin import y"),
    "leaf": ("spark/x.py", "import pyspark\nfrom @.client import sync"),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(tmp_path: Path, name: str) -> None:
    """What the rules allow is not reported."""
    path, source = ALLOWED[name]
    plant(tmp_path, path, source)
    assert list(imports_of(tmp_path))
    assert violations(tmp_path) == []


def test_two_doors(tmp_path: Path) -> None:
    """A foreign package that two units import has no single door."""
    for unit in ("decoder/rows", "store"):
        plant(tmp_path, f"{unit}/compare.py", f"import {COMPARE}")
    (problem,) = violations(tmp_path)
    assert "several doors" in problem
