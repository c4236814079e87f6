"""A real PostgreSQL: POSTGRES_URL names one, else a private one is started.

A test is skipped with the reason where none can be had.
"""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from server_folders import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postgres_servers import Postgres, PrivatePostgres

_numbers = itertools.count(1)


@dataclass(frozen=True)
class PostgresDatabase:
    """A fresh database of a server."""

    server: Postgres
    name: str

    @property
    def url(self) -> str:
        """Return its URL for SQLAlchemy."""
        return self.server.url(self.name)

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements; returns the rows of the last one."""
        return self.server.execute(self.name, *statements)


def _started(stack: ExitStack, server: Postgres) -> Postgres:
    try:
        server.start()
    except Unavailable as error:
        pytest.skip(f"no PostgreSQL: {error}")
    stack.callback(server.stop)
    return server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """Give a running PostgreSQL that all tests share."""
    pytest.importorskip("psycopg")
    from postgres_servers import named_or_private  # noqa: PLC0415  # needs psycopg

    with ExitStack() as stack:
        yield _started(stack, named_or_private())


@pytest.fixture
def own_postgres() -> Iterator[PrivatePostgres]:
    """Give a PostgreSQL of the test's own, to kill and restart."""
    pytest.importorskip("psycopg")
    from postgres_servers import PrivatePostgres  # noqa: PLC0415  # needs psycopg

    with ExitStack() as stack:
        server = PrivatePostgres()
        _started(stack, server)
        yield server


@pytest.fixture
def postgres(postgres_server: Postgres) -> Iterator[PostgresDatabase]:
    """Give a fresh database on the shared PostgreSQL."""
    name = f"t{os.getpid()}_{next(_numbers)}"
    postgres_server.execute("postgres", f"CREATE DATABASE {name}")
    yield PostgresDatabase(postgres_server, name)
    postgres_server.execute("postgres", f"DROP DATABASE {name} WITH (FORCE)")
