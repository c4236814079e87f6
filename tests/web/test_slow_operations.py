"""What may take long: turns, limits, and threads that are not waited for any more."""

from __future__ import annotations

import asyncio
import threading
from http import HTTPStatus

import pytest

from canal_server.errors import UnknownDestination
from canal_server.web.problem_details import Problem
from canal_server.web.slow_operations import SlowOperations

LONG_S = 60.0  # never waited for unless something hangs


@pytest.fixture
def anyio_backend():
    """Run on asyncio."""
    return "asyncio"


@pytest.mark.anyio
async def test_results_and_errors():
    """What an operation returns is returned; its refusal is a problem."""
    slow = SlowOperations("x", "it", at_once=1, limit_s=LONG_S)
    assert await slow.run(lambda _: threading.current_thread().name) == "http x"

    def refuse(_):
        raise UnknownDestination("can't find destination:x")

    with pytest.raises(Problem) as refused:
        await slow.run(refuse)
    assert refused.value.status is HTTPStatus.NOT_FOUND

    def fail(_):
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        await slow.run(fail)
    assert await slow.run(lambda _: 7) == 7  # turns were given back


@pytest.mark.anyio
async def test_a_limit_of_time():
    """It is asked to stop and no longer waited for, but counts until it has ended."""
    slow = SlowOperations("x", "it", at_once=1, limit_s=0.05)
    goes_on, ended = threading.Event(), threading.Event()
    stopped = []

    def hang(stop):
        stopped.append(stop.wait(LONG_S))
        goes_on.wait(LONG_S)  # as a system call that knows of no stop
        ended.set()

    for operation in (hang, lambda _: "the turn of the first one has not ended"):
        with pytest.raises(Problem, match=r"it did not end within 0\.05 s") as late:
            await slow.run(operation)
        assert late.value.status is HTTPStatus.GATEWAY_TIMEOUT
    assert stopped == [True]
    goes_on.set()
    await asyncio.to_thread(ended.wait, LONG_S)
    roomy = SlowOperations("x", "it", at_once=1, limit_s=LONG_S)
    roomy._turns = slow._turns  # the same ones, without hurry
    assert await roomy.run(lambda _: 7) == 7


@pytest.mark.anyio
async def test_turns():
    """No more run at once than may; the others wait, and the loop does not."""
    slow = SlowOperations("x", "it", at_once=2, limit_s=LONG_S)
    lock, running, most = threading.Lock(), 0, 0
    meet = threading.Barrier(2)

    def work(_):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        meet.wait(LONG_S)  # both at the same time
        with lock:
            running -= 1

    await asyncio.gather(*(slow.run(work) for _ in range(6)))
    assert most == 2
