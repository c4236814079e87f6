"""Tables of a lake without a source: random rows of every type, and what is expected.

Leaves out the tests, and Spark.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from canal_server.mirror.lake.change_files import ChangeLog
from canal_server.mirror.lake.delta.delta import DeltaLakeTable
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.lake.value_forms import LakePart, parts_of
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.settings.table_values import (
    ARRAY,
    WKB,
    CopiedFile,
    MirrorColumn,
    MirrorTable,
    TableName,
)
from canal_server.mirror.state.lake_tables import LakeTable, lake_schema

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator

    from canal_server.mirror.lake.conditions import Where

EPOCH = datetime(2024, 1, 1)  # noqa: DTZ001  # DATETIME has no zone
COPY = "copy-1"
COPY_AT = 1_000  # position number of copies
LETTERS = "aA é'\"\\`%_{}\n\0日😀~"


def _text(rng: random.Random) -> str:
    return "".join(rng.choices(LETTERS, k=rng.randrange(5)))


def _decimal(rng: random.Random, digits: int, scale: int) -> Decimal:
    number = rng.randrange(-(10**digits) + 1, 10**digits)
    return (
        Decimal(number).scaleb(-scale)
        if digits <= 28
        else Decimal(f"{number}e-{scale}")
    )


def _time(rng: random.Random) -> datetime:
    return EPOCH + timedelta(microseconds=rng.randrange(-(10**15), 10**15))


# By MySQL's type: a value. Few different ones for small types, so that keys meet again.
VALUES: dict[str, Callable[[random.Random], Any]] = {
    "tinyint": lambda rng: rng.randrange(-128, 128),
    "tinyint unsigned": lambda rng: rng.randrange(256),
    "smallint": lambda rng: rng.randrange(-(2**15), 2**15),
    "int": lambda rng: rng.choice([rng.randrange(30), -(2**31), 2**31 - 1]),
    "bigint": lambda rng: rng.choice([rng.randrange(30), -(2**63), 2**63 - 1]),
    "bigint unsigned": lambda rng: Decimal(rng.choice([rng.randrange(30), 2**64 - 1])),
    "decimal(5,2)": lambda rng: _decimal(rng, 5, 2),
    "decimal(38,10)": lambda rng: _decimal(rng, 38, 10),
    "decimal(50,3)": lambda rng: str(rng.randrange(10**47)) + ".125",
    "float": lambda rng: rng.choice([0.0, -0.0, 0.5, -2.25, 2.0**100]),
    "double": lambda rng: rng.choice([0.0, -0.0, 0.1, -1e-300, rng.random()]),
    "date": lambda rng: date(1000 + rng.randrange(8999), 1 + rng.randrange(12), 5),
    "datetime(6)": _time,
    "timestamp(6)": lambda rng: _time(rng).replace(tzinfo=UTC),
    "year": lambda rng: rng.choice([0, 1901, 2155]),
    "bit(64)": lambda rng: rng.choice([0, 1, -1, 2**63 - 1]),
    "varchar(20)": _text,
    "json": lambda rng: f'{{"a": {rng.randrange(9)}}}',
    "varbinary(9)": lambda rng: rng.randbytes(rng.randrange(4)),
    "blob": lambda rng: rng.randbytes(rng.randrange(40)),
    "vector(3)": lambda rng: [rng.choice([0.0, -0.0, 0.5]) for _ in range(3)],
    "point": lambda rng: rng.randbytes(21),
    "int unsigned": lambda rng: rng.choice([0, 4326, 2**32 - 1]),
}
FORMS = {"vector(3)": ARRAY, "point": WKB}
NOT_IN_ICEBERG = {"vector(3)"}  # as an array
NOT_IN_KEYS = ("json", "blob", "bit(64)", *FORMS)
KEY_TYPES = [name for name in VALUES if name not in NOT_IN_KEYS]
NAMES = [
    "a",
    "A2",
    "a b",
    "a.b",
    "a`b",
    'a"b',
    "a'b",
    "sélect",
    "select",
    "t",
    "s",
    "日本",
]


@dataclass
class LakeRows:
    """Rows that a table is expected to have, and random changes of them."""

    table: MirrorTable
    rng: random.Random
    seq: int = COPY_AT
    rows: dict[Any, dict[str, Any]] = field(default_factory=dict)

    @property
    def data_schema(self) -> pa.Schema:
        """Return the table's own columns, by their names in the lake."""
        schema = lake_schema(self.table)
        return pa.schema([schema.field(part.name) for part in self.parts])

    @property
    def parts(self) -> list[LakePart]:
        """Return the columns of the lake that have values of the source."""
        return [part for column in self.table.columns for part in parts_of(column)]

    def key_of(self, row: dict[str, Any]) -> Any:
        """Return the key that distinguishes rows."""
        targets = {c.name: c.target for c in self.table.columns}
        return tuple(row[targets[name]] for name in self.table.key)

    def new_row(self) -> dict[str, Any]:
        """Return a row of random values; a key has no NULL."""
        row = {}
        for column in self.table.columns:
            is_null = not column.is_key and self.rng.random() < 0.2
            for part in parts_of(column):
                value = VALUES[part.mysql_type](self.rng)
                row[part.name] = None if is_null else value
        return row

    def change(self, kind: str, row: dict[str, Any]) -> dict[str, Any]:
        """Return a change, of the next event or the next row of the same."""
        self.seq += self.rng.choice((1, 1, 30))
        shown = {
            "_change_type": kind,
            "_seq": self.seq,
            "_row": self.rng.randrange(3),
            "_commit_timestamp": _time(self.rng).replace(tzinfo=UTC),
        }
        return row | shown

    def random_changes(self, count: int) -> list[dict[str, Any]]:
        """Make changes as a source would, and expect what comes of them."""
        return [change for _ in range(count) for change in self._statement()]

    def _statement(self) -> Iterator[dict[str, Any]]:
        row = self.new_row()
        if self.rows and self.rng.random() < 0.6:
            old = self.rng.choice(list(self.rows.values()))
            same_key = {c.target: old[c.target] for c in self.table.columns if c.is_key}
            if self.rng.random() < 0.25:
                yield self._delete(old)
                return
            if self.rng.random() < 0.8:
                yield self.put("update_postimage", row | same_key)
                return
            if self.key_of(row) in self.rows:
                return
            yield self._delete(old)  # an update of the key
        kind = "update_postimage" if self.key_of(row) in self.rows else "insert"
        yield self.put(kind, row)

    def put(self, kind: str, row: dict[str, Any]) -> dict[str, Any]:
        """Return a change of a row, which is expected from now on."""
        change = self.change(kind, row)
        self.rows[self.key_of(row)] = self._kept(change, deleted=False)
        return change

    def _delete(self, row: dict[str, Any]) -> dict[str, Any]:
        data = {part.name: row[part.name] for part in self.parts}
        change = self.change("delete", data)
        if self.table.deletes == "soft":
            self.rows[self.key_of(row)] = self._kept(change, deleted=True)
        else:
            del self.rows[self.key_of(row)]
        return change

    def _kept(self, change: dict[str, Any], *, deleted: bool) -> dict[str, Any]:
        row = {k: v for k, v in change.items() if k != "_change_type"}
        row["_committed_at"] = row.pop("_commit_timestamp")
        return row | ({"_deleted": deleted} if self.table.deletes == "soft" else {})

    def as_changes(self, changes: Iterable[dict[str, Any]]) -> pa.Table:
        """Return changes as the mirror's stream gives them."""
        schema = lake_schema(self.table)
        fields = [
            *self.data_schema,
            pa.field("_change_type", pa.string()),
            schema.field("_seq"),
            schema.field("_row"),
            schema.field("_committed_at").with_name("_commit_timestamp"),
        ]
        return pa.Table.from_pylist(list(changes), schema=pa.schema(fields))


