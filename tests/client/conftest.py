"""A client that loops over the changes of a server without a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fix_server import DESTINATION

from canal_server.client import CanalClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def store(instance: Any) -> Any:
    """Give the store of the server."""
    return instance.store


@pytest.fixture
def client(serve: Callable[..., Any]) -> Iterator[Callable[..., CanalClient]]:
    """Return a function that makes a client of a fresh server."""
    port = serve().port
    clients: list[CanalClient] = []

    def make(**options: Any) -> CanalClient:
        clients.append(CanalClient("127.0.0.1", port, DESTINATION, **options))
        return clients[-1]

    yield make
    for each in clients:
        each.close()
