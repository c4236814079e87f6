"""Runs of rows of many tables: what is in them, where they end, and what stops one."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from arrow_entries import (
    FILE,
    begin,
    columns,
    delete,
    end,
    insert,
    statement,
    update,
)
from arrow_truth import body_of

from canal_server.client.range_client import RangeColumn, RangeTable
from canal_server.model.entry import EventType
from canal_server.model.versions import version
from canal_server.spark.options.source_options import TableName

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("pyspark", reason="pyspark is not installed")

from canal_server.spark.packed.packed_rows import Packed, unpack  # noqa: E402
from canal_server.spark.packed.packing import ColumnsAt, Limits, PackedBatches  # noqa: E402

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from canal_server.protocol.entry_messages import Entry

TEXT = "varchar(20)"


def columns_of(text: str, key: str = "id") -> RangeTable:
    """Return a table with the columns named in a text, all of one type."""
    found = tuple(
        RangeColumn(name, TEXT, name == key, charset="utf8mb4") for name in text.split()
    )
    return RangeTable(found=True, columns=found, zone="UTC")


class Tables:
    """The tables at each position, and the requests."""

    def __init__(self, **tables: RangeTable) -> None:
        self.tables: dict[tuple[str, int], RangeTable] = {
            (name, 0): table for name, table in tables.items()
        }
        self.asked: list[tuple[str, ColumnsAt | None]] = []

    def change(self, name: str, offset: int, table: RangeTable | None) -> None:
        """Set a table from an offset on; None: it does not exist."""
        self.tables[name, offset] = table or RangeTable()

    def __call__(self, name: TableName, position: ColumnsAt | None) -> RangeTable:
        """Return the columns at a position."""
        self.asked.append((name.table, position))
        offset = position.position if position else 0
        positions = [at for table, at in self.tables if table == name.table]
        last = max((at for at in positions if at <= offset), default=-1)
        return self.tables.get((name.table, last), RangeTable())


def packed(
    tables: Tables,
    *entries: Entry,
    limits: Limits | None = None,
    selects: Callable[[str], bool] = lambda _: True,
    rng: random.Random | None = None,
) -> list[Packed]:
    """Return what entries become, in their order; given in pieces at random."""
    batches = PackedBatches("example", tables, epoch=3, selects=selects, limits=limits)
    pieces = [entries]
    if rng is not None:
        cuts = sorted(rng.sample(range(len(entries) + 1), min(5, len(entries))))
        pieces = [
            entries[first:stop]
            for first, stop in itertools.pairwise([0, *cuts, len(entries)])
        ]
    found = [batch for piece in pieces for batch in batches.feed(body_of(piece))]
    rest = batches.rest()
    found += [] if rest is None else [rest]
    for batch in found:
        batch.validate(full=True)
    return unpack(pa.Table.from_batches(found)) if found else []


def ids(each: Packed) -> list[tuple[Any, ...]]:
    """Return kind and id of each row of a run."""
    assert each.data is not None
    each.data.validate(full=True)
    assert each.data.num_rows == each.count
    rows = each.data.to_pylist()
    return [(row["_change_type"], row["id"]) for row in rows]


def row(number: int, *, key: str = "id", **more: str | None) -> Any:
    """Return the columns of a row."""
    return columns({"id": str(number), "name": "n"} | more, key=key)


def of(table: str, **more: Any) -> Mapping[str, Any]:
    """Return the fields of an entry about a table."""
    return {"table_name": table} | more


def test_a_run_for_each_table() -> None:
    """Rows of several tables, in one transaction or several, are one run of each."""
    tables = Tables(a=columns_of("id name"), b=columns_of("id name", key=""))
    found = packed(
        tables,
        begin(1),
        insert(100, row(1), **of("a")),
        insert(200, row(1, key=""), row(2, key=""), **of("b")),
        end(300),
        begin(400),
        delete(500, row(1), **of("a")),
        update(600, (row(2, key=""), row(3, key="")), **of("b")),
        end(700, execute_time=1_700_000_001_000),
    )
    assert [(str(each.table), each.kind, each.count) for each in found] == [
        ("d.a", "rows", 2), ("d.b", "rows", 4)
    ]  # fmt: skip
    a, b = found
    assert ids(a) == [("insert", "1"), ("delete", "1")]
    assert ids(b) == [
        ("insert", "1"), ("insert", "2"),
        ("update_preimage", "2"), ("update_postimage", "3"),
    ]  # fmt: skip
    assert (a.journal, a.position, a.row) == (FILE, 100, 0)
    assert (a.seq, b.seq) == (version(3, FILE, 100), version(3, FILE, 200))
    assert a.version == b.version == version(3, FILE, 800)
    assert a.committed is not None
    assert a.committed.timestamp() == 1_700_000_001
    assert tables.asked == [("a", None), ("b", None)]


def test_the_stream_shows_what_the_table_is() -> None:
    """Types, character sets and keys are in the schema, and next to it."""
    tables = Tables(t=columns_of("id name"), u=columns_of("id name", key=""))
    for name, updates in (("t", b"postimage"), ("u", b"both")):
        (found,) = packed(tables, begin(1), insert(9, row(1), **of(name)), end(20))
        assert found.data is not None
        schema = found.data.schema
        assert schema.metadata == {
            b"schema": b"d", b"table": name.encode(), b"updates": updates
        }  # fmt: skip
        key = b"1" if name == "t" else b"0"
        assert schema.field("id").metadata == {
            b"mysql_type": TEXT.encode(), b"charset": b"utf8mb4", b"key": key
        }  # fmt: skip
        assert [each.name for each in found.columns] == ["id", "name"]
        assert found.columns[0].is_key == (name == "t")


def test_an_update_of_the_key_is_a_delete_and_an_insert() -> None:
    """Where there is a key, it is split; both count as rows of their own."""
    moved = columns({"id": "2", "name": "n"}, updated=["id"])
    (found,) = packed(
        Tables(t=columns_of("id name")), begin(1), update(9, (row(1), moved)), end(20)
    )
    assert ids(found) == [("delete", "1"), ("insert", "2")]


def test_statements_end_the_runs_that_they_concern() -> None:
    """Rows after a statement on a table are another run, with other columns."""
    tables = Tables(a=columns_of("id name"), b=columns_of("id name"))
    tables.change("a", 400, columns_of("id name more"))
    found = packed(
        tables,
        begin(1), insert(100, row(1), **of("a")), end(120),
        begin(130), insert(140, row(1), **of("b")), end(160),
        statement(300, EventType.ALTER, "ALTER TABLE A ADD more INT", **of("a")),
        begin(500), insert(600, row(2, more="x"), **of("a")), end(620),
        begin(700), insert(800, row(2), **of("b")), end(820),
    )  # fmt: skip
    assert [(each.table.table, each.kind, each.count) for each in found] == [
        ("a", "rows", 1), ("b", "rows", 2), ("a", "statement", 0), ("a", "rows", 1)
    ]  # fmt: skip
    alter = found[2]
    assert (alter.event_type, alter.is_ddl) == ("ALTER", True)
    assert alter.sql == "ALTER TABLE A ADD more INT"
    assert [each.name for each in alter.columns] == ["id", "name", "more"]
    assert alter.version == version(3, FILE, 400)
    assert found[3].data is not None
    assert found[3].data["more"].to_pylist() == ["x"]
    assert tables.asked == [
        ("a", None), ("b", None), *[("a", ColumnsAt(FILE, 400))] * 2
    ]  # fmt: skip


def test_a_dropped_schema_ends_the_runs_of_its_tables() -> None:
    """Its tables are not named, and do not exist after it."""
    tables = Tables(t=columns_of("id name"))
    found = packed(
        tables,
        begin(1), insert(100, row(1)), end(120),
        statement(300, EventType.QUERY, "/* x */ drop schema `d`",
                  schema_name="`d`", table_name=""),
        statement(400, EventType.CREATE, "create table t (id int)"),
        begin(500), insert(600, row(2)), end(620),
    )  # fmt: skip
    assert [each.kind for each in found] == ["rows", "statement", "statement", "rows"]
    assert found[1].table == TableName("d", "")
    assert found[1].columns == ()

    assert found[1].event_type == "ERASE"
    assert found[1].concerns(TableName("d", "t"))
    assert not found[1].concerns(TableName("e", "t"))


@pytest.mark.parametrize(
    ("sql", "kind", "first", "expected"),
    [
        ("RENAME TABLE a TO e.b, c TO a", EventType.RENAME, ("e", "b"),
         ["e.b", "d.a", "d.c"]),
        ("RENAME TABLE x.a TO x.b", EventType.RENAME, ("x", "b"), []),
        ('DROP TABLE IF EXISTS "a", `e`.`b` /* generated by server */',
         EventType.ERASE, ("d", "a"), ["d.a", "e.b"]),
        ("ALTER TABLE a ADD x INT, RENAME TO b", EventType.ALTER, ("d", "a"),
         ["d.a", "d.b"]),
        ("CREATE TABLE b LIKE a", EventType.CREATE, ("d", "b"), ["d.b"]),
        ("ALTER TABLE a EXCHANGE PARTITION p WITH TABLE e.b", EventType.ALTER,
         ("d", "a"), ["d.a", "e.b"]),
        ("ALTER TABLE x.a CONVERT PARTITION p TO TABLE b", EventType.ALTER,
         ("x", "a"), ["d.b"]),
        ("CREATE INDEX i ON a (x)", EventType.CINDEX, ("d", "a"), ["d.a"]),
        ("ALTER TABLE a ADD x INT AS (`!", EventType.ALTER, ("d", "a"), ["d.a"]),
    ],
)  # fmt: skip
def test_a_statement_comes_for_each_table_it_names(
    sql: str, kind: EventType, first: tuple[str, str], expected: list[str]
) -> None:
    """Old and new names, each with its columns; unselected tables do not appear."""
    tables = Tables(a=columns_of("id"))
    tables.change("b", 100, columns_of("id name"))
    entry = statement(50, kind, sql, schema_name=first[0], table_name=first[1])
    found = packed(tables, entry, selects=lambda name: not name.startswith("x."))
    names = [str(each.table) for each in found]
    assert sorted(names) == sorted(expected or ["x.b"])
    assert {each.sql for each in found} == {sql}
    assert len({(each.seq, each.version, each.event_type) for each in found}) == 1
    for each in found:
        requested = {"a": ["id"], "b": ["id", "name"], "c": []}[each.table.table]
        assert [column.name for column in each.columns] == requested


def test_what_statements_without_a_table_concern() -> None:
    """Those that their text names."""
    sql = "UPDATE t, e.u SET t.a = u.a"
    (found,) = packed(
        Tables(),
        begin(1),
        statement(50, EventType.UPDATE, sql, is_ddl=False, table_name=""),
        end(200),
    )
    assert [found.concerns(TableName("d", name)) for name in "tux"] == [
        True, True, False
    ]  # fmt: skip


def test_a_statement_among_the_rows_has_their_commit() -> None:
    """A change that was logged as a statement belongs to its transaction."""
    found = packed(
        Tables(t=columns_of("id name")),
        begin(1),
        insert(100, row(1)),
        statement(200, EventType.UPDATE, "update t set name = 1", is_ddl=False),
        insert(300, row(2)),
        end(400),
    )
    assert [each.kind for each in found] == ["rows", "statement"]
    assert {each.version for each in found} == {version(3, FILE, 500)}
    assert found[1].sql == "update t set name = 1"
    assert not found[1].is_ddl


def test_columns_that_changed_unseen() -> None:
    """A statement that was not sent is noticed by the rows after it."""
    tables = Tables(t=columns_of("id name"))
    tables.change("t", 300, columns_of("id other"))
    found = packed(
        tables,
        begin(1), insert(100, row(1)), end(120),
        begin(200), insert(300, columns({"id": "2", "other": "o"})), end(320),
    )  # fmt: skip
    assert [[c.name for c in each.columns] for each in found] == [
        ["id", "name"], ["id", "other"]
    ]  # fmt: skip
    assert tables.asked == [("t", None), ("t", ColumnsAt(FILE, 300))]


def test_columns_that_change_inside_of_a_transaction() -> None:
    """Both runs have its commit; row numbers continue."""
    tables = Tables(t=columns_of("id name"))
    tables.change("t", 100, columns_of("id other"))
    tables.tables["t", 0] = columns_of("id name")
    found = packed(
        tables,
        begin(1),
        insert(50, row(1)),
        insert(100, columns({"id": "2", "other": "o"})),
        end(120),
    )
    assert [each.count for each in found] == [1, 1]
    assert {each.version for each in found} == {version(3, FILE, 220)}


def test_a_table_that_cannot_be_read_does_not_stop_others() -> None:
    """A problem is a row; the table's changes end there, others continue."""
    tables = Tables(
        bad=columns_of("id name more"), good=columns_of("id name"),
        late=columns_of("id name"),
    )  # fmt: skip
    tables.tables["late", 0] = RangeTable(
        found=True, columns=(RangeColumn("id", "int", key=True),
                             RangeColumn("name", "no_such_type"))
    )  # fmt: skip
    found = packed(
        tables,
        begin(1),
        insert(100, row(1), **of("good")),
        insert(200, row(1), **of("bad")),
        insert(300, row(1), **of("late")),
        insert(400, row(1), **of("gone")),
        insert(500, row(2), **of("good")),
        insert(600, row(2), **of("bad")),
        end(700),
    )
    assert [(each.table.table, each.kind, each.position) for each in found] == [
        ("good", "rows", 100), ("bad", "problem", 200), ("late", "problem", 300),
        ("gone", "problem", 400),
    ]  # fmt: skip
    assert found[0].count == 2
    assert "column more of d.bad is not in the row image" in found[1].sql
    assert f"{FILE}:200" in found[1].sql
    assert "no_such_type" in found[2].sql
    assert "table d.gone" in found[3].sql