def lake_table(
    columns: Iterable[tuple[str, str]],
    key: tuple[str, ...] = (),
    deletes: str = "hard",
    form: str = "delta",
) -> MirrorTable:
    """Return a table of columns with names and types."""
    return MirrorTable(
        TableName("shop", "orders"),
        "shop/orders",
        tuple(
            MirrorColumn(
                name, kind, "utf8mb4", name in key, name, None, FORMS.get(kind, "")
            )
            for name, kind in columns
        ),
        key,
        deletes,
        form,
    )


def possible_types(form: str) -> list[str]:
    """Return the types that columns of a format can have."""
    return sorted(VALUES.keys() - (NOT_IN_ICEBERG if form == "iceberg" else set()))


def random_table(
    rng: random.Random,
    deletes: str = "hard",
    form: str = "delta",
) -> MirrorTable:
    """Return a table of random columns with a key of one to three of them."""
    names = rng.sample(NAMES, len(NAMES))
    kinds = rng.sample(possible_types(form), rng.randrange(2, 9))
    key_kinds = rng.sample(KEY_TYPES, rng.choice([1, 1, 2, 3]))
    columns = list(zip(names, [*key_kinds, *kinds], strict=False))
    key = tuple(name for name, _ in columns[: len(key_kinds)])
    rng.shuffle(columns)
    return lake_table(columns, key, deletes, form)


def write_copy(
    folder: Any, table: pa.Table, copy: str = COPY, rows_of_file: int = 15
) -> list[CopiedFile]:
    """Write a copy's files below a table's folder, as a copy does."""
    files = []
    (folder / copy).mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, len(table), rows_of_file)):
        part = table.slice(first, rows_of_file)
        path = folder / copy / f"{number}.parquet"
        pq.write_table(part, path, compression="zstd")
        stats = statistics(part)
        name = f"{copy}/{number}.parquet"
        files.append(CopiedFile(name, path.stat().st_size, len(part), stats))
    return files


