"""The handler `parquet`: Parquet files, one for each table and period.

A file is named by its first row, and replaces what an earlier delivery of its rows left
(`parquet_names`), so that rows which are delivered again are not there twice.
"""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from canal_server.client.handlers.handler import RetryLater, required
from canal_server.client.handlers.line_file import sync_folder
from canal_server.client.handlers.parquet_names import FileName, folder_name, superseded

if TYPE_CHECKING:
    from canal_server.client.arrow_tables import ArrowBatch
    from canal_server.client.received_message import Message


class ParquetFiles:
    """Collects rows, and writes a file for each table at each flush.

    The files of a table are in a folder `schema.table`. A file has the columns of
    `Message.to_arrow`: those of the table, and `_change_type`, `_commit_timestamp`,
    `_position`, `_seq` and `_row`. When the columns of a table change, a new file
    begins. A file is complete or absent, also after a crash.

    Args:
        folder: the folder with the folders of the tables; it is created
        flush_s: how many seconds of changes a file has at most
        rows: how many rows a flush has at most
        updates: what an update yields: "both" a row with the old and one with the new
            values, "postimage" one with the new values, "envelope" one with both as
            structs
        compression: of Parquet: "zstd", "snappy", "gzip" or "none"

    """

    def __init__(
        self,
        folder: str | Path,
        *,
        flush_s: float = 60.0,
        rows: int = 50_000,
        updates: Literal["both", "postimage", "envelope"] = "both",
        compression: Literal["zstd", "snappy", "gzip", "none"] = "zstd",
    ) -> None:
        if flush_s <= 0 or rows < 1:
            raise ValueError("flush_s and rows must be more than 0")
        self.flush_s = flush_s
        self.flush_changes = rows
        self._parquet = required("pyarrow.parquet", "parquet", extra="arrow")
        self._folder = Path(folder)
        self._updates = updates
        self._compression = compression
        self._batches: dict[tuple[str, str], list[ArrowBatch]] = {}

    def open(self) -> None:
        """Create the folder, and remove files that a crash left incomplete.

        Raises OSError.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
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
                folder.mkdir(exist_ok=True)
                for _, same in groupby(batches, lambda each: each.batch.schema):
                    self._write(folder, [each.batch for each in same])
        except OSError as error:
            raise RetryLater(f"{self._folder}: {error.strerror or error}") from error
        self._batches.clear()

    def rollback(self) -> None:
        """Forget what was collected."""
        self._batches.clear()

    def _write(self, folder: Path, batches: list[Any]) -> None:
        """Write a file, and remove those whose rows it has, or which follow it."""
        first, last = _name_of(batches[0], 0), _name_of(batches[-1], -1)
        part = folder / f".{first}.part"
        with part.open("wb") as file:
            writer = self._parquet.ParquetWriter(
                file, batches[0].schema, compression=self._compression
            )
            with writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
        part.rename(folder / str(first))
        for each in superseded(folder, first, last):
            each.unlink()
        sync_folder(folder)


def _name_of(batch: Any, at: int) -> FileName:
    """Return the name of a file that begins with a row of a batch."""
    number = at if at >= 0 else batch.num_rows + at
    position, row, moment = (
        batch.column(name)[number].as_py()
        for name in ("_position", "_row", "_commit_timestamp")
    )
    file, _, offset = position.rpartition(":")
    return FileName(moment, file, int(offset), row)
