r"""Moves modules of the package to other rooms, and rewrites whatever names them.

    python tools/move_modules.py docs/rooms.txt 'arrow\..*'

The first argument is a table of old and new names below the package, dotted, one pair a
line; the second a regular expression that whole new names match: one room at a time
makes one commit. Compiled parts of the old names are deleted, packages that lack one
get an `__init__` with the docstring from `docs/rooms.txt` (lines `room | docstring`),
and in every text file of the repository dotted names and `from … import module` are
rewritten, with the uses of a module that has another name then.

What it prints as `look at` is to be looked at: a name that is also something else. Run
`make format` afterwards, and build the compiled parts again.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[1]
PACKAGE = "canal_server"
SOURCES = (".py", ".pyi", ".pyx", ".pxd")
DOTTED = re.compile(rf"\b{PACKAGE}((?:\.[A-Za-z_]\w*)+)")
# Functions that a package gives the name of a module.
FUNCTIONS = {"sqltext.tokens"}
PATCHES = ("setattr", "delattr")  # take a module and the name of what is in it


def main(table: str, rooms: str) -> None:
    """Move what has a new name that matches."""
    names, docstrings = read(Path(table).read_text(encoding="utf-8"))
    names = {old: new for old, new in names.items() if re.fullmatch(rooms, new)}
    move(names)
    add_packages({new.rpartition(".")[0] for new in names.values()}, docstrings)
    rewritten = sum(rewrite(path, names) for path in text_files())
    print(f"{len(names)} modules moved, {rewritten} files rewritten")


def read(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return new names by old ones, and docstrings by room."""
    names, docstrings = {}, {}
    for line in text.splitlines():
        room, bar, docstring = line.partition(" | ")
        if bar:
            docstrings[room] = docstring.replace(r"\n", "\n")
        elif line and not line.startswith("#"):
            old, new = line.split()
            names[old] = new
    return names, docstrings


def path_of(name: str) -> Path:
    """Return the path of a module without its suffix."""
    return ROOT.joinpath(PACKAGE, *name.split("."))


def move(names: dict[str, str]) -> None:
    """Move all files by way of a folder of their own: names are exchanged, too."""
    aside = ROOT / PACKAGE / "_moved"
    aside.mkdir()
    moved = []
    for old, new in names.items():
        for built in path_of(old).parent.glob(f"{path_of(old).name}.*"):
            if built.suffix in (".so", ".c"):
                built.unlink()
        for suffix in SOURCES:
            source = path_of(old).with_suffix(suffix)
            if source.exists():
                moved.append((source, path_of(new).with_suffix(suffix)))
        package = path_of(old) / "__init__.py"
        if package.exists() and not path_of(old).with_suffix(".py").exists():
            moved.append((package, path_of(new) / "__init__.py"))
    for number, (source, _) in enumerate(moved):
        source.rename(aside / str(number))
    for number, (_, target) in enumerate(moved):
        target.parent.mkdir(parents=True, exist_ok=True)
        (aside / str(number)).rename(target)
    aside.rmdir()


def add_packages(rooms: Iterable[str], docstrings: dict[str, str]) -> None:
    """Give each room, and the rooms it is in, an `__init__`."""
    for room in sorted(rooms):
        parts = room.split(".")
        for count in range(1, len(parts) + 1):
            name = ".".join(parts[:count])
            path = path_of(name) / "__init__.py"
            if not path.exists():
                docstring = docstrings[name]
                end = "\n" if "\n" in docstring else ""
                path.write_text(f'"""{docstring}{end}"""\n', encoding="utf-8")


def text_files() -> Iterator[Path]:
    """Yield the files of the repository that are text."""
    git = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    for name in subprocess.check_output(git, text=True).splitlines():
        path = ROOT / name
        if path.is_file() and path.suffix not in (".svg", ".xz", ".jsonl"):
            yield path


def rewrite(path: Path, names: dict[str, str]) -> bool:
    """Rewrite the names in a file; tell whether there were any."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False
    if PACKAGE not in text:
        return False
    found = text
    if path.suffix in (".py", ".pyi"):
        found = imports_of_modules(found, names, path.name)
    found = DOTTED.sub(lambda name: renamed(name, names), found)
    found = found.replace("@@", PACKAGE)
    if found != text:
        path.write_text(found, encoding="utf-8")
    return found != text


def renamed(name: re.Match[str], names: dict[str, str]) -> str:
    """Return a dotted name by the longest part of it that is a module."""
    parts = name[1][1:].split(".")
    for count in range(len(parts), 0, -1):
        if new := names.get(".".join(parts[:count])):
            return ".".join((PACKAGE, new, *parts[count:]))
    return name[0]


def imports_of_modules(text: str, names: dict[str, str], where: str) -> str:
    """Rewrite `from package import module`, and the uses of such a module.

    `@@` stands for the package, so that what is rewritten is not so again.
    """
    lines = text.splitlines(keepends=True)
    edits, uses = [], {}
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        package, _, room = (node.module or "").partition(".")
        if package != PACKAGE:
            continue
        modules, others = {}, []
        for each in node.names:
            old = f"{room}.{each.name}" if room else each.name
            if old in names and old not in FUNCTIONS:
                modules[each] = names[old]
            else:
                others.append(ast.unparse(each))
        if not modules:
            continue
        indent = " " * node.col_offset
        found = [f"from {node.module} import {', '.join(others)}"] if others else []
        for each, new in modules.items():
            above, _, name = new.rpartition(".")
            alias = f" as {each.asname}" if each.asname else ""
            found.append(
                f"from {'.'.join(filter(None, ('@@', above)))} import {name}{alias}"
            )
            if not each.asname and name != each.name:
                uses[each.name] = name
        assert node.end_lineno
        edits.append(
            (node.lineno - 1, node.end_lineno, [f"{indent}{each}\n" for each in found])
        )
    for first, last, found in sorted(edits, reverse=True):
        lines[first:last] = found
    text = "".join(lines)
    return uses_of_modules(text, uses, where) if uses else text


def uses_of_modules(text: str, uses: dict[str, str], where: str) -> str:
    """Rewrite the names under which a file uses modules."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    found = []
    for number, token in enumerate(tokens):
        line, column = token.start
        if token.type == tokenize.STRING and "f" in token.string[:2].lower():
            for name in uses:
                found += [
                    (line, column + use.start() + 1, name)
                    for use in re.finditer(rf"{{{name}\.", token.string)
                ]
        if token.type != tokenize.NAME or token.string not in uses:
            continue
        if tokens[number - 1].string == ".":
            continue
        is_patched = tokens[number - 2].string in PATCHES
        if tokens[number + 1].string == "." or is_patched:
            found.append((line, column, token.string))
        elif tokens[number - 1].string != "import":
            print(f"look at {where}:{line}: {token.line.strip()}")
    lines = text.splitlines(keepends=True)
    for line, column, name in sorted(found, reverse=True):
        row = lines[line - 1]
        lines[line - 1] = row[:column] + uses[name] + row[column + len(name) :]
    return "".join(lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
