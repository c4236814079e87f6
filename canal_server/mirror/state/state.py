"""What a mirror knows of its tables, in files in the lake.

Each table has one JSON file below `tables/`; requests of users are below `requests/`.
The position up to which a table has its changes is in the table's own commits; this
state says what to do with the table. Leaves out who may write (`lake_lease`) and what
is only displayed (`run_history`).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from canal_server.client.range_client import RangePosition
from canal_server.errors import LakeError
from canal_server.mirror.lake.lake_storage import NAME_MAX
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.table_shape import Partitions
from canal_server.model.columns_known import ColumnMeta

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from canal_server.mirror.lake.lake_storage import Folder

FORM: Final = 1  # of the JSON
GENERATION: Final = "generation"
_HASH_DIGITS: Final = 32  # of the names of files that would be too long


class Phase(StrEnum):
    """What the mirror does with a table."""

    WAITING = "waiting"  # to be copied
    COPYING = "copying"
    CATCHING_UP = (
        "catching-up"  # copied; changes since then are read outside the stream
    )
    FOLLOWING = "following"  # part of the stream
    STOPPED = "stopped"  # needs a decision of a person
    DROPPED = "dropped"  # dropped in the source; its copy stays unchanged


# On the way into the stream.
PENDING: Final = (Phase.WAITING, Phase.COPYING, Phase.CATCHING_UP)


class Origin(NamedTuple):
    """The table whose name, and therefore whose rows, a table has got by RENAME.

    `seq` is the number of that statement, `position` is after it.
    """

    source: TableName
    seq: int
    position: RangePosition


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as the mirror knows it.

    `columns` are the source's, as of the copy or the last DDL; `kept` are names in the
    lake of columns that the source has dropped; `hidden` are the source's columns that
    are masked or left out.
    """

    source: TableName
    target: str
    phase: Phase = Phase.WAITING
    copy_id: str = ""
    position: RangePosition | None = None  # all that the copy may lack is after it
    seen: int = 0  # position number after everything that the copy saw
    copied_at: int = 0  # number of `position` when the copy was made; that advances
    columns: tuple[ColumnMeta, ...] = ()
    kept: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    message: str = ""  # why it is stopped, or copied again
    rows: int = 0  # copied rows
    rows_expected: int = 0  # the database's estimate
    copies: int = 0  # copies started so far
    plan: str = ""  # the table's settings when it was copied
    leaves: int = 0  # how often in a row it left the stream for a new copy
    left_at_ms: int = 0  # when it did so last
    old_since_ms: int = 0  # since when the lake's rows are old; 0: they are not
    due_at_ms: int = 0  # when it is copied again
    updated_at_ms: int = 0
    origin: Origin | None = None  # whose rows in the lake become this table's
    partitions: Partitions | None = None  # None: not known
    ended: int = 0  # number of the statement by which a table was dropped or renamed

    def moved(
        self, phase: Phase, message: str = "", at_ms: int | None = None
    ) -> TableState:
        """Return the same table in another phase, without a pause.

        If it followed the stream, its rows in the lake are old from `at_ms`, which is
        now by default.
        """
        old_since_ms = self.old_since_ms
        if phase is Phase.FOLLOWING:
            old_since_ms = 0
        elif self.phase is Phase.FOLLOWING:
            old_since_ms = round(time.time() * 1000) if at_ms is None else at_ms
        return replace(
            self, phase=phase, message=message, due_at_ms=0, old_since_ms=old_since_ms
        )

    def to_json(self) -> str:
        """Return the text of the file."""
        origin = self.origin
        return json.dumps(
            {
                "form": FORM,
                "source": [*self.source],
                "target": self.target,
                "phase": self.phase,
                "copy_id": self.copy_id,
                "place": self.position and _as_json(self.position),
                "seen": self.seen,
                "begun": self.copied_at,
                "columns": [
                    [
                        each.name,
                        each.mysql_type,
                        each.charset,
                        each.is_key,
                        each.nullable,
                        each.generated,
                    ]
                    for each in self.columns
                ],
                "kept": [*self.kept],
                "hidden": [*self.hidden],
                "message": self.message,
                "rows": self.rows,
                "rows_expected": self.rows_expected,
                "copies": self.copies,
                "plan": self.plan,
                "leaves": self.leaves,
                "left_at_ms": self.left_at_ms,
                "old_since_ms": self.old_since_ms,
                "due_at_ms": self.due_at_ms,
                "updated_at_ms": self.updated_at_ms,
                "origin": origin
                and {
                    "source": [*origin.source],
                    "seq": origin.seq,
                    "place": _as_json(origin.position),
                },
                "ended": self.ended,
                "partitions": self.partitions and self.partitions.to_json(),
            },
            ensure_ascii=False,
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str) -> TableState:
        """Parse the text of `to_json`. Raises ValueError, KeyError, TypeError."""
        found: Mapping[str, Any] = json.loads(text)
        if found["form"] != FORM:
            raise ValueError(f"form {found['form']} is not supported, only {FORM}")
        position, origin = found["place"], found.get("origin")
        return cls(
            source=TableName(*map(str, found["source"])),
            target=str(found["target"]),
            phase=Phase(found["phase"]),
            copy_id=str(found["copy_id"]),
            position=position and _position(position),
            seen=int(found.get("seen", 0)),
            copied_at=int(found.get("begun", 0)),
            columns=tuple(ColumnMeta(*each) for each in found["columns"]),
            kept=tuple(found["kept"]),
            hidden=tuple(found.get("hidden", ())),
            message=str(found["message"]),
            rows=int(found["rows"]),
            rows_expected=int(found["rows_expected"]),
            copies=int(found["copies"]),
            plan=str(found["plan"]),
            leaves=int(found.get("leaves", 0)),
            left_at_ms=int(found.get("left_at_ms", 0)),
            # Earlier versions only had the time of the last pause.
            old_since_ms=int(found.get("old_since_ms", found.get("left_at_ms", 0))),
            due_at_ms=int(found.get("due_at_ms", 0)),
            updated_at_ms=int(found["updated_at_ms"]),
            origin=origin
            and Origin(
                TableName(*map(str, origin["source"])),
                int(origin["seq"]),
                _position(origin["place"]),
            ),
            ended=int(found.get("ended", 0)),
            partitions=Partitions.from_json(found["partitions"])
            if found.get("partitions")
            else None,
        )


