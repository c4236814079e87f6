"""The handler `parquet`: Parquet files, one for each table and period.

A file is named by its first row (`parquet_names`). Deliveries that come again may be
divided otherwise, so a new file replaces the rows of earlier files from its first row
on: they are in it, or will be delivered after it. No row is there twice.
"""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from canal_server.client.handlers.file_modes import (
    make_folder,
    mode_of,
    open_with_mode,
)
from canal_server.client.handlers.handler import RetryLater, required
from canal_server.client.handlers.line_file import sync_folder
from canal_server.client.handlers.parquet_names import (
    FileName,
    folder_name,
    predecessor,
    superseded,
)

if TYPE_CHECKING:
    from canal_server.client.arrow_tables import ArrowBatch
    from canal_server.client.received_message import Message


class ParquetFiles:
    """Collects rows, and writes a file for each table at each flush.

    The files of a table are in a folder `schema.table`. A file has the columns of
    `Message.to_arrow`: those of the table, and `_change_type`, `_commit_timestamp`,
    `_position`, `_seq` and `_row`. When the columns of a table change, a new file
    begins. A file is complete or absent, even after a crash.

    Args:
        folder: the folder with the folders of the tables; it is created
        flush_s: how many seconds of changes a file has at most
        rows: how many rows a flush has at most
        flush_bytes: how many bytes of changes a flush has at most, in whole messages;
            uncompressed, as the protocol has them
        updates: what an update yields: "both" a row with the old and one with the new
            values, "postimage" one with the new values, "envelope" one with both as
            structs
        compression: of Parquet: "zstd", "snappy", "gzip" or "none"
        mode: the mode of new files, in octal digits; only the owner may read them
            without this. New folders can be searched by those who may read the files

    """

    def __init__(
        self,
        folder: str | Path,
        *,
        flush_s: float = 60.0,
        rows: int = 50_000,
        flush_bytes: int = 64 * 1024 * 1024,
        updates: Literal["both", "postimage", "envelope"] = "both",
        compression: Literal["zstd", "snappy", "gzip", "none"] = "zstd",
        mode: str = "0600",
    ) -> None:
        if not flush_s > 0 or rows < 1 or flush_bytes < 1:
            raise ValueError("flush_s, rows and flush_bytes must be more than 0")
        self.flush_s = flush_s
        self.flush_changes = rows
        self.flush_bytes = flush_bytes
        self._parquet = required("pyarrow.parquet", "parquet", extra="arrow")
        self._compute = required("pyarrow.compute", "parquet", extra="arrow")
        self._folder = Path(folder)
        self._updates = updates
        self._compression = compression
        self._mode = mode_of(mode)
        self._batches: dict[tuple[str, str], list[ArrowBatch]] = {}
        self._last: dict[Path, FileName] = {}  # row that was written, by folder

    def open(self) -> None:
        """Create the folder, and remove files that a crash left incomplete.

        Raises OSError.
        """
        make_folder(self._folder, self._mode)
        for each in self._folder.glob("*/.*.part"):
            each.unlink()

    def handle_message(self, message: Message) -> None:
        """Collect the rows of a message."""
        for each in message.arrow_batches(self._updates):
            self._batches.setdefault((each.schema, each.table), []).append(each)

    def flush(self) -> None:
        """Write what was collected. Raises RetryLater, such as for a full disk."""
        try:
            for (schema, table), batches in self._batches.items():
                folder = self._folder / folder_name(schema, table)
                make_folder(folder, self._mode)
                for _, same in groupby(batches, lambda each: each.batch.schema):
                    self._write(folder, [each.batch for each in same])
        except OSError as error:
            raise RetryLater(f"{self._folder}: {error.strerror or error}") from error
        self._batches.clear()

    def rollback(self) -> None:
        """Forget what was collected."""
        self._batches.clear()

    def _write(self, folder: Path, batches: list[Any]) -> None:
        """Write a file, and remove the rows that it replaces.

        A crash in between leaves rows twice, but they are delivered again.
        """
        before = self._last.get(folder)
        continues = before is not None and before.is_before(_name_of(batches[0], 0))
        if not continues:
            batches = self._numbered(folder, batches)
        first, last = _name_of(batches[0], 0), _name_of(batches[-1], -1)
        self._replace(folder / str(first), batches)
        for each in superseded(folder, first, last):
            each.unlink()
        if not continues:
            self._cut_predecessor(folder, first, batches[0])
        sync_folder(folder)
        self._last[folder] = last

    def _numbered(self, folder: Path, batches: list[Any]) -> list[Any]:
        """Return rows with their numbers in a large event that was cut.

        A client that reconnects within such an event numbers the rest of it from 0. It
        would replace the beginning, which is durable and not delivered again. Rows that
        are delivered again have the same content as those with their numbers.
        """
        name, first = _name_of(batches[0], 0), _row_at(batches[0], 0)
        seq = batches[0].column("_seq")[0]
        offset = 0
        while (
            path := _holder(folder, name._replace(row=name.row + offset))
        ) is not None:
            found = self._parquet.read_table(path)
            same = found.filter(self._compute.equal(found["_seq"], seq))
            numbers = same["_row"].to_pylist()
            if name.row + offset not in numbers:
                break
            if _row_at(same, numbers.index(name.row + offset)) == first:
                break  # delivered again
            offset = max(numbers) + 1 - name.row
        if not offset:
            return batches
        return [_shifted(each, seq, offset, self._compute) for each in batches]

    def _replace(self, path: Path, batches: list[Any]) -> None:
        """Write a file, and replace one of this name."""
        part = path.with_name(f".{path.name}.part")
        flags = os.O_WRONLY | os.O_TRUNC
        with os.fdopen(open_with_mode(part, flags, self._mode), "wb") as file:
            writer = self._parquet.ParquetWriter(
                file, batches[0].schema, compression=self._compression
            )
            with writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)

    def _cut_predecessor(self, folder: Path, first: FileName, batch: Any) -> None:
        """Remove the end of the file before a new one, if the new one begins in it."""
        path = predecessor(folder, first)
        if path is None:
            return
        table = self._parquet.read_table(path)
        compute = self._compute
        seq, row = batch.column("_seq")[0], batch.column("_row")[0]
        is_before = compute.or_(
            compute.or_(
                compute.less(table["_seq"], seq),
                compute.and_(
                    compute.equal(table["_seq"], seq), compute.less(table["_row"], row)
                ),
            ),
            # Of a time when positions were others; see `superseded`.
            compute.less(
                table["_commit_timestamp"], batch.column("_commit_timestamp")[0]
            ),
        )
        count = compute.sum(is_before).as_py()
        if count < table.num_rows:
            self._replace(path, table.slice(0, count).to_batches())


def _name_of(batch: Any, at: int) -> FileName:
    """Return the name of a file that begins with a row of a batch."""
    number = at if at >= 0 else batch.num_rows + at
    position, row, moment = (
        batch.column(name)[number].as_py()
        for name in ("_position", "_row", "_commit_timestamp")
    )
    file, _, offset = position.rpartition(":")
    return FileName(moment, file, int(offset), row)


def _holder(folder: Path, name: FileName) -> Path | None:
    """Return the file that has a row with such a name, if one has it."""
    path = folder / str(name)
    return path if path.exists() else predecessor(folder, name)


def _row_at(rows: Any, at: int) -> str:
    """Return a row of a batch or table, without its number in the event."""
    (row,) = rows.slice(at, 1).to_pylist()
    del row["_row"]
    return repr(row)  # of which NaN equals itself


def _shifted(batch: Any, seq: Any, offset: int, compute: Any) -> Any:
    """Return a batch with other numbers of the rows of one event."""
    row = batch.column("_row")
    added = compute.if_else(compute.equal(batch.column("_seq"), seq), offset, 0)
    moved = compute.add(row, added).cast(row.type)
    return batch.set_column(batch.schema.get_field_index("_row"), "_row", moved)
