"""Logs of changes in the lake: Parquet or JSON lines below date=YYYY-MM-DD.

Each change is a row, with `_change_type` (`insert`, `update_preimage`,
`update_postimage`, `delete`, `truncate`); rows of a copy are inserts. A file in the
same folder records what is committed, and is replaced atomically:

    files in _staged  ──►  _log.json names them  ──►  they move below date=…
                           (this is the commit)       (repeated after a crash)

Files are never changed. Leaves out how JSON is written (`json_lines`).
"""

from __future__ import annotations

import base64
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from canal_server.errors import LakeError
from canal_server.mirror.lake import fold, json_lines
from canal_server.mirror.lake.lake_errors import lake_error
from canal_server.mirror.lake.lake_table import (
    ADDED,
    META,
    NOWHERE,
    ROW,
    SEQ,
    TIME,
    Applied,
    Compacted,
    OtherCopyError,
    Size,
    UnlikeError,
    UnusableTableError,
    as_in_lake,
)
from canal_server.mirror.lake.reshape import Reshape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from canal_server.mirror.lake.conditions import Where
    from canal_server.mirror.lake.lake_storage import Folder
    from canal_server.mirror.lake.lake_table import Files
    from canal_server.mirror.lake.steps import Step
    from canal_server.mirror.settings.table_values import CopiedFile, MirrorTable
    from canal_server.runtime.lifecycle import Stop

STATE: Final = "_log.json"  # readers skip names with an underscore
STAGED: Final = "_staged"
OP: Final = pa.field("_change_type", pa.string())
INSERT: Final = "insert"
TRUNCATE: Final = "truncate"
COPY_ROW: Final = -1  # of the truncate before a copy; the copy's rows have 0
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class _State:
    """The committed state of a log."""

    copy: str
    upto: int
    schema: pa.Schema  # the table's columns, and those of the order
    note: dict[str, str] = field(default_factory=dict)
    staged: tuple[str, ...] = ()  # files of the last commit

    def to_bytes(self) -> bytes:
        """Return the text of the state file."""
        values = {
            "copy": self.copy,
            "upto": self.upto,
            "note": self.note,
            "staged": list(self.staged),
            "schema": base64.b64encode(self.schema.serialize()).decode(),
        }
        return json.dumps(values, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> _State:
        """Parse the text of a state file. Raises ValueError, KeyError."""
        values = json.loads(data)
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(values["schema"])))
        return cls(
            values["copy"],
            values["upto"],
            schema,
            values["note"],
            tuple(values["staged"]),
        )


