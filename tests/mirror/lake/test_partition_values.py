"""Tables with partitions, in each format: rows are what they are without them."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from duckdb_reader import duckdb_with
from fix_lake import COPY, LakeRows, data_files, identity, in_order, opened
from fix_random import longer
from parted_lake import (
    check,
    copied,
    copied_files,
    filled_rows,
    own,
    parted,
    row_of,
    unique,
)

from canal_server.mirror.copy import copy_files
from canal_server.mirror.lake import masks
from canal_server.mirror.lake.lake_table import UnlikeError
from canal_server.mirror.lake.row_keys import ManyPartitionsError
from canal_server.mirror.lake.steps import WidenColumn
from canal_server.mirror.verify.verify_rows import RowForm

if TYPE_CHECKING:
    import random
    from pathlib import Path

BY = [
    "region",
    "tenant",
    "born",
    "month(at), tenant",
    "day(seen)",
    "year(born), bucket(3, id)",
    "bucket(4, region), bucket(2, tenant)",
]


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("by", BY)
def test_random_changes(
    tmp_path: Path, rng: random.Random, form: str, by: str, deletes: str
) -> None:
    """Rows are added, changed, moved between partitions and deleted."""
    rows = filled_rows(parted(by, form, deletes=deletes), rng, 60)
    lake, _ = copied(tmp_path, rows)
    check(lake, rows)
    for _ in range(longer(2)):
        changes = []
        for _ in range(25):
            number = rng.randrange(80)
            is_known = (number,) in rows.rows
            if is_known and rng.random() < 0.25:
                old = rows.rows[(number,)]
                row = {name: old[name] for name in rows.data_schema.names}
                change = rows.change("delete", row)
                if deletes == "hard":
                    del rows.rows[(number,)]
                else:
                    old["_deleted"] = True
                changes.append(change)
                continue
            kind = "update_postimage" if is_known else "insert"
            changes.append(rows.put(kind, row_of(rng, number)))
        lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
        check(lake, rows)
    lake.compact()
    check(opened(tmp_path, rows.table), rows)


@pytest.mark.parametrize("by", ["region", "month(at), bucket(2, id)", "tenant, born"])
def test_copies(tmp_path: Path, rng: random.Random, form: str, by: str) -> None:
    """Another copy writes what differs, also where it is in another partition."""
    rows = filled_rows(parted(by, form), rng, 60)
    lake, first = copied(tmp_path, rows, file_bytes=2_000)
    assert first is None
    known = identity(tmp_path, form)
    files = data_files(tmp_path, form)
    assert copied(tmp_path, rows, unique())[1] == (0, 0)
    assert data_files(tmp_path, form) == files
    for number in (3, 9):
        rows.put(
            "update_postimage", rows.rows[(number,)] | row_of(rng, number) | {"v": "x"}
        )
    del rows.rows[(4,)]
    rows.put("insert", row_of(rng, 999))
    assert copied(tmp_path, rows, unique())[1] == (3, 1)
    check(lake, rows)
    assert identity(tmp_path, form) == known


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", "region"),
        ("region", ""),
        ("tenant", "month(at)"),
        ("day(at)", "born, tenant"),
    ],
)
def test_another_rule(
    tmp_path: Path, rng: random.Random, form: str, old: str, new: str
) -> None:
    """A copy with other partitions keeps the table, for which all is written again."""
    before = filled_rows(parted(old, form), rng, 40)
    copied(tmp_path, before)
    known = identity(tmp_path, form)
    rows = LakeRows(parted(new, form), rng, before.seq, before.rows)
    copy = unique()
    lake, done = copied(tmp_path, rows, copy)
    assert done is None
    check(lake, rows)
    assert identity(tmp_path, form) == known
    files = data_files(tmp_path, form)
    assert copied(tmp_path, rows, unique())[1] == (0, 0)
    assert data_files(tmp_path, form) == files
    rows.put("update_postimage", row_of(rng, 5))
    copy = unique()
    assert copied(tmp_path, rows, copy)[1] == (1, 0)
    changes = [rows.put("update_postimage", row_of(rng, 6))]
    lake.apply(copy, rows.as_changes(changes), rows.seq + 1, {})
    check(lake, rows)


@pytest.mark.parametrize("by", ["tenant", "bucket(4, tenant)"])
@pytest.mark.parametrize(
    "kinds",
    [
        ("int unsigned", "bigint unsigned"),
        ("int", "varchar(20)"),
        ("varchar(20)", "int"),
    ],
)
def test_a_partition_of_another_type(
    tmp_path: Path, rng: random.Random, form: str, by: str, kinds: tuple[str, str]
) -> None:
    """A copy with another type of the partition's column keeps the table."""

    def rows_with(kind: str, seq: int) -> LakeRows:
        columns = [("id", "int"), ("tenant", kind), ("v", "varchar(20)")]
        rows = LakeRows(parted(by, form, columns=columns), rng, seq)
        type_of = {"varchar(20)": str, "bigint unsigned": Decimal}.get(kind, int)
        for number in range(20):
            tenant = type_of(number % 3)
            rows.put("insert", {"id": number, "tenant": tenant, "v": "a"})
        return rows

    copied(tmp_path, rows_with(kinds[0], 100))
    known = identity(tmp_path, form)
    rows, copy = rows_with(kinds[1], 1000), unique()
    lake, _ = copied(tmp_path, rows, copy)
    check(lake, rows)
    assert identity(tmp_path, form) == known
    row = {"id": 3, "tenant": rows.rows[(4,)]["tenant"], "v": "b"}
    changes = [rows.put("update_postimage", row)]
    lake.apply(copy, rows.as_changes(changes), rows.seq + 1, {})
    check(lake, rows)


