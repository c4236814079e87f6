"""Two real servers of which one replicates from the other by GTID, and their roles.

They (`replicas`) are shared by the tests of a module: each finds one as the source, the
other as its replica that has all of it. A module may name REPLICA_OPTIONS, more options
of the one that is the replica at first.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from fix_servers import FLAVOURS
from replicas import OPTIONS_OF, Replicas, understood
from servers import CANAL, PrivateServer, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server

__all__ = ["OPTIONS_OF", "Replicas"]

_numbers = itertools.count(1)


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in FLAVOURS],
)
def _two_servers(request: pytest.FixtureRequest) -> Iterator[Replicas]:
    flavour = request.param
    with ExitStack() as running:
        try:
            more = getattr(request.module, "REPLICA_OPTIONS", ())
            servers = [
                running.enter_context(PrivateServer(flavour, options))
                for options in (OPTIONS_OF[flavour], (*OPTIONS_OF[flavour], *more))
            ]
        except Unavailable as error:
            pytest.skip(f"no two {flavour} of our own: {error}")
        made = Replicas(*servers)
        made.follow()
        if flavour == "mariadb":
            # As the manual asks for where a standby is.
            made.source.execute(grant_of(made.source))
        yield made


def grant_of(source: Server) -> str:
    """Return what the manual asks for where a MariaDB has a standby."""
    right = "REPLICA MONITOR" if source.can("REPLICA MONITOR") else "REPLICATION CLIENT"
    return f"GRANT {right} ON *.* TO '{CANAL[0]}'@'%'"


@pytest.fixture
def replicas(_two_servers: Replicas) -> Replicas:
    """Give two running servers, one with all that the other has: MySQLs, MariaDBs."""
    made = _two_servers
    for server in (made.source, made.replica):
        if server.pid is None:
            server.restart()
    if not made.replica.execute(understood(made.replica, "SHOW REPLICA STATUS")):
        made.begin_after()
    made.replica.execute(understood(made.replica, "START REPLICA"))
    made.catch_up()
    return made


@pytest.fixture
def replicated_schema(replicas: Replicas) -> str:
    """Give the name of a fresh schema on both servers."""
    name = f"shop{next(_numbers)}"
    replicas.source.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    replicas.catch_up()
    return name
