"""Events that may be left out where they cannot be read, and what became of them.

An operator names them by file and position. Nothing is asked of events that can be
read; leaves out what is delivered in the place of one (`dump.reader`).
"""

from __future__ import annotations

import base64
import logging
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.config.schema import Action, NamedEvent
from canal_server.errors import InsideTransaction
from canal_server.model.entry import EventType
from canal_server.model.positions import binlog_file_number
from canal_server.protocol.entry_messages import Pair, RowChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import InstanceConfig
    from canal_server.decoder.events.engine import Decoder
    from canal_server.errors import DecodeError
    from canal_server.mysql.source_settings import Access

_log = logging.getLogger(__name__)

WAITING: Final = "not met"
PASSED: Final = "passed over"
READ: Final = "read"


@dataclass(slots=True)
class Found:
    """What became of an event that is named; `events` with those that depend on it."""

    event: NamedEvent
    state: str = WAITING
    events: int = 0
    event_type: int = 0
    table: str = ""
    error: str = ""


class Unreadable:
    """The events that a source's settings name; for one thread, but for `status`."""

    def __init__(
        self,
        events: tuple[NamedEvent, ...] = (),
        *,
        key: str = "",
        source: str = "",
        everything: Action | None = None,
        advice: Callable[[Decoder], str] | None = None,
        is_quiet: bool = False,
    ) -> None:
        """Remember them, and what advises on an error; `everything`: of all events.

        One that `is_quiet` logs nothing: who delivers the events does.
        """
        self._level = logging.DEBUG if is_quiet else logging.WARNING
        self._found = {(each.file, each.position): Found(each) for each in events}
        self._key = key
        self._source = source
        self._everything = everything
        self._advice = advice
        self._last: Found | None = None
        self._begin: tuple[int, int] | None = None
        self.waits = bool(events)  # for one that was neither passed over nor read

    def turn_to(self, access: Access) -> None:
        """Name another server from now on, the one that is read."""
        self._source = str(access.address)
        if isinstance(self._advice, Advice):
            self._advice = replace(self._advice, access=access)

    def begin(self, file: str, position: int) -> None:
        """Take note of where reading begins; an empty file: by a set of GTIDs."""
        self._begin = (binlog_file_number(file), position) if file else None

    def _named(self, file: str, position: int) -> Found | None:
        if self._everything is not None:
            return Found(NamedEvent(file, position, self._everything))
        return self._found.get((file, position))

    def pass_over(self, decoder: Decoder, problem: DecodeError) -> Found | None:
        """Return what names the current event, None: it may not be left out.

        Counts it, and logs the first of each name.
        """
        if isinstance(problem, InsideTransaction) or not decoder.is_framed:
            return None
        found = self._named(decoder.file, decoder.event_offset)
        if found is None:
            return None
        table, error = decoder.failed_table, str(problem)
        is_news = found.state != PASSED or self._everything is not None
        self._last = found
        found.events += 1
        if not is_news:
            return found
        found.state = PASSED
        found.event_type = decoder.event_type
        found.table = str(table) if table is not None else ""
        found.error = error
        self._look()
        _log.log(
            self._level,
            "%s: event %s:%d (type %d%s) cannot be read and is %s: %s",
            self._source or "binlog",
            found.event.file,
            found.event.position,
            found.event_type,
            f", table {found.table}" if found.table else "",
            "delivered as raw bytes" if _is_raw(found) else "left out",
            error,
        )
        return found

    def depends(self) -> Found | None:
        """Return the event passed over last, for one that cannot be read without it."""
        if self._last is not None:
            self._last.events += 1
        return self._last

    def reached(self, file: str, position: int) -> None:
        """Take note of how far was read: events before that were read well."""
        here = (binlog_file_number(file), position)
        if self._begin is None:
            self._begin = here
        for found in self._found.values():
            event = found.event
            place = (binlog_file_number(event.file), event.position)
            if found.state == WAITING and self._begin <= place < here:
                found.state = READ
                self._look()
                _log.log(
                    self._level,
                    "%s: %s names %s:%d, where no event begins that cannot be read:"
                    " take it out",
                    self._source,
                    self._key,
                    event.file,
                    event.position,
                )

    def _look(self) -> None:
        self.waits = any(each.state == WAITING for each in self._found.values())

    def status(self) -> list[dict[str, object]]:
        """Return what became of the events, for `status`; from any thread."""
        return [
            {
                "event": f"{found.event.file}:{found.event.position}",
                "action": found.event.action.value,
                "state": found.state,
                "events": found.events,
                "event_type": found.event_type or None,
                "table": found.table,
                "error": found.error,
            }
            for found in list(self._found.values())
        ]

    def advise(self, error: DecodeError, decoder: Decoder) -> None:
        """Add to an error how to look at the current event and how to resume."""
        if self._advice is not None and not isinstance(error, InsideTransaction):
            error.args = (f"{error}; {self._advice(decoder)}",)