def statistics(part: pa.Table) -> str:
    """Return what a copy reports of a file: the ends of some of its columns."""
    ends = {}
    for name in part.column_names:
        kind = part.schema.field(name).type
        if pa.types.is_integer(kind) or pa.types.is_string(kind):
            ends[name] = pc.min_max(part[name]).as_py()
    return json.dumps(
        {
            "numRecords": len(part),
            "minValues": {name: shown["min"] for name, shown in ends.items()},
            "maxValues": {name: shown["max"] for name, shown in ends.items()},
            "nullCount": {name: part[name].null_count for name in ends},
        }
    )


def copied_rows(rows: LakeRows) -> pa.Table:
    """Return what is expected as the rows of a copy."""
    return pa.Table.from_pylist(
        list(rows.rows.values()), schema=lake_schema(rows.table)
    )


def lake_rows(
    lake: LakeTable, where: Where | None = None, version: int | None = None
) -> list[dict[str, Any]]:
    """Return all rows of a table in the lake; an empty one has no batches."""
    batches = lake.scan(where=where, version=version)
    return [row for batch in batches for row in batch.to_pylist()]


def in_order(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return rows such that equal ones compare so whatever their values are."""
    return sorted(
        repr(sorted((name, _text_of_time(value)) for name, value in row.items()))
        for row in rows
    )


def _text_of_time(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def filled(table: MirrorTable, rng: random.Random, count: int = 60) -> LakeRows:
    """Return a table's rows after some changes, with one that is not deleted."""
    rows = LakeRows(table, rng)
    rows.random_changes(count)
    while all(row.get("_deleted") for row in rows.rows.values()):
        rows.random_changes(1)
    return rows


def opened(folder: Any, table: MirrorTable, **options: Any) -> LakeTable:
    """Open a table of the lake, in whatever form it is kept."""
    if table.form == "delta":
        return DeltaLakeTable(str(folder), table, **options)
    if table.form == "iceberg":
        # Only where it is needed, as an extra brings it.
        module = importlib.import_module("canal_server.mirror.lake.iceberg.iceberg")
        made: LakeTable = module.IcebergLakeTable(str(folder), table, **options)
        return made
    return ChangeLog(open_folder(LakeSettings(path=str(folder))), table)


@pytest.fixture(params=["delta", "iceberg"])
def form(request: pytest.FixtureRequest) -> str:
    """Give each format that keeps a table's rows."""
    if request.param == "iceberg":
        reason = "the extra `iceberg` is not installed"
        pytest.importorskip("pyiceberg", reason=reason)
    return str(request.param)


def kept(table: MirrorTable, form: str) -> MirrorTable:
    """Return a table that is kept in another format, with the columns it can have."""
    columns = tuple(
        column
        for column in table.columns
        if form != "iceberg" or column.mysql_type not in NOT_IN_ICEBERG
    )
    return replace(table, form=form, columns=columns)


def iceberg_metadata(folder: Any) -> dict[str, Any]:
    """Return the newest metadata file of an Iceberg table, as readers find it."""
    metadata = folder / "metadata"
    number = (metadata / "version-hint.text").read_text()
    text = (metadata / f"v{number}.metadata.json").read_text()
    return dict(json.loads(text))


def identity(folder: Any, form: str) -> str:
    """Return the id by which readers know a table."""
    if form == "iceberg":
        return str(iceberg_metadata(folder)["table-uuid"])
    return str(DeltaTable(str(folder)).metadata().id)


def data_files(folder: Any, form: str) -> set[str]:
    """Return the names of the data files that are a table's."""
    if form == "iceberg":
        static = importlib.import_module("pyiceberg.table").StaticTable
        found = static.from_metadata(str(folder)).inspect.files()
        return {path.rpartition("/")[2] for path in found["file_path"].to_pylist()}
    return {path.rpartition("/")[2] for path in DeltaTable(str(folder)).file_uris()}


def table_rows(folder: Any, form: str) -> list[dict[str, Any]]:
    """Return the rows of a table as readers see them."""
    if form == "iceberg":
        static = importlib.import_module("pyiceberg.table").StaticTable
        return list(static.from_metadata(str(folder)).scan().to_arrow().to_pylist())
    return list(DeltaTable(str(folder)).to_pyarrow_table().to_pylist())


def versions(folder: Any, form: str) -> int:
    """Return how often a table's rows or columns were changed."""
    if form == "iceberg":
        return len(iceberg_metadata(folder)["snapshots"])
    return int(DeltaTable(str(folder)).version()) + 1


def published(
    folder: Any, rows: LakeRows, copy: str = COPY, **options: Any
) -> LakeTable:
    """Publish what is expected as a copy, and return the table."""
    lake = opened(folder, rows.table, **options)
    files = write_copy(folder, copied_rows(rows), copy)
    lake.publish(copy, lake_schema(rows.table), files, rows.seq + 1, {"from": "copy"})
    return lake


def random_keyless_table(
    rng: random.Random,
    deletes: str = "hard",
    form: str = "delta",
) -> MirrorTable:
    """Return a table of random columns without a key."""
    kinds = rng.sample(possible_types(form), rng.randrange(1, 9))
    names = rng.sample(NAMES, len(kinds))
    return lake_table(zip(names, kinds, strict=True), (), deletes, form)
