"""A TCP proxy before a server of a test, with faults as context managers.

The class is in `tcp_proxy`; here is the fixture that ends what was made.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from tcp_proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from servers import Server

__all__ = ["Proxy"]


@pytest.fixture
def make_proxy() -> Iterator[Callable[[Server], Proxy]]:
    """Give `make_proxy(server)`: a proxy before it, closed after the test."""
    with contextlib.ExitStack() as opened:

        def make(server: Server) -> Proxy:
            proxy = Proxy(server.host, server.port)
            opened.callback(proxy.close)
            return proxy

        yield make
