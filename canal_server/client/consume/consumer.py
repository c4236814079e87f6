"""Gives changes to a handler, repeats what failed, and acks what is durable.

    message ── handle(change) … ── flush ── ack
                   │ error
                   └─ rollback ── again: all since the last flush, or halves of it,
                                  until what fails is a single change: a dead letter

Leaves out what handlers look like (`handlers.handler`) and connections (the client).
"""

from __future__ import annotations

import contextlib
import logging
import select
import time
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from canal_server.client.change_reader import Change
from canal_server.client.connection.interruption import Waker
from canal_server.client.consume.consumer_counters import ConsumerCounters
from canal_server.client.handlers.handler import Rejected, RetryLater, calls_of
from canal_server.client.received_message import Message
from canal_server.client.table_choice import TableChoice
from canal_server.errors import CanalError
from canal_server.messages import client_messages
from canal_server.model.quoted import LINE_MAX, printable
from canal_server.runtime.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from canal_server.client.client_options import AckPolicy
    from canal_server.client.consume.dead_letters import DeadLetters

logger = logging.getLogger(__name__)

RETRIES: Final = 10
_FIRST_DELAY_S, _DELAY_MAX_S = 0.5, 30.0
_WAIT_MAX_S: Final = 3600.0  # that a target may ask for
_IDLE_S: Final = 1.0  # between looks at whether a flush is due
# When so much waits and nothing more comes, the server may be waiting for an ack: it
# retains a limited amount, by default 16 MiB.
_IDLE_BYTES_MAX: Final = 2 * 1024 * 1024

# What a handler is called with.
Unit: TypeAlias = Change | Message


class MessageSource(Protocol):
    """What a consumer needs of a `CanalClient`."""

    @property
    def ack_policy(self) -> AckPolicy:
        """The client's option `ack`."""

    def messages(self, *, timeout_s: float | None, empty: bool) -> Iterator[Message]:
        """Yield messages until `stop`; with `empty`, an empty one while none come."""

    def ack(self, message_id: int | None) -> None:
        """Acknowledge a message and all before it."""

    def stop(self) -> None:
        """End the messages; from any thread or signal handler."""


class HandlerFailed(CanalError):  # noqa: N818  # the field's term
    """A handler failed for good, and there is no file for dead letters."""


class _Stopped(Exception):  # noqa: N818  # not an error
    """A stop was requested while the consumer waited before a repetition."""


