"""A private broker of RabbitMQ; skips with the reason where none can be had."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from fix_interop import SWITCH
from rabbit_brokers import Rabbit
from server_folders import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def make_rabbit() -> Iterator[Callable[..., Rabbit]]:
    """Give a function that starts a broker, which is ended after the test.

    Its arguments are lines of rabbitmq.conf.
    """
    with ExitStack() as stack:
        yield lambda *more: stack.enter_context(_started(*more))


@pytest.fixture(scope="module")
def shared_rabbit() -> Iterator[Rabbit]:
    """Give a running broker that the tests of a module share."""
    with _started() as rabbit:
        yield rabbit


@pytest.fixture
def rabbit(shared_rabbit: Rabbit) -> Iterator[Rabbit]:
    """Give a running broker; what a test creates is deleted, a killed one started."""
    yield shared_rabbit
    shared_rabbit.restore()


@contextmanager
def _started(*more: str) -> Iterator[Rabbit]:
    if SWITCH not in os.environ:
        pytest.skip(f"{SWITCH}=1 runs it")
    pytest.importorskip("pika", reason="the extra `rabbitmq` is not installed")
    rabbit = Rabbit(*more)
    try:
        rabbit.start()
    except Unavailable as error:
        pytest.skip(f"no RabbitMQ: {error}")
    try:
        yield rabbit
    finally:
        rabbit.stop()
