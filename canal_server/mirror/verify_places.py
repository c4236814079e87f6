"""Places between which a table is read to be compared, and where its copy stands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
from deltalake import DeltaTable

from canal_server.errors import LakeError
from canal_server.lifecycle import Deadline, Stop
from canal_server.mirror.chunks import cut
from canal_server.mirror.lake import open_table
from canal_server.mirror.lake_table import DELETED
from canal_server.mirror.verify_copy import CopyRows
from canal_server.mysql.connection import ControlConnection
from canal_server.spark.offsets import offset_from_json, version_of
from canal_server.spark.options import SourceOptions, read_options
from canal_server.spark.servers import Channel

if TYPE_CHECKING:
    from types import TracebackType

    from canal_server.client.ranged import RangePosition
    from canal_server.mirror.chunks import Chunk
    from canal_server.mirror.model import MirrorTable
    from canal_server.mirror.settings import MirrorSettings

LOOK_S: Final = 0.5  # how often the copy's place is looked at
TRIES: Final = 10  # of a look, while others write
PLACE: Final = "place"  # in the note of a commit: an offset of the source of Spark


class Places:
    """Finds places for one table; a context manager, for one thread."""

    def __init__(
        self, settings: MirrorSettings, table: MirrorTable, stop: Stop | None = None
    ) -> None:
        self._settings = settings
        self._table = table
        self._stop = stop or Stop()
        canal = settings.canal
        self._options = {
            "servers": canal.servers,
            "destination": canal.destination,
            "username": canal.user,
            "password": canal.password,
        }
        options = read_options(self._options)
        self._channel = Channel(options, canal.destination)
        self._filter = SourceOptions(
            servers=options.servers,
            destinations=options.destinations,
            table=table.source,
        ).wire_filter
        self._connection = ControlConnection(settings.source.read_from, self._stop)

    def __enter__(self) -> Self:
        self._connection.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()
        self._connection.close()

    def before_reading(self) -> RangePosition:
        """Return a place before which everything is seen by what reads from now on."""
        return self.head()

    def chunks(self) -> tuple[Chunk, ...]:
        """Return the chunks of the table."""
        wanted = self._settings.copy.chunk_rows
        return tuple(cut(self._connection, self._table, wanted))

    def head(self) -> RangePosition:
        """Return where the binlog ends now."""
        destination = self._settings.canal.destination
        return self._channel.call(lambda c: c.locate(destination, "latest"))

    def copy(
        self, behind: RangePosition, wait_s: float, schema: pa.Schema
    ) -> tuple[CopyRows, RangePosition]:
        """Return a version of the copy, and its place, which is not before `behind`.

        Unless the table does not change in between, or the time is over. Raises
        LakeError when there is no copy, or it has not these columns.
        """
        deadline = Deadline(wait_s)
        while True:
            version, place = self._version()
            late = version_of(place) < version_of(behind)
            if not late or deadline.passed() or not self._changes(place, behind):
                return self._rows(version, schema), place
            if self._stop.wait(LOOK_S):
                raise LakeError(f"table {self._table.source}: stopped while waiting")

    def changes(self, start: RangePosition, end: RangePosition) -> dict[str, str]:
        """Return the options of a read of the table's changes between two places."""
        return self._options | {
            "payload": "arrow",
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

    @property
    def _path(self) -> str:
        return f"{self._settings.lake.path.rstrip('/')}/{self._table.target}"

    def _version(self) -> tuple[int, RangePosition]:
        """Return the copy's newest version, and its place."""
        lake = self._settings.lake
        table = open_table(lake.path, self._table, lake.storage_options)
        if not table.exists():
            raise LakeError(
                f"table {self._table.source} has no copy at {self._path}: let the "
                "mirror run until it is copied"
            )
        for _ in range(TRIES):
            version = self._delta().version()
            _, note = table.place()
            if self._delta().version() == version:
                return version, self._place_of(note)
        raise LakeError(
            f"the copy at {self._path} changes faster than it can be looked at"
        )

    def _delta(self, version: int | None = None) -> DeltaTable:
        options = self._settings.lake.storage_options
        return DeltaTable(self._path, version=version, storage_options=options)

    def _place_of(self, note: dict[str, str]) -> RangePosition:
        try:
            places = offset_from_json(json.loads(note[PLACE]))
            return places[self._settings.canal.destination]
        except (KeyError, ValueError) as error:
            raise LakeError(
                f"the copy at {self._path} does not tell its place in the binlog of "
                f"destination {self._settings.canal.destination}: another mirror or "
                "another program wrote it; copy the table again"
            ) from error

    def _rows(self, version: int, schema: pa.Schema) -> CopyRows:
        had = pa.schema(self._delta(version).schema().to_arrow())
        missing = [field.name for field in schema if field.name not in had.names]
        others = [
            f"{field.name} ({had.field(field.name).type} instead of {field.type})"
            for field in schema
            if field.name in had.names and had.field(field.name).type != field.type
        ]
        if missing or others:
            told = [f"no column {name}" for name in missing] + others
            raise LakeError(
                f"the copy at {self._path} has other columns than the table: "
                f"{', '.join(told)[:500]}"
            )
        has_deleted = DELETED.name in had.names and self._table.deletes == "soft"
        options = tuple(sorted(self._settings.lake.storage_options.items()))
        return CopyRows(self._path, version, schema, has_deleted, options)


def _text_of(place: RangePosition, now: RangePosition) -> str:
    """Return a place as an option of the source, also of a binlog that was before."""
    if place.epoch != now.epoch and place.gtids:
        return f"gtid:{place.gtids}"
    return f"file:{place.journal}:{place.position}"
