"""The sources of a destination, each with the positions of clients in its binlog.

A destination with one source has one part without a name; a group has one part for each
of its sources, called `masterN`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.capture.source_parts import access_of, standby_access_of
from canal_server.errors import ConfigError
from canal_server.model.cursors import DestinationCursors
from canal_server.model.positions import LogIdentity
from canal_server.position.log_position_managers import same_server
from canal_server.source.begin.seek_target import Kind
from canal_server.source.begin.source_lag import SourceView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.config.schema import InstanceConfig
    from canal_server.mysql.source_settings import Access
    from canal_server.source.begin.seek_target import TargetText


@dataclass(frozen=True, slots=True)
class Part:
    """One source: its settings, and the positions of clients in its binlog."""

    name: str
    config: InstanceConfig
    cursors: DestinationCursors

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses of its master and standby."""
        source = self.config.source
        return tuple(
            str(each.address)
            for each in (source.master, source.standby)
            if each.address is not None
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.addresses[0]})"


def parts_of(config: InstanceConfig, cursors: DestinationCursors) -> list[Part]:
    """Return the sources of a destination."""
    if not config.group:
        return [Part("", config, cursors)]
    nothing = DestinationCursors(())
    return [
        Part(
            f"master{each.source.number}",
            each,
            cursors.sources.get(each.source.number, nothing),
        )
        for each in config.by_source
    ]


def access_for(config: InstanceConfig, cursors: DestinationCursors) -> Access:
    """Return the access to the source that is read, which may be the standby."""
    standby = standby_access_of(config.source)
    known = (cursors.parsed, *(each.cursor for each in cursors.clients))
    # After a switch, stored positions name the previous server for a while.
    last = cursors.reads or next((each.identity for each in known if each), None)
    if standby is not None and last is not None:
        address = standby.address
        if same_server(last, LogIdentity(address.host, address.port)):
            return standby
    return access_of(config.source, config.destination)


def view_of(part: Part) -> SourceView:
    """Return a view of the server that a source is read from."""
    return SourceView(part.config, access_for(part.config, part.cursors))


def chosen_parts(
    config: InstanceConfig,
    parts: Sequence[Part],
    named: str | None,
    target_text: TargetText,
) -> list[Part]:
    """Return the sources in which clients are to be moved.

    `named` is the name or an address of a source, None for all. Raises ConfigError if
    there is no such source, or if the target exists in one source but none is named.
    """
    known = ", ".join(map(str, parts))
    if not config.group:
        if named is not None:
            raise ConfigError(
                [f"source {named}: {config.destination} has only one; name none"]
            )
        return list(parts)
    if named is None:
        if target_text.kind in (Kind.POSITION, Kind.GTIDS):
            problem = (
                f"{target_text.text[:200]}: {config.destination} merges several"
                f" sources; name the source of this {target_text.kind.value}: {known}"
            )
            raise ConfigError([problem])
        return list(parts)
    found = [
        each
        for each in parts
        if named in (each.name, each.config.destination, *each.addresses)
    ]
    if not found:
        raise ConfigError(
            [f"source {named}: not a source of {config.destination}; known: {known}"]
        )
    return found
