"""Positions in a binlog, and their JSON as canal stores it.

Leaves out GTID sets (`canal_server.core.gtid.mysql_sets`) and how positions are stored
(`canal_server.position`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NUMBER = re.compile(r"(\d+)$")

Completing = Callable[["EntryPosition"], "EntryPosition"]  # adds the executed GTID set


@lru_cache(maxsize=1024)  # asked for with each chunk
def binlog_file_number(name: str) -> int:
    """Return the number at the end of a binlog file's name, 0 if there is none.

    Files are ordered by it: as text, 999999 would come after 1000000.
    """
    found = FILE_NUMBER.search(name)
    return int(found[1]) if found else 0


def base_name(file: str) -> str:
    """Return a binlog file's name without its number."""
    return FILE_NUMBER.sub("", file)


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The server that a position belongs to."""

    address: str  # host name or IP
    port: int
    slave_id: int = -1


@dataclass(frozen=True, slots=True)
class EntryPosition:
    """A position in the binlog of one server, as canal's clients and files know it.

    `position` is the offset in bytes of the event's start, `timestamp` in ms. `source`
    is the server where it was read, if that is known; it is not compared.
    """

    journal_name: str | None = None
    position: int | None = None
    timestamp: int | None = None
    server_id: int | None = None
    gtid: str | None = None
    included: bool = False
    source: LogIdentity | None = field(default=None, compare=False, repr=False)

    def order(self) -> tuple[int, int]:
        """Return a key that sorts positions of one server."""
        return binlog_file_number(self.journal_name or ""), self.position or 0

    def __str__(self) -> str:
        return f"{self.journal_name}:{self.position}"


def as_it_is(position: EntryPosition) -> EntryPosition:
    """Return a position unchanged: no set is known."""
    return position


@dataclass(frozen=True, slots=True)
class Executed:
    """A GTID set that was executed at a transaction boundary, `stop`.

    `event` is where the last event before the boundary begins, or `stop` when that is
    not known.
    """

    file: str
    event: int
    stop: int
    gtids: str


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position together with the server it belongs to.

    `executed` is known only outside of GTID mode: the set at a boundary at or before
    the position. `moved`: an operator moved a client there. Neither is compared.
    """

    identity: LogIdentity
    position: EntryPosition
    executed: Executed | None = field(default=None, compare=False, repr=False)
    moved: bool = field(default=False, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.identity.address}:{self.identity.port}/{self.position}"


@dataclass(frozen=True, slots=True)
class PositionRange:
    """What one batch covers; `ack` is where an ack moves the cursor, if anywhere.

    `end_sequence` is the store's sequence of the batch's last entry. In a group,
    `source_positions` maps the number of each source to the client's position there
    after the ack.
    """

    start: LogPosition
    end: LogPosition
    ack: LogPosition | None
    end_sequence: int
    source_positions: Mapping[int, LogPosition] = field(default_factory=dict)


def entry_position_to_json(position: EntryPosition) -> dict[str, Any]:
    """Return the JSON object of canal: keys in alphabetical order, no nulls."""
    fields = {
        "gtid": position.gtid,
        "included": position.included,
        "journalName": position.journal_name,
        "position": position.position,
        "serverId": position.server_id,
        "timestamp": position.timestamp,
    }
    return {key: value for key, value in fields.items() if value is not None}


def log_position_to_json(position: LogPosition) -> dict[str, Any]:
    """Return the JSON object of canal, which misspells the key `postion`.

    Java servers ignore `moved`.
    """
    return {
        "identity": {
            "slaveId": position.identity.slave_id,
            "sourceAddress": {
                "address": position.identity.address,
                "port": position.identity.port,
            },
        },
        "postion": entry_position_to_json(position.position),
        **({"moved": True} if position.moved else {}),
    }


def entry_position_from_json(value: dict[str, Any]) -> EntryPosition:
    """Read what `entry_position_to_json` wrote; unknown keys are ignored."""
    return EntryPosition(
        journal_name=value.get("journalName"),
        position=value.get("position"),
        timestamp=value.get("timestamp"),
        server_id=value.get("serverId"),
        gtid=value.get("gtid"),
        included=bool(value.get("included", False)),
    )


def executed_to_json(executed: Executed) -> dict[str, Any]:
    """Return the JSON object of a set, which is stored next to a position."""
    return {
        "event": executed.event,
        "gtids": executed.gtids,
        "journalName": executed.file,
        "stop": executed.stop,
    }


def executed_from_json(value: dict[str, Any]) -> Executed:
    """Read what `executed_to_json` wrote.

    Raises KeyError, TypeError, ValueError or AttributeError for any other value.
    """
    return Executed(
        str(value["journalName"]),
        int(value["event"]),
        int(value["stop"]),
        str(value["gtids"]),
    )


def log_position_from_json(value: dict[str, Any]) -> LogPosition:
    """Read what `log_position_to_json` or the Java server wrote.

    Raises KeyError, TypeError or AttributeError when a part is missing or has another
    type.
    """
    identity = value["identity"]
    source = identity["sourceAddress"]
    return LogPosition(
        LogIdentity(
            str(source["address"]),
            int(source["port"]),
            int(identity.get("slaveId", -1)),
        ),
        entry_position_from_json(value["postion"]),
        moved=bool(value.get("moved", False)),
    )
