"""Flat messages, one a line: the output of `tail` and `decode` with `--canal-json`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from canal_server.config.schema import RoutingConfig
from canal_server.errors import ConfigError
from canal_server.queues.flat_messages import FlatMessages
from canal_server.queues.routing import Router

if TYPE_CHECKING:
    import argparse

HELP: Final = (
    "print flat messages, one per line, as the original sends them to message queues; "
    "with --count, N messages"
)


class FlatOutput:
    """Turns bodies of Messages into lines; the id of a message is the body's number."""

    def __init__(self) -> None:
        self._messages = FlatMessages(Router(RoutingConfig()))
        self._bodies = 0

    def lines(self, body: bytes | memoryview, limit: int = -1) -> tuple[str, int, bool]:
        """Return the lines, their number, and whether they are all of the body's.

        `limit`: the most lines; below 0: no limit. Raises ProtocolError.
        """
        self._bodies += 1
        found = self._messages.convert(self._bodies, body, int(time.time() * 1000))
        shown = found if limit < 0 else found[:limit]
        text = b"".join(b"%b\n" % value for _, _, value in shown).decode()
        return text, len(shown), len(shown) == len(found)


def check_flat_options(args: argparse.Namespace) -> None:
    """Raise ConfigError for options that have no effect with `--canal-json`."""
    if not args.canal_json:
        return
    problems = [
        f"--{name} has no effect with --canal-json: leave one of them out"
        for name in ("transactions", "entries")
        if getattr(args, name, False)
    ]
    if problems:
        raise ConfigError(problems)
