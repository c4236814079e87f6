"""Why `tail` prints nothing: told on standard error, once for each reason.

The server is asked what the destination does. Leaves out when to ask, but for an
answer that does not come.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.status.status_text import ago_text, blocked_text, error_text
from canal_server.cli.tail.tail_ids import state_of
from canal_server.model.quoted import LINE_MAX, printable, quoted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from canal_server.errors import ClientError

_WAIT_S_MAX: Final = 30.0  # until it is looked again why no answer comes
_STILL: Final = "still quiet"


@dataclass(frozen=True, slots=True)
class ReadTo:
    """Up to where a reader of ranges has seen all, and when that was written (ms)."""

    position: str
    position_ms: int = 0


class Silence:
    """Notices what a destination does while nothing comes of it; thread-safe."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._is_ranged = args.start is not None
        self._lock = threading.Lock()  # guards what follows
        self._told: set[str] = set()  # kinds of reasons, since something came
        self._has_come = False  # anything at all
        self._read_to: str | None = None  # at the last look
        # Between the two looks before: by now it would have come.
        self._has_moved = False

    def end(self) -> None:
        """Take note that changes came: reasons are told again.

        But not that there are no more, after each of them.
        """
        with self._lock:
            self._has_come = True
            self._told &= {_STILL}
            self._read_to, self._has_moved = None, False

    def explain(self, read_to: ReadTo | None = None) -> None:
        """Say why nothing comes, unless that was said.

        `read_to` is of a reader of ranges: what it has seen, not the destination.
        """
        state = state_of(self._args)
        if state is not None and read_to is not None:
            # What the destination is blocked by does not hold up ranges.
            told = {"position": read_to.position, "position_ms": read_to.position_ms}
            state = {**state, **told, "blocked": None}
        with self._lock:
            self._tell(dict(self._reasons(state)))

    @contextlib.contextmanager
    def while_waiting(self, after_s: float, what: str) -> Iterator[None]:
        """Say why no answer comes, while one is waited for longer than it may take.

        `what` says what the server does that may take long.
        """
        answered = threading.Event()

        def watch() -> None:
            wait_s = after_s
            while not answered.wait(wait_s):
                state = state_of(self._args)
                with self._lock:
                    if not answered.is_set():
                        self._tell(dict(self._reasons(state, what)))
                wait_s = min(2 * wait_s, _WAIT_S_MAX)

        threading.Thread(target=watch, name="tail-silence", daemon=True).start()
        try:
            yield
        finally:
            # Under the lock: what is answered is not explained any more.
            with self._lock:
                answered.set()

    def is_passing(self, refusal: ClientError) -> bool:
        """Say why the server cannot answer now; tells whether it may do so soon."""
        state = state_of(self._args)
        if state is None or not state.get("running"):
            return False
        with self._lock:
            found = dict(self._reasons(state, ""))
            why = str(refusal).removesuffix("; try again")
            refused = {"refused": f"{self._nothing()}: {why}; asking again"}
            self._tell({"error": found["error"]} if "error" in found else refused)
        return True

    def _tell(self, found: Mapping[str, str]) -> None:
        """Print reasons that were not told. Requires holding the lock."""
        assert self._lock.locked()
        for kind, text in found.items():
            if kind not in self._told:
                print(
                    f"canal-server tail: {printable(text, LINE_MAX)}", file=sys.stderr
                )
        # A reason that went is news when it is back.
        self._told = set(found)

    def _reasons(
        self, state: Mapping[str, Any] | None, busy_with: str | None = None
    ) -> Iterator[tuple[str, str]]:
        """Yield kinds of reasons and their words."""
        name = self._args.destination
        if state is None:
            yield "unknown", f"{self._nothing()}; this server does not say why"
        elif not state.get("running"):
            yield from _not_running(name, state)
        elif state.get("error"):
            yield "error", f"the source cannot be read: {error_text(dict(state))}"
        elif state.get("state") == "connecting":
            yield (
                "connecting",
                f"{self._nothing()}: the server connects to its source",
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
                    f"the source is read up to {read_to}, but what was written since"
                    f" matches nothing of {whose}"
                ),
            )
        else:
            yield from self._quiet(state)

    def _quiet(self, state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield that the source has nothing, or that reading is behind."""
        lag_s = (state.get("lag") or {}).get("seconds")
        if lag_s and not self._is_ranged:
            behind = f"reading is {ago_text(lag_s)} behind the source"
            yield "lag", f"{self._nothing()}: {behind}"
            return
        last = ""
        if state.get("position_ms"):
            ago = ago_text(time.time() - state["position_ms"] / 1000)
            last = f", which was written {ago} ago"
        where = f" up to {state['position']}" if state.get("position") else ""
        text = f"{self._nothing()}: the source is read to its end{where}{last}"
        if self._has_come:
            yield _STILL, text
        elif self._is_ranged:
            yield "quiet", text
        else:
            yield "quiet", f"{text}; to see earlier changes use --from, as --from -1h"

    def _nothing(self) -> str:
        """Return that nothing comes, as far as that is known.

        Whether a filter matches any table is not: it may be what it should not be.
        """
        wanted = self._args.filter
        of = f" that --filter {quoted(wanted)} matches" if wanted else ""
        return f"no further change{of}" if self._has_come else f"no change{of} so far"


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
        yield "stopped", f"destination {name} does not run, it is {state['life']}"
