"""A private broker of RabbitMQ; skips with the reason where none can be had."""

from __future__ import annotations

import os
from contextlib import ExitStack
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
    if SWITCH not in os.environ:
        pytest.skip(f"{SWITCH}=1 runs it")
    pytest.importorskip("pika", reason="the extra `rabbitmq` is not installed")
    with ExitStack() as stack:

        def make(*more: str) -> Rabbit:
            rabbit = Rabbit(*more)
            stack.callback(rabbit.stop)
            try:
                return rabbit.start()
            except Unavailable as error:
                pytest.skip(f"no RabbitMQ: {error}")

        yield make


@pytest.fixture
def rabbit(make_rabbit: Callable[..., Rabbit]) -> Rabbit:
    """Give a running broker with its usual settings."""
    return make_rabbit()
