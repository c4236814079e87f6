"""Positions between which a table is read for comparison, and the copy's position.

A copy's position is a number: the copy has every change before it and none after it.
For a table that follows the stream, it comes from the table's last commit or, if the
table has not changed since, from the stream's last batch. Changes are read from the
newest binlog position that is fully known and not after that number.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, Self

from canal_server.client.range_client import RangePosition
from canal_server.errors import ConfigError, LakeError
from canal_server.mirror.follow.source_columns import columns_at, unknown_to
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.lake.lake_table import DELETED, NOWHERE
from canal_server.mirror.rows.chunks import cut
from canal_server.mirror.rows.copy_positions import start_position
from canal_server.mirror.session.spark_session import source_options, table_options
from canal_server.mirror.settings import selected_tables
from canal_server.mirror.state.lake_tables import open_table
from canal_server.mirror.state.run_history import Status, read_status
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.mirror.verify.verify_copy import CopyRows
from canal_server.model.versions import position_of_version
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_columns import TableColumns
from canal_server.runtime.lifecycle import Deadline, Stop
from canal_server.spark.options.offsets import offset_from_json, version_of
from canal_server.spark.options.servers import Channel

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa

    from canal_server.mirror.rows.chunks import Chunk
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import MirrorTable, TableName

LOOK_S: Final = 0.5  # how often the copy's position is checked
TRIES: Final = 10  # per check, while others write
SILENT_S: Final = 15.0  # a mirror that reports nothing for so long does not run
POSITION_NOTE: Final = "canal.place"  # in a commit's note: an offset of Spark's source


@dataclass(frozen=True, slots=True)
class CopyPosition:
    """The position of a version of a copy.

    `upto` is its number; `known` is a binlog position that is not after it.
    """

    version: int
    upto: int
    known: RangePosition

    def __str__(self) -> str:
        position = position_of_version(self.upto)
        if version_of(self.known) == self.upto:
            return f"{self.known.journal}:{self.known.position}"
        stem = self.known.journal.rpartition(".")[0]
        return f"{stem}.{position.file_number:06}:{position.offset}"


class DroppedError(LakeError):
    """The source has dropped a table; its data in the lake stays."""

    def __init__(self, state: TableState) -> None:
        """Describe a table that the mirror knows."""
        super().__init__(
            "the source no longer has this table; its data in the lake stays"
            if state.copy_id
            else "the source no longer has this table, and it was never copied"
        )
        self.target = state.target


class Positions:
    """Finds positions for one table; a context manager, for one thread."""

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
        """Return the table as the source has it now and the settings select it.

        Raises DroppedError when the source has dropped it, LakeError when the mirror
        never had it either, ConfigError when it cannot be mirrored.
        """
        columns = columns_at(self._channel, self._name, None)
        if not columns:
            self._raise_missing()
        state = States(self._folder).read(self._name)
        folder = "" if state is None else state.target
        return selected_tables.mirror_table(self._name, columns, self._settings, folder)

    def _raise_missing(self) -> NoReturn:
        """Raise for a table that canal-server does not know."""
        with ControlConnection(self._settings.source.access, self._stop) as control:
            found = TableColumns(control).fetch(*self._name)
        if found is not None:
            raise ConfigError([unknown_to(self._settings.canal.destination)])
        state = States(self._folder).read(self._name)
        if state is None:
            raise LakeError(
                "neither the source nor the mirror has this table: "
                "`canal-server mirror status` lists the mirror's tables"
            )
        raise DroppedError(state)

    def before_reading(self) -> RangePosition:
        """Return a position before which every change is visible to a new reader."""
        return start_position(self._settings, self._channel, self._stop)

    def chunks(self, table: MirrorTable) -> tuple[Chunk, ...]:
        """Return the chunks of the table."""
        rows_max = self._settings.copy.chunk_rows
        access = self._settings.source.read_from
        with ControlConnection(access, self._stop) as connection:
            return tuple(cut(connection, table, rows_max))

    def head(self) -> RangePosition:
        """Return the current end of the binlog."""
        destination = self._settings.canal.destination
        return self._channel.call(lambda c: c.locate(destination, "latest"))

    def copy(
        self, table: MirrorTable, after: RangePosition, wait_s: float
    ) -> CopyPosition:
        """Return a version of the copy whose position is not before `after`.

        It may be before it if the table has no change in between, no mirror runs, or
        the time is over. Raises LakeError if no complete copy exists.
        """
        deadline = Deadline(wait_s)
        while True:
            status = read_status(self._folder)
            state = States(self._folder).read(self._name)
            waits = not deadline.passed() and _runs(status)
            if state is not None and state.phase is Phase.FOLLOWING:
                position = self._position(table, state, status)
                if position is None:
                    continue  # it has been copied again
                lags = position.upto < version_of(after)
                if not (lags and waits and self._changes(position.known, after)):
                    return position
            elif not waits or (state and state.phase in _FINAL):
                raise LakeError(_no_copy_reason(state))
            if self._stop.wait(LOOK_S):
                raise LakeError("the comparison was interrupted by a stop request")

    def rows(
        self, table: MirrorTable, position: CopyPosition, schema: pa.Schema
    ) -> CopyRows:
        """Return the copy's rows. Raises LakeError when its columns differ."""
        return self._rows(table, position.version, schema)

    def changes(self, start: RangePosition, end: RangePosition) -> dict[str, str]:
        """Return the options to read the table's changes between two positions."""
        return source_options(self._settings) | {
            "filter": self._filter,
            "startingPosition": _text_of(start, end),
            "endingPosition": _text_of(end, end),
        }

    def _changes(self, start: RangePosition, end: RangePosition) -> int:
        """Return how many rows of the table changed between two positions."""
        name, table_filter = self._settings.canal.destination, self._filter
        parts = self._channel.call(
            lambda c: c.plan(name, "", start, end, 1, filter=table_filter)
        )
        return sum(part.rows for part in parts)

    def _position(
        self, table: MirrorTable, state: TableState, status: Status | None
    ) -> CopyPosition | None:
        """Return the position of a copy that follows the stream.

        None if another copy was started since `state`.

        The status was read before the copy, so the copy has all changes before the
        position in the status; for anything newer, its own commit has the position.
        """
        path = self._path(table)
        lake = open_table(self._settings, table)
        for _ in range(TRIES):
            if not lake.exists():
                raise LakeError(f"no copy at {path}: copy the table again")
            version = lake.version()
            applied, (_, note) = lake.applied(state.copy_id), lake.position()
            if lake.version() == version:
                break
        else:
            raise LakeError(f"the copy at {path} changes faster than it can be read")
        if applied == NOWHERE:
            now = States(self._folder).read(self._name)
            if now is None or now.copy_id != state.copy_id:
                return None
            raise LakeError(
                f"this mirror did not make the copy at {path}: copy the table again"
            )
        batch_end = _batch_end(status)
        assert state.position is not None  # as the table is copied
        whole = [state.position, *batch_end]  # the copy has all changes before each
        upto = max([applied, *(version_of(position) for position in whole)])
        positions = [*whole, *self._noted(note)]
        known = [position for position in positions if version_of(position) <= upto]
        return CopyPosition(version, upto, max(known, key=version_of))

    def _noted(self, note: dict[str, str]) -> list[RangePosition]:
        try:
            positions = offset_from_json(json.loads(note[POSITION_NOTE]))
            return [positions[self._settings.canal.destination]]
        except (KeyError, ValueError):
            return []  # without a note; the other positions remain

    def _path(self, table: MirrorTable) -> str:
        return f"{self._settings.lake.path.rstrip('/')}/{table.target}"

    def _rows(self, table: MirrorTable, version: int, schema: pa.Schema) -> CopyRows:
        path = self._path(table)
        files = open_table(self._settings, table).version_files(version)
        actual = files.schema
        missing = [field.name for field in schema if field.name not in actual.names]
        others = [
            f"{field.name} ({actual.field(field.name).type} instead of {field.type})"
            for field in schema
            if field.name in actual.names
            and actual.field(field.name).type != field.type
        ]
        if missing or others:
            found = [f"no column {name}" for name in missing] + others
            raise LakeError(
                f"the copy at {path} has other columns than the table: "
                f"{', '.join(found)[:500]}"
            )
        has_deleted = DELETED.name in actual.names and table.deletes == "soft"
        return CopyRows(files, schema, has_deleted)


_FINAL: Final = (Phase.STOPPED, Phase.DROPPED)


def _no_copy_reason(state: TableState | None) -> str:
    """Return why no copy can be compared."""
    if state is None:
        return "the table has no copy: let the mirror run until it is copied"
    if state.phase in _FINAL:
        return f"the mirror has stopped it ({state.phase}): {state.message}"
    return f"its copy is not complete ({state.phase}): let the mirror run until it is"


def _runs(status: Status | None) -> bool:
    """Check whether a mirror has reported recently."""
    return status is not None and time.time() - status.updated_at_ms / 1e3 < SILENT_S


def _batch_end(status: Status | None) -> list[RangePosition]:
    """Return where the stream's last batch ended, if the status has it."""
    last = status.last if status else None
    if last is None or not last.journal:
        return []
    return [RangePosition(last.epoch, last.journal, last.position, gtids=last.gtids)]


def _text_of(position: RangePosition, now: RangePosition) -> str:
    """Return a position as an option of the source, even if it is of an older epoch."""
    if position.epoch != now.epoch and position.gtids:
        return f"gtid:{position.gtids}"
    return f"file:{position.journal}:{position.position}"
