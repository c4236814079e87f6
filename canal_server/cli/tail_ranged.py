"""`tail --from`: changes from a position or a time on, by ranged reads.

A subscription of ranged reads holds nothing back in the server, and other clients
notice nothing of it; it ends with the connection.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Final

from canal_server.cli.link import ranged_client_of
from canal_server.dump.target import Kind, parse_target
from canal_server.model.moments import moment_ms
from canal_server.protocol.entries import decode_entry
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode

if TYPE_CHECKING:
    import argparse

    from canal_server.cli.tail_print import Printer
    from canal_server.cli.tail_silence import Silence
    from canal_server.client.ranged import RangedClient, RangePosition

_BYTES_MAX: Final = 16 * 1024 * 1024  # of one range, but for a large transaction
_FIRST_WAIT_MS: Final = 2_000  # for the first change, before it is said why none comes
_WAIT_MS_MAX: Final = 30_000
_GTID: Final = "gtid:"


def start_of(text: str) -> str:
    """Return where to begin as the protocol has it.

    Raises ValueError, which says what may be written.
    """
    if text.lower().startswith(_GTID):
        return f"{_GTID}{text[len(_GTID) :]}"
    with contextlib.suppress(ValueError):  # no time: a position, or none of all
        return f"time:{moment_ms(text)}"
    wanted = parse_target("oldest" if text.lower() == "earliest" else text)
    return {
        Kind.OLDEST: "earliest",
        Kind.LATEST: "latest",
        Kind.PLACE: f"file:{wanted.text}",
        Kind.GTIDS: f"{_GTID}{wanted.text}",
        Kind.TIME: f"time:{wanted.time_ms}",
    }[wanted.kind]


def follow(args: argparse.Namespace, printer: Printer, silence: Silence) -> None:
    """Print from the start on until there is enough. Raises what ends it."""
    name = f"tail-{secrets.token_hex(8)}"
    with ranged_client_of(args) as client:
        found = client.subscribe(
            args.destination, name, args.filter, args.start, temporary=True
        )
        _follow(client, args.destination, name, found.cursor, printer, silence)


def _follow(  # noqa: PLR0917  # one after the other
    client: RangedClient,
    destination: str,
    name: str,
    at: RangePosition,
    printer: Printer,
    silence: Silence,
) -> None:
    wait_ms = _FIRST_WAIT_MS
    while not printer.has_enough():
        ends = client.head(destination, name, at, max_bytes=_BYTES_MAX, wait_ms=wait_ms)
        if ends.end == at:
            silence.explain()
            wait_ms = min(2 * wait_ms, _WAIT_MS_MAX)
            continue
        wait_ms = _FIRST_WAIT_MS
        for piece in client.read(destination, name, at, ends.end):
            entries = decode(Messages, bytes(piece)).messages
            printer.take(map(decode_entry, entries))
            if printer.took_changes:
                silence.end()
            if printer.has_enough():
                break
        at = ends.end
