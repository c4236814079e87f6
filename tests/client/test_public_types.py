"""The public client has types that strict checkers use, and that are true.

A program that uses all of it is checked by mypy and by pyright, against the package
under test: the checkout, or what an installed wheel brings along.
"""

from __future__ import annotations

import ast
import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pydantic
import pytest
from client_entries import row, statement

import canal_server
from canal_server.client import Change, Message
from canal_server.protocol.entry_messages import decode_entry

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE = Path(canal_server.__file__).parent
PROGRAM = Path(__file__).parent.parent / "support/types/typed_program.py"
IS_CHECKOUT = (PACKAGE.parent / "pyproject.toml").exists()
MYPY_SETTINGS = "[mypy]\nstrict = True\nwarn_unreachable = True\n"
PYRIGHT_SETTINGS = {
    "typeCheckingMode": "strict",
    "reportUnnecessaryTypeIgnoreComment": True,
    "extraPaths": [str(PACKAGE.parent)] if IS_CHECKOUT else [],
}
WRONG = """
from canal_server.client import CanalClient, Change
from typing import assert_type

def wrong(client: CanalClient, change: Change) -> None:
    assert_type(change.table, int)
    assert_type(next(client.changes()), str)
    client.subscribe(1)
    client.unsubscribe()  # type: ignore[misc]
"""


def mypy(program: Path, folder: Path) -> str:
    """Return what mypy says, from a cache in its folder."""
    settings = folder / "mypy.ini"
    settings.write_text(MYPY_SETTINGS)
    found = {"MYPYPATH": str(PACKAGE.parent)} if IS_CHECKOUT else {}
    arguments = ["--config-file", settings, "--cache-dir", folder / "cache"]
    return output_of(
        "mypy", *arguments, "--follow-imports=silent", program, folder=folder, **found
    )


def pyright(program: Path, folder: Path) -> str:
    """Return what pyright says; basedpyright is pyright in a wheel."""
    pytest.importorskip("basedpyright")
    settings = folder / "pyrightconfig.json"
    settings.write_text(json.dumps(PYRIGHT_SETTINGS | {"include": [str(program)]}))
    return output_of(
        "basedpyright", "-p", settings, "--pythonpath", sys.executable, folder=folder
    )


def output_of(module: str, *arguments: object, folder: Path, **variables: str) -> str:
    """Return the output of a module that checks files, with its status."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | variables,
    )
    return f"{done.stdout}{done.stderr}status {done.returncode}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder outside of the checkout, in which the cache of mypy stays warm."""
    return tmp_path_factory.mktemp("types")


each_checker = pytest.mark.parametrize("check", [mypy, pyright])


@pytest.mark.slow
@each_checker
def test_a_program(check: Callable[[Path, Path], str], folder: Path) -> None:
    """What a strict checker knows of the API is what the program states."""
    assert check(PROGRAM, folder).endswith("status 0")


@pytest.mark.slow
@each_checker
def test_a_wrong_program(check: Callable[[Path, Path], str], folder: Path) -> None:
    """A checker that sees our types finds what is wrong, and an ignore for nothing."""
    program = folder / "wrong.py"
    program.write_text(WRONG)
    found = check(program, folder)
    assert found.endswith("status 1")
    for number in range(6, 10):
        assert f"wrong.py:{number}:" in found


def test_files_for_checkers() -> None:
    """The package says that it has types, and each compiled module of it has a stub."""
    assert (PACKAGE / "py.typed").exists()
    compiled = [*(PACKAGE / "client").rglob("*.so")]
    assert {path.name.partition(".")[0] for path in compiled} >= {"change_reader"}
    for path in compiled:
        assert path.with_name(path.name.partition(".")[0] + ".pyi").exists()


def stub_of_change() -> dict[str, Any]:
    """Return the types of the attributes of a change by name, as its stub has them."""
    module = ast.parse((PACKAGE / "client/change_reader.pyi").read_text())
    names = {
        "Any": Any,
        "Literal": Literal,
        "Mapping": Mapping,
        "datetime": dt.datetime,
    }
    (kind,) = (
        each.value
        for each in module.body
        if isinstance(each, ast.AnnAssign) and ast.unparse(each.target) == "Kind"
    )
    assert kind is not None
    names["Kind"] = eval(ast.unparse(kind), names)
    (change,) = (
        each
        for each in module.body
        if isinstance(each, ast.ClassDef) and each.name == "Change"
    )
    return {
        each.name: eval(ast.unparse(each.returns), names)
        for each in change.body
        if isinstance(each, ast.FunctionDef) and each.returns is not None
    }


def test_the_stub_of_a_change_is_complete() -> None:
    """It has the public attributes of the compiled class, and no other."""
    public = {name for name in dir(Change) if not name.startswith("_")}
    assert set(stub_of_change()) == public


@pytest.mark.parametrize(
    "entry", [row(1), statement(2, "ALTER TABLE orders ADD x int")]
)
def test_the_stub_of_a_change_is_true(entry: bytes) -> None:
    """Attributes of changes have the types that the stub says."""
    (change,) = Message.of_entries(1, [decode_entry(entry)]).changes()
    for name, hint in stub_of_change().items():
        value = getattr(change, name)
        pydantic.TypeAdapter(hint).validate_python(value, strict=True)
