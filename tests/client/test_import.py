"""What importing the client loads: nothing of the server, and nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fix_daemon import child_environ

# Of foreign systems, of extras, and what takes a while for a program without it.
FOREIGN = {
    "kazoo", "sqlglot", "pymysql", "cryptography", "sqlite3", "zstandard",
    "javaproperties", "prometheus_client", "pyarrow", "pandas", "numpy", "pyspark",
    "deltalake", "sqlalchemy", "pydantic", "msgspec", "orjson", "asyncio",
    "multiprocessing", "concurrent", "http", "email", "ssl", "argparse",
}  # fmt: skip
# The only packages of ours that the client needs. Of the decoder it is the compiled
# reading of texts, of the configuration nothing.
OURS = {
    "canal_server.arrow", "canal_server.client", "canal_server.core",
    "canal_server.decoder.text", "canal_server.errors", "canal_server.messages",
    "canal_server.model", "canal_server.protocol", "canal_server.runtime",
    "canal_server.tls",
}  # fmt: skip


def loaded_by(program: str) -> set[str]:
    """Return the modules that a program loads in a fresh interpreter.

    Those that the interpreter has before do not count: an editable install of ours,
    or a tool for coverage, may load some.
    """
    script = (
        f"import sys\nbefore = set(sys.modules)\n{program}\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=child_environ(),
    )
    return set(done.stdout.split())


def packages(modules: set[str]) -> set[str]:
    """Return the top-level packages of modules."""
    return {each.partition(".")[0] for each in modules}


@pytest.fixture(scope="module")
def of_client() -> set[str]:
    """Give what `import canal_server.client` loads."""
    return loaded_by("import canal_server.client")


def test_no_foreign_system(of_client):
    """Neither ZooKeeper, SQL, MySQL, Arrow nor asyncio is loaded."""
    assert packages(of_client) & FOREIGN == set()


def test_nothing_of_the_server(of_client):
    """Of our own packages only those are loaded that the client reads messages with."""
    ours = {each for each in of_client if each.startswith("canal_server.")}
    assert "canal_server.client.canal" in ours
    parents = {"canal_server.decoder"}
    assert {
        each
        for each in ours - parents
        if not any(each == room or each.startswith(f"{room}.") for room in OURS)
    } == set()


def test_parts_for_some_programs(of_client):
    """Parts that not every program needs are loaded when they are asked for."""
    parts = {
        "AsyncCanalClient": "canal_server.client.async_client",
        "MappedChange": "canal_server.client.row_mapping",
        "RowMapper": "canal_server.client.row_mapping",
    }
    for name, module in parts.items():
        assert module not in of_client
        assert module in loaded_by(f"from canal_server.client import {name}")


@pytest.mark.parametrize(
    ("program", "module"),
    [
        ("import asyncio", "asyncio"),
        ("import canal_server.client.arrow_tables", "pyarrow"),
        ("import canal_server.doors.zookeeper", "kazoo"),
    ],
)
def test_loaded_modules_are_seen(program, module):
    """The check above sees what a program loads."""
    assert module in packages(loaded_by(program))


def test_all_names_exist():
    """`from canal_server.client import *` finds every name, and others fail."""
    script = (
        "from canal_server import client\nfrom canal_server.client import *\n"
        "assert {*client.__all__} <= {*globals()}\n"
        "try: client.Missing\n"
        "except AttributeError as error: print(error)\n"
        "sys.exit()"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{script}"],
        capture_output=True,
        text=True,
        check=True,
        env=child_environ(),
    )
    assert done.stdout.strip() == (
        "module 'canal_server.client' has no attribute 'Missing'"
    )


MAPPING = """
from dataclasses import dataclass
from typing import TypedDict
from canal_server.client import RowMapper

class Row(TypedDict):
    id: int

@dataclass
class Order:
    id: int

RowMapper(Row), RowMapper(Order)
"""


def test_classes_for_rows_without_pydantic_and_msgspec():
    """They are not loaded for a class that is not theirs."""
    found = loaded_by(MAPPING)
    assert "canal_server.client.mapping.row_makers" in found
    assert packages(found) & {"pydantic", "msgspec"} == set()
