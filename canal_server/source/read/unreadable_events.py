"""Events that may be skipped where they cannot be read, and their outcome.

An operator names them by file and position. Readable events are not affected. Leaves
out what is delivered instead of such an event (`source.read.binlog_reader`).
"""

from __future__ import annotations

import base64
import logging
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.config.schema import Action, NamedEvent
from canal_server.errors import InsideTransaction
from canal_server.messages import source_messages
from canal_server.model.entry import EventType
from canal_server.model.positions import binlog_file_number
from canal_server.protocol.entry_messages import Pair, RowChange
from canal_server.source.archive.source_binlogs import archived_file

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
    """The outcome of a named event; `events` counts it and those that depend on it."""

    event: NamedEvent
    state: str = WAITING
    events: int = 0
    event_type: int = 0
    table: str = ""
    error: str = ""


class Unreadable:
    """The events named in a source's settings; for one thread, except `status`."""

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
        """Store the events and the advice for errors; `everything`: for all events.

        With `is_quiet` it logs nothing: the code that delivers the events does.
        """
        self._level = logging.DEBUG if is_quiet else logging.WARNING
        self._found = {(each.file, each.position): Found(each) for each in events}
        self._key = key
        self._source = source
        self._everything = everything
        self._advice = advice
        self._last: Found | None = None
        self._begin: tuple[int, int] | None = None
        self.waits = bool(events)  # an event is neither skipped nor read yet

    def turn_to(self, access: Access) -> None:
        """Set the server that is read from now on."""
        self._source = str(access.address)
        if isinstance(self._advice, Advice):
            self._advice = replace(self._advice, access=access)

    def begin(self, file: str, position: int) -> None:
        """Record where reading starts; an empty file: by a GTID set."""
        self._begin = (binlog_file_number(file), position) if file else None

    def _named(self, file: str, position: int) -> Found | None:
        if self._everything is not None:
            return Found(NamedEvent(file, position, self._everything))
        return self._found.get((file, position))

    def pass_over(self, decoder: Decoder, problem: DecodeError) -> Found | None:
        """Return the outcome of the current event, None when it must not be skipped.

        Counts it, and logs the first event of each name.
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
        source_messages.UNREADABLE_EVENT_PASSED.log(
            _log,
            self._source or "binlog",
            found.event.file,
            found.event.position,
            found.event_type,
            f", table {found.table}" if found.table else "",
            "delivered as raw bytes" if _is_raw(found) else "left out",
            error,
            level=self._level,
        )
        return found

    def depends(self) -> Found | None:
        """Return the event skipped last, for one that cannot be read without it."""
        if self._last is not None:
            self._last.events += 1
        return self._last

    def passed_over(self, *, raw: bool) -> int:
        """Return how many events were delivered as raw bytes, or left out."""
        found = (each for each in self._found.values() if each.state == PASSED)
        return sum(each.events for each in found if _is_raw(each) is raw)

    def by_type(self) -> dict[tuple[int, str], int]:
        """Return how many events of each type were passed over, and what was done.

        From any thread.
        """
        counts: Counter[tuple[int, str]] = Counter()
        for each in list(self._found.values()):
            if each.state == PASSED:
                counts[each.event_type, each.event.action.value] += each.events
        return dict(counts)

    def reached(self, file: str, position: int) -> None:
        """Record how far was read: the events before were readable."""
        here = (binlog_file_number(file), position)
        if self._begin is None:
            self._begin = here
        for found in self._found.values():
            event = found.event
            start_position = (binlog_file_number(event.file), event.position)
            if found.state == WAITING and self._begin <= start_position < here:
                found.state = READ
                self._look()
                source_messages.UNREADABLE_EVENT_NOT_MET.log(
                    _log,
                    self._source,
                    self._key,
                    event.file,
                    event.position,
                    level=self._level,
                )

    def _look(self) -> None:
        self.waits = any(each.state == WAITING for each in self._found.values())

    def status(self) -> list[dict[str, object]]:
        """Return the outcome of the events, for `status`; from any thread."""
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
        """Add to an error how to inspect the current event and how to resume."""
        if self._advice is not None and not isinstance(error, InsideTransaction):
            error.args = (f"{error}; {self._advice(decoder)}",)


@dataclass(frozen=True, slots=True)
class Advice:
    """Explains how to inspect an event of a destination's source, and how to resume."""

    config: InstanceConfig
    access: Access
    key: str

    def __call__(self, decoder: Decoder) -> str:
        """Return the advice for the decoder's current event."""
        file, offset = decoder.file, decoder.event_offset
        begin = min(decoder.gtid_offset or offset, offset)
        look = (
            f"to inspect: canal-server decode {self._source()} --from {file}:{begin} "
            f"--until {file}:{offset + 1} --unreadable raw --entries"
        )
        archived = archived_file(self.access, file)
        if archived is not None:
            look = (
                f"if it was read from the archive, replace {archived.path} with an"
                f" intact copy; {look}"
            )
        if not decoder.is_framed:
            return f"{look}; its end is unknown: start after it"
        name = f"{file}:{offset}=skip"
        where = self.config.file or "instance.properties"
        write = f"write {self.key} = {name} in {where}"
        if self.config.source.events.unreadable:
            write = f"append ,{name} to {self.key} in {where}"
        return (
            f"{look}; to resume without it (=raw delivers its bytes): {write}, and "
            "restart the server (with canal.auto.scan = true it reads the file itself)"
        )

    def _source(self) -> str:
        """Return the `decode` options that name the server that is read."""
        config, address = self.config, str(self.access.address)
        if config.file is None:  # settings without a file
            return f"--source mysql://{self.access.credentials.user}@{address}"
        options = f"{config.conf_option}--destination {config.destination}"
        is_standby = address == str(config.source.standby.address)
        return f"{options} --standby" if is_standby else options


def unreadable_of(
    config: InstanceConfig, access: Access, *, is_quiet: bool = False
) -> Unreadable:
    """Return the events named in the settings of a source."""
    source = config.source
    key = f"canal.instance.master{source.number or ''}.unreadable.events"
    return Unreadable(
        source.events.unreadable,
        key=key,
        source=str(access.address),
        advice=Advice(config, access, key),
        is_quiet=is_quiet,
    )


def raw_change(found: Found, decoder: Decoder, error: str) -> RowChange | None:
    """Return what is delivered instead of the current event, None for nothing.

    Clients receive a statement without effect: type QUERY, a comment as its text.
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
