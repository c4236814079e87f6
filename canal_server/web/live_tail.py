"""Tails: the changes of some tables as an endless answer, for people who look.

::

    destination ─► tap ─► changes ─► events ─► a browser, or curl

A tail has no client and no cursor. Its reader gets what comes from now on; a reader
that is too slow misses changes and learns how many. While nothing comes, it learns why,
and it outlives stops and starts of its destination.

The event loop waits, for news of the tap or the next look at the state. Reading entries
and asking for states is done in other threads, one call at a time for each tail.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from canal_server.client.change_reader import ChangeReader
from canal_server.client.value_reader import ValueOptions
from canal_server.errors import CanalError
from canal_server.model.quoted import quoted
from canal_server.web.problem_details import Problem, problem_of
from canal_server.web.quiet_tail import ENDING, NOT_ALLOWED, REMOVED, not_read, state_of
from canal_server.web.tail_events import (
    KEEP_ALIVE,
    change_event,
    skipped_event,
    state_event,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from starlette.types import Receive, Scope, Send

    from canal_server.client.change_reader import Change
    from canal_server.instance.change_tap import ChangeTap
    from canal_server.users.redaction import Redaction
    from canal_server.web.server_operations import Operations
    from canal_server.web.tail_sums import TailSums

log = logging.getLogger(__name__)

TAILS_MAX: Final = 8  # at a time, of one server
TAILS_OF_USER_MAX: Final = 4  # the same, so that nobody keeps the others from theirs
MEDIA_TYPE: Final = "text/event-stream"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # for nginx
    "X-Content-Type-Options": "nosniff",
}
_PART_BYTES: Final = 64 * 1024  # of events, after which a part is sent
_PART_S: Final = 0.2  # after which a part is sent, or a look for news ends
_QUIET_S: Final = 2.0  # between two looks at the state while nothing comes
_AWAY_S: Final = 0.5  # the same while the destination does not run here
_KEEP_ALIVE_S: Final = 15.0  # at most between two parts


class Tails:
    """The tails of a server; used on the event loop, except for `end`."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._open: set[LiveTail] = set()
        self.is_ending = False

    async def open(
        self,
        destination: str,
        expression: str,
        *,
        user: str = "",
        redaction: Redaction | None = None,
        is_allowed: Callable[[], bool] = lambda: True,
    ) -> LiveTail:
        """Return a tail, to be closed by `LiveTail.close`. Raises Problem.

        It shows what `redaction` leaves, and ends when it is not allowed any more:
        `look_again` asks. `user` has a limit of its own; empty: it is not known.
        """
        if len(self._open) >= TAILS_MAX:
            raise Problem(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{TAILS_MAX} tails are open, and a server has no more at a time: close"
                " one of them",
                limit=TAILS_MAX,
            )
        if user and sum(each.user == user for each in self._open) >= TAILS_OF_USER_MAX:
            raise Problem(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{TAILS_OF_USER_MAX} tails of this user are open, and one user has no"
                " more at a time: close one of them",
                limit=TAILS_OF_USER_MAX,
            )
        tail = LiveTail(
            self, self._operations, destination, expression, redaction, is_allowed
        )
        tail.user = user
        self._open.add(tail)
        try:
            await run_in_threadpool(tail.attach)
        except CanalError as error:
            tail.close()
            raise problem_of(error) from error
        except BaseException:
            tail.close()
            raise
        return tail

    def forget(self, tail: LiveTail) -> None:
        """Note that a tail was closed."""
        self._open.discard(tail)

    def end(self) -> None:
        """End all tails, with a reason for their readers; by any thread."""
        self.is_ending = True
        self.look_again()

    def look_again(self) -> None:
        """Note that rights may have changed; by any thread."""
        for tail in tuple(self._open):
            tail.wake()