def _as_json(position: RangePosition) -> dict[str, Any]:
    return {
        "epoch": position.epoch,
        "journal": position.journal,
        "position": position.position,
        "gtids": position.gtids,
    }


def _position(found: Mapping[str, Any]) -> RangePosition:
    return RangePosition(
        int(found["epoch"]),
        str(found["journal"]),
        int(found["position"]),
        gtids=str(found["gtids"]),
    )


@dataclass(frozen=True, slots=True)
class TablesNow:
    """The tables of a running mirror at one moment; `running` are being worked on."""

    states: Mapping[TableName, TableState] = field(default_factory=dict)
    running: frozenset[TableName] = frozenset()

    def phases(self) -> Counter[Phase]:
        """Return how many tables are in each phase."""
        return Counter(state.phase for state in self.states.values())

    def copies(self) -> dict[str, int]:
        """Return how many tables are copied now, and how many are to be copied."""
        running = len(self.running)
        pending = sum(
            name not in self.running and state.phase in PENDING
            for name, state in self.states.items()
        )
        return {"running": running, "pending": pending}


class States:
    """The states of a mirror's tables. Each method may raise LakeError."""

    def __init__(self, folder: Folder) -> None:
        """Set the mirror's own folder."""
        self._folder = folder
        self._tables = folder.below("tables")
        self._requests = folder.below("requests")

    def __str__(self) -> str:
        return str(self._folder)

    def read_all(self) -> dict[TableName, TableState]:
        """Return the states of all known tables."""
        found = (self._read(name) for name in self._tables.names())
        return {state.source: state for state in found if state is not None}

    def read(self, table: TableName) -> TableState | None:
        """Return a table's state; None if it is not known."""
        return self._read(file_of(table))

    def _read(self, name: str) -> TableState | None:
        data = self._tables.read(name)
        if data is None:
            return None
        try:
            return TableState.from_json(data.decode())
        except (ValueError, KeyError, TypeError) as error:
            raise LakeError(
                f"{self._tables}/{name} is not a valid state ({error!r}): delete it to "
                "copy the table again"
            ) from error

    def write(self, state: TableState) -> TableState:
        """Store a state with the current time; returns the stored state."""
        stored = replace(state, updated_at_ms=round(time.time() * 1000))
        self._tables.write(file_of(state.source), stored.to_json().encode())
        return stored

    def forget(self, table: TableName) -> None:
        """Forget a table that the settings no longer select; its copy stays."""
        self._tables.delete(file_of(table))

    # The stream, which restarts from scratch when changes are lost

    def generation(self) -> int:
        """Return how often the stream was restarted from scratch."""
        return int(self._folder.read(GENERATION) or b"0")

    def next_generation(self) -> None:
        """Make the stream restart from scratch at the mirror's next start."""
        self._folder.write(GENERATION, str(self.generation() + 1).encode())

    # Requests of users, for a running mirror

    def request_copy(self, tables: Iterable[TableName]) -> None:
        """Request new copies of tables."""
        for table in tables:
            self._requests.write(file_of(table), json.dumps([*table]).encode())

    def requested(self) -> list[TableName]:
        """Return the tables whose copies are requested."""
        found = []
        for name in self._requests.names():
            data = self._requests.read(name)
            try:
                if data is not None:
                    found.append(TableName(*map(str, json.loads(data))))
            except (ValueError, TypeError):
                # Not a request: the command did not write this file.
                self._requests.delete(name)
        return found

    def remove_request(self, table: TableName) -> None:
        """Delete a request that the table's state has recorded."""
        self._requests.delete(file_of(table))


def file_of(table: TableName) -> str:
    """Return the name of a table's file; the file itself has the table's name.

    A name that is too long for a file system ends with a hash. No other name has a "=".
    """
    parts = (quote(part, safe="").replace(".", "%2E") for part in table)
    name = f"{'.'.join(parts)}.json"
    if len(name) <= NAME_MAX:
        return name
    ending = f"={hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]}.json"
    return name[: NAME_MAX - len(ending)] + ending
