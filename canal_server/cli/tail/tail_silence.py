"""Why `tail` prints nothing: printed on standard error, once for each reason.

The server is asked for the state of the destination. The callers decide when, except
for requests that are not answered.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.no_answer import no_answer_text
from canal_server.cli.status.status_text import ago_text, blocked_text, error_text
from canal_server.cli.tail.tail_ids import UNANSWERED, state_of
from canal_server.model.quoted import LINE_MAX, printable, quoted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from canal_server.errors import ClientError

_WAIT_S_MAX: Final = 30.0  # between two checks of the reason
_STILL: Final = "still quiet"


@dataclass(frozen=True, slots=True)
class ReadTo:
    """The position up to which a ranged reader has seen all, and its time (ms)."""

    position: str
    position_ms: int = 0


class Silence:
    """Observes what a destination does while there are no changes; thread-safe."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._is_ranged = args.start is not None
        self._lock = threading.Lock()  # guards what follows
        self._reported: set[str] = set()  # kinds of reasons, since the last changes
        self._has_changes = False  # since the start
        self._read_to: str | None = None  # at the last check
        # Between the two previous checks: by now the changes would have arrived.
        self._has_moved = False

    def end(self) -> None:
        """Record that changes arrived: reasons are printed again.

        Except the one that there are no more changes, which would follow every change.
        """
        with self._lock:
            self._has_changes = True
            self._reported &= {_STILL}
            self._read_to, self._has_moved = None, False

    def explain(self, read_to: ReadTo | None = None) -> None:
        """Print why there are no changes, unless it was printed already.

        `read_to` is what a ranged reader has seen, as opposed to the destination.
        """
        state = state_of(self._args)
        if state is not None and read_to is not None:
            # What blocks the destination does not block ranged reads.
            seen = {"position": read_to.position, "position_ms": read_to.position_ms}
            state = {**state, **seen, "blocked": None}
        with self._lock:
            self._report(dict(self._reasons(state)))

    @contextlib.contextmanager
    def while_waiting(self, after_s: float, what: str) -> Iterator[None]:
        """Print why an answer does not arrive within the time it may take.

        `what` is the slow operation that the server executes.
        """
        answered = threading.Event()

        def watch() -> None:
            wait_s = after_s
            while not answered.wait(wait_s):
                state = state_of(self._args)
                with self._lock:
                    if not answered.is_set():
                        self._report(dict(self._reasons(state, what)))
                wait_s = min(2 * wait_s, _WAIT_S_MAX)

        threading.Thread(target=watch, name="tail-silence", daemon=True).start()
        try:
            yield
        finally:
            # Under the lock: an answered request is not explained any more.
            with self._lock:
                answered.set()

    def is_passing(self, refusal: ClientError) -> bool:
        """Print why the server cannot answer; returns whether it may do so soon."""
        state = state_of(self._args)
        if state is None or not state.get("running"):
            return False
        with self._lock:
            found = dict(self._reasons(state, ""))
            why = str(refusal).removesuffix("; try again")
            refused = {"refused": f"{self._nothing()}: {why}; retrying"}
            self._report({"error": found["error"]} if "error" in found else refused)
        return True

    def _report(self, found: Mapping[str, str]) -> None:
        """Print reasons that were not printed yet. Requires holding the lock."""
        assert self._lock.locked()
        for kind, text in found.items():
            if kind not in self._reported:
                print(
                    f"canal-server tail: {printable(text, LINE_MAX)}", file=sys.stderr
                )
        # A reason that disappears is printed again when it returns.
        self._reported = set(found)

    def _reasons(
        self, state: Mapping[str, Any] | None, busy_with: str | None = None
    ) -> Iterator[tuple[str, str]]:
        """Yield the kinds of reasons and their texts."""
        name = self._args.destination
        if state is None:
            yield "unknown", f"{self._nothing()}; this server does not report why"
        elif state.get(UNANSWERED):
            yield UNANSWERED, no_answer_text(self._args)
        elif not state.get("running"):
            yield from _not_running(name, state)
        elif state.get("error"):
            yield "error", f"the source cannot be read: {error_text(dict(state))}"
        elif state.get("state") == "connecting":
            yield (
                "connecting",
                f"{self._nothing()}: the server is connecting to its source",
            )
        elif busy_with is not None:
            yield "busy", f"{self._nothing()}: {busy_with}"
        else:
            yield from self._running(state)

    def _running(self, state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        moved, read_to = self._has_moved, state.get("position")
        self._has_moved = moved or self._read_to not in (None, read_to)
        self._read_to = read_to
        if state.get("blocked"):
            yield "blocked", f"{self._nothing()}: {blocked_text(state['blocked'])}"
        elif moved:
            whose = f"--filter {quoted(self._args.filter)}"
            if not self._args.filter:
                whose = "the filter of the destination"
            yield (
                "filter",
                (
                    f"the source is read up to {read_to}, but the changes since then"
                    f" match nothing of {whose}"
                ),
            )
        else:
            yield from self._quiet(state)

    def _quiet(self, state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield that the source has no changes, or that reading lags."""
        lag_s = (state.get("lag") or {}).get("seconds")
        if lag_s and not self._is_ranged:
            lag = f"reading is {ago_text(lag_s)} behind the source"
            yield "lag", f"{self._nothing()}: {lag}"
            return
        last = ""
        if state.get("position_ms"):
            ago = ago_text(time.time() - state["position_ms"] / 1000)
            last = f", which was written {ago} ago"
        where = f" up to {state['position']}" if state.get("position") else ""
        text = f"{self._nothing()}: the source has been read to its end{where}{last}"
        if self._has_changes:
            yield _STILL, text
        elif self._is_ranged:
            yield "quiet", text
        else:
            yield (
                "quiet",
                f"{text}; to see earlier changes, use --from, such as --from -1h",
            )

    def _nothing(self) -> str:
        """Return that there are no changes, with the filter.

        Whether the filter matches any table is unknown: it may be a typo.
        """
        table_filter = self._args.filter
        of = f" that --filter {quoted(table_filter)} matches" if table_filter else ""
        if of and self._args.user:
            of += f" and user {quoted(self._args.user)} may read"
        return (
            f"no further change{of}" if self._has_changes else f"no change{of} so far"
        )


def _not_running(name: str, state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if state.get("runs_on"):
        yield (
            "elsewhere",
            (
                f"destination {name} runs on {state['runs_on']}: connect there by"
                " --host and --port"
            ),
        )
    elif state.get("error"):
        why = error_text(dict(state))
        yield "error", f"destination {name} is {state['life']}: {why}"
    else:
        yield "stopped", f"destination {name} is not running, it is {state['life']}"
