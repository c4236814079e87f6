"""What is left out of the log, as the mirror logs it itself."""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("py4j", reason="the extra `mirror` is not installed")

from py4j.java_gateway import (  # type: ignore[import-untyped]
    GatewayClient,
    GatewayParameters,
)

from canal_server.mirror.session import spark_log

if TYPE_CHECKING:
    from collections.abc import Iterator


class Anything:
    """A session with a fake JVM."""

    def __getattr__(self, _name: str) -> Any:
        return self

    def __call__(self, *_: object) -> None:
        """Record a level."""


@pytest.fixture
def ending_jvm() -> Iterator[int]:
    """Give the port of a JVM that goes away while it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_a_jvm_that_goes_away(
    ending_jvm: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What py4j logs of it, with a traceback, is not for a user; it also raises."""
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.WARNING, "py4j")  # as the command does it
    caplog.set_level(logging.INFO, "py4j.clientserver")  # restored afterwards
    root = logging.getLogger()
    filters = [*root.filters]
    spark_log.quieten(Anything())
    try:
        client = GatewayClient(gateway_parameters=GatewayParameters(port=ending_jvm))
        assert client.send_command("c\n").startswith("x")  # an error
        logging.info("ours")  # noqa: LOG015  # by no name, too
    finally:
        root.filters[:] = filters
    assert [r.getMessage() for r in caplog.records if r.exc_info] == []
    assert "ours" in caplog.messages