@dataclass(frozen=True, slots=True)
class Advice:
    """Tells how to look at an event of a destination's source, and how to resume."""

    config: InstanceConfig
    access: Access
    key: str

    def __call__(self, decoder: Decoder) -> str:
        """Tell it of the event that a decoder stands at."""
        file, offset = decoder.file, decoder.event_offset
        begin = min(decoder.gtid_offset or offset, offset)
        look = (
            f"to see it: canal-server decode {self._source()} --from {file}:{begin} "
            f"--until {file}:{offset + 1} --unreadable raw --entries"
        )
        if not decoder.is_framed:
            return f"{look}; it has no end that is known: begin after it"
        name = f"{file}:{offset}=skip"
        where = self.config.file or "instance.properties"
        write = f"write {self.key} = {name} in {where}"
        if self.config.source.events.unreadable:
            write = f"add {name}, after a comma, to {self.key} in {where}"
        return (
            f"{look}; to resume without it (=raw delivers its bytes): {write}, and "
            "restart the server (with canal.auto.scan = true it reads the file itself)"
        )

    def _source(self) -> str:
        """Return the options of `decode` that name the server that is read."""
        config, address = self.config, str(self.access.address)
        if config.file is None:  # settings that were read from nowhere
            return f"--source mysql://{self.access.credentials.user}@{address}"
        conf = shlex.quote(str(config.file.parent.parent))
        options = f"--conf {conf} --destination {config.destination}"
        is_standby = address == str(config.source.standby.address)
        return f"{options} --standby" if is_standby else options


def unreadable_of(
    config: InstanceConfig, access: Access, *, is_quiet: bool = False
) -> Unreadable:
    """Return the events that the settings of a source name."""
    source = config.source
    key = f"canal.instance.master{source.member or ''}.unreadable.events"
    return Unreadable(
        source.events.unreadable,
        key=key,
        source=str(access.address),
        advice=Advice(config, access, key),
        is_quiet=is_quiet,
    )


def raw_change(found: Found, decoder: Decoder, error: str) -> RowChange | None:
    """Return what is delivered in the place of the current event, None: nothing.

    For clients it is a statement that does nothing: of type QUERY, its text a comment.
    """
    if not _is_raw(found):
        return None
    kind, raw = decoder.event_type, decoder.raw
    return RowChange(
        event_type=EventType.QUERY,
        sql=f"/* canal: event {decoder.file}:{decoder.event_offset} of type {kind}, "
        f"{len(raw)} bytes, cannot be read */",
        props=(
            Pair("unreadable", "true"),
            Pair("binlogEventType", str(kind)),
            Pair("error", error),
            Pair("rawEvent", base64.b64encode(raw).decode("ascii")),
        ),
    )


def _is_raw(found: Found) -> bool:
    return found.event.action is Action.RAW
