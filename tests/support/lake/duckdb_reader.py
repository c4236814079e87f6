"""DuckDB with extensions from packages, so that none is downloaded."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def duckdb_with(folder: Path, *extensions: str) -> Iterator[Any]:
    """Give a connection to a new database in memory, in UTC.

    `folder`: where the extensions are installed. Skips the test if one is missing.
    """
    duckdb: Any = pytest.importorskip("duckdb", reason="duckdb is not installed")
    settings = {
        "autoinstall_known_extensions": "false",
        "extension_directory": str(folder / "extensions"),
    }
    with duckdb.connect(config=settings) as connection:
        for name in extensions:
            connection.execute(f"INSTALL '{_file(name, duckdb.__version__)}'")
            connection.execute(f"LOAD {name}")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def _file(name: str, version: str) -> Path:
    package = f"duckdb_extension_{name}"
    pytest.importorskip(package, reason=f"{package} is not installed")
    origin = importlib.import_module(package).__file__
    assert origin is not None
    (path,) = Path(origin).parent.rglob("*.duckdb_extension")
    if path.parent.name != f"v{version}":
        pytest.skip(f"{package} is not for DuckDB {version}")
    return path