class Consumer:
    """Runs a handler over the changes of a client; for one thread, except `stop`.

    Args:
        handler: a function that accepts a change, or an object with the methods of
            `canal_server.client.handlers.Handler`
        tables: the tables whose changes the handler receives, as `schema.table`;
            empty: all
        retries: how often a failing change is retried, unless the handler raises
            RetryLater or Rejected
        retry_for_s: how long RetryLater is retried before the consumer fails;
            None: without limit
        dead_letters: where changes that failed for good go; None: the consumer fails
        clock: returns seconds that only grow

    Raises:
        TypeError: the handler is neither a function nor has the method `handle`
        ValueError: a table is not written as `schema.table`, or the handler receives
            whole messages, whose tables only the client's `filter` selects

    """

    def __init__(
        self,
        handler: object,
        *,
        tables: Sequence[str] = (),
        retries: int = RETRIES,
        retry_for_s: float | None = None,
        dead_letters: DeadLetters | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = ConsumerCounters()
        self._calls = calls_of(handler)
        self._tables = tuple(map(TableChoice, tables))
        if self._tables and self._calls.is_by_message:
            raise ValueError(
                f"{handler!r} receives whole messages: select tables by the client's"
                " filter instead of by tables"
            )
        self._retries = retries
        self._retry_for_s = retry_for_s
        self._dead_letters = dead_letters
        self._clock = clock
        self._client: MessageSource | None = None
        self._is_stopping = False
        self._waker = Waker()
        # What is not flushed.
        self._parts: list[_Part] = []
        self._unflushed = 0  # changes that were handled
        self._unflushed_bytes = 0  # of messages that began since the last flush
        self._first_s: float | None = None  # when the first of them was received
        self._ack_id: int | None = None  # of the newest message

    def run(self, client: MessageSource) -> None:
        """Handle the changes of a client until `stop`.

        The client has to be made with `ack="manual"`, and with `on_redelivery` set to
        the consumer's `forget`. What was handled at the end is flushed and acked.

        Raises HandlerFailed, what the client raises, and ValueError if the client acks
        by itself, which would lose what a handler had not flushed before a crash.
        """
        if client.ack_policy != "manual":
            raise ValueError(
                f'the client has ack = {client.ack_policy!r}: expected "manual", as the'
                " consumer acks what the handler has flushed"
            )
        self._client = client
        if self._is_stopping:  # maybe before there was a client to stop
            return
        try:
            self._open()
            with contextlib.closing(self._calls):
                self._run(client)
        except _Stopped:
            logger.info("stopped before a retry; what failed is delivered again")

    def stop(self) -> None:
        """End `run` after the current message; from any thread or signal handler.

        A message that fails is delivered again by the next run.
        """
        self._is_stopping = True
        self._waker.wake()
        if self._client is not None:
            self._client.stop()

    def forget(self) -> None:
        """Undo what was handled and not flushed, as it will be delivered again."""
        if self._parts:
            self._calls.rollback()
        self._note_flushed()
        self._parts.clear()
        self._ack_id = None

    def process(self, message: Message) -> bool:
        """Handle a message, which may be empty; flush if that is due.

        Returns whether everything so far is durable.

        Raises HandlerFailed.
        """
        if message:
            self.counters.messages += 1
            self.counters.commit_time_ms = message.commit_time_ms
            if message.id != -1:
                self._ack_id = message.id
            self._parts.append(_Part(message))
            self._unflushed_bytes += len(message.body)
            self._handle(self._parts[-1])
        if self._unflushed and (self._is_due() or self._is_stalled(message)):
            self._flush()
        return not self._unflushed

    # ----------------------------------------------------------------------------
    # Messages
    # ----------------------------------------------------------------------------

    def _run(self, client: MessageSource) -> None:
        has_timer = self._calls.flush_s > 0
        for message in client.messages(timeout_s=_IDLE_S, empty=has_timer):
            if self.process(message):
                self._ack(client)
        if self._unflushed:
            self._flush()
        self._ack(client)

    def _ack(self, client: MessageSource) -> None:
        if self._ack_id is not None:
            client.ack(self._ack_id)
            self._ack_id = None

    def _open(self) -> None:
        outage = _Outage(self._retry_for_s)
        while True:
            try:
                self._calls.open()
            except RetryLater as error:
                self._pause(outage.delay_s(error), error)
            except OSError as error:
                raise HandlerFailed(f"the handler cannot start: {error}") from error
            else:
                return

    def _units(self, message: Message) -> Iterator[Unit]:
        """Yield what the handler is called with for a message; new ones each time."""
        if self._calls.is_by_message:
            return iter((message,))
        if not self._tables:
            return message.changes()
        return filter(self._accepts, message.changes())

    def _accepts(self, change: Change) -> bool:
        return any(each.accepts(change) for each in self._tables)

    def _handle(self, part: _Part) -> None:
        handle, complete = self._calls.handle, self._calls.complete
        limit = self._calls.flush_changes
        for unit in self._units(part.message):
            part.handled += 1
            try:
                result = handle(unit)
                if result is not None:
                    complete(result)
            except Exception as error:  # noqa: BLE001  # of the program's own code
                self._recover(error)
                continue
            self._unflushed += _changes_in(unit)
            if self._unflushed >= limit:
                self._flush()
            elif self._first_s is None:
                self._first_s = self._clock()

    def _is_due(self) -> bool:
        assert self._first_s is not None, "something is not flushed"
        return (
            self._clock() - self._first_s >= self._calls.flush_s
            or self._unflushed_bytes >= self._calls.flush_bytes
        )

    def _is_stalled(self, message: Message) -> bool:
        """Return whether nothing arrived although much waits for a flush."""
        return (
            not message
            and sum(len(part.message.body) for part in self._parts) >= _IDLE_BYTES_MAX
        )

    def _flush(self) -> None:
        try:
            self._calls.flush()
        except Exception as error:  # noqa: BLE001  # of the program's own code
            self._recover(error)
        else:
            self._count(self._unflushed)
            self._note_flushed()

    def _count(self, changes: int) -> None:
        self.counters.changes += changes
        self.counters.flushes += 1

    def _note_flushed(self) -> None:
        del self._parts[:-1]
        if self._parts:
            self._parts[-1].flushed = self._parts[-1].handled
        self._unflushed, self._unflushed_bytes, self._first_s = 0, 0, None

    # ----------------------------------------------------------------------------
    # Failures
    # ----------------------------------------------------------------------------

    def _recover(self, error: Exception) -> None:
        """Make everything durable that is not flushed, after an error.

        Raises HandlerFailed.
        """
        self._calls.rollback()
        count = sum(part.handled - part.flushed for part in self._parts)
        self._repeat(0, count, error)
        self._note_flushed()

    def _repeat(self, start: int, stop: int, error: Exception | None) -> None:
        """Repeat a range of what is not flushed until it is, or is a dead letter.

        `error` is how it failed before, if it was attempted.
        """
        outage = _Outage(self._retry_for_s)
        backoff = Backoff(_FIRST_DELAY_S, _DELAY_MAX_S)
        failures = 0
        while error := error or self._attempt(start, stop):
            if isinstance(error, RetryLater):
                self._pause(outage.delay_s(error), error)
            elif stop - start > 1:
                middle = (start + stop) // 2
                self._repeat(start, middle, None)
                self._repeat(middle, stop, None)
                return
            else:
                failures += 1
                if isinstance(error, Rejected) or failures > self._retries:
                    self._give_up(start, error, failures)
                    return
                self._pause(backoff.delay_s(self._clock()), error)
            error = None

    def _attempt(self, start: int, stop: int) -> Exception | None:
        """Handle and flush a range of what is not flushed; return why it failed."""
        changes = 0
        try:
            for unit in self._pending(start, stop):
                self._calls.complete(self._calls.handle(unit))
                changes += _changes_in(unit)
            self._calls.flush()
        except Exception as error:  # noqa: BLE001  # of the program's own code
            self._calls.rollback()
            return error
        self._count(changes)
        return None

    def _pending(self, start: int, stop: int) -> Iterator[Unit]:
        """Yield a range of what is not flushed, read again from the messages.

        The handler may have altered the values of those that it was called with.
        """
        self._parts[0].message.rewind()
        parts: Iterable[Iterator[Unit]] = (
            islice(self._units(part.message), part.flushed, part.handled)
            for part in self._parts
        )
        return islice(chain.from_iterable(parts), start, stop)

    def _pause(self, delay_s: float, error: Exception) -> None:
        """Wait before a repetition. Raises _Stopped."""
        self.counters.retries += 1
        client_messages.HANDLER_RETRIES.log(logger, _text_of(error), delay_s)
        poll = select.poll()
        poll.register(self._waker.fileno(), select.POLLIN)
        if self._is_stopping or poll.poll(delay_s * 1000):
            raise _Stopped

    def _give_up(self, at: int, error: Exception, attempts: int) -> None:
        """Write a dead letter. Raises HandlerFailed if there is no file for them."""
        (unit,) = self._pending(at, at + 1)
        why = _text_of(error)
        if self._dead_letters is None:
            raise HandlerFailed(
                f"{unit!r}: {why}; with a file for dead letters (--dead-letter), the"
                " consumer continues after such changes"
            ) from error
        changes = list(unit.changes()) if isinstance(unit, Message) else [unit]
        self._dead_letters.write(changes, error, attempts)
        self._count(_changes_in(unit))
        self.counters.dead_letters += len(changes)
        client_messages.DEAD_LETTER.log(logger, repr(unit), attempts, why)


class _Part:
    """A message, how many of its changes were handled, and how many are flushed."""

    __slots__ = ("flushed", "handled", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.handled = self.flushed = 0


class _Outage:
    """How long to wait for a target that is unavailable, and when to give up."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._backoff = Backoff(_FIRST_DELAY_S, _DELAY_MAX_S)
        self._began_s: float | None = None

    def delay_s(self, error: RetryLater) -> float:
        """Note a failure and return the seconds to wait. Raises HandlerFailed."""
        now = time.monotonic()
        if self._began_s is None:
            self._began_s = now
        if self._limit_s is not None and now - self._began_s >= self._limit_s:
            raise HandlerFailed(
                f"the target was unavailable for {self._limit_s:g} s: {error}"
            ) from error
        return max(self._backoff.delay_s(now), min(error.after_s, _WAIT_MAX_S))


def _changes_in(unit: Unit) -> int:
    """Return how many changes a unit counts for; a message without rows for one."""
    return (unit.rows or 1) if isinstance(unit, Message) else 1


def _text_of(error: Exception) -> str:
    """Return an error on one line; errors of other packages begin with their names."""
    text = str(error)
    if not isinstance(error, CanalError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return printable(text, LINE_MAX)