def test_a_problem_is_where_the_first_lost_row_is() -> None:
    """Earlier rows of the same run are lost too, and the row says so."""
    tables = Tables(t=columns_of("id name"))
    wrong = columns({"id": "2"})
    found = packed(
        tables, begin(1), insert(100, row(1)), insert(200, row(2), wrong), end(300)
    )
    assert [(each.kind, each.seq, each.position) for each in found] == [
        ("problem", version(3, FILE, 100), 200)
    ]


def test_names_of_added_columns() -> None:
    """A table with such a column is reported and omitted."""
    (found,) = packed(
        Tables(t=columns_of("id _seq")),
        begin(1), insert(100, columns({"id": "1", "_seq": "2"})), end(120),
    )  # fmt: skip
    assert (found.kind, found.count) == ("problem", 0)
    assert "table d.t has a column _seq, a name that the source adds" in found.sql


def test_names_differ_by_their_case() -> None:
    """`T` and `t` are two tables, with columns of their own."""
    tables = Tables(t=columns_of("id name"), T=columns_of("id other"))
    found = packed(
        tables,
        begin(1),
        insert(100, row(1)),
        insert(200, columns({"id": "2", "other": "o"}), **of("T")),
        end(300),
    )
    assert [(each.table.table, each.count) for each in found] == [("t", 1), ("T", 1)]


