"""The tree of the package: small folders, names that occur once, no circles."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from test_layers import PACKAGE, ROOT, imports_of, plant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULES_MAX = 20  # of a folder
LINES_MAX = 600  # of a module in Python
SOURCES = (".py", ".pyx")


def modules_of(root: Path) -> Iterator[Path]:
    """Yield the modules of the package; stubs and declarations belong to theirs."""
    for path in (root / PACKAGE).rglob("*"):
        if path.suffix in SOURCES and not path.stem.startswith("__"):
            yield path


def circles(root: Path) -> list[str]:
    """Return the circles that imports of files make, each as one line."""
    files = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for path in (root / PACKAGE).rglob("*")
        if path.suffix in SOURCES
    }
    graph: dict[str, set[str]] = {name: set() for name in files}
    for item in imports_of(root):
        target = item.target
        while target and target not in files:
            target = target.rpartition(".")[0]
        if target and target != item.module and item.module in graph:
            graph[item.module].add(target)
    # What nothing imports that is left, and what imports nothing that is left, is in no
    # circle.
    for _ in range(len(graph)):
        imported = set().union(*graph.values()) if graph else set()
        free = {name for name in graph if name not in imported or not graph[name]}
        if not free:
            break
        graph = {
            name: targets - free for name, targets in graph.items() if name not in free
        }
    return [
        f"{name} imports {', '.join(sorted(graph[name]))}" for name in sorted(graph)
    ]


def test_no_circle() -> None:
    """No file imports itself by way of others, types and Cython included."""
    assert circles(ROOT) == []


def test_circle_planted(tmp_path: Path) -> None:
    """A circle of three files is found, also where one import is for types only."""
    plant(tmp_path, "a/x.py", "import @.b.y")
    plant(tmp_path, "b/y.py", "from @.c import z")
    checking = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n import @.a.x"
    plant(tmp_path, "c/z.py", checking)
    plant(tmp_path, "d/other.py", "import @.a.x")
    assert len(circles(tmp_path)) == 3


def test_names_occur_once() -> None:
    """The name of a module stands for one idea in the whole tree."""
    names = Counter(path.stem for path in modules_of(ROOT))
    assert [name for name, count in names.items() if count > 1] == []


def test_folders_are_small() -> None:
    """A folder with more modules than a person takes in at a look is two folders."""
    folders = Counter(str(path.parent) for path in modules_of(ROOT))
    assert {name: count for name, count in folders.items() if count > MODULES_MAX} == {}


def test_modules_are_short() -> None:
    """A module that is longer has a part that deserves a name of its own."""
    lines = {
        str(path.relative_to(ROOT)): path.read_text().count("\n")
        for path in modules_of(ROOT)
        if path.suffix == ".py"
    }
    assert {name: count for name, count in lines.items() if count > LINES_MAX} == {}


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / PACKAGE).rglob("__init__.py")),
    ids=lambda path: path.parent.name,
)
def test_packages_say_what_they_hold(path: Path) -> None:
    """The `__init__` of each package says what lives there."""
    assert ast.get_docstring(ast.parse(path.read_text()))
