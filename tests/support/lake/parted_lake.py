"""Tables of the lake with partitions, copied as the mirror copies them.

Leaves out the tests, and sources.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable
from fix_lake import COPY, LakeRows, in_order, kept, lake_rows, lake_table, opened

from canal_server.mirror.copy.copy_files import CopyTask, copy_schema, write_files
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.rows.chunks import Chunk
from canal_server.mirror.settings.lake_partitions import (
    expressions_of,
    partitions_of,
    problems,
)
from canal_server.mirror.settings.mirror_settings import LakeSettings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from canal_server.mirror.settings.table_values import CopiedFile, MirrorTable
    from canal_server.mirror.state.lake_tables import Applied, LakeTable
    from canal_server.mysql.source_settings import Access

COLUMNS = [
    ("id", "int"),
    ("region", "varchar(20)"),
    ("tenant", "bigint unsigned"),
    ("born", "date"),
    ("at", "datetime(6)"),
    ("seen", "timestamp(6)"),
    ("v", "varchar(20)"),
]
NOWHERE: Any = None  # a database that is not read


def parted(
    by: str,
    form: str,
    *,
    key: tuple[str, ...] = ("id",),
    deletes: str = "hard",
    columns: Iterable[tuple[str, str]] = COLUMNS,
) -> MirrorTable:
    """Return a table that is partitioned by these expressions."""
    table = kept(lake_table(columns, key, deletes), form)
    if not by:
        return table
    found = expressions_of(by)
    assert list(problems(found, table.columns, form)) == []
    return replace(table, partitions=partitions_of(found, table.columns, form))


def copied_files(
    folder: Path, rows: LakeRows, copy: str = COPY, **limits: Any
) -> list[CopiedFile]:
    """Write what is expected as a copy does."""
    lake = opened(folder, rows.table)
    access: Access = NOWHERE
    task = CopyTask(
        access=access,
        table=rows.table,
        copy_id=copy,
        seq=rows.seq,
        folder=open_folder(LakeSettings(path=str(folder))),
        manifests=open_folder(LakeSettings(path=str(folder / "none"))),
        file_schema=lake.file_schema(copy_schema(rows.table)),
        **limits,
    )
    found = pa.Table.from_pylist(list(rows.rows.values()), schema=rows.data_schema)
    return write_files(task, Chunk(1), found.to_batches(20))


def copied(
    folder: Path, rows: LakeRows, copy: str = COPY, **limits: Any
) -> tuple[LakeTable, Applied | None]:
    """Publish what is expected; returns the table, and what differed."""
    files = copied_files(folder, rows, copy, **limits)
    lake = opened(folder, rows.table)
    schema = copy_schema(rows.table)
    done = lake.publish(copy, schema, files, rows.seq + 1, {"copy": copy})
    return lake, done


def filled_rows(table: MirrorTable, rng: Any, count: int = 200) -> LakeRows:
    """Return rows whose partitions are few."""
    rows = LakeRows(table, rng)
    for number in range(count):
        rows.put("insert", row_of(rng, number))
    return rows


def row_of(rng: Any, number: int) -> dict[str, Any]:
    """Return a row with some key."""
    day = date(2026, rng.choice([1, 2]), rng.choice([1, 15]))
    at = pa.scalar(day).cast(pa.timestamp("us"))
    return {
        "id": number,
        "region": rng.choice(["EU", "US", "São Paulo/1", "", "~", "%41", None]),
        "tenant": rng.choice([7, 2**64 - 1, None]),
        "born": rng.choice([day, None]),
        "at": rng.choice([at.as_py(), None]),
        "seen": at.cast(pa.timestamp("us", "UTC")).as_py(),
        "v": rng.choice(["a", "b"]),
    }


def own(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the table's own columns of rows, to be compared."""
    names = [name for name, _ in COLUMNS]
    return in_order(
        {name: row.get(name) for name in [*names, "_deleted"]}
        | {"tenant": str(row.get("tenant"))}
        for row in rows
    )


def check(lake: LakeTable, rows: LakeRows) -> None:
    """Check that a table has the expected rows."""
    assert own(lake_rows(lake)) == own(rows.rows.values())


@dataclass(frozen=True)
class ListedFile:
    """A file of a Delta table."""

    path: str
    values: dict[str, Any]


def listed_files(folder: Path) -> list[ListedFile]:
    """Return the files of a Delta table, with the values of their partitions."""
    found = pa.table(DeltaTable(str(folder)).get_add_actions(flatten=True))
    start = "partition."
    return [
        ListedFile(
            str(row["path"]),
            {n[len(start) :]: v for n, v in row.items() if n.startswith(start)},
        )
        for row in found.to_pylist()
    ]


def unique() -> str:
    """Return the name of another copy."""
    return uuid.uuid4().hex