def transactions(rng: random.Random, tables: int, count: int) -> list[Entry]:
    """Return transactions of random rows of random tables."""
    entries: list[Entry] = []
    at = 0
    for number in range(count):
        at += 1000
        entries.append(begin(at))
        for i in range(rng.randint(1, 4)):
            rows = [row(number * 100 + i * 10 + n) for n in range(rng.randint(1, 3))]
            name = f"t{rng.randrange(tables)}"
            entries.append(insert(at + 100 * (i + 1), *rows, **of(name)))
        entries.append(end(at + 900))
    return entries


@pytest.mark.parametrize(
    "limits",
    [
        Limits(),
        Limits(rows=7),
        Limits(run_bytes=600),
        Limits(all_bytes=2000),
        Limits(tables=5),
    ],
    ids=["none", "rows", "bytes", "all", "tables"],
)
def test_limits(limits: Limits, rng: random.Random) -> None:
    """However small runs are, each table's rows are there once and in their order."""
    names = [f"t{n}" for n in range(12)]
    tables = Tables(**{name: columns_of("id name") for name in names})
    entries = transactions(rng, len(names), 200)
    found = packed(tables, *entries, limits=limits, rng=rng)
    expected: dict[str, list[str]] = {name: [] for name in names}
    for entry in entries:
        if entry.header.table_name:
            for each in entry.row_change().row_datas:
                expected[entry.header.table_name].append(each.after_columns[0].value)
    got: dict[str, list[str]] = {name: [] for name in names}
    for run in found:
        assert run.data is not None
        assert run.count <= limits.rows
        got[run.table.table] += run.data["id"].to_pylist()
    assert got == expected


