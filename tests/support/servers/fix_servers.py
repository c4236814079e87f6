"""Real servers: MYSQL_URL and MARIADB_URL name them, else private ones are started.

A test that asks for a server is marked `mysql` or `mariadb`, and is skipped with the
reason where none can be had.
"""

from __future__ import annotations

import itertools
import os
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from servers import (
    UNSYNCED,
    PrivateServer,
    Server,
    Unavailable,
    named_or_private,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FLAVOURS = ("mysql", "mariadb")
SERVER_FIXTURES = ("source_server", "mysql_server", "mariadb_server")

# Before any is started, here or by a program that a test runs.
os.environ.setdefault(UNSYNCED, "1")

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a server by its flavour."""
    for item in items:
        for flavour in FLAVOURS:
            if f"{flavour}_server" in getattr(item, "fixturenames", ()):
                item.add_marker(flavour)


def needs(server: Server, feature: str) -> None:
    """Skip the test on a server that lacks a feature (`server_features`)."""
    if not server.can(feature):
        version = ".".join(map(str, server.version))
        pytest.skip(f"{server.flavour} {version} lacks {feature}")


def _running(flavour: str) -> Iterator[Server]:
    try:
        server = named_or_private(flavour).start()
    except Unavailable as error:
        pytest.skip(f"no {flavour}: {error}")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[Server]:
    """Give a running MySQL that all tests share: leave its settings as they are."""
    yield from _running("mysql")


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Server]:
    """Give a running MariaDB that all tests share: leave its settings as they are."""
    yield from _running("mariadb")


@pytest.fixture(
    scope="session",
    params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in FLAVOURS],
)
def source_server(request: pytest.FixtureRequest) -> Server:
    """Give the shared MySQL, then the shared MariaDB."""
    server: Server = request.getfixturevalue(f"{request.param}_server")
    return server


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """Give the name of a fresh schema, on each shared server that the test uses."""
    name = f"t{os.getpid()}_{next(_numbers)}_{uuid.uuid4().hex[:8]}"
    servers: set[Server] = {
        request.getfixturevalue(fixture)
        for fixture in SERVER_FIXTURES
        if fixture in request.fixturenames
    }
    if not servers:
        raise LookupError(f"`database` needs one of {', '.join(SERVER_FIXTURES)}")
    for server in servers:
        server.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    yield name
    for server in servers:
        server.execute(f"DROP DATABASE IF EXISTS {name}")


@pytest.fixture
def own_server() -> Iterator[Callable[[str, Sequence[str]], PrivateServer]]:
    """Give `start(flavour, options)`: a server of the test's own, to kill and restart.

    It takes a second; where the shared servers do, use those.
    """
    with ExitStack() as running:

        def start(flavour: str, options: Sequence[str] = ()) -> PrivateServer:
            try:
                return running.enter_context(PrivateServer(flavour, options))
            except Unavailable as error:
                pytest.skip(f"no {flavour} of our own: {error}")

        yield start