def test_a_type_that_is_another_column(tmp_path: Path, rng: random.Random) -> None:
    """An Iceberg table is copied again: its rows need partitions of the new column."""
    columns = [("id", "int"), ("tenant", "int unsigned")]
    rows = LakeRows(parted("tenant", "iceberg", columns=columns), rng)
    rows.put("insert", {"id": 1, "tenant": 7})
    lake, copy = copied(tmp_path, rows)[0], COPY
    with pytest.raises(UnlikeError, match="partition tenant"):
        lake.evolve(
            copy, [WidenColumn("tenant", "bigint unsigned", "")], rows.seq + 2, {}
        )
    check(lake, rows)


@pytest.mark.parametrize("by", ["region", "month(at)"])
@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_without_a_key(
    tmp_path: Path, rng: random.Random, form: str, by: str, deletes: str
) -> None:
    """Rows are counted in all partitions."""
    rows = filled_rows(parted(by, form, key=(), deletes=deletes), rng, 1)
    rows.rows.clear()
    for number in range(30):
        rows.rows[number] = row_of(rng, number % 20) | {"_deleted": False}
    if deletes == "hard":
        for row in rows.rows.values():
            del row["_deleted"]
    lake, _ = copied(tmp_path, rows)
    check(lake, rows)
    old = rows.rows[3]
    row = {name: old[name] for name in rows.data_schema.names}
    new = row_of(rng, 500)
    changes = [
        rows.change("update_preimage", row),
        rows.change("update_postimage", new),
        rows.change("insert", new),
    ]
    lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    flag = {"_deleted": False} if deletes == "soft" else {}
    rows.rows[3] = new | flag
    rows.rows[1000] = new | flag
    check(lake, rows)


@pytest.mark.parametrize("by", ["region, month(at)", "tenant, bucket(3, id)", "born"])
def test_engines(tmp_path: Path, rng: random.Random, form: str, by: str) -> None:
    """DuckDB and polars read what the mirror has."""
    polars = pytest.importorskip("polars", reason="polars is not installed")
    table = tmp_path / "table"
    rows = filled_rows(parted(by, form), rng, 60)
    lake, _ = copied(table, rows)
    changes = [rows.put("update_postimage", row_of(rng, n)) for n in range(0, 60, 7)]
    lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    scan = "delta_scan" if form == "delta" else "iceberg_scan"
    extensions = ["delta"] if form == "delta" else ["avro", "iceberg"]
    expected = own(rows.rows.values())
    with duckdb_with(tmp_path, *extensions) as connection:
        connection.execute(f"SELECT * FROM {scan}('{table}')")
        found = connection.to_arrow_table()
    assert _plain(found.to_pylist()) == _plain(rows.rows.values())
    if form == "delta":
        frame = polars.scan_delta(str(table)).collect()
        assert _plain(frame.to_dicts()) == _plain(rows.rows.values())
    assert len(expected) == len(rows.rows)


def _plain(rows: object) -> list[str]:
    """Return rows such that engines that name a zone differently agree."""
    assert isinstance(rows, list) or hasattr(rows, "__iter__")
    return in_order(
        {
            name: str(row[name]).removesuffix("+00:00")
            for name in ("id", "region", "tenant", "born", "at", "seen", "v")
        }
        for row in rows
    )


def test_large_copies_write_what_they_hold(
    tmp_path: Path, rng: random.Random, form: str
) -> None:
    """Memory is limited: the largest partition is written first."""
    rows = filled_rows(parted("region", form), rng, 200)
    few = copied_files(tmp_path, rows, "one")
    many = copied_files(tmp_path, rows, "two", file_bytes=3_000)
    assert len(many) > len(few)
    assert sum(each.rows for each in many) == sum(each.rows for each in few) == 200


def test_too_many_partitions(
    tmp_path: Path, rng: random.Random, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy ends before it writes a file for each row."""
    monkeypatch.setattr(copy_files, "PARTITIONS_MAX", 5)
    rows = filled_rows(parted("id", form), rng, 6)
    with pytest.raises(ManyPartitionsError, match=r"more than 5 partitions .*bucket"):
        copied_files(tmp_path, rows)
    assert not list(tmp_path.glob("*.parquet"))


def test_partitions_are_counted(tmp_path: Path, rng: random.Random, form: str) -> None:
    """The number of partitions is that of the newest version."""
    rows = filled_rows(parted("bucket(3, id)", form), rng, 30)
    lake, _ = copied(tmp_path, rows)
    size = lake.size()
    assert size is not None
    assert size.partitions == 3


@pytest.mark.parametrize("by", ["region, born", "tenant, bucket(2, id)"])
def test_what_verify_compares(
    tmp_path: Path, rng: random.Random, form: str, by: str
) -> None:
    """Rows have the hashes that they have in the source, whatever partition adds."""
    rows = filled_rows(parted(by, form), rng, 60)
    lake, _ = copied(tmp_path, rows)
    changes = [rows.put("update_postimage", row_of(rng, n)) for n in range(0, 60, 7)]
    lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    schema = masks.lake_schema(rows.table)
    form_of_rows = RowForm(tuple(schema.names), ("id",), schema)
    whole = pa.Table.from_pylist(list(rows.rows.values()), schema=schema)
    files = pickle.loads(pickle.dumps(lake.version_files(lake.version())))
    batches = [
        batch
        for number in range(len(files))
        for batch in files.batches(number, schema.names)
    ]
    found, expected = (
        sorted(
            row
            for batch in each
            for row in zip(
                *(h.to_pylist() for h in form_of_rows.hashes(batch)), strict=True
            )
        )
        for each in (batches, whole.to_batches())
    )
    assert found == expected