class LiveTail:
    """One reader of a destination's changes, from the request to its end."""

    def __init__(  # noqa: PLR0917  # made in one place
        self,
        tails: Tails,
        operations: Operations,
        destination: str,
        expression: str,
        redaction: Redaction | None,
        is_allowed: Callable[[], bool],
    ) -> None:
        self.destination = destination
        self.expression = expression
        self.user = ""  # who reads it, if that is known
        self._tails = tails
        self._redaction = redaction
        self._is_allowed = is_allowed
        self._operations = operations
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._tap: ChangeTap | None = None
        self._reader = ChangeReader(ValueOptions(as_texts=True))
        self._changes: Iterator[Change] = iter(())
        self._sent_ms: int | None = None  # when the last change was sent
        self._state: dict[str, Any] | None = None  # the last one, since the last change
        self.sums: TailSums | None = None  # for the audit

    def wake(self) -> None:
        """End the current wait for news, or the next one; by any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and all tails
            self._loop.call_soon_threadsafe(self._news.set)

    def close(self) -> None:
        """Release what is held; nothing of this tail runs in another thread."""
        self._detach()
        self._changes = iter(())
        self._tails.forget(self)
        if self.sums is not None:
            self.sums.end()

    # --- the event loop ---------------------------------------------------------------

    async def events(self) -> AsyncIterator[bytes]:
        """Yield events, whole and some at a time, and at least a comment now and then.

        Ends when the server does, or the destination is removed.
        """
        sent_s = 0.0  # monotonic; the first state is sent at once
        while not self._tails.is_ending and self._is_allowed():
            self._news.clear()
            part, has_more = await run_in_threadpool(self._next_part)
            if not part and not has_more:
                part = await run_in_threadpool(self._state_part, sent_s)
            if part:
                sent_s = time.monotonic()
                yield part
                if self._state is REMOVED:
                    return
            elif not has_more:
                await self._wait()
        yield state_event(ENDING if self._tails.is_ending else NOT_ALLOWED)

    async def _wait(self) -> None:
        """Wait for news, or for the next look at the state."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AWAY_S if self._tap is None else _QUIET_S):
                await self._news.wait()

    # --- in other threads -------------------------------------------------------------

    def attach(self) -> None:
        """Follow the destination, if it runs here. Raises CanalError."""
        self._tap = self._operations.tap(self.destination, self.expression, self.wake)

    def _detach(self) -> None:
        tap, self._tap = self._tap, None
        if tap is not None:
            tap.close()

    def _next_part(self) -> tuple[bytes, bool]:
        """Return the next events, and whether there may be more at once."""
        part = bytearray()
        until_s = time.monotonic() + _PART_S
        has_more = True
        while has_more and len(part) < _PART_BYTES and time.monotonic() < until_s:
            change = next(self._changes, None)
            if change is None:
                has_more = self._read_on(part)
                continue
            part += change_event(change)
            if self.sums is not None:
                self.sums.add(change)
            self._sent_ms, self._state = time.time_ns() // 1_000_000, None
        if self.sums is not None:
            self.sums.look()
        return bytes(part), has_more

    def _read_on(self, part: bytearray) -> bool:
        """Read the next entries from the tap; false when there are none now."""
        if self._tap is None:
            return False
        tapped = self._tap.read()
        if tapped is None:
            if self._tap.closed:
                self._detach()
            return False
        for each in tapped.skipped:
            part += skipped_event(each)
            self._reader.reset()
        self._changes = itertools.chain.from_iterable(
            self._reader.read(self._shown(each)) for each in tapped.bodies
        )
        return True

    def _shown(self, body: bytes | memoryview) -> bytes | memoryview:
        return body if self._redaction is None else self._redaction.apply(body)

    def _state_part(self, sent_s: float) -> bytes:
        """Return why nothing comes, if that was not sent; else at times a comment."""
        state = self._current_state()
        if self._tails.is_ending:
            return b""  # the destination ends with the server, which is the reason
        before = self._state
        is_due = time.monotonic() - sent_s >= _KEEP_ALIVE_S
        if before is None or _differs(state, before) or (is_due and state != before):
            self._state = state
            return state_event(state)
        return KEEP_ALIVE if is_due else b""

    def _current_state(self) -> dict[str, Any]:
        try:
            if self._tap is None:
                self.attach()
            reading = self._operations.reading(self.destination)
        except CanalError:  # it is not configured any more
            self._detach()
            return REMOVED
        state = state_of(
            reading,
            self.expression,
            self._sent_ms,
            is_limited=self._redaction is not None,
        )
        if self._tap is not None and state["state"] == "quiet":
            return not_read(self.expression, self._tap.reads) or state
        return state


def _differs(state: dict[str, Any], before: dict[str, Any]) -> bool:
    """Return whether the reason differs; the position does so all the time."""
    return any(state[each] != before[each] for each in ("state", "reason", "since_ms"))


class TailResponse(StreamingResponse):
    """An answer that lasts until its reader goes, or the server ends."""

    media_type = MEDIA_TYPE

    def __init__(self, tail: LiveTail) -> None:
        super().__init__(tail.events(), headers=_HEADERS)
        self._tail = tail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events."""
        tail = self._tail
        what = f"destination {tail.destination}"
        if tail.expression:
            what += f", filter {quoted(tail.expression)}"
        host = (scope.get("client") or ("?",))[0]
        log.info("a tail of %s began for %s", what, host)
        try:
            await super().__call__(scope, receive, send)
        finally:
            tail.close()
            log.info("a tail of %s ended for %s", what, host)