def test_a_long_transaction_is_several_runs() -> None:
    """Its rows are held until its end, and come in runs of the size of others."""
    tables = Tables(t=columns_of("id name"))
    entries = [insert(100 + n, *(row(n) for _ in range(10))) for n in range(20)]
    found = packed(tables, begin(1), *entries, end(900), limits=Limits(rows=30))
    assert sum(each.count for each in found) == 200
    assert all(each.count <= 30 for each in found)


def test_parts_of_a_transaction() -> None:
    """A commit that is set before, or at the end, applies to all tables."""
    tables = Tables(a=columns_of("id name"), b=columns_of("id name"))
    entries = [insert(100, row(1), **of("a")), insert(200, row(1), **of("b"))]
    for when in ("before", "after"):
        batches = PackedBatches("example", tables, epoch=3)
        if when == "before":
            batches.expect(77, 1000)
        assert list(batches.feed(body_of(entries))) == []
        if when == "after":
            with pytest.raises(ValueError, match="wait for their commit"):
                batches.rest()
            batches.finish(77, 1000)
        rest = batches.rest()
        assert rest is not None
        found = unpack(pa.Table.from_batches([rest]))
        assert [(each.table.table, each.version) for each in found] == [
            ("a", 77), ("b", 77)
        ]  # fmt: skip


def test_rows_of_spark_unpack_alike() -> None:
    """What `collect` gives is read as what `toArrow` gives."""

    class SparkRow(dict[str, Any]):
        def asDict(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
            return dict(self)

    tables = Tables(t=columns_of("id name"))
    batches = PackedBatches("example", tables, epoch=3)
    entry = statement(300, EventType.TRUNCATE, "truncate t")
    list(batches.feed(body_of([begin(1), insert(100, row(1)), end(120), entry])))
    rest = batches.rest()
    assert rest is not None
    of_arrow = unpack(pa.Table.from_batches([rest]))
    of_rows = unpack([SparkRow(each) for each in rest.to_pylist()])
    assert of_arrow == of_rows
    assert of_rows[0].data == of_arrow[0].data
    assert json.loads(rest["columns"][0].as_py())[0]["name"] == "id"
