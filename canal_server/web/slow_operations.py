"""What may take long, in threads of its own, so that nothing else waits for it."""

from __future__ import annotations

import asyncio
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from canal_server.errors import CanalError
from canal_server.runtime.lifecycle import Stop
from canal_server.web.problem_details import Problem, problem_of

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class SlowOperations:
    """Carries operations out, `at_once` of them; for one event loop.

    Others wait for their turn. One that has not ended within the limit, the wait
    included, is answered with an error and asked to stop. Its thread counts until it
    has ended, so that there are never more of them.
    """

    def __init__(self, name: str, what: str, *, at_once: int, limit_s: float) -> None:
        """Create without threads; `name` is that of threads, `what` is for errors."""
        self._name = name
        self._what = what
        self._limit_s = limit_s
        self._turns = asyncio.Semaphore(at_once)

    async def run(self, operation: Callable[[Stop], T]) -> T:
        """Return what an operation returns. Raises Problem.

        It should end early when the stop that it is passed is requested.
        """
        stop = Stop()
        try:
            async with asyncio.timeout(self._limit_s) as limit:
                await self._turns.acquire()
                found: T = await self._begin(operation, stop)
                return found
        except TimeoutError:
            if not limit.expired():
                raise
            raise Problem(
                HTTPStatus.GATEWAY_TIMEOUT,
                f"{self._what} did not end within {self._limit_s:g} s: it takes long,"
                " or many others are in progress; try again later, or use the command"
                " on the server's host",
            ) from None
        except CanalError as error:
            raise problem_of(error) from error
        finally:
            stop.request()

    def _begin(self, operation: Callable[[Stop], T], stop: Stop) -> asyncio.Future[T]:
        """Start the thread of an operation that has its turn."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def deliver(found: Any, error: Exception | None) -> None:
            self._turns.release()
            if future.done():
                return  # nobody waits any more
            if error is None:
                future.set_result(found)
            else:
                future.set_exception(error)

        def work() -> None:
            found, failure = None, None
            try:
                found = operation(stop)
            except Exception as error:  # noqa: BLE001  # whoever waits gets it
                failure = error
            try:
                loop.call_soon_threadsafe(deliver, found, failure)
            except RuntimeError:  # the loop is closed, nobody waits for a turn
                self._turns.release()

        try:
            threading.Thread(
                target=work, name=f"http {self._name}", daemon=True
            ).start()
        except RuntimeError:  # the system has no more threads
            self._turns.release()
            raise
        return future
