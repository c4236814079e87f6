"""DDL in the lake: columns that come, go, widen and change names, with their rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fix_lake import (
    COPY,
    LakeRows,
    filled,
    in_order,
    kept,
    lake_rows,
    lake_table,
    published,
    versions,
)

from canal_server.errors import LakeError
from canal_server.mirror.lake.delta import delta_rows
from canal_server.mirror.lake.generated.expressions import (
    Call,
    Column,
    Constant,
    Generated,
)
from canal_server.mirror.lake.lake_table import UnlikeError
from canal_server.mirror.lake.reshape import Reshape
from canal_server.mirror.lake.steps import (
    AddColumn,
    DropColumn,
    RenameColumn,
    WidenColumn,
)
from canal_server.mirror.lake.value_forms import FLOATS
from canal_server.mirror.settings.table_values import ARRAY
from canal_server.mirror.state.lake_tables import lake_schema

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.lake.steps import Step

COLUMNS = [("id", "int"), ("n", "int"), ("d", "decimal(5,2)"), ("s", "varchar(20)")]
TABLE = lake_table(COLUMNS, ("id",))
DOUBLED = Call("*", (Column("id"), Constant(2)))
# A column of arrays, which an Iceberg table cannot have.
VECTOR = {
    "delta": ("vector(3)", "", None, ARRAY),
    "iceberg": ("blob", "", None, ""),
}


def without_order(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Return rows with these columns alone."""
    return [{name: row[name] for name in names} for row in rows]


