"""Handlers whose methods are coroutine functions, run by a consumer that is none.

Leaves out concurrency: the consumer waits for each result, as changes are in order.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable


class Coroutines:
    """Completes what methods return, all in one event loop of its own.

    The loop begins with the first coroutine, so that functions need no asyncio.
    """

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def complete(self, result: object) -> None:
        """Wait for a result that can be awaited. Raises what it raises."""
        if not hasattr(result, "__await__"):
            return
        if self._runner is None:
            import asyncio  # noqa: PLC0415  # most handlers are functions

            self._runner = asyncio.Runner()
        self._runner.run(_awaited(result))

    def completed(self, method: Callable[..., object]) -> Callable[..., None]:
        """Return a method that also waits for its result."""

        def call(*arguments: object) -> None:
            self.complete(method(*arguments))

        return call

    def closing(self, close: Callable[[], object]) -> Callable[[], None]:
        """Return a handler's `close` that ends the event loop afterwards."""

        def call() -> None:
            with contextlib.ExitStack() as ending:
                ending.callback(self._end)
                self.complete(close())

        return call

    def _end(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None


async def _awaited(result: Awaitable[object]) -> None:
    await result
