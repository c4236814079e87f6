"""The stream's query when it fails to start: retried, unless Spark has ended."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("py4j", reason="the extra `mirror` is not installed")

from py4j.java_gateway import (  # type: ignore[import-untyped]
    GatewayParameters,
    JavaGateway,
)
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from some_settings import settings_of

from canal_server.errors import CanalError
from canal_server.mirror.follow.spark_query import Query
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = settings_of("/lake")


class Session:
    """A session whose streams fail to begin; its JVM is asked as `ask` does it."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask
        self.starts = 0

    @property
    def readStream(self) -> Any:  # noqa: N802  # Spark's name
        """Fail, as a source does that is not to be had."""
        self.starts += 1
        raise RuntimeError("no stream begins now")

    @property
    def sparkContext(self) -> Any:  # noqa: N802  # Spark's name
        """Ask the JVM, as Spark's context does."""
        context = SimpleNamespace(isStopped=self._ask)
        return SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context))


def query_of(session: Session) -> Query:
    """Return the query of a mirror whose stream has failed before."""
    store: Any = SimpleNamespace(generation=lambda: 0)
    stream: Any = SimpleNamespace(joining=threading.Lock())
    return Query(SETTINGS, session, stream, store, Stop())


def test_a_stream_that_does_not_begin_is_tried_again() -> None:
    """A failed start of the stream is retried while Spark runs."""
    session = Session(lambda: False)
    query_of(session).look()
    assert session.starts == 1


def test_without_its_application_a_mirror_ends() -> None:
    """An application that the cluster or a person has ended is not restarted."""
    with pytest.raises(CanalError, match="Spark has ended the application"):
        query_of(Session(lambda: True)).look()


def test_without_its_jvm_a_mirror_ends() -> None:
    """A JVM that is killed during a restart of the stream is not waited for."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lost = JavaGateway(gateway_parameters=GatewayParameters(port=port))

    def ask() -> object:
        return lost.jvm.java.lang.System.currentTimeMillis()

    session = Session(ask)
    with pytest.raises(Py4JNetworkError):
        query_of(session).look()
