"""Places between which a table is read to be compared, and where its copy stands.

A copy's place is a position number: all changes before it are in the copy, and none
behind it. That of a table that follows the stream is told by its own last commit, or,
when nothing of it changed since, by the last batch of the stream. Changes are read from
the newest place that is known as a whole at or before it.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, Self

import pyarrow as pa
from deltalake import DeltaTable

from canal_server.client.range_client import RangePosition
from canal_server.errors import ConfigError, LakeError
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.lake.lake_table import DELETED, NOWHERE
from canal_server.mirror.rows.chunks import cut
from canal_server.mirror.rows.copy_positions import starting_place
from canal_server.mirror.run.table_sync import columns_at, unknown_to
from canal_server.mirror.session.spark_session import source_options, table_options
from canal_server.mirror.settings import wanted_tables
from canal_server.mirror.state.lake_tables import open_table
from canal_server.mirror.state.run_history import Status, read_status
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.mirror.verify.verify_copy import CopyRows
from canal_server.model.versions import place_of
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_columns import TableColumns
from canal_server.runtime.lifecycle import Deadline, Stop
from canal_server.spark.options.offsets import offset_from_json, version_of
from canal_server.spark.options.servers import Channel

if TYPE_CHECKING:
    from types import TracebackType

    from canal_server.mirror.rows.chunks import Chunk
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import MirrorTable, TableName

LOOK_S: Final = 0.5  # how often the copy's place is looked at
TRIES: Final = 10  # of a look, while others write
SILENT_S: Final = 15.0  # a mirror that tells nothing for so long does not run
PLACE: Final = "canal.place"  # in the note of a commit: an offset of Spark's source


@dataclass(frozen=True, slots=True)
class CopyPlace:
    """How far a version of a copy is.

    `upto` is its position number; `known` a place that is at or before that.
    """

    version: int
    upto: int
    known: RangePosition

    def __str__(self) -> str:
        place = place_of(self.upto)
        if version_of(self.known) == self.upto:
            return f"{self.known.journal}:{self.known.position}"
        stem = self.known.journal.rpartition(".")[0]
        return f"{stem}.{place.file_number:06}:{place.offset}"


class GoneError(LakeError):
    """The source has dropped a table; what the lake has of it stays there."""

    def __init__(self, state: TableState) -> None:
        """Tell of a table that the mirror has had."""
        super().__init__(
            "the source no longer has this table; what is in the lake stays as it was"
            if state.copy_id
            else "the source no longer has this table, of which no copy was begun"
        )
        self.target = state.target


class Places:
    """Finds places for one table; a context manager, for one thread."""

    def __init__(
        self, settings: MirrorSettings, name: TableName, stop: Stop | None = None
    ) -> None:
        self._settings = settings
        self._name = name
        self._stop = stop or Stop()
        self._filter = table_options(settings, name).wire_filter
        self._channel = Channel(
            table_options(settings, name), settings.canal.destination
        )
        self._folder = open_folder(settings.lake, settings.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()

    def table(self) -> MirrorTable:
        """Return the table as the source has it now, and the settings want it.

        Raises GoneError when the source has it no more, LakeError when the mirror has
        never had it either, ConfigError when it cannot be mirrored.
        """
        columns = columns_at(self._channel, self._name, None)
        if not columns:
            self._raise_missing()
        return wanted_tables.mirror_table(self._name, columns, self._settings)

    def _raise_missing(self) -> NoReturn:
        """Raise for a table that canal-server does not have."""
        with ControlConnection(self._settings.source.access, self._stop) as control:
            found = TableColumns(control).fetch(*self._name)
        if found is not None:
            raise ConfigError([unknown_to(self._settings.canal.destination)])
        state = States(self._folder).read(self._name)
        if state is None:
            raise LakeError(
                "neither the source nor the mirror has such a table: see "
                "`canal-server mirror status` for those that it has"
            )
        raise GoneError(state)

    def before_reading(self) -> RangePosition:
        """Return a place before which everything is seen by what reads from now on."""
        return starting_place(self._settings, self._channel, self._stop)

    def chunks(self, table: MirrorTable) -> tuple[Chunk, ...]:
        """Return the chunks of the table."""
        wanted = self._settings.copy.chunk_rows
        access = self._settings.source.read_from
        with ControlConnection(access, self._stop) as connection:
            return tuple(cut(connection, table, wanted))

    def head(self) -> RangePosition:
        """Return where the binlog ends now."""
        destination = self._settings.canal.destination
        return self._channel.call(lambda c: c.locate(destination, "latest"))

    def copy(
        self, table: MirrorTable, behind: RangePosition, wait_s: float
    ) -> CopyPlace:
        """Return a version of the copy, whose place is not before `behind`.

        Unless the table does not change in between, no mirror runs, or the time is
        over. Raises LakeError when there is no copy that is whole.
        """
        deadline = Deadline(wait_s)
        while True:
            status = read_status(self._folder)
            state = States(self._folder).read(self._name)
            waits = not deadline.passed() and _runs(status)
            if state is not None and state.phase is Phase.FOLLOWING:
                place = self._place(table, state, status)
                late = place.upto < version_of(behind)
                if not (late and waits and self._changes(place.known, behind)):
                    return place
            elif not waits or (state and state.phase in _FOR_GOOD):
                raise LakeError(_why_none(state))
            if self._stop.wait(LOOK_S):
                raise LakeError("comparing was given up: a stop was asked for")

    def rows(self, table: MirrorTable, place: CopyPlace, schema: pa.Schema) -> CopyRows:
        """Return the copy's rows. Raises LakeError when it has not these columns."""
        return self._rows(table, place.version, schema)

    def changes(self, start: RangePosition, end: RangePosition) -> dict[str, str]:
        """Return the options of a read of the table's changes between two places."""
        return source_options(self._settings) | {
            "filter": self._filter,
            "startingPosition": _text_of(start, end),
            "endingPosition": _text_of(end, end),
        }

    def _changes(self, start: RangePosition, end: RangePosition) -> int:
        """Return how many rows of the table changed between two places."""
        name, wanted = self._settings.canal.destination, self._filter
        parts = self._channel.call(
            lambda c: c.plan(name, "", start, end, 1, filter=wanted)
        )
        return sum(part.rows for part in parts)

    def _place(
        self, table: MirrorTable, state: TableState, status: Status | None
    ) -> CopyPlace:
        """Return where a copy is that follows.

        The status was read before the copy is looked at, so that the copy has all that
        is before the place that the status tells; what it has beyond, it tells itself.
        """
        path = self._path(table)
        lake = open_table(self._settings, table)
        for _ in range(TRIES):
            if not lake.exists():
                raise LakeError(f"there is no copy at {path}, copy the table again")
            version = self._delta(path).version()
            applied, (_, note) = lake.applied(state.copy_id), lake.place()
            if self._delta(path).version() == version:
                break
        else:
            raise LakeError(f"the copy at {path} changes faster than it can be read")
        if applied == NOWHERE:
            raise LakeError(
                f"the copy at {path} is another one than the mirror made: copy the "
                "table again"
            )
        of_batch = _of_batch(status)
        assert state.place is not None  # as it is copied
        whole = [state.place, *of_batch]  # all before them is in the copy
        upto = max([applied, *(version_of(place) for place in whole)])
        places = [*whole, *self._noted(note)]
        known = [place for place in places if version_of(place) <= upto]
        return CopyPlace(version, upto, max(known, key=version_of))

    def _noted(self, note: dict[str, str]) -> list[RangePosition]:
        try:
            places = offset_from_json(json.loads(note[PLACE]))
            return [places[self._settings.canal.destination]]
        except (KeyError, ValueError):
            return []  # it is not told; others are

    def _path(self, table: MirrorTable) -> str:
        return f"{self._settings.lake.path.rstrip('/')}/{table.target}"

    def _delta(self, path: str, version: int | None = None) -> DeltaTable:
        options = self._settings.lake.storage_options
        return DeltaTable(path, version=version, storage_options=options)

    def _rows(self, table: MirrorTable, version: int, schema: pa.Schema) -> CopyRows:
        path = self._path(table)
        had = pa.schema(self._delta(path, version).schema().to_arrow())
        missing = [field.name for field in schema if field.name not in had.names]
        others = [
            f"{field.name} ({had.field(field.name).type} instead of {field.type})"
            for field in schema
            if field.name in had.names and had.field(field.name).type != field.type
        ]
        if missing or others:
            told = [f"no column {name}" for name in missing] + others
            raise LakeError(
                f"the copy at {path} has other columns than the table: "
                f"{', '.join(told)[:500]}"
            )
        has_deleted = DELETED.name in had.names and table.deletes == "soft"
        options = tuple(sorted(self._settings.lake.storage_options.items()))
        return CopyRows(path, version, schema, has_deleted, options)


_FOR_GOOD: Final = (Phase.STOPPED, Phase.DROPPED)


def _why_none(state: TableState | None) -> str:
    """Return why there is nothing to compare with."""
    if state is None:
        return "it has no copy: let the mirror run until it is copied"
    if state.phase in _FOR_GOOD:
        return f"the mirror has given it up ({state.phase}): {state.message}"
    return f"its copy is not complete ({state.phase}): let the mirror run until it is"


def _runs(status: Status | None) -> bool:
    """Tell whether a mirror told something lately."""
    return status is not None and time.time() - status.updated_at_ms / 1e3 < SILENT_S


def _of_batch(status: Status | None) -> list[RangePosition]:
    """Return where the stream's last batch ended, as far as that is told."""
    last = status.last if status else None
    if last is None or not last.journal:
        return []
    return [RangePosition(last.epoch, last.journal, last.position, gtids=last.gtids)]


def _text_of(place: RangePosition, now: RangePosition) -> str:
    """Return a place as an option of the source, also of a binlog that was before."""
    if place.epoch != now.epoch and place.gtids:
        return f"gtid:{place.gtids}"
    return f"file:{place.journal}:{place.position}"
