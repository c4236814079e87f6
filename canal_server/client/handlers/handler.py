"""What a consumer calls, and which errors mean what to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from canal_server.client.handlers.coroutines import Coroutines
from canal_server.errors import CanalError
from canal_server.runtime.optional_packages import optional_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.client.change_reader import Change

NO_LIMIT = 2**63


class RetryLater(CanalError):  # noqa: N818  # what to do, not what happened
    """The target is unavailable: retry until it is available again.

    `after_s` is the minimum time to wait, if the target named one.
    """

    def __init__(self, reason: str, *, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.after_s = after_s


class Rejected(CanalError):  # noqa: N818  # the field's term
    """The target refuses a change for good: retrying does not help."""


class Handler(Protocol):
    """Receives changes. A function that accepts a change is one, too.

    Only `handle` is required. The consumer calls one method at a time, on one thread.
    A change is acked only after `handle` and the next `flush` returned. If either
    raises an error, the consumer calls `rollback` and then `handle` again for all
    changes since the last flush, in the same order, but perhaps with more flushes
    between them. After a crash, changes since the last ack are handled again. So a
    handler should have the same effect when it handles a change twice.

    Methods may be coroutine functions. They run in one event loop that belongs to the
    consumer, one at a time: the consumer waits for each.

    The kind of an error decides about retries: RetryLater is retried until it
    succeeds, Rejected never, any other as often as the consumer retries errors. Then
    the change is a dead letter.

    A handler may have these attributes:

    - `flush_changes`: the consumer flushes after so many changes, not only at the end
      of a message
    - `flush_s`: the consumer flushes when so many seconds have passed since the first
      change that is not flushed, not at the end of each message
    - `flush_bytes`: with `flush_s`, the consumer also flushes when the messages since
      the last flush have so many bytes

    Instead of `handle`, a handler may have `handle_message`, which accepts a whole
    `Message`. A message that fails is a dead letter as a whole.
    """

    def open(self) -> None:
        """Prepare; called once before anything else. May raise RetryLater."""

    def handle(self, change: Change) -> object:
        """Process a change, which may become durable later, in `flush`."""

    def flush(self) -> None:
        """Make everything that was handled durable."""

    def rollback(self) -> None:
        """Undo or forget what was handled since the last flush; must not fail."""

    def close(self) -> None:
        """Release resources; called once after everything else, even after errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerCalls:
    """The methods of a handler; those that it leaves out do nothing."""

    handle: Callable[[Any], object]  # of a change or of a message
    complete: Callable[[object], None]  # is called with a result that is not None
    is_by_message: bool
    open: Callable[[], object]
    flush: Callable[[], object]
    rollback: Callable[[], object]
    close: Callable[[], object]
    flush_changes: int
    flush_s: float
    flush_bytes: int


def calls_of(handler: object) -> HandlerCalls:
    """Return the methods of a handler, or of a function.

    Raises TypeError for what is neither.
    """
    coroutines = Coroutines()

    def method(name: str) -> Callable[..., object]:
        return coroutines.completed(getattr(handler, name, _nothing))

    handle = getattr(handler, "handle", None)
    handle_message = getattr(handler, "handle_message", None)
    if handle is None and handle_message is None and callable(handler):
        handle = handler
    if not callable(handle) and not callable(handle_message):
        raise TypeError(
            f"{handler!r} is not a handler: expected a function, or an object with a"
            " method `handle` or `handle_message`"
        )
    # What has nothing to flush is done with a change when `handle` returns.
    limit = NO_LIMIT if hasattr(handler, "flush") else 1
    return HandlerCalls(
        handle=handle_message or handle,  # type: ignore[arg-type]
        complete=coroutines.complete,
        is_by_message=handle_message is not None,
        open=method("open"),
        flush=method("flush"),
        rollback=method("rollback"),
        close=coroutines.closing(getattr(handler, "close", _nothing)),
        flush_changes=getattr(handler, "flush_changes", None) or limit,
        flush_s=getattr(handler, "flush_s", None) or 0.0,
        flush_bytes=getattr(handler, "flush_bytes", None) or NO_LIMIT,
    )


def required(module: str, handler: str, *, extra: str) -> Any:
    """Return a module of an optional package. Raises CanalError with the extra."""
    return optional_module(module, f"the handler {handler}", extra=extra)


def _nothing() -> None:
    """Do nothing."""
