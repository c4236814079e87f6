"""`tail --from`: changes from a position or a time on, by ranged reads.

A subscription of ranged reads retains nothing in the server and does not affect other
clients; it ends with the connection.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import sys
import time
from typing import TYPE_CHECKING, Final, TypeVar

from canal_server.cli.server_options import ranged_client_of
from canal_server.cli.tail.tail_silence import ReadTo
from canal_server.errors import ClientError
from canal_server.model.moments import moment_ms, time_text
from canal_server.mysql.replication import FIRST_EVENT
from canal_server.protocol.range_messages import NOT_HERE, UNKNOWN_SUBSCRIPTION
from canal_server.source.begin.seek_target import (
    Kind,
    before_text,
    inside_text,
    parse_target,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from canal_server.cli.tail.tail_print import Printer
    from canal_server.cli.tail.tail_silence import Silence
    from canal_server.client.range_client import RangedClient, RangePosition

T = TypeVar("T")

_BYTES_MAX: Final = 16 * 1024 * 1024  # of one range, except for a large transaction
_FIRST_WAIT_MS: Final = 2_000  # for the first change, before the reason is printed
_WAIT_MS_MAX: Final = 30_000
_ANSWER_S: Final = 2.0  # for a quick answer, before the delay is explained
_RETRY_S: Final = 1.0  # before a failed request is repeated
_GTID: Final = "gtid:"
_TIME: Final = "time:"
_FILE: Final = "file:"


def start_of(text: str) -> str:
    """Return the start in the form of the protocol.

    Raises ValueError with the accepted formats.
    """
    if text.lower().startswith(_GTID):
        return f"{_GTID}{text[len(_GTID) :]}"
    try:
        time_ms = moment_ms(text)
    except ValueError:  # not a time: a position, or invalid
        target = parse_target("oldest" if text.lower() == "earliest" else text)
        time_ms = target.time_ms
    else:
        return _time_start(text, time_ms)
    return {
        Kind.OLDEST: "earliest",
        Kind.LATEST: "latest",
        Kind.POSITION: f"{_FILE}{target.text}",
        Kind.GTIDS: f"{_GTID}{target.text}",
    }[target.kind]


def _time_start(text: str, time_ms: int) -> str:
    if time_ms > time.time() * 1000:
        raise ValueError(
            f"{text} is in the future by the clock of this machine; use `--from latest`"
            " to start with new changes"
        )
    return f"{_TIME}{time_ms}"


def follow(args: argparse.Namespace, printer: Printer, silence: Silence) -> None:
    """Print from the start until there are enough changes. Raises what ends it."""
    with contextlib.closing(ranged_client_of(args)) as client:
        with silence.while_waiting(_ANSWER_S, "the server has not answered yet"):
            client.connect()
        _Follower(client, args, printer, silence).run()


class _Follower:
    """Reads one batch after the other, and waits while the source is unavailable."""

    def __init__(
        self,
        client: RangedClient,
        args: argparse.Namespace,
        printer: Printer,
        silence: Silence,
    ) -> None:
        self._client = client
        self._destination: str = args.destination
        self._filter: str = args.filter
        self._start: str = args.start
        self._name = f"tail-{secrets.token_hex(8)}"
        self._printer = printer
        self._silence = silence

    def run(self) -> None:
        """Print until there are enough changes. Raises what ends it."""
        try:
            busy = "the server searches the binlog of the source for the start"
            at = self._answer(self._subscribe, _ANSWER_S, busy)
        except ClientError as error:
            raise ClientError(_as_options(str(error)), code=error.code) from error
        self._report_start(at)
        wait_ms = _FIRST_WAIT_MS
        while not self._printer.has_enough():
            end, read_to = self._head(at, wait_ms)
            if end == at:
                self._silence.explain(read_to)
                wait_ms = min(2 * wait_ms, _WAIT_MS_MAX)
                continue
            wait_ms = _FIRST_WAIT_MS
            self._print(at, end)
            at = end

    def _subscribe(self) -> RangePosition:
        return self._client.subscribe(
            self._destination, self._name, self._filter, self._start, temporary=True
        ).cursor

    def _head(self, at: RangePosition, wait_ms: int) -> tuple[RangePosition, ReadTo]:
        """Return the end of the next batch, and up to where all was seen."""

        def ask() -> tuple[RangePosition, ReadTo]:
            ends = self._client.head(
                self._destination,
                self._name,
                at,
                max_bytes=_BYTES_MAX,
                wait_ms=wait_ms,
            )
            to = f"{ends.latest.journal}:{ends.latest.position}"
            return ends.end, ReadTo(to, ends.latest_ms)

        busy = f"the server searches the binlog of the source from {_position(at)}"
        return self._answer(ask, wait_ms / 1000 + _ANSWER_S, busy)

    def _print(self, at: RangePosition, end: RangePosition) -> None:
        for piece in self._client.read(self._destination, self._name, at, end):
            self._printer.take(piece)
            if self._printer.has_printed_changes:
                self._silence.end()
            if self._printer.has_enough():
                break

    def _answer(self, ask: Callable[[], T], patience_s: float, busy: str) -> T:
        """Ask until there is an answer; prints the reason for a delay."""
        wait_s, is_unknown = _RETRY_S, False
        while True:
            try:
                with self._silence.while_waiting(patience_s, busy):
                    if is_unknown:
                        self._subscribe()
                        is_unknown = False
                    return ask()
            except ClientError as error:
                if error.code == UNKNOWN_SUBSCRIPTION:
                    # The destination restarted. Only we know our position.
                    self._start, is_unknown = "latest", True
                elif error.code != NOT_HERE or not self._silence.is_passing(error):
                    raise
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _WAIT_MS_MAX / 1000)

    def _report_start(self, at: RangePosition) -> None:
        """Print where reading starts if that is not the requested position."""
        text = ""
        if self._start.startswith(_FILE):
            text = inside_text(self._start.removeprefix(_FILE), _position(at))
        elif self._start.startswith(_TIME) and at.position == FIRST_EVENT:
            oldest = self._client.locate(self._destination, "earliest")
            if oldest == at:
                asked = time_text(int(self._start.removeprefix(_TIME)))
                text = before_text(asked, at.journal)
        if text:
            print(f"canal-server tail: {text}", file=sys.stderr)


def _position(at: RangePosition) -> str:
    return f"{at.journal}:{at.position}"


def _as_options(text: str) -> str:
    """Return an error with starts written as options instead of protocol values."""
    text = text.replace("`earliest`", "`--from oldest`")
    return re.sub(r"\btime:(\d+)", r"`--from \1`", text)