FILLS = [
    ("int", "-5", -5),
    ("tinyint unsigned", "200", 200),
    ("bigint unsigned", "18446744073709551615", Decimal(2**64 - 1)),
    ("decimal(38,10)", "1.5", Decimal("1.5000000000")),
    ("decimal(50,3)", "1.500", "1.500"),
    ("double", "1.5E-3", 0.0015),
    ("float", "0.5", 0.5),
    ("date", "2024-02-29", date(2024, 2, 29)),
    ("date", "0000-00-00", None),
    ("datetime(6)", "2024-02-29 01:02:03.000004", datetime(2024, 2, 29, 1, 2, 3, 4)),  # noqa: DTZ001
    ("timestamp", "2024-02-29 01:02:03", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
    ("year", "1999", 1999),
    ("bit(64)", "18446744073709551615", -1),
    ("bit(1)", "1", 1),
    ("varchar(9)", "it's `é`", "it's `é`"),
    ("time", "-12:00:00", "-12:00:00"),
    ("varbinary(9)", "\xff\0", b"\xff\0"),
]


@pytest.mark.parametrize(("kind", "text", "value"), FILLS)
def test_fill(kind: str, text: str, value: object) -> None:
    """A column's default is the value that an entry would carry as that text."""
    schema = lake_schema(TABLE)
    reshape = Reshape(schema, [AddColumn("c", kind, "utf8mb4", text)])
    table = schema.empty_table().from_pylist([{"id": 1}, {"id": 2}], schema=schema)
    rows = reshape.rows(table)
    assert rows.schema == reshape.schema
    assert rows["c"].to_pylist() == [value, value]


def test_no_fill_of_the_type() -> None:
    """A default that is not of the type is an error."""
    schema = lake_schema(TABLE)
    reshape = Reshape(schema, [AddColumn("c", "int", "", "x")])
    with pytest.raises(LakeError, match="'x' cannot be a default of type int32"):
        reshape.rows(schema.empty_table())


WRONG: list[tuple[Step, str]] = [
    (AddColumn("n", "int", ""), "already has a column n"),
    (DropColumn("x"), "has no column x"),
    (RenameColumn("x", "y"), "has no column x"),
    (RenameColumn("n", "s"), "already has a column s"),
    (WidenColumn("x", "int", ""), "has no column x"),
]


@pytest.mark.parametrize(("step", "expected"), WRONG)
def test_steps_that_do_not_fit(step: Step, expected: str) -> None:
    """A step that does not fit the table's columns fails before any change."""
    with pytest.raises(LakeError, match=expected):
        Reshape(lake_schema(TABLE), [step])


def test_added_columns(tmp_path: Path, rng: random.Random, form: str) -> None:
    """Columns without a default cost no rewriting: rows have NULL there at first."""
    rows = filled(kept(TABLE, form), rng)
    lake = published(tmp_path, rows)
    files = {path.name for path in tmp_path.rglob("*.parquet")}
    steps = [
        AddColumn("x", "datetime(6)", ""),
        AddColumn("y z", "bigint unsigned", ""),
        AddColumn("v", *VECTOR[form]),
    ]
    lake.evolve(COPY, steps, rows.seq + 2, {"ddl": "1"})
    assert {path.name for path in tmp_path.rglob("*.parquet")} == files
    nothing = {"x": None, "y z": None, "v": None}
    expected = [row | nothing for row in rows.rows.values()]
    assert in_order(lake_rows(lake)) == in_order(expected)
    assert lake.position() == (rows.seq + 2, {"ddl": "1"})
    added = [("x", "datetime(6)"), ("y z", "bigint unsigned"), ("v", VECTOR[form][0])]
    more = [*COLUMNS, *added]
    known = {key: nothing | row for key, row in rows.rows.items()}
    rows = LakeRows(kept(lake_table(more, ("id",)), form), rng, rows.seq + 2, known)
    changes = rows.as_changes(rows.random_changes(60))
    lake.apply(COPY, changes, rows.seq + 1, {})
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


def test_all_steps_at_once(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A DDL of many steps is one commit: new columns may even reuse names."""
    rows = filled(kept(TABLE, form), rng)
    lake = published(tmp_path, rows)
    steps: list[Step] = [
        RenameColumn("n", "m"),
        AddColumn("n", "varchar(9)", "utf8mb4", "new"),
        WidenColumn("m", "bigint", ""),
        WidenColumn("d", "decimal(9,3)", ""),
        DropColumn("s"),
        AddColumn("v", *VECTOR[form]),
    ]
    before = versions(tmp_path, form)
    lake.evolve(COPY, steps, rows.seq + 2, {})
    if form == "delta":  # of which the first commit chooses columns with statistics
        before += 1
    assert versions(tmp_path, form) == before + 1
    schema = lake.arrow_schema()
    assert schema is not None
    assert [(f.name, f.type) for f in schema][:5] == [
        ("id", pa.int32()),
        ("m", pa.int64()),
        ("d", pa.decimal128(9, 3)),
        ("n", pa.string()),
        ("v", FLOATS if form == "delta" else pa.binary()),
    ]
    expected = [
        {"id": r["id"], "m": r["n"], "d": r["d"] and r["d"] + Decimal("0.000")}
        | {"n": "new", "v": None}
        for r in rows.rows.values()
    ]
    left = without_order(lake_rows(lake), "id", "m", "d", "n", "v")
    assert in_order(left) == in_order(expected)
    assert lake.applied(COPY) == rows.seq + 2


def test_generated_columns(tmp_path: Path, rng: random.Random, form: str) -> None:
    """Existing rows get computed values; so do those of an expression that changes."""
    rows = filled(kept(TABLE, form), rng)
    # Chance may leave no row, no NULL, or no value above the bound below.
    rows.put("insert", {"id": 40, "n": None, "d": None, "s": "x"})
    rows.put("insert", {"id": 41, "n": 7, "d": None, "s": "x"})
    lake = published(tmp_path, rows)
    once = Generated(DOUBLED)
    lake.evolve(COPY, [AddColumn("g", "bigint", "", generated=once)], rows.seq + 2, {})
    found = lake_rows(lake)
    assert all(row["g"] == 2 * row["id"] for row in found)
    assert len(found) == len(rows.rows)
    other = Generated(Call("coalesce", (Column("n"), Constant(-1))))
    again: list[Step] = [DropColumn("g"), AddColumn("g", "bigint", "", generated=other)]
    lake.evolve(COPY, again, rows.seq + 3, {})
    found = lake_rows(lake)
    assert all(row["g"] == (-1 if row["n"] is None else row["n"]) for row in found)
    assert len(found) == len(rows.rows)
    tiny: list[Step] = [
        DropColumn("g"),
        AddColumn("g", "bigint", "", generated=replace(once, greatest=0)),
    ]
    with pytest.raises(UnlikeError, match="does not fit into its type"):
        lake.evolve(COPY, tiny, rows.seq + 4, {})
    assert lake.applied(COPY) == rows.seq + 3


BOUNDED: list[tuple[list[int], bool]] = [
    ([], True),
    ([-(2**31)], True),
    ([-(2**31), 0], True),
    ([-(2**31), 1], False),
    ([1], False),
]


@pytest.mark.parametrize(("ids", "fits"), BOUNDED)
def test_bound_of_generated_values(ids: list[int], fits: bool) -> None:
    """Rows are refused if a computed value is above the bound, and only then."""
    schema = lake_schema(TABLE)
    bounded = Generated(DOUBLED, greatest=0)
    reshape = Reshape(schema, [AddColumn("g", "bigint", "", generated=bounded)])
    table = pa.Table.from_pylist([{"id": each} for each in ids], schema=schema)
    if fits:
        assert reshape.rows(table)["g"].to_pylist() == [2 * each for each in ids]
        return
    with pytest.raises(UnlikeError, match="does not fit into its type"):
        reshape.rows(table)


def test_no_rows(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A table without rows gets columns with a default and generated ones, too."""
    rows = LakeRows(kept(TABLE, form), rng)
    lake = published(tmp_path, rows)
    bounded = Generated(DOUBLED, is_nullable=False, greatest=0)
    steps: list[Step] = [
        AddColumn("x", "int", "", "7"),
        AddColumn("g", "bigint", "", generated=bounded),
        WidenColumn("n", "bigint", ""),
    ]
    lake.evolve(COPY, steps, rows.seq + 2, {})
    assert lake_rows(lake) == []
    schema = lake.arrow_schema()
    assert schema is not None
    assert [schema.field(name).type for name in ("x", "g", "n")] == [
        pa.int32(),
        pa.int64(),
        pa.int64(),
    ]
    assert lake.applied(COPY) == rows.seq + 2


def test_steps_again(tmp_path: Path, rng: random.Random, form: str) -> None:
    """Steps that were done are not done again."""
    rows = filled(kept(TABLE, form), rng)
    lake = published(tmp_path, rows)
    for _ in range(2):
        lake.evolve(COPY, [AddColumn("x", "int", "", "7")], rows.seq + 2, {})
        assert [row["x"] for row in lake_rows(lake)] == [7] * len(rows.rows)


def test_same_type(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A type that is wider only in MySQL changes nothing but the position."""
    rows = filled(kept(TABLE, form), rng)
    lake = published(tmp_path, rows)
    steps = [WidenColumn("s", "varchar(200)", "utf8mb4")]
    lake.evolve(COPY, steps, rows.seq + 2, {})
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
    assert lake.applied(COPY) == rows.seq + 2


def test_values_that_do_not_fit(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A type that cannot hold all values is an error, and the table is unchanged."""
    rows = filled(kept(TABLE, form), rng)
    lake = published(tmp_path, rows)
    changes = [rows.change("insert", {"id": 5, "n": 70_000, "d": None, "s": "x"})]
    lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    before = in_order(lake_rows(lake))
    with pytest.raises(LakeError, match="column n has values that are not of type"):
        lake.evolve(COPY, [WidenColumn("n", "smallint", "")], rows.seq + 2, {})
    assert in_order(lake_rows(lake)) == before
    assert lake.applied(COPY) == rows.seq + 1


def test_an_error_of_no_kind(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invalid values are reported, whatever error the lake's library raises."""
    rows = filled(TABLE, rng)
    lake = published(tmp_path, rows)
    changes = [rows.change("insert", {"id": 5, "n": 70_000, "d": None, "s": "x"})]
    lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})

    def write(_: object, data: pa.RecordBatchReader, **__: object) -> None:
        try:
            data.read_all()
        except Exception as error:
            raise Exception("C Data interface error") from error  # noqa: TRY002

    monkeypatch.setattr(delta_rows, "write_deltalake", write)
    with pytest.raises(LakeError, match="column n has values that are not of type"):
        lake.evolve(COPY, [WidenColumn("n", "smallint", "")], rows.seq + 2, {})
