"""Why `tail` prints nothing: told on standard error, once for each reason.

The server is asked what the destination does. Leaves out when to ask.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from canal_server.cli.status_text import ago_text, blocked_text, error_text
from canal_server.cli.tail_ids import state_of
from canal_server.model.quoted import quoted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping


class Silence:
    """Notices what a destination does while nothing comes of it."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._told: set[str] = set()  # kinds of reasons, since something came
        self._read_to: str | None = None  # at the last look
        # Between the two looks before: by now it would have come.
        self._has_moved = False

    def end(self) -> None:
        """Take note that changes came: reasons are told again."""
        self._told.clear()
        self._read_to, self._has_moved = None, False

    def explain(self) -> None:
        """Say why nothing comes, unless that was said."""
        found = dict(self.reasons())
        for kind, text in found.items():
            if kind not in self._told:
                print(f"canal-server tail: {text}", file=sys.stderr)
        # A reason that went is news when it is back.
        self._told = set(found)

    def reasons(self) -> Iterator[tuple[str, str]]:
        """Ask the server; yields kinds of reasons and their words."""
        name = self._args.destination
        state = state_of(self._args)
        if state is None:
            yield "unknown", "no change so far; this server does not say why"
        elif not state.get("running"):
            yield from _not_running(name, state)
        else:
            yield from self._running(state)

    def _running(self, state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        moved, read_to = self._has_moved, state.get("position")
        self._has_moved = moved or self._read_to not in (None, read_to)
        self._read_to = read_to
        if state.get("error"):
            yield "error", f"the source cannot be read: {error_text(dict(state))}"
        elif state.get("blocked"):
            yield "blocked", f"no change: {blocked_text(state['blocked'])}"
        elif state.get("state") == "connecting":
            yield "connecting", "no change so far: the server connects to its source"
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
            yield from _quiet(state)


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


def _quiet(state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield that the source has nothing, or that reading is behind."""
    lag_s = (state.get("lag") or {}).get("seconds")
    if lag_s:
        yield "lag", f"no change so far: reading is {ago_text(lag_s)} behind the source"
        return
    last = ""
    if state.get("position_ms"):
        ago = ago_text(time.time() - state["position_ms"] / 1000)
        last = f", which was written {ago} ago"
    where = f" up to {state['position']}" if state.get("position") else ""
    yield (
        "quiet",
        (
            f"no change yet: the source is read to its end{where}{last}; to see earlier"
            " changes use --from, as --from -1h"
        ),
    )