class ChangeLog:
    """The log of one table, as a `LakeTable`; for one thread at a time."""

    def __init__(self, folder: Folder, table: MirrorTable) -> None:
        """Set the table's folder; nothing is read yet."""
        self._folder = folder
        self._table = table
        self._suffix = f".{table.form}"

    def exists(self) -> bool:
        """Check whether the log has a commit."""
        with self._as_lake_error("read"):
            return self._state() is not None

    def arrow_schema(self) -> pa.Schema | None:
        """Return the columns of new files, with the one for the kind of change."""
        with self._as_lake_error("read"):
            state = self._state()
            return None if state is None else _written(state.schema)

    def readers_names(self) -> list[str]:
        """Return the names of `arrow_schema`: they are the same."""
        schema = self.arrow_schema()
        return [] if schema is None else list(schema.names)

    def applied(self, copy_id: str) -> int:
        """Return the position number of the last commit."""
        with self._as_lake_error("read"):
            state = self._state()
            return state.upto if state and state.copy == copy_id else NOWHERE

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns themselves: files of a log are read by name."""
        return schema

    def publish(
        self,
        copy_id: str,
        schema: pa.Schema,
        files: Sequence[CopiedFile],
        at: int,
        note: Mapping[str, str],
        *,
        stop: Stop | None = None,
    ) -> None:
        """Write a copy's rows as inserts, after a truncate if the log has rows.

        What is in the log stays: it may be the only copy that is left.
        """
        del stop  # a part that was staged could not be continued
        with self._as_lake_error("publish the copy of"):
            before = self._state()
            if before is not None and before.copy == copy_id:
                return
            own = [f for f in schema if f.name not in ADDED or f.name in META]
            kept = pa.schema(own)
            staged = []
            if before is not None:
                now = pa.scalar(datetime.now(UTC), TIME.type)
                emptied = _truncate(kept, at, COPY_ROW, now)
                staged += self._stage(emptied, f"copy-{copy_id}")
            for number, file in enumerate(files):
                rows = self._copied(file, kept)
                staged += self._stage(rows, f"copy-{copy_id}-{number:06}")
            self._commit(_State(copy_id, at, kept, dict(note), tuple(staged)))
            for file in files:
                self._folder.delete(file.path)

    def apply(
        self, copy_id: str, changes: pa.Table, upto: int, note: Mapping[str, str]
    ) -> Applied:
        """Append changes, in one file per date of their commits."""
        with self._as_lake_error("append changes to"):
            state = self._published(copy_id)
            if state.upto >= upto:
                return Applied()
            new = as_in_lake(changes)
            new = new.filter(pc.greater_equal(new[SEQ.name], state.upto))
            self._append(state, _typed(new, _written(state.schema)), upto, note)
            deleted = pc.sum(pc.equal(new[OP.name], fold.DELETE)).as_py() or 0
            old = pc.sum(pc.equal(new[OP.name], fold.PREIMAGE)).as_py() or 0
            return Applied(len(new) - deleted - old, deleted)

    def correct(self, copy_id: str, changes: pa.Table) -> Applied:
        """Raise LakeError: a log is never corrected."""
        del copy_id, changes
        raise LakeError(f"{self} is a log of changes, whose rows cannot be corrected")

    def empty(
        self, copy_id: str, upto: int, at_ms: int, note: Mapping[str, str]
    ) -> None:
        """Append a row for TRUNCATE at a time, which deletes all rows."""
        with self._as_lake_error("append to"):
            state = self._published(copy_id)
            if state.upto < upto:
                time = pa.scalar(at_ms * 1000, TIME.type)
                self._append(
                    state, _truncate(state.schema, upto - 1, 0, time), upto, note
                )

    def evolve(
        self, copy_id: str, steps: Sequence[Step], upto: int, note: Mapping[str, str]
    ) -> None:
        """Change the columns of new files."""
        with self._as_lake_error("change the columns of"):
            state = self._published(copy_id)
            if state.upto < upto:
                schema = Reshape(state.schema, steps).schema
                self._commit(_State(copy_id, upto, schema, dict(note)))

    def use_definition(self, table: MirrorTable) -> None:
        """Use the table's current definition from now on."""
        self._table = table

    def compact(self) -> Compacted:
        """Do nothing: a reader that lists files could see changes twice or not."""
        return Compacted()

    def vacuum(self, hours: float) -> int:  # noqa: ARG002  # a log has no versions
        """Delete files that were never committed; returns their number."""
        with self._as_lake_error("delete old files of"):
            state = self._state()
            if state is None:
                return 0
            left = self._folder.below(STAGED).below_names()
            for name in left:
                self._folder.delete(f"{STAGED}/{name}")
            return len(left)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        version: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield all changes, with the current columns; LakeError for a condition."""
        with self._as_lake_error("read"):
            if where is not None or version is not None:
                raise LakeError("a log of changes has no conditions and no versions")
            state = self._state()
            if state is None:
                return
            schema = _written(state.schema)
            for name in self._files():
                rows = _completed(self._read(name, schema), schema)
                yield from (rows.select(columns) if columns else rows).to_batches()

    def version(self) -> int:
        """Return that there are no versions."""
        return -1

    def version_files(self, version: int) -> Files:
        """Raise LakeError, as there are no versions."""
        raise LakeError(f"{self} has no version {version}")

    def position(self) -> tuple[int, dict[str, str]]:
        """Return the position number and the note of the last commit."""
        with self._as_lake_error("read"):
            state = self._state()
            return (NOWHERE, {}) if state is None else (state.upto, state.note)

    # --- the committed state
    # ------------------------------------------------------------

    def size(self) -> Size | None:
        """Return the files of the log; their number is all that is known of it."""
        with self._as_lake_error("read"):
            if self._state() is None:
                return None
            sizes = self._folder.sizes_below()
            found = [size for name, size in sizes.items() if self._is_of_log(name)]
            return Size(len(found), sum(found))

    def _state(self) -> _State | None:
        """Return the committed state, after moving its files to their folders."""
        data = self._folder.read(STATE)
        if data is None:
            return None
        try:
            state = _State.from_bytes(data)
        except (ValueError, KeyError, pa.ArrowException) as error:
            raise UnusableTableError(
                f"{STATE} is damaged ({error}): move the folder away, and copy the "
                "table again"
            ) from error
        self._settle(state)
        return state

    def _published(self, copy_id: str) -> _State:
        state = self._state()
        if state is None or state.copy != copy_id:
            raise OtherCopyError.of(copy_id)
        return state

    def _commit(self, state: _State) -> None:
        self._folder.write(STATE, state.to_bytes())
        self._settle(state)

    def _settle(self, state: _State) -> None:
        """Move files of the last commit to where readers look for them."""
        for name in state.staged:
            self._folder.move(f"{STAGED}/{name}", name)

    # --- files ------------------------------------------------------------------------

    def _append(
        self, state: _State, rows: pa.Table, upto: int, note: Mapping[str, str]
    ) -> None:
        name = f"changes-{state.copy}-{state.upto:020}-{upto:020}"
        staged = self._stage(rows, name)
        self._commit(_State(state.copy, upto, state.schema, dict(note), tuple(staged)))

    def _stage(self, rows: pa.Table, name: str) -> list[str]:
        """Write rows to one file per date; returns the files' final paths."""
        dates = pc.cast(pc.cast(rows[TIME.name], pa.date32()), pa.string())
        dates = pc.fill_null(dates, NO_DATE)
        paths = []
        for date in sorted(pc.unique(dates).to_pylist()):
            path = f"date={date}/{name}{self._suffix}"
            part = rows.filter(pc.equal(dates, date))
            with self._folder.open_output(f"{STAGED}/{path}") as file:
                if self._table.form == "json":
                    json_lines.write(part, file)
                else:
                    pq.write_table(part, file, compression="zstd", compression_level=1)
            paths.append(path)
        return paths

    def _copied(self, file: CopiedFile, schema: pa.Schema) -> pa.Table:
        """Return the rows of a copy's file as inserts."""
        with self._folder.open_input(file.path) as source:
            rows = pq.read_table(source, columns=schema.names).cast(schema)
        inserts = pa.repeat(pa.scalar(INSERT), len(rows))
        return _completed(rows.append_column(OP, inserts), _written(schema))

    def _files(self) -> list[str]:
        """Return the files of the log."""
        return [name for name in self._folder.below_names() if self._is_of_log(name)]

    def _is_of_log(self, name: str) -> bool:
        return name.startswith("date=") and name.endswith(self._suffix)

    def _read(self, name: str, schema: pa.Schema) -> pa.Table:
        with self._folder.open_input(name) as file:
            if self._table.form == "json":
                return json_lines.read(file, schema)
            return pq.ParquetFile(file).read()

    @contextmanager
    def _as_lake_error(self, what: str) -> Iterator[None]:
        """Raise LakeError with the table's name for errors of the storage."""
        try:
            yield
        except (LakeError, OSError, pa.ArrowException) as error:
            raise lake_error(f"cannot {what} {self}", error) from error

    def __str__(self) -> str:
        return f"the lake's log {self._table.target} ({self._folder})"


def _written(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a file."""
    return schema.insert(schema.get_field_index(SEQ.name), OP)


def _truncate(schema: pa.Schema, seq: int, row: int, time: pa.Scalar) -> pa.Table:
    """Return the change that deletes all rows."""
    values: dict[str, Any] = {
        OP.name: pa.scalar(TRUNCATE),
        SEQ.name: pa.scalar(seq, SEQ.type),
        ROW.name: pa.scalar(row, ROW.type),
        TIME.name: time,
    }
    columns = {name: pa.repeat(value, 1) for name, value in values.items()}
    return _completed(pa.table(columns), _written(schema))


def _typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return changes with the log's columns."""
    for name in rows.column_names:
        if name not in schema.names:
            raise UnlikeError(f"it lacks column {name} of the table's changes")
    return _completed(rows, schema)


def _completed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with these columns; NULL for missing ones."""
    return pa.table(
        [
            rows[each.name].cast(each.type)
            if each.name in rows.column_names
            else pa.nulls(len(rows), each.type)
            for each in schema
        ],
        schema=schema,
    )
